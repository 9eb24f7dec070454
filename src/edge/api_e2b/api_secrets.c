/* Secrets of the team, for the rules of its sandboxes' networks. A value goes in and never comes out again. */
#include "base/clock.h"
#include "domain/sandbox/sandbox.h"
#include "domain/secret/team_secret.h"
#include "edge/api_e2b/api_internal.h"
#include "edge/api_e2b/api_query.h"
#include "protocol/json/json_shape.h"

enum { PAGE_MAX = 100 };

/* ---- what is asked ---- */

struct secret_body {
    struct str name, value;
    json_t *metadata, *hosts;
};

static const struct json_field new_fields[] = {
    JSON_FIELD(struct secret_body, name, "name", JSON_REQUIRED),
    JSON_FIELD(struct secret_body, value, "value", JSON_REQUIRED),
    JSON_FIELD(struct secret_body, metadata, "metadata", 0),
    JSON_FIELD(struct secret_body, hosts, "hosts", 0),
    JSON_END,
};

static const struct json_field change_fields[] = {
    JSON_FIELD(struct secret_body, value, "value", JSON_REQUIRED),
    JSON_FIELD(struct secret_body, metadata, "metadata", 0),
    JSON_FIELD(struct secret_body, hosts, "hosts", 0),
    JSON_END,
};

static bool pair_fits(const char *name, const json_t *value)
{
    return strlen(name) <= TEAM_SECRET_PAIR_NAME_MAX && json_is_string(value) &&
           json_string_length(value) <= TEAM_SECRET_PAIR_VALUE_MAX;
}

static int read_metadata(json_t *metadata, struct arena *arena, struct str *out, struct error *err)
{
    const char *name;
    json_t *value;
    char *text;

    if (!metadata)
        return 0;
    if (!json_is_object(metadata) || json_object_size(metadata) > TEAM_SECRET_PAIRS_MAX)
        return error_set(err, ERROR_INVALID, "'metadata' must be an object of at most %d members",
                         TEAM_SECRET_PAIRS_MAX);
    json_object_foreach (metadata, name, value)
        if (!pair_fits(name, value))
            return error_set(err, ERROR_INVALID,
                             "'metadata' must have strings: names of at most %d bytes, values of "
                             "at most %d",
                             TEAM_SECRET_PAIR_NAME_MAX, TEAM_SECRET_PAIR_VALUE_MAX);
    text = json_text(metadata);
    *out = arena_str(arena, str_of(text));
    free(text);
    if (out->len > TEAM_SECRET_METADATA_MAX)
        return error_set(err, ERROR_INVALID, "'metadata' has at most %d bytes",
                         TEAM_SECRET_METADATA_MAX);
    return 0;
}

static int read_hosts(const json_t *hosts, struct arena *arena, struct team_secret_words *out,
                      struct error *err)
{
    struct str *list;
    json_t *host;
    size_t i;

    if (!hosts)
        return 0;
    if (!json_is_array(hosts) || json_array_size(hosts) > TEAM_SECRET_HOSTS_MAX)
        return error_set(err, ERROR_INVALID, "'hosts' must be an array of at most %d names",
                         TEAM_SECRET_HOSTS_MAX);
    list = arena_alloc(arena, (json_array_size(hosts) + 1) * sizeof(*list));
    json_array_foreach (hosts, i, host) {
        if (!json_is_string(host))
            return error_set(err, ERROR_INVALID, "'hosts' must be an array of strings");
        list[i] = str_n(json_string_value(host), json_string_length(host));
    }
    out->hosts = list;
    out->host_count = json_array_size(hosts);
    out->hosts_given = true;
    return 0;
}

/* Errors do not quote the body: the value may be what is wrong in it. *out_tree keeps the strings alive. */
static int read_body(struct api_call *call, const struct json_field *fields,
                     struct team_secret_words *out, json_t **out_tree, struct error *err)
{
    struct secret_body body = {.name = STR("")};

    if (json_parse(call->body, out_tree, err) < 0)
        return error_set(err, err->code, "the body is not JSON, or too large");
    if (json_read(fields, *out_tree, &body, err) < 0)
        return -1;
    *out = (struct team_secret_words){.name = body.name, .value = body.value};
    if (read_metadata(body.metadata, &call->arena, &out->metadata, err) < 0)
        return -1;
    return read_hosts(body.hosts, &call->arena, out, err);
}

