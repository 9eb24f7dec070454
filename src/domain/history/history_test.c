#include "base/test.h"
#include "domain/history/history_internal.h"

TEST(the_host_is_read)
{
    struct history_host host;

    history_host_parse(STR("cpu  10 1 20 100 5 1 2 3 9 9\ncpu0 1 1 1\n"),
                       STR("MemTotal:       2048 kB\nMemFree: 1 kB\nMemAvailable:    512 kB\n"),
                       &host);
    CHECK_INT(host.ticks, 142);
    CHECK_INT(host.busy, 37);
    CHECK_INT(host.mem_total, 2048 * 1024);
    CHECK_INT(host.mem_used, 1536 * 1024);
    history_host_parse(STR("nonsense"), STR("MemTotal: x\n"), &host);
    CHECK_INT(host.ticks, 0);
    CHECK_INT(host.mem_total, 0);
}

static void tick(struct history_recent *recent, int64_t at_s, uint64_t created)
{
    history_recent_add(recent, &(struct history_tick){.at_us = at_s * 1000000,
                                                      .created = created,
                                                      .host = {.ticks = (uint64_t)at_s * 100}});
}

TEST(the_last_minute_is_counted)
{
    struct history_recent recent = {0};
    struct history_tick now = {
        .at_us = 5000000, .created = 3, .failed = 1, .host = {.ticks = 500, .busy = 250}};
    struct history_now out = {0};

    history_recent_rates(&recent, &now, &out);
    CHECK_INT(out.creates, 0);
    /* The process has just started: all that it has counted. */
    tick(&recent, 0, 2);
    history_recent_rates(&recent, &now, &out);
    CHECK_INT(out.creates, 3);
    CHECK_INT(out.failures, 1);
    CHECK_INT(out.cpu_permille, 500);
    for (int64_t at_s = 10; at_s <= 100; at_s += 10)
        tick(&recent, at_s, (uint64_t)at_s);
    now = (struct history_tick){
        .at_us = 105000000, .created = 120, .host = {.ticks = 10500, .busy = 125}};
    history_recent_rates(&recent, &now, &out);
    CHECK_INT(out.creates, 120 - 40); /* the sample of 40 s, the youngest of at least a minute */
    CHECK_INT(out.failures, 0);
    CHECK_INT(out.cpu_permille, 250); /* 125 of the 500 ticks since the sample of 100 s */
}

TEST(percentiles_are_of_the_time_between)
{
    struct sandboxes_stats before = {.create_us = {5, 5}}, now = before;

    CHECK_INT(history_percentile(&before, &now, 50), 0);
    now.create_us[1] += 98;
    now.create_us[3] += 2;
    CHECK_INT(history_percentile(&before, &now, 50), sandbox_bucket_us[1]);
    CHECK_INT(history_percentile(&before, &now, 99), sandbox_bucket_us[3]);
    now.create_us[SANDBOX_BUCKETS] += 1000;
    CHECK_INT(history_percentile(&before, &now, 99), sandbox_bucket_us[SANDBOX_BUCKETS - 1]);
}
