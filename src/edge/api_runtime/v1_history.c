/* What the server did over time, and how it is set: of all teams together, so for the operator. */
#include "base/clock.h"
#include "domain/account/team.h"
#include "domain/history/history.h"
#include "edge/api_runtime/v1_types.h"
#include "protocol/json/json_shape.h"
#include "store/platform/store_history.h"

static const struct history_range *find_range(struct str name)
{
    for (size_t i = 0; i < HISTORY_RANGES; i++)
        if (str_is(name, history_ranges[i].name))
            return &history_ranges[i];
    return NULL;
}

static void append(json_t *out, const char *name, int64_t value)
{
    (void)json_array_append_new(json_object_get(out, name), json_integer(value));
}

/* An array for each figure: that is what charts are drawn from. */
static json_t *columns(const struct store_history *rows, size_t count)
{
    static const struct {
        const char *name;
        size_t offset;
    } all[] = {
#define COLUMN(member) {#member, offsetof(struct store_history, member)}
        COLUMN(running),   COLUMN(paused),     COLUMN(warm),      COLUMN(creates),
        COLUMN(failures),  COLUMN(p50_us),     COLUMN(p99_us),    COLUMN(cpu_permille),
        COLUMN(mem_used),  COLUMN(mem_total),  COLUMN(pool_used), COLUMN(pool_total),
        COLUMN(disk_used), COLUMN(disk_total),
#undef COLUMN
    };
    json_t *out = json_pack("{s:[]}", "at");

    for (size_t k = 0; k < sizeof(all) / sizeof(all[0]); k++)
        (void)json_object_set_new(out, all[k].name, json_array());
    for (size_t i = 0; i < count; i++) {
        append(out, "at", rows[i].at_us / 1000000);
        for (size_t k = 0; k < sizeof(all) / sizeof(all[0]); k++)
            append(out, all[k].name, *(const int64_t *)((const char *)&rows[i] + all[k].offset));
    }
    return out;
}

/* The same figures as they are now, and whether something is wrong with the host. */
static json_t *now_json(struct history *history)
{
    struct history_now now;

    history_now(history, &now);
    return json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:b, s:b}", "at",
        (json_int_t)(now.at_us / 1000000), "running", (json_int_t)now.running, "paused",
        (json_int_t)now.paused, "warm", (json_int_t)now.warm, "creates", (json_int_t)now.creates,
        "failures", (json_int_t)now.failures, "cpu_permille", (json_int_t)now.cpu_permille,
        "mem_used", (json_int_t)now.mem_used, "mem_total", (json_int_t)now.mem_total, "pool_used",
        (json_int_t)now.pool_used, "pool_total", (json_int_t)now.pool_total, "disk_used",
        (json_int_t)now.disk_used, "disk_free", (json_int_t)now.disk_free, "disk_total",
        (json_int_t)now.disk_total, "disk_held", (int)now.disk_held, "egress_up",
        (int)now.egress_up);
}

int v1_history(struct v1_call *call, struct error *err)
{
    struct str name = STR_NONE;
    const struct history_range *range;
    struct store_history *rows = NULL;
    size_t count = 0;
    int64_t from_us;
    json_t *out;

    if (!v1_operates(call))
        return error_set(err, ERROR_FORBIDDEN,
                         "the history of the server is for API keys of the operator's team");
    if (v1_query_str(call, "range", &name, err) < 0)
        return -1;
    range = find_range(name.len ? name : STR("15m"));
    if (!range)
        return error_set(err, ERROR_INVALID, "'range' must be 15m, 6h or 7d");
    from_us = clock_wall_us() - range->step_s * range->count * 1000000;
    if (store_history_list(call->v1->config.store, range->step_s, from_us, &call->arena, &rows,
                           &count, err) < 0)
        return -1;
    out = columns(rows, count);
    (void)json_object_set_new(out, "step", json_integer(range->step_s));
    if (call->v1->config.history)
        (void)json_object_set_new(out, "now", now_json(call->v1->config.history));
    call_answer(&call->call, 200, out);
    return 0;
}

int v1_settings(struct v1_call *call, struct error *err)
{
    const struct v1_config *config = &call->v1->config;

    if (!v1_operates(call))
        return error_set(err, ERROR_FORBIDDEN,
                         "the settings of the server are for API keys of the operator's team");
    call_answer(
        &call->call, 200,
        json_pack("{s:o}", "settings",
                  config->settings ? config->settings(config->settings_arg) : json_array()));
    return 0;
}
