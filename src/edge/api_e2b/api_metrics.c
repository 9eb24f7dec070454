/* What sandboxes and teams use. Times in queries are Unix seconds. */
#include "base/clock.h"
#include "domain/sandbox/sandbox_metrics.h"
#include "edge/api_e2b/api_internal.h"
#include "edge/api_e2b/api_query.h"
#include "edge/api_e2b/api_sandboxes.h"
#include "protocol/json/json_shape.h"

enum { IDS_MAX = 100 };

struct range {
    int64_t from_us, until_us;
};

static int read_seconds(struct api_call *call, const char *name, int64_t *out_us, struct error *err)
{
    struct str text;
    int64_t seconds;

    *out_us = 0;
    if (api_query_get(call->query, name, &call->arena, &text, err) < 0)
        return -1;
    if (!text.p)
        return 0;
    if (!str_to_i64(text, &seconds) || seconds < 0 || seconds > INT64_MAX / 2000000)
        return error_set(err, ERROR_INVALID, "query parameter '%s' must be a time in seconds",
                         name);
    *out_us = seconds * 1000000;
    return 0;
}

/* The end is the whole of its second. */
static int read_range(struct api_call *call, struct range *out, struct error *err)
{
    if (read_seconds(call, "start", &out->from_us, err) < 0 ||
        read_seconds(call, "end", &out->until_us, err) < 0)
        return -1;
    if (out->until_us)
        out->until_us += 999999;
    return 0;
}

struct metric_body {
    struct str timestamp;
    int64_t unix_s, cpu_count, mem_used, mem_total, mem_cache, disk_used, disk_total;
    double cpu_pct;
    int64_t sent, received, connections, refused;
};

static const struct json_field metric_fields[] = {
    JSON_FIELD(struct metric_body, timestamp, "timestamp", 0),
    JSON_FIELD(struct metric_body, unix_s, "timestampUnix", 0),
    JSON_FIELD(struct metric_body, cpu_count, "cpuCount", 0),
    JSON_FIELD(struct metric_body, cpu_pct, "cpuUsedPct", 0),
    JSON_FIELD(struct metric_body, mem_used, "memUsed", 0),
    JSON_FIELD(struct metric_body, mem_total, "memTotal", 0),
    JSON_FIELD(struct metric_body, mem_cache, "memCache", 0),
    JSON_FIELD(struct metric_body, disk_used, "diskUsed", 0),
    JSON_FIELD(struct metric_body, disk_total, "diskTotal", 0),
    JSON_FIELD(struct metric_body, sent, "networkSent", 0),
    JSON_FIELD(struct metric_body, received, "networkReceived", 0),
    JSON_FIELD(struct metric_body, connections, "networkConnections", 0),
    JSON_FIELD(struct metric_body, refused, "networkRefused", 0),
    JSON_END,
};

static json_t *metric_json(const struct sandbox_metrics *metrics,
                           const struct sandbox_sample *sample)
{
    char timestamp[CLOCK_TEXT_SIZE];
    struct metric_body body = {
        .unix_s = sample->at_us / 1000000,
        .cpu_count = metrics->cpu_count,
        .cpu_pct = (double)(int64_t)(sample->cpu_pct * 100 + 0.5) / 100,
        .mem_used = (int64_t)sample->mem_used,
        .mem_total = (int64_t)metrics->mem_total,
        .mem_cache = (int64_t)sample->mem_cache,
        .disk_used = (int64_t)sample->disk_used,
        .disk_total = (int64_t)metrics->disk_total,
        .sent = (int64_t)sample->network.sent_bytes,
        .received = (int64_t)sample->network.received_bytes,
        .connections = (int64_t)sample->network.connections,
        .refused = (int64_t)sample->network.refused,
    };

    clock_format(sample->at_us, timestamp);
    body.timestamp = str_of(timestamp);
    return json_write(metric_fields, &body);
}

int api_metrics_sandbox(struct api_call *call, struct error *err)
{
    struct sandbox_metrics metrics;
    struct range range;
    struct str id;
    json_t *array;

    if (api_sandboxes_get_id(call, &id, err) < 0 || read_range(call, &range, err) < 0 ||
        sandbox_metrics(call->api->config.sandboxes, call->team_id, id, range.from_us,
                        range.until_us, &call->arena, &metrics, err) < 0)
        return -1;
    array = json_array();
    for (size_t i = 0; i < metrics.count; i++)
        (void)json_array_append_new(array, metric_json(&metrics, &metrics.samples[i]));
    call_answer(&call->call, 200, array);
    return 0;
}

