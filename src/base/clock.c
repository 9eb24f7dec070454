#include "base/clock.h"

#include <stdio.h>
#include <time.h>

static int64_t read_us(clockid_t id)
{
    struct timespec ts;

    (void)clock_gettime(id, &ts);
    return (int64_t)ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

/* test_pass_us is in .data, so that the test harness can make a copy of the program that starts with another value
 * (tests/harness/clock.mjs). Nothing the program reads at run time changes it. */
static _Atomic int64_t test_step_us;
static _Atomic int64_t test_pass_us __attribute__((section(".data"), used));

void clock_test_step(int64_t us)
{
    test_step_us += us;
}

void clock_test_pass(int64_t us)
{
    test_pass_us += us;
}

int64_t clock_wall_us(void)
{
    return read_us(CLOCK_REALTIME) + test_pass_us + test_step_us;
}

int64_t clock_boot_us(void)
{
    return read_us(CLOCK_BOOTTIME) + test_pass_us;
}

int64_t clock_mono_us(void)
{
    return read_us(CLOCK_MONOTONIC) + test_pass_us;
}

int64_t clock_deadline(int64_t seconds, int64_t outer_us)
{
    int64_t end_us = clock_mono_us() + seconds * 1000000;

    return outer_us && outer_us < end_us ? outer_us : end_us;
}

int64_t clock_left_ms(int64_t deadline_us, int64_t most_ms)
{
    int64_t left_ms = (deadline_us - clock_mono_us()) / 1000;

    if (!deadline_us || left_ms > most_ms)
        return most_ms;
    return left_ms > 0 ? left_ms : 0;
}

struct timespec clock_mono_at(int64_t mono_us)
{
    int64_t us = mono_us - test_pass_us;

    return (struct timespec){.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000};
}

void clock_format(int64_t wall_us, char out[CLOCK_TEXT_SIZE])
{
    int64_t us = (wall_us % 1000000 + 1000000) % 1000000; /* also before 1970 */
    time_t seconds = (time_t)((wall_us - us) / 1000000);
    struct tm tm;

    (void)gmtime_r(&seconds, &tm);
    (void)snprintf(out, CLOCK_TEXT_SIZE, "%04d-%02d-%02dT%02d:%02d:%02d.%06dZ",
                   (tm.tm_year + 1900) % 10000, tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min,
                   tm.tm_sec, (int)us);
}

/* Reads exactly n digits from *s. */
static bool digits(struct str *s, size_t n, int *out)
{
    uint64_t value;

    if (s->len < n || !str_to_u64(str_n(s->p, n), &value))
        return false;
    *s = str_skip(*s, n);
    *out = (int)value;
    return true;
}

static bool literal(struct str *s, const char *any_of)
{
    if (s->len == 0 || !strchr(any_of, s->p[0]) || s->p[0] == '\0')
        return false;
    *s = str_skip(*s, 1);
    return true;
}

static bool fraction(struct str *s, int *out_us)
{
    int scale = 100000;

    *out_us = 0;
    if (s->len == 0 || s->p[0] != '.')
        return true;
    *s = str_skip(*s, 1);
    if (s->len == 0 || s->p[0] < '0' || s->p[0] > '9')
        return false;
    while (s->len && s->p[0] >= '0' && s->p[0] <= '9') {
        *out_us += (s->p[0] - '0') * scale;
        scale /= 10;
        *s = str_skip(*s, 1);
    }
    return true;
}

static bool offset(struct str *s, int *out_seconds)
{
    int hours, minutes, sign;

    *out_seconds = 0;
    if (s->len && (s->p[0] == 'Z' || s->p[0] == 'z')) {
        *s = str_skip(*s, 1);
        return true;
    }
    if (s->len == 0 || (s->p[0] != '+' && s->p[0] != '-'))
        return false;
    sign = s->p[0] == '-' ? -1 : 1;
    *s = str_skip(*s, 1);
    if (!digits(s, 2, &hours) || !literal(s, ":") || !digits(s, 2, &minutes))
        return false;
    *out_seconds = sign * (hours * 3600 + minutes * 60);
    return true;
}

bool clock_parse(struct str text, int64_t *out_wall_us)
{
    struct tm tm = {0};
    int us, off;

    if (!digits(&text, 4, &tm.tm_year) || !literal(&text, "-") || !digits(&text, 2, &tm.tm_mon) ||
        !literal(&text, "-") || !digits(&text, 2, &tm.tm_mday) || !literal(&text, "Tt ") ||
        !digits(&text, 2, &tm.tm_hour) || !literal(&text, ":") || !digits(&text, 2, &tm.tm_min) ||
        !literal(&text, ":") || !digits(&text, 2, &tm.tm_sec) || !fraction(&text, &us) ||
        !offset(&text, &off) || text.len)
        return false;
    if (tm.tm_mon < 1 || tm.tm_mon > 12 || tm.tm_mday < 1 || tm.tm_mday > 31 || tm.tm_hour > 23 ||
        tm.tm_min > 59 || tm.tm_sec > 60)
        return false;
    tm.tm_year -= 1900;
    tm.tm_mon -= 1;
    *out_wall_us = ((int64_t)timegm(&tm) - off) * 1000000 + us;
    return true;
}
