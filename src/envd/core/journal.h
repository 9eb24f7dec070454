/* What envd did, for the logs of the sandbox: a bounded number of lines in memory, of which the
 * oldest go first. The engine fetches them; nothing is sent by itself. */
#pragma once

#include <stdbool.h>

#include <sys/types.h>

#include "envd/core/envd.h"

enum journal_level { JOURNAL_DEBUG, JOURNAL_INFO, JOURNAL_WARN, JOURNAL_ERROR };

/* About envd itself. */
void journal_envd(enum journal_level level, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* About programs. Environments are never told, and of a command line the values of assignments,
 * of options that sound like secrets, and of credentials in URLs are left out. */
void journal_started(const json_t *config, const char *user, pid_t pid);
void journal_not_started(const json_t *config, const struct error *why);
void journal_ended(const json_t *config, pid_t pid, int status, bool out_of_memory);
/* GET /journal: a JSON array, oldest first. */
void journal_handle(struct envd *envd, struct http_exchange *ex);

/* For tests: the text of a command as it is told. */
void journal_command(const json_t *config, struct buf *out);
