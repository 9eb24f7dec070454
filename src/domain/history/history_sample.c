/* Reading what a sample is made of. */
#include <string.h>

#include "domain/history/history_internal.h"

enum { MINUTE_US = 60000000, MOMENT_US = 5000000 };

/* The line's first number, in kB. */
static int64_t kilobytes(struct str text, const char *name)
{
    while (text.p) {
        struct str line = str_split(&text, '\n');
        uint64_t value = 0;

        if (!str_starts(line, str_of(name)))
            continue;
        line = str_trim(str_skip(line, strlen(name)));
        return str_to_u64(str_split(&line, ' '), &value) && value < INT64_MAX / 1024
                   ? (int64_t)value * 1024
                   : 0;
    }
    return 0;
}

/* "cpu  user nice system idle iowait irq softirq steal …" */
static void read_ticks(struct str stat, struct history_host *out)
{
    struct str line = str_split(&stat, '\n');
    uint64_t value;

    if (!str_starts(line, STR("cpu ")))
        return;
    line = str_trim(str_skip(line, 4));
    for (unsigned i = 0; i < 8 && line.p; i++) {
        if (!str_to_u64(str_split(&line, ' '), &value))
            return;
        out->ticks += value;
        if (i != 3 && i != 4)
            out->busy += value;
    }
}

void history_host_parse(struct str stat, struct str meminfo, struct history_host *out)
{
    *out = (struct history_host){.mem_total = kilobytes(meminfo, "MemTotal:")};
    out->mem_used = out->mem_total - kilobytes(meminfo, "MemAvailable:");
    read_ticks(stat, out);
}

int64_t history_permille(const struct history_host *before, const struct history_host *now)
{
    uint64_t ticks = now->ticks - before->ticks;

    return now->ticks > before->ticks ? (int64_t)((now->busy - before->busy) * 1000 / ticks) : 0;
}

void history_recent_add(struct history_recent *recent, const struct history_tick *tick)
{
    if (recent->count == HISTORY_RECENT) {
        memmove(recent->items, recent->items + 1, (HISTORY_RECENT - 1) * sizeof(recent->items[0]));
        recent->count--;
    }
    recent->items[recent->count++] = *tick;
}

/* The youngest of at least that age, or else the oldest. */
static const struct history_tick *tick_before(const struct history_recent *recent, int64_t now_us,
                                              int64_t age_us)
{
    for (size_t i = recent->count; i-- > 0;)
        if (now_us - recent->items[i].at_us >= age_us)
            return &recent->items[i];
    return &recent->items[0];
}

void history_recent_rates(const struct history_recent *recent, const struct history_tick *now,
                          struct history_now *out)
{
    const struct history_tick *minute, *moment;

    if (!recent->count)
        return;
    minute = tick_before(recent, now->at_us, MINUTE_US);
    moment = tick_before(recent, now->at_us, MOMENT_US);
    /* This process is younger than a minute: all that it has counted. */
    if (recent->count < HISTORY_RECENT && now->at_us - minute->at_us < MINUTE_US) {
        out->creates = (int64_t)now->created;
        out->failures = (int64_t)now->failed;
    } else {
        out->creates = (int64_t)(now->created - minute->created);
        out->failures = (int64_t)(now->failed - minute->failed);
    }
    out->cpu_permille = history_permille(&moment->host, &now->host);
}

int64_t history_percentile(const struct sandboxes_stats *before, const struct sandboxes_stats *now,
                           unsigned percent)
{
    uint64_t total = 0, seen = 0;

    for (size_t i = 0; i <= SANDBOX_BUCKETS; i++)
        total += now->create_us[i] - before->create_us[i];
    for (size_t i = 0; total && i <= SANDBOX_BUCKETS; i++) {
        seen += now->create_us[i] - before->create_us[i];
        if (seen * 100 >= total * percent)
            return sandbox_bucket_us[i < SANDBOX_BUCKETS ? i : SANDBOX_BUCKETS - 1];
    }
    return 0;
}
