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
