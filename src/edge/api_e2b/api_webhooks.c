/* Webhooks of sandbox events. The secret is never told again. */
#include "base/buf.h"
#include "base/clock.h"
#include "domain/delivery/webhook.h"
#include "domain/sandbox/sandbox_history.h"
#include "edge/api_e2b/api_internal.h"
#include "protocol/json/json_shape.h"

struct webhook_body {
    struct str name, url, secret;
    bool enabled;
    json_t *events;
};

static const struct json_field webhook_fields[] = {
    JSON_FIELD(struct webhook_body, name, "name", 0),
    JSON_FIELD(struct webhook_body, url, "url", 0),
    JSON_FIELD(struct webhook_body, secret, "signatureSecret", 0),
    JSON_FIELD(struct webhook_body, enabled, "enabled", 0),
    JSON_FIELD(struct webhook_body, events, "events", 0),
    JSON_END,
};

static bool known_type(struct str type)
{
    static const char *const types[] = {"created",      "updated", "paused",     "resumed",
                                        "checkpointed", "killed",  "memory_lost"};

    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
        if (str_is(type, types[i]))
            return true;
    return false;
}

/* ["sandbox.lifecycle.created", ...] as ",created,...," */
static int read_events(const json_t *events, struct arena *arena, struct str *out,
                       struct error *err)
{
    auto_buf struct buf text = {0};
    const json_t *event;
    size_t i;

    if (!json_is_array(events) || json_array_size(events) > WEBHOOK_TYPES_MAX)
        return error_set(err, ERROR_INVALID, "'events' must be an array of at most %d types",
                         WEBHOOK_TYPES_MAX);
    buf_init(&text, 1024);
    json_array_foreach (events, i, event) {
        struct str type = str_of(json_string_value(event));

        if (str_starts(type, STR(SANDBOX_EVENT_PREFIX)))
            type = str_skip(type, sizeof(SANDBOX_EVENT_PREFIX) - 1);
        if (!known_type(type))
            return error_set(err, ERROR_INVALID, "'events' has a type that does not exist");
        (void)buf_printf(&text, "%s%.*s,", text.len ? "" : ",", STR_ARG(type));
    }
    *out = text.len ? arena_str(arena, buf_str(&text)) : STR("");
    return 0;
}

/* What is not in the request stays as it is. The strings are copied. */
static int read_webhook(struct api_call *call, struct store_webhook *webhook, struct error *err)
{
    struct webhook_body body = {.name = webhook->name,
                                .url = webhook->url,
                                .secret = webhook->secret,
                                .enabled = webhook->enabled};
    auto_json json_t *tree = NULL;

    if (json_parse_as(webhook_fields, call->body, &body, &tree, err) < 0 ||
        (body.events && read_events(body.events, &call->arena, &webhook->events, err) < 0))
        return -1;
    webhook->name = arena_str(&call->arena, body.name);
    webhook->url = arena_str(&call->arena, body.url);
    webhook->secret = arena_str(&call->arena, body.secret);
    webhook->enabled = body.enabled;
    return 0;
}

static json_t *webhook_json(const struct store_webhook *webhook)
{
    char created_at[CLOCK_TEXT_SIZE];
    json_t *events = json_array();
    struct str rest = webhook->events;

    while (rest.p) {
        struct str type = str_split(&rest, ',');

        if (type.len)
            (void)json_array_append_new(events,
                                        json_sprintf(SANDBOX_EVENT_PREFIX "%.*s", STR_ARG(type)));
    }
    clock_format(webhook->created_at_us, created_at);
    return json_pack("{s:o,s:o,s:s,s:o,s:o,s:b,s:o}", "id", json_str(webhook->id), "name",
                     json_str(webhook->name), "createdAt", created_at, "teamId",
                     json_str(webhook->team_id), "url", json_str(webhook->url), "enabled",
                     webhook->enabled, "events", events);
}

