/* Logs and events of sandboxes, also of those that ended. */
#include "base/clock.h"
#include "domain/sandbox/sandbox_history.h"
#include "edge/api_e2b/api_internal.h"
#include "edge/api_e2b/api_query.h"
#include "edge/api_e2b/api_sandboxes.h"
#include "protocol/json/json_shape.h"

enum { LOGS_DEFAULT = 1000, EVENTS_DEFAULT = 10, EVENTS_LIMIT = 100, TYPES_MAX = 16 };

/* Of what it reached or was refused, the detail is an object: name, address, port, protocol, verdict, rule, reason. */
static void add_network(const struct store_event *event, json_t *fields)
{
    auto_json json_t *detail = NULL;
    struct error ignored;

    if (json_parse(event->detail, &detail, &ignored) == 0)
        (void)json_object_update_missing(fields, detail);
}

static json_t *fields_of(const struct store_event *event)
{
    json_t *fields = json_pack("{s:o,s:o}", "event", json_str(event->type), "sandboxID",
                               json_str(event->sandbox_id));

    if (str_is(event->type, "network"))
        add_network(event, fields);
    else if (event->detail.len)
        (void)json_object_set_new(fields, "detail", json_str(event->detail));
    return fields;
}

static json_t *entry_json(const struct store_event *event)
{
    char timestamp[CLOCK_TEXT_SIZE];

    clock_format(event->at_us, timestamp);
    return json_pack("{s:s,s:s,s:o,s:o}", "timestamp", timestamp, "level",
                     api_level_name(event->level), "message", json_str(event->message), "fields",
                     fields_of(event));
}

/* A line is JSON text itself; clients parse it and want a level in it. */
static json_t *line_json(const struct store_event *event)
{
    char timestamp[CLOCK_TEXT_SIZE];
    auto_json json_t *line = fields_of(event);
    char *text;
    json_t *json;

    clock_format(event->at_us, timestamp);
    (void)json_object_set_new(line, "timestamp", json_string(timestamp));
    (void)json_object_set_new(line, "level", json_string(api_level_name(event->level)));
    (void)json_object_set_new(line, "message", json_str(event->message));
    (void)json_object_set_new(line, "logger",
                              json_string(str_is(event->type, "exec") || str_is(event->type, "envd")
                                              ? "envd"
                                              : "sandbox"));
    text = json_text(line);
    json = json_pack("{s:s,s:s}", "timestamp", timestamp, "line", text);
    free(text);
    return json;
}

int api_history_logs(struct api_call *call, struct error *err)
{
    struct event_filter filter = {.team_id = call->team_id, .ascending = true, .with_envd = true};
    struct event_page page;
    json_t *lines, *entries;
    uint64_t start_ms, limit;

    if (api_sandboxes_get_id(call, &filter.sandbox_id, err) < 0 ||
        api_query_number(call->query, "start", &call->arena, 0, INT64_MAX / 2000, &start_ms, err) <
            0 ||
        api_query_number(call->query, "limit", &call->arena, LOGS_DEFAULT, EVENTS_MAX, &limit,
                         err) < 0)
        return -1;
    filter.from_us = (int64_t)start_ms * 1000;
    filter.limit = limit ? (size_t)limit : 1;
    if (sandbox_events(call->api->config.sandboxes, &filter, &call->arena, &page, err) < 0)
        return -1;
    lines = json_array();
    entries = json_array();
    for (size_t i = 0; i < page.count; i++) {
        (void)json_array_append_new(lines, line_json(&page.items[i]));
        (void)json_array_append_new(entries, entry_json(&page.items[i]));
    }
    call_answer(&call->call, 200, json_pack("{s:o,s:o}", "logs", lines, "logEntries", entries));
    return 0;
}

/* A cursor is a time in ms from which to go on, forward or back. */
static int read_direction(struct api_call *call, uint64_t cursor_ms, struct event_filter *filter,
                          struct error *err)
{
    bool backward;

