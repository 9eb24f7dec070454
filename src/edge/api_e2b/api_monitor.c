/* GET /metrics: what Prometheus scrapes, with a key of the operator. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/buf.h"
#include "base/periodic.h"
#include "domain/sandbox/sandbox.h"
#include "domain/sandbox/sandbox_creates.h"
#include "domain/sandbox/sandbox_metrics.h"
#include "edge/api_e2b/api_internal.h"

enum {
    TEXT_MAX = 4 * 1024 * 1024,
    JOBS_MAX = 64,
    SANDBOXES_MAX = 5000 /* with lines of their own */
};

void api_monitor_count(struct api *api, int status, int64_t us)
{
    size_t class = status / 100 < 6 && status >= 100 ? (size_t)status / 100 : 5;

    atomic_fetch_add(&api->requests[class], 1);
    atomic_fetch_add(&api->request_us, (uint64_t)us);
}

static void head(struct buf *out, const char *name, const char *type, const char *help)
{
    (void)buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void counter(struct buf *out, const char *name, const char *help, uint64_t value)
{
    head(out, name, "counter", help);
    (void)buf_printf(out, "%s %" PRIu64 "\n", name, value);
}

static void write_states(struct buf *out, const struct sandboxes_stats *stats)
{
    static const char *const names[] = {
        [SANDBOX_CREATING] = "creating", [SANDBOX_RUNNING] = "running",
        [SANDBOX_PAUSING] = "pausing",   [SANDBOX_PAUSED] = "paused",
        [SANDBOX_RESUMING] = "resuming", [SANDBOX_SEALING] = "snapshotting",
        [SANDBOX_KILLING] = "ending",
    };

    head(out, "quicksand_sandboxes", "gauge", "Sandboxes by state.");
    for (size_t i = 0; i <= SANDBOX_KILLING; i++)
        (void)buf_printf(out, "quicksand_sandboxes{state=\"%s\"} %zu\n", names[i],
                         stats->states[i]);
    head(out, "quicksand_warm_boxes", "gauge", "Boxes that wait for a create.");
    (void)buf_printf(out, "quicksand_warm_boxes %zu\n", stats->warm);
}

static void write_creates(struct buf *out, const struct sandboxes_stats *stats)
{
    uint64_t sum = 0;

    head(out, "quicksand_create_seconds", "histogram", "How long creates took that succeeded.");
    for (size_t i = 0; i < SANDBOX_BUCKETS; i++) {
        sum += stats->create_us[i];
        (void)buf_printf(out, "quicksand_create_seconds_bucket{le=\"%g\"} %" PRIu64 "\n",
                         (double)sandbox_bucket_us[i] / 1e6, sum);
    }
    sum += stats->create_us[SANDBOX_BUCKETS];
    (void)buf_printf(out,
                     "quicksand_create_seconds_bucket{le=\"+Inf\"} %" PRIu64 "\n"
                     "quicksand_create_seconds_sum %g\nquicksand_create_seconds_count %" PRIu64
                     "\n",
                     sum, (double)stats->create_sum_us / 1e6, sum);
}

static void gauge(struct buf *out, const char *name, const char *help, uint64_t value)
{
    head(out, name, "gauge", help);
    (void)buf_printf(out, "%s %" PRIu64 "\n", name, value);
}

static void write_space(struct buf *out, const struct sandboxes_space *space)
{
    if (space->pool_bytes == 0)
        return;
    gauge(out, "quicksand_pool_bytes", "Size of the pool of sandboxes' files.", space->pool_bytes);
    gauge(out, "quicksand_pool_free_bytes", "Free in it.", space->pool_free);
    gauge(out, "quicksand_host_disk_bytes", "Size of the file system below the pool.",
          space->host_bytes);
    gauge(out, "quicksand_host_disk_used_bytes", "Used on it, as df reports it.", space->host_used);
    gauge(out, "quicksand_host_disk_free_bytes", "Free on it, without what is reserved for root.",
          space->host_free);
    gauge(out, "quicksand_pool_held",
          "1 when that file system is full and the pool cannot grow: free some space.",
          space->held);
}

static void write_egress(struct buf *out, const struct sandboxes_egress *egress)
{
    gauge(out, "quicksand_egress_up", "1 when the egress process answers.", egress->up);
    gauge(out, "quicksand_egress_sandboxes", "Sandboxes with names in their network policy.",
          egress->sandboxes);
    gauge(out, "quicksand_egress_connections", "Connections through the egress process now.",
          egress->open);
    counter(out, "quicksand_egress_connections_total", "Connections that came to it.",
            egress->connections);
    counter(out, "quicksand_egress_denied_total", "Connections and names that it refused.",
            egress->denied);
    counter(out, "quicksand_egress_questions_total", "Questions to its resolver.",
            egress->questions);
    counter(out, "quicksand_egress_sent_bytes_total", "Bytes that sandboxes sent through it.",
            egress->sent);
    counter(out, "quicksand_egress_received_bytes_total", "Bytes that they received.",
            egress->received);
}

struct series {
    const char *name, *help;
    size_t offset; /* in struct box_traffic */
};

static uint64_t value_of(const struct series *series, const struct box_traffic *traffic)
{
    return *(const uint64_t *)((const char *)traffic + series->offset);
}

/* Totals, and what each sandbox that is there has done. */
static void write_network(struct buf *out, struct api *api, const struct box_traffic *total)
{
#define SERIES(name, member, help)                       \
    {                                                    \
        name, help, offsetof(struct box_traffic, member) \
    }
    static const struct series all[] = {
        SERIES("sent_bytes", sent_bytes, "Bytes that sandboxes sent."),
        SERIES("received_bytes", received_bytes, "Bytes that sandboxes received."),
        SERIES("sent_packets", sent_packets, "Packets that sandboxes sent."),
        SERIES("received_packets", received_packets, "Packets that sandboxes received."),
        SERIES("connections", connections, "Connections that sandboxes began."),
        SERIES("refused", refused, "Packets of sandboxes that the gateway's rules refused."),
    };
#undef SERIES
    struct sandbox_network_use *uses = NULL;
    size_t count = metrics_network_each(api->config.sandboxes, &uses);
    char name[64];

    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) {
        (void)snprintf(name, sizeof(name), "quicksand_network_%s_total", all[i].name);
        counter(out, name, all[i].help, value_of(&all[i], total));
        (void)snprintf(name, sizeof(name), "quicksand_sandbox_network_%s_total", all[i].name);
        head(out, name, "counter", "The same of each sandbox.");
        for (size_t k = 0; k < count && k < SANDBOXES_MAX; k++)
            (void)buf_printf(out, "%s{sandbox=\"%s\"} %" PRIu64 "\n", name, uses[k].id,
                             value_of(&all[i], &uses[k].traffic));
    }
    free(uses);
}

