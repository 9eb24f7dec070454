/* What a build says, on its way to the store: in batches, so that a program that writes much does not make a
 * transaction of each line. Lines and their number are bounded; what people need to know (levels above info) is always
 * kept. */
#include <stdarg.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "domain/build/build_internal.h"
#include "store/platform/store_event.h"

enum { FLUSH_US = 150 * 1000 };

void log_open(struct build_log *log, struct store *store, struct str build_id)
{
    *log = (struct build_log){.store = store, .build_id = build_id};
    (void)pthread_mutex_init(&log->lock, NULL);
}

static void free_lines(struct store_build_log *lines, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        free((void *)(uintptr_t)lines[i].step.p);
        free((void *)(uintptr_t)lines[i].message.p);
    }
}

/* Takes what waits; the store is asked without the lock. */
void log_flush(struct build_log *log)
{
    struct store_build_log lines[LOG_BATCH];
    struct error err = {0};
    size_t count;

    (void)pthread_mutex_lock(&log->lock);
    count = log->count;
    memcpy(lines, log->lines, count * sizeof(lines[0]));
    log->count = 0;
    log->flushed_us = clock_mono_us();
    (void)pthread_mutex_unlock(&log->lock);
    if (count && store_build_log_add(log->store, log->build_id, lines, count, &err) < 0)
        log_warn("build", "build=%.*s: its log: %s", STR_ARG(log->build_id), err.message);
    free_lines(lines, count);
}

void log_tick(struct build_log *log)
{
    bool due;

    (void)pthread_mutex_lock(&log->lock);
    due = log->count && clock_mono_us() - log->flushed_us > FLUSH_US;
    (void)pthread_mutex_unlock(&log->lock);
    if (due)
        log_flush(log);
}

void log_close(struct build_log *log)
{
    log_flush(log);
    (void)pthread_mutex_destroy(&log->lock);
}

/* What is no text is shown as such: the store and JSON take only text. */
static char *clean(struct str text)
{
    char *copy = str_dup(str_n(text.p, text.len < LOG_LINE_MAX ? text.len : LOG_LINE_MAX));

    for (char *p = copy; *p; p++)
        if ((unsigned char)*p < 0x20 && *p != '\t' && *p != 0x1b && *p != '\n')
            *p = ' ';
    return copy;
}

static void add(struct build_log *log, int64_t level, struct str step, struct str text)
{
    bool full = false;

    (void)pthread_mutex_lock(&log->lock);
    while (log->count == LOG_BATCH) {
        (void)pthread_mutex_unlock(&log->lock);
        log_flush(log);
        (void)pthread_mutex_lock(&log->lock);
    }
    if (log->total < LOG_LINES_MAX || level > STORE_LEVEL_INFO) {
        if (++log->total == LOG_LINES_MAX)
            text = STR("the log is too long; what follows is left out");
        log->lines[log->count++] = (struct store_build_log){.at_us = clock_wall_us(),
                                                            .level = level,
                                                            .step = str_of(str_dup(step)),
                                                            .message = str_of(clean(text))};
        full = log->count == LOG_BATCH;
    }
    (void)pthread_mutex_unlock(&log->lock);
    if (full)
        log_flush(log);
    else
        log_tick(log);
}

void log_line(struct build_log *log, int64_t level, struct str step, const char *fmt, ...)
{
    auto_buf struct buf text = {0};
    char *to;
    va_list args;
    int len;

    buf_init(&text, LOG_LINE_MAX + 1);
    to = buf_reserve(&text, LOG_LINE_MAX);
    va_start(args, fmt);
    len = vsnprintf(to, LOG_LINE_MAX, fmt, args);
    va_end(args);
    add(log, level, step, str_n(to, len < LOG_LINE_MAX ? (size_t)len : LOG_LINE_MAX - 1));
}

/* ---- output of programs ---- */

void log_stream_open(struct log_stream *stream, struct build_log *log, struct str step,
                     int64_t level, const char *prefix)
{
    *stream = (struct log_stream){.log = log, .step = step, .prefix = prefix, .level = level};
    buf_init(&stream->line, LOG_LINE_MAX);
}

static void end_line(struct log_stream *stream)
{
    struct str line = str_trim(buf_str(&stream->line));

    if (line.len)
        log_line(stream->log, stream->level, stream->step, "%s%.*s", stream->prefix, STR_ARG(line));
    buf_clear(&stream->line);
    stream->line.overflowed = false;
}

/* A carriage return ends a line too: progress bars are shown, each state once. */
void log_stream_add(struct log_stream *stream, struct str data)
{
    for (size_t i = 0; i < data.len; i++) {
        if (data.p[i] == '\n' || data.p[i] == '\r')
            end_line(stream);
        else
            (void)buf_add_char(&stream->line, data.p[i] ? data.p[i] : ' ');
    }
}

void log_stream_close(struct log_stream *stream)
{
    end_line(stream);
    buf_done(&stream->line);
}
