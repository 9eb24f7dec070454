#include "base/log.h"

#include <poll.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    READER_MS = 1000,
    MESSAGE_SIZE = 960,
    LINE_SIZE = 8192, /* a message twice, each byte as two */
    FIELDS_MAX = 32,
};

static _Atomic enum log_level threshold = LOG_INFO;
static atomic_bool as_json;
static atomic_ulong left_out; /* lines since the reader stopped */

static const char *const level_names[] = {
    [LOG_DEBUG] = "debug", [LOG_INFO] = "info", [LOG_WARN] = "warn", [LOG_ERROR] = "error"};

void log_set_level(enum log_level level)
{
    threshold = level;
}

void log_set_level_named(const char *name)
{
    log_set_level(strcmp(name, "debug") == 0   ? LOG_DEBUG
                  : strcmp(name, "warn") == 0  ? LOG_WARN
                  : strcmp(name, "error") == 0 ? LOG_ERROR
                                               : LOG_INFO);
}

void log_set_json(bool on)
{
    atomic_store(&as_json, on);
}

/* Control characters in a message come from outside; they must not forge lines. */
static void defuse(char *line, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)line[i] < 0x20 || line[i] == 0x7f)
            line[i] = '?';
}

/* A pipe that nobody empties, or a terminal held by Ctrl-S, must not hold the server. What is
 * writable takes a whole line at once. */
static bool reader_is_there(void)
{
    struct pollfd to = {.fd = STDERR_FILENO, .events = POLLOUT};
    unsigned long missing;

    if (poll(&to, 1, atomic_load(&left_out) ? 0 : READER_MS) == 0) {
        atomic_fetch_add(&left_out, 1);
        return false;
    }
    missing = atomic_exchange(&left_out, 0);
    if (missing)
        log_warn("log", "%lu lines are missing here: nobody read them", missing);
    return true;
}

/* ---- JSON ---- */

struct text {
    char *p;
    size_t len, size;
};

static void add(struct text *out, const char *p, size_t len)
{
    if (out->size - out->len < len)
        return;
    memcpy(out->p + out->len, p, len);
    out->len += len;
}

/* Bytes that are no ASCII become '?', so that a line is JSON whatever a client sent. */
static void add_quoted(struct text *out, const char *p, size_t len)
{
    add(out, "\"", 1);
    for (size_t i = 0; i < len; i++) {
        char c = p[i];

        if (c == '"' || c == '\\')
            add(out, "\\", 1);
        if ((unsigned char)c < 0x20 || (unsigned char)c > 0x7e)
            c = '?';
        add(out, &c, 1);
    }
    add(out, "\"", 1);
}

static size_t name_length(const char *word, size_t len)
{
    size_t n = 0;

    while (n < len && ((word[n] >= 'a' && word[n] <= 'z') || word[n] == '_'))
        n++;
    return n > 0 && n + 1 < len && word[n] == '=' ? n : 0;
}

/* Words "name=value" of the message. A name that comes twice counts once; it cannot be one of ours. */
static void add_fields(struct text *out, const char *message, size_t len)
{
    add(out, ",\"fields\":{", 11);
    for (size_t at = 0, count = 0; at < len;) {
        const char *word = message + at, *blank = memchr(word, ' ', len - at);
        size_t size = blank ? (size_t)(blank - word) : len - at;
        size_t name = name_length(word, size);
        const char *before = name ? memmem(message, at, word, name + 1) : NULL;

        if (name && !before && count < FIELDS_MAX) {
            if (count++)
                add(out, ",", 1);
            add_quoted(out, word, name);
            add(out, ":", 1);
            add_quoted(out, word + name + 1, size - name - 1);
        }
        at += size + 1;
    }
    add(out, "}", 1);
}

static size_t make_json(const char *time, enum log_level level, const char *module,
                        const char *message, size_t len, char *line, size_t size)
{
    struct text out = {.p = line, .size = size};

    add(&out, "{\"time\":", 8);
    add_quoted(&out, time, strlen(time));
    add(&out, ",\"level\":", 9);
    add_quoted(&out, level_names[level], strlen(level_names[level]));
    add(&out, ",\"module\":", 10);
    add_quoted(&out, module, strlen(module));
    add(&out, ",\"message\":", 11);
    add_quoted(&out, message, len);
    add_fields(&out, message, len);
    add(&out, "}\n", 2);
    return out.len;
}

static size_t make_line(const char *time, enum log_level level, const char *module,
                        const char *message, size_t len, char *line, size_t size)
{
    int all = snprintf(line, size - 1, "%s %s %s: %.*s", time, level_names[level], module, (int)len,
                       message);
    size_t end = all < 0 ? 0 : (size_t)all;

    if (end > size - 2)
        end = size - 2;
    defuse(line, end);
    line[end] = '\n';
    return end + 1;
}

void log_write(enum log_level level, const char *module, const char *fmt, ...)
{
    struct timespec now;
    struct tm tm;
    char time[64], message[MESSAGE_SIZE], line[LINE_SIZE];
    va_list args;
    int len;

    if (level < atomic_load(&threshold) || !reader_is_there())
        return;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    (void)gmtime_r(&now.tv_sec, &tm);
    (void)snprintf(time, sizeof(time), "%04d-%02d-%02dT%02d:%02d:%02d.%03ldZ", tm.tm_year + 1900,
                   tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec,
                   now.tv_nsec / 1000000);
    va_start(args, fmt);
    len = vsnprintf(message, sizeof(message), fmt, args);
    va_end(args);
    if (len < 0)
        return;
    if ((size_t)len > sizeof(message) - 1)
        len = sizeof(message) - 1;
    len = (int)(atomic_load(&as_json)
                    ? make_json(time, level, module, message, (size_t)len, line, sizeof(line))
                    : make_line(time, level, module, message, (size_t)len, line, sizeof(line)));
    /* One write per line keeps lines of several threads and processes whole. */
    if (write(STDERR_FILENO, line, (size_t)len) < 0)
        return;
}