/* The newest of one sandbox; what is not there is left out. */
static int add_newest(struct api_call *call, struct str param, json_t *out, struct error *err)
{
    struct sandbox_metrics metrics;
    struct str id;

    if (!api_sandboxes_id(param, &id))
        return 0;
    if (sandbox_metrics(call->api->config.sandboxes, call->team_id, id, 0, 0, &call->arena,
                        &metrics, err) < 0)
        return err->code == ERROR_NOT_FOUND ? 0 : -1;
    if (metrics.count)
        (void)json_object_set_new(out, arena_str(&call->arena, id).p,
                                  metric_json(&metrics, &metrics.samples[metrics.count - 1]));
    return 0;
}

int api_metrics_sandboxes(struct api_call *call, struct error *err)
{
    auto_json json_t *found = json_object();
    struct str ids;

    if (api_query_get(call->query, "sandbox_ids", &call->arena, &ids, err) < 0)
        return -1;
    if (!ids.p)
        return error_set(err, ERROR_INVALID, "query parameter 'sandbox_ids' is missing");
    for (int i = 0; ids.p; i++) {
        if (i == IDS_MAX)
            return error_set(err, ERROR_INVALID, "at most %d sandbox ids", IDS_MAX);
        if (add_newest(call, str_split(&ids, ','), found, err) < 0)
            return -1;
    }
    call_answer(&call->call, 200, json_pack("{s:O}", "sandboxes", found));
    return 0;
}

static int check_team(struct api_call *call, struct error *err)
{
    if (str_eq(call->params[0], call->team_id))
        return 0;
    return error_set(err, ERROR_FORBIDDEN, "this key belongs to another team");
}

static json_t *team_json(const struct team_sample *sample)
{
    char timestamp[CLOCK_TEXT_SIZE];

    clock_format(sample->at_us, timestamp);
    return json_pack("{s:s,s:I,s:I,s:f}", "timestamp", timestamp, "timestampUnix",
                     (json_int_t)(sample->at_us / 1000000), "concurrentSandboxes",
                     (json_int_t)sample->running, "sandboxStartRate", sample->start_rate);
}

int api_metrics_team(struct api_call *call, struct error *err)
{
    struct team_sample *samples;
    struct range range;
    json_t *array;
    size_t count;

    if (check_team(call, err) < 0 || read_range(call, &range, err) < 0)
        return -1;
    count = team_metrics(call->api->config.sandboxes, call->team_id, range.from_us, range.until_us,
                         &call->arena, &samples);
    array = json_array();
    for (size_t i = 0; i < count; i++)
        (void)json_array_append_new(array, team_json(&samples[i]));
    call_answer(&call->call, 200, array);
    return 0;
}

int api_metrics_team_max(struct api_call *call, struct error *err)
{
    struct team_sample *samples;
    struct range range;
    char timestamp[CLOCK_TEXT_SIZE];
    struct str metric;
    double best = 0;
    int64_t at_us = clock_wall_us();
    size_t count;
    bool rate;

    if (check_team(call, err) < 0 || read_range(call, &range, err) < 0 ||
        api_query_get(call->query, "metric", &call->arena, &metric, err) < 0)
        return -1;
    rate = str_is(metric, "sandbox_start_rate");
    if (!rate && !str_is(metric, "concurrent_sandboxes"))
        return error_set(err, ERROR_INVALID,
                         "query parameter 'metric' must be "
                         "'concurrent_sandboxes' or 'sandbox_start_rate'");
    count = team_metrics(call->api->config.sandboxes, call->team_id, range.from_us, range.until_us,
                         &call->arena, &samples);
    for (size_t i = 0; i < count; i++) {
        double value = rate ? samples[i].start_rate : (double)samples[i].running;

        if (i == 0 || value > best) {
            best = value;
            at_us = samples[i].at_us;
        }
    }
    clock_format(at_us, timestamp);
    call_answer(&call->call, 200,
                json_pack("{s:s,s:I,s:f}", "timestamp", timestamp, "timestampUnix",
                          (json_int_t)(at_us / 1000000), "value", best));
    return 0;
}
