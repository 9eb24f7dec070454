#include "base/log.h"

#include <poll.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

enum { READER_MS = 1000 };

static enum log_level threshold = LOG_INFO;
static atomic_ulong left_out; /* lines since the reader stopped */

static const char *const level_names[] = {
    [LOG_DEBUG] = "debug", [LOG_INFO] = "info", [LOG_WARN] = "warn", [LOG_ERROR] = "error"};

void log_set_level(enum log_level level)
{
    threshold = level;
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

void log_write(enum log_level level, const char *module, const char *fmt, ...)
{
    struct timespec now;
    struct tm tm;
    char line[1024];
    va_list args;
    int len, more;

    if (level < threshold || !reader_is_there())
        return;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    (void)gmtime_r(&now.tv_sec, &tm);
    len = snprintf(line, sizeof(line),
                   "%04d-%02d-%02dT%02d:%02d:%02d.%03ldZ %s %s: ", tm.tm_year + 1900, tm.tm_mon + 1,
                   tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec, now.tv_nsec / 1000000,
                   level_names[level], module);
    va_start(args, fmt);
    more = vsnprintf(line + len, sizeof(line) - (size_t)len - 1, fmt, args);
    va_end(args);
    if (more < 0)
        return;
    len += more;
    if ((size_t)len > sizeof(line) - 2)
        len = sizeof(line) - 2;
    defuse(line, (size_t)len);
    line[len++] = '\n';
    /* One write per line keeps lines of several threads and processes whole. */
    if (write(STDERR_FILENO, line, (size_t)len) < 0)
        return;
}