int api_webhooks_create(struct api_call *call, struct error *err)
{
    struct store_webhook webhook = {.team_id = call->team_id, .enabled = true};

    if (read_webhook(call, &webhook, err) < 0 ||
        webhook_put(call->api->config.webhooks, &webhook, &call->arena, err) < 0)
        return -1;
    call_answer(&call->call, 201, webhook_json(&webhook));
    return 0;
}

int api_webhooks_list(struct api_call *call, struct error *err)
{
    struct store_webhook *list;
    json_t *array;
    size_t count;

    if (webhook_list(call->api->config.webhooks, call->team_id, &call->arena, &list, &count, err) <
        0)
        return -1;
    array = json_array();
    for (size_t i = 0; i < count; i++)
        (void)json_array_append_new(array, webhook_json(&list[i]));
    call_answer(&call->call, 200, array);
    return 0;
}

int api_webhooks_get(struct api_call *call, struct error *err)
{
    struct store_webhook webhook;

    if (webhook_get(call->api->config.webhooks, call->team_id, call->params[0], &call->arena,
                    &webhook, err) < 0)
        return -1;
    call_answer(&call->call, 200, webhook_json(&webhook));
    return 0;
}

int api_webhooks_change(struct api_call *call, struct error *err)
{
    struct store_webhook webhook;

    if (webhook_get(call->api->config.webhooks, call->team_id, call->params[0], &call->arena,
                    &webhook, err) < 0 ||
        read_webhook(call, &webhook, err) < 0 ||
        webhook_put(call->api->config.webhooks, &webhook, &call->arena, err) < 0)
        return -1;
    call_answer(&call->call, 200, webhook_json(&webhook));
    return 0;
}

int api_webhooks_delete(struct api_call *call, struct error *err)
{
    if (webhook_delete(call->api->config.webhooks, call->team_id, call->params[0], err) < 0)
        return -1;
    call_answer(&call->call, 204, NULL);
    return 0;
}

/* ---- how it goes ---- */

static json_t *time_or_null(int64_t at_us)
{
    char text[CLOCK_TEXT_SIZE];

    if (!at_us)
        return json_null();
    clock_format(at_us, text);
    return json_string(text);
}

static json_t *attempt_json(const struct webhook_attempt *attempt)
{
    return json_pack("{s:o,s:s,s:s,s:I,s:b,s:s}", "timestamp", time_or_null(attempt->at_us), "type",
                     attempt->type, "sandboxID", attempt->sandbox_id, "attempt",
                     (json_int_t)attempt->number, "delivered", attempt->delivered, "message",
                     attempt->message);
}

int api_webhooks_deliveries(struct api_call *call, struct error *err)
{
    struct webhook_deliveries deliveries;
    json_t *attempts;

    if (webhook_deliveries(call->api->config.webhooks, call->team_id, call->params[0], &call->arena,
                           &deliveries, err) < 0)
        return -1;
    attempts = json_array();
    for (size_t i = 0; i < deliveries.count; i++)
        (void)json_array_append_new(attempts, attempt_json(&deliveries.attempts[i]));
    call_answer(&call->call, 200,
                json_pack("{s:I,s:o,s:o}", "waiting", (json_int_t)deliveries.waiting, "nextAt",
                          time_or_null(deliveries.next_at_us), "attempts", attempts));
    return 0;
}

int api_webhooks_test(struct api_call *call, struct error *err)
{
    struct error why = {0};
    bool delivered = false;

    if (webhook_test(call->api->config.webhooks, call->team_id, call->params[0],
                     &(struct cancel){call_unwanted, &call->call}, &call->arena, &delivered, &why,
                     err) < 0)
        return call_unwanted(&call->call) ? call_set_unwanted(&call->call, err) : -1;
    call_answer(
        &call->call, 200,
        json_pack("{s:b,s:s}", "delivered", delivered, "message", delivered ? "" : why.message));
    return 0;
}
