/* Use and cost over time, as arrays for a chart or as CSV for a spreadsheet. */
#include "base/clock.h"
#include "edge/api_runtime/v1_teams.h"
#include "edge/api_runtime/v1_types.h"
#include "protocol/json/json_shape.h"
#include "runtime/sandbox/sandbox.h"

enum { HOUR_S = 3600, DAY_S = 86400, HOURS_DEFAULT = 24, DAYS_DEFAULT = 30, DAYS_MAX = 31 };

static const char *const by_names[] = {
    [BY_AGENT] = "agent", [BY_TASK] = "task", [BY_PROVIDER] = "provider", [BY_TEAM] = "team"};

struct wanted {
    enum runtime_usage_by by;
    int64_t step_s, steps;
    bool csv;
    struct v1_teams teams;
};

static int read_by(struct v1_call *call, enum runtime_usage_by *out, struct error *err)
{
    struct str name;

    if (v1_query_str(call, "by", &name, err) < 0)
        return -1;
    *out = BY_AGENT;
    for (size_t i = 0; i < sizeof(by_names) / sizeof(by_names[0]); i++)
        if (str_is(name, by_names[i])) {
            *out = (enum runtime_usage_by)i;
            return 0;
        }
    return name.len ? error_set(err, ERROR_INVALID, "'by' must be agent, task, provider or team")
                    : 0;
}

static int read_step(struct v1_call *call, struct wanted *out, struct error *err)
{
    struct str name, format;
    bool days;

    if (v1_query_str(call, "step", &name, err) < 0 ||
        v1_query_str(call, "format", &format, err) < 0)
        return -1;
    days = str_is(name, "day");
    if (name.len && !days && !str_is(name, "hour"))
        return error_set(err, ERROR_INVALID, "'step' must be hour or day");
    out->csv = str_is(format, "csv");
    if (format.len && !out->csv && !str_is(format, "json"))
        return error_set(err, ERROR_INVALID, "'format' must be json or csv");
    out->step_s = days ? DAY_S : HOUR_S;
    out->steps = days ? DAYS_DEFAULT : HOURS_DEFAULT;
    return v1_query_int(call, "steps", 1, days ? DAYS_MAX : RUNTIME_STEPS_MAX, &out->steps, err);
}

/* By team: of all that the key may see, unless one is named. */
static int read_wanted(struct v1_call *call, struct wanted *out, struct error *err)
{
    if (read_by(call, &out->by, err) < 0 || read_step(call, out, err) < 0 ||
        v1_teams_choose(call, &out->teams, err) < 0)
        return -1;
    if (out->by != BY_TEAM || out->teams.items)
        return 0;
    if (v1_operates(call))
        out->teams.caller.team_id = STR_NONE;
    return v1_teams_read(call, &out->teams, err);
}

static struct str name_of_series(const struct wanted *wanted, const struct runtime_series *series)
{
    return wanted->by == BY_TEAM ? v1_teams_name(&wanted->teams, series->name) : series->name;
}

static json_t *numbers(const double *values, size_t count)
{
    json_t *out = json_array();

    for (size_t i = 0; i < count; i++)
        (void)json_array_append_new(out, json_real(runtime_usage_round(values[i])));
    return out;
}

static void answer_json(struct v1_call *call, const struct wanted *wanted,
                        const struct runtime_usage_steps *usage)
{
    json_t *at = json_array(), *groups = json_array();

    for (size_t i = 0; i < usage->steps; i++)
        (void)json_array_append_new(at, json_integer(usage->first_s + (int64_t)i * usage->step_s));
    for (size_t i = 0; i < usage->count; i++)
        (void)json_array_append_new(
            groups,
            json_pack("{s:o, s:o, s:o}", "name", json_str(name_of_series(wanted, &usage->items[i])),
                      "seconds", numbers(usage->items[i].seconds, usage->steps), "usd",
                      numbers(usage->items[i].usd, usage->steps)));
    call_answer(&call->call, 200,
                json_pack("{s:s, s:I, s:o, s:o, s:b}", "by", by_names[wanted->by], "step",
                          (json_int_t)usage->step_s, "at", at, "groups", groups, "partial",
                          (int)usage->partial));
}

/* In quotes; what a spreadsheet would take for a formula begins with an apostrophe. */
static void add_cell(struct buf *out, struct str text)
{
    (void)buf_add_str(out, STR(",\""));
    if (text.len && strchr("=+@-\t\r", text.p[0]))
        (void)buf_add_char(out, '\'');
    for (size_t i = 0; i < text.len; i++) {
        if (text.p[i] == '"')
            (void)buf_add_char(out, '"');
        (void)buf_add_char(out, text.p[i]);
    }
    (void)buf_add_char(out, '"');
}

enum { CSV_MAX = 64 * 1024 * 1024 };

static int answer_csv(struct v1_call *call, const struct wanted *wanted,
                      const struct runtime_usage_steps *usage, struct error *err)
{
    auto_buf struct buf text = {0};
    char begin[CLOCK_TEXT_SIZE];

    buf_init_charged(&text, CSV_MAX);
    (void)buf_printf(&text, "begin,%s,seconds,usd\r\n", by_names[wanted->by]);
    for (size_t i = 0; i < usage->count; i++)
        for (size_t k = 0; k < usage->steps; k++) {
            clock_format((usage->first_s + (int64_t)k * usage->step_s) * 1000000, begin);
            (void)buf_add_str(&text, str_of(begin));
            add_cell(&text, name_of_series(wanted, &usage->items[i]));
            (void)buf_printf(&text, ",%.3f,%.6f\r\n", usage->items[i].seconds[k],
                             usage->items[i].usd[k]);
        }
    if (text.refused)
        return buf_refuse(&text, err);
    if (text.overflowed)
        return error_set(err, ERROR_LIMIT,
                         "these are too many for one answer; ask for fewer 'steps'");
    call->text = buf_take(&text);
    call->content_type = "text/csv; charset=utf-8";
    call->status = 200;
    return 0;
}

int v1_usage(struct v1_call *call, struct error *err)
{
    struct wanted wanted = {0};
    struct runtime_usage_steps usage;

    if (read_wanted(call, &wanted, err) < 0 ||
        runtime_usage_steps(call->v1->config.runtime, &wanted.teams.caller, wanted.by,
                            wanted.step_s, (size_t)wanted.steps, &call->arena, &usage, err) < 0)
        return -1;
    if (wanted.csv)
        return answer_csv(call, &wanted, &usage, err);
    answer_json(call, &wanted, &usage);
    return 0;
}
