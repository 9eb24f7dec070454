/* One line per event on stderr: time, level, module, message. Fields are written as key=value in
 * the message. Never log tokens, environment values or file contents. A reader that has stopped
 * reading is waited for once, shortly; from then on lines are left out and counted until he reads. */
#pragma once

#include <stdbool.h>

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR };

/* Any time. */
void log_set_level(enum log_level level);
/* "debug", "warn", "error"; anything else is info. */
void log_set_level_named(const char *name);
/* Each line is a JSON object: time, level, module, message, and the fields of the message as strings. */
void log_set_json(bool on);
void log_write(enum log_level level, const char *module, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

#define log_debug(module, ...) log_write(LOG_DEBUG, module, __VA_ARGS__)
#define log_info(module, ...)  log_write(LOG_INFO, module, __VA_ARGS__)
#define log_warn(module, ...)  log_write(LOG_WARN, module, __VA_ARGS__)
#define log_error(module, ...) log_write(LOG_ERROR, module, __VA_ARGS__)