static void write_requests(struct buf *out, struct api *api)
{
    uint64_t sum = 0;

    head(out, "quicksand_http_requests_total", "counter",
         "Requests to the API by class of status.");
    for (size_t i = 1; i < 6; i++) {
        uint64_t count = atomic_load(&api->requests[i]);

        sum += count;
        (void)buf_printf(out, "quicksand_http_requests_total{status=\"%zuxx\"} %" PRIu64 "\n", i,
                         count);
    }
    head(out, "quicksand_http_request_seconds", "summary", "How long requests to the API took.");
    (void)buf_printf(out,
                     "quicksand_http_request_seconds_sum %g\n"
                     "quicksand_http_request_seconds_count %" PRIu64 "\n",
                     (double)atomic_load(&api->request_us) / 1e6, sum);
}

static void write_jobs(struct buf *out)
{
    struct periodic_state states[JOBS_MAX];
    size_t count = periodic_states(states, JOBS_MAX);

    head(out, "quicksand_periodic_turns_total", "counter", "Turns of periodic jobs that ended.");
    for (size_t i = 0; i < count; i++)
        (void)buf_printf(out, "quicksand_periodic_turns_total{job=\"%s\"} %" PRIu64 "\n",
                         states[i].name, states[i].turns);
    head(out, "quicksand_periodic_seconds", "gauge", "How long a job's last turn took.");
    for (size_t i = 0; i < count; i++)
        (void)buf_printf(out, "quicksand_periodic_seconds{job=\"%s\"} %g\n", states[i].name,
                         (double)states[i].took_us / 1e6);
    head(out, "quicksand_periodic_late_seconds", "gauge",
         "How long after its time a job's last turn began.");
    for (size_t i = 0; i < count; i++)
        (void)buf_printf(out, "quicksand_periodic_late_seconds{job=\"%s\"} %g\n", states[i].name,
                         (double)states[i].late_us / 1e6);
}

int api_monitor(struct api_call *call, struct error *err)
{
    auto_buf struct buf out = {0};
    struct sandbox_creates_stats creates;
    struct sandboxes_stats stats;

    (void)err;
    sandbox_creates_stats(call->api->config.creates, &creates);
    sandboxes_stats(call->api->config.sandboxes, &stats);
    buf_init(&out, TEXT_MAX);
    write_states(&out, &stats);
    write_creates(&out, &stats);
    counter(&out, "quicksand_create_failures_total", "Creates that failed.", stats.create_failed);
    counter(&out, "quicksand_pauses_total", "Pauses.", stats.paused);
    head(&out, "quicksand_resumes_total", "counter", "Resumes by what was there.");
    (void)buf_printf(&out,
                     "quicksand_resumes_total{from=\"memory\"} %" PRIu64 "\n"
                     "quicksand_resumes_total{from=\"disk\"} %" PRIu64 "\n",
                     stats.resumed_memory, stats.resumed_disk);
    counter(&out, "quicksand_snapshots_total", "Snapshots.", stats.snapshots);
    counter(&out, "quicksand_sandboxes_ended_total", "Sandboxes that ended.", stats.ended);
    write_space(&out, &stats.space);
    write_egress(&out, &stats.egress);
    write_network(&out, call->api, &stats.network);
    write_requests(&out, call->api);
    gauge(&out, "quicksand_creates_under_way", "Creates that run or wait for their turn.",
          creates.under_way);
    gauge(&out, "quicksand_creates_max", "How many of them there may be (create-queue).",
          creates.max);
    counter(&out, "quicksand_creates_refused_total", "Creates refused with 429 beyond that.",
            creates.refused);
    gauge(&out, "quicksand_body_bytes", "Memory held for the bodies of requests.",
          http_room_held(call->api->config.limits));
    gauge(&out, "quicksand_spool_bytes",
          "Disk held for temporary files of uploads, exports and builds.",
          (uint64_t)spool_held(call->api->config.spool));
    call_counts_write(&out);
    write_jobs(&out);
    if (call->api->config.monitor)
        call->api->config.monitor(call->api->config.monitor_arg, &out);
    call_answer(&call->call, 200, NULL);
    call->content_type = "text/plain; version=0.0.4; charset=utf-8";
    call->text = buf_take(&out);
    return 0;
}