    if (api_query_backward(call->query, &call->arena, &backward, err) < 0)
        return -1;
    filter->ascending = !backward;
    if (filter->ascending)
        filter->from_us = (int64_t)cursor_ms * 1000;
    else if (cursor_ms)
        filter->until_us = (int64_t)cursor_ms * 1000;
    return 0;
}

int api_history_logs_v2(struct api_call *call, struct error *err)
{
    struct event_filter filter = {.team_id = call->team_id, .with_envd = true};
    struct event_page page;
    uint64_t cursor_ms, limit;
    json_t *entries;

    if (api_sandboxes_get_id(call, &filter.sandbox_id, err) < 0 ||
        api_query_number(call->query, "cursor", &call->arena, 0, INT64_MAX / 2000, &cursor_ms,
                         err) < 0 ||
        api_query_number(call->query, "limit", &call->arena, LOGS_DEFAULT, EVENTS_MAX, &limit,
                         err) < 0 ||
        read_direction(call, cursor_ms, &filter, err) < 0 ||
        api_query_level(call->query, &call->arena, &filter.min_level, err) < 0 ||
        api_query_get(call->query, "search", &call->arena, &filter.search, err) < 0)
        return -1;
    filter.limit = limit ? (size_t)limit : 1;
    if (sandbox_events(call->api->config.sandboxes, &filter, &call->arena, &page, err) < 0)
        return -1;
    entries = json_array();
    for (size_t i = 0; i < page.count; i++)
        (void)json_array_append_new(entries, entry_json(&page.items[i]));
    call_answer(&call->call, 200, json_pack("{s:o}", "logs", entries));
    return 0;
}

/* "types" may come several times, with or without the common prefix. */
static size_t read_types(struct api_call *call, struct str types[TYPES_MAX])
{
    struct str rest = call->query;
    size_t count = 0;

    while (rest.p && count < TYPES_MAX) {
        struct str value = str_split(&rest, '&');

        if (!str_is(str_split(&value, '='), "types") || !value.len)
            continue;
        if (str_starts(value, STR(SANDBOX_EVENT_PREFIX)))
            value = str_skip(value, sizeof(SANDBOX_EVENT_PREFIX) - 1);
        types[count++] = value;
    }
    return count;
}

static int list_events(struct api_call *call, struct event_filter *filter, struct error *err)
{
    struct str *types = arena_alloc(&call->arena, TYPES_MAX * sizeof(*types));
    struct str ascending = STR_NONE;
    struct event_page page = {0};
    uint64_t offset = 0, limit = 0;
    json_t *array;

    filter->types = types;
    filter->type_count = read_types(call, types);
    if (api_query_number(call->query, "offset", &call->arena, 0, 100000, &offset, err) < 0 ||
        api_query_number(call->query, "limit", &call->arena, EVENTS_DEFAULT, EVENTS_LIMIT, &limit,
                         err) < 0 ||
        api_query_get(call->query, "orderAsc", &call->arena, &ascending, err) < 0)
        return -1;
    if (limit < 1)
        return error_set(err, ERROR_INVALID, "query parameter 'limit' must be from 1 to %d",
                         EVENTS_LIMIT);
    filter->offset = (size_t)offset;
    filter->limit = (size_t)limit;
    filter->ascending = str_is(ascending, "true");
    if (sandbox_events(call->api->config.sandboxes, filter, &call->arena, &page, err) < 0)
        return -1;
    array = json_array();
    for (size_t i = 0; i < page.count; i++)
        (void)json_array_append_new(array, sandbox_event_json(&page.items[i]));
    call_answer(&call->call, 200, array);
    return 0;
}

int api_history_events(struct api_call *call, struct error *err)
{
    struct event_filter filter = {.team_id = call->team_id};

    return list_events(call, &filter, err);
}

int api_history_sandbox_events(struct api_call *call, struct error *err)
{
    struct event_filter filter = {.team_id = call->team_id};

    if (api_sandboxes_get_id(call, &filter.sandbox_id, err) < 0)
        return -1;
    return list_events(call, &filter, err);
}