/* ---- what is answered ---- */

static json_t *hosts_json(struct str lines)
{
    json_t *array = json_array();

    while (lines.len)
        (void)json_array_append_new(array, json_str(str_split(&lines, '\n')));
    return array;
}

static json_t *secret_json(const struct store_secret *secret)
{
    char created_at[CLOCK_TEXT_SIZE], updated_at[CLOCK_TEXT_SIZE];
    json_t *metadata = NULL;
    struct error ignored;

    if (json_parse(secret->metadata, &metadata, &ignored) < 0)
        metadata = json_object();
    clock_format(secret->created_at_us, created_at);
    clock_format(secret->updated_at_us, updated_at);
    return json_pack("{s:o,s:o,s:I,s:o,s:o,s:s,s:s}", "secretID", json_str(secret->id), "name",
                     json_str(secret->name), "currentVersion", (json_int_t)secret->version,
                     "metadata", metadata, "hosts", hosts_json(secret->hosts), "createdAt",
                     created_at, "updatedAt", updated_at);
}

/* ---- endpoints ---- */

int api_secrets_create(struct api_call *call, struct error *err)
{
    struct team_secret_words words;
    auto_json json_t *tree = NULL;
    struct store_secret secret;

    if (read_body(call, new_fields, &words, &tree, err) < 0 ||
        team_secret_create(call->api->config.store, call->api->config.secrets, call->team_id,
                           &words, &call->arena, &secret, err) < 0)
        return -1;
    call_answer(&call->call, 201, secret_json(&secret));
    return 0;
}

int api_secrets_list(struct api_call *call, struct error *err)
{
    struct str limit = STR_NONE, after = STR_NONE;
    struct store_secret *rows = NULL;
    uint64_t number = PAGE_MAX;
    size_t count = 0;
    json_t *array;

    if (api_query_get(call->query, "limit", &call->arena, &limit, err) < 0 ||
        api_query_get(call->query, "nextToken", &call->arena, &after, err) < 0)
        return -1;
    if (limit.p && (!str_to_u64(limit, &number) || number < 1 || number > PAGE_MAX))
        return error_set(err, ERROR_INVALID,
                         "query parameter 'limit' must be a number from 1 to %d", PAGE_MAX);
    if (store_secret_list(call->api->config.store, call->team_id, after.p ? after : STR(""),
                          (int64_t)number + 1, &call->arena, &rows, &count, err) < 0)
        return -1;
    array = json_array();
    for (size_t i = 0; i < count && i < number; i++)
        (void)json_array_append_new(array, secret_json(&rows[i]));
    call_answer(&call->call, 200, array);
    if (count > number)
        call_header(&call->call, "x-next-token", rows[number - 1].name);
    call_header(&call->call, "Access-Control-Expose-Headers", STR("x-next-token"));
    return 0;
}

int api_secrets_get(struct api_call *call, struct error *err)
{
    struct store_secret secret;

    if (team_secret_find(call->api->config.store, call->team_id, call->params[0], &call->arena,
                         &secret, err) < 0)
        return -1;
    call_answer(&call->call, 200, secret_json(&secret));
    return 0;
}

int api_secrets_change(struct api_call *call, struct error *err)
{
    struct team_secret_words words;
    auto_json json_t *tree = NULL;
    struct store_secret secret;

    if (read_body(call, change_fields, &words, &tree, err) < 0 ||
        team_secret_change(call->api->config.store, call->api->config.secrets, call->team_id,
                           call->params[0], &words, &call->arena, &secret, err) < 0)
        return -1;
    sandboxes_secret_changed(call->api->config.sandboxes, call->team_id, secret.name);
    call_answer(&call->call, 200, secret_json(&secret));
    return 0;
}

int api_secrets_delete(struct api_call *call, struct error *err)
{
    struct store_secret secret;

    if (team_secret_delete(call->api->config.store, call->team_id, call->params[0], &call->arena,
                           &secret, err) < 0)
        return -1;
    sandboxes_secret_changed(call->api->config.sandboxes, call->team_id, secret.name);
    call_answer(&call->call, 204, NULL);
    return 0;
}
