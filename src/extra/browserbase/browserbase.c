/* Browserbase: browsers in the cloud, driven over the Chrome DevTools protocol. What the service calls a
 * session is a machine without commands and files: what it has is the URL to connect to. Labels are its
 * user metadata. One that is over cannot be had again: it is not there. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "protocol/fetch/rest.h"
#include "protocol/json/json_shape.h"
#include "provider/core/provider_ops.h"

#define DEFAULT_URL "https://api.browserbase.com"

enum { METADATA_MAX = 512, TIMEOUT_MIN_S = 60, TIMEOUT_MAX_S = 21600 };

struct browserbase {
    char who[96];
    struct rest rest;
    char *base, *key, *project;
    json_t *options; /* of the provider's record */
};

static struct browserbase *bb_of(const struct provider *provider)
{
    return provider->impl;
}

static void bb_close(struct provider *provider)
{
    struct browserbase *bb = provider->impl;

    if (!bb)
        return;
    free(bb->base);
    free(bb->key);
    free(bb->project);
    json_decref(bb->options);
    free(bb);
    provider->impl = NULL;
}

static int bb_open(struct provider *provider, const struct provider_config *config,
                   struct error *err)
{
    struct browserbase *bb = xcalloc(1, sizeof(*bb));
    struct str url = str_of(config->api_url && config->api_url[0] ? config->api_url : DEFAULT_URL);

    provider->impl = bb;
    (void)snprintf(bb->who, sizeof(bb->who), "browserbase '%s'", config->name);
    while (str_ends(url, STR("/")))
        url.len--;
    if (!str_starts(url, STR("https://")) && !str_starts(url, STR("http://"))) {
        (void)error_set(err, ERROR_INVALID, "api_url '%.*s' is no http(s) URL", STR_ARG(url));
        bb_close(provider);
        return -1;
    }
    if (!config->api_key || !config->api_key[0]) {
        bb_close(provider);
        return error_set(err, ERROR_INVALID, "a key is needed: set api_key or BROWSERBASE_API_KEY");
    }
    bb->base = str_dup(url);
    bb->key = xstrdup(config->api_key);
    bb->project = str_dup(json_get_str(config->options, "project_id"));
    bb->options = config->options ? json_deep_copy(config->options) : json_object();
    bb->rest = (struct rest){.fetch = config->fetch, .who = bb->who, .base = bb->base};
    bb->rest.headers[bb->rest.header_count++] = (struct pair){STR("X-BB-API-Key"), str_of(bb->key)};
    provider->caps = (struct provider_caps){
        .features = PROVIDER_CDP | PROVIDER_FIND,
        .egress = EGRESS_ALLOW_ALL,
        .isolation = ISOLATION_STRONG,
    };
    return 0;
}

static int call(struct browserbase *bb, const char *method, const char *path, const json_t *body,
                int64_t deadline_us, json_t **out, struct error *err)
{
    struct rest_request request = {
        .method = method, .path = path, .body = body, .deadline_us = deadline_us};

    return rest_call(&bb->rest, &request, out, err);
}

static int bb_check(struct provider *provider, struct error *err)
{
    return call(bb_of(provider), "GET", "/v1/projects", NULL, 0, NULL, err);
}

/* ---- machines ---- */

static bool is_over(struct str status)
{
    return !str_is(status, "RUNNING") && !str_is(status, "PENDING");
}

static void read_session(const json_t *json, struct arena *arena, struct provider_sandbox *out)
{
    struct str status = json_get_str(json, "status");

    *out = (struct provider_sandbox){
        .id = arena_str(arena, json_get_str(json, "id")),
        .state = str_is(status, "RUNNING")   ? PROVIDER_RUNNING
                 : str_is(status, "PENDING") ? PROVIDER_STARTING
                                             : PROVIDER_ENDED,
        .image = STR("browser"),
    };
    out->label_count = json_pairs(json_object_get(json, "userMetadata"), arena, &out->labels);
    if (json_get_str(json, "connectUrl").len)
        out->cdp_url = arena_str(arena, json_get_str(json, "connectUrl"));
    if (!clock_parse(json_get_str(json, "startedAt"), &out->started_at_us))
        (void)clock_parse(json_get_str(json, "createdAt"), &out->started_at_us);
}

/* A setting of the profile, else of the provider, by either of its names. */
static json_t *setting(const struct browserbase *bb, const struct provider_spec *spec,
                       const char *name, const char *other)
{
    json_t *value = json_object_get(spec->options, name);

    if (!value)
        value = json_object_get(spec->options, other);
    if (!value)
        value = json_object_get(bb->options, name);
    return value ? value : json_object_get(bb->options, other);
}

static void copy_setting(const struct browserbase *bb, const struct provider_spec *spec,
                         const char *name, const char *other, json_t *body)
{
    json_t *value = setting(bb, spec, name, other);

    if (value && !json_is_null(value))
        (void)json_object_set(body, name, value);
}

static int add_metadata(struct browserbase *bb, const struct provider_spec *spec, json_t *body,
                        struct error *err)
{
    json_t *metadata = json_of_pairs(spec->labels, spec->label_count);
    auto_free char *text = json_text(metadata);

    (void)json_object_set_new(body, "userMetadata", metadata);
    if (strlen(text) >= METADATA_MAX)
        return error_set(err, ERROR_LIMIT, "%s: the labels are longer than %d characters of JSON",
                         bb->who, METADATA_MAX - 1);
    return 0;
}

static int create_json(struct browserbase *bb, const struct provider_spec *spec, json_t **out,
                       struct error *err)
{
    auto_json json_t *body = json_object();
    const json_t *timeout = setting(bb, spec, "timeout", "api_timeout");
    int64_t seconds = spec->ttl_s > 0 ? spec->ttl_s : json_integer_value(timeout);

    if (bb->project[0])
        (void)json_object_set_new(body, "projectId", json_string(bb->project));
    if (seconds > 0) {
        if (seconds < TIMEOUT_MIN_S)
            seconds = TIMEOUT_MIN_S;
        if (seconds > TIMEOUT_MAX_S)
            seconds = TIMEOUT_MAX_S;
        (void)json_object_set_new(body, "timeout", json_integer(seconds));
    }
    copy_setting(bb, spec, "keepAlive", "keep_alive", body);
    copy_setting(bb, spec, "region", "region", body);
    copy_setting(bb, spec, "proxies", "proxies", body);
    copy_setting(bb, spec, "proxySettings", "proxy_settings", body);
    copy_setting(bb, spec, "extensionId", "extension_id", body);
    copy_setting(bb, spec, "browserSettings", "browser_settings", body);
    if (add_metadata(bb, spec, body, err) < 0)
        return -1;
    *out = take_ptr(&body);
    return 0;
}

static int bb_create(struct provider *provider, const struct provider_spec *spec,
                     struct arena *arena, struct provider_sandbox *out, struct error *err)
{
    struct browserbase *bb = bb_of(provider);
    auto_json json_t *body = NULL, *answer = NULL;

    if (create_json(bb, spec, &body, err) < 0 ||
        call(bb, "POST", "/v1/sessions", body, provider_spec_deadline(spec), &answer, err) < 0)
        return -1;
    read_session(answer, arena, out);
    if (!rest_id_valid(out->id) || !str_starts(out->cdp_url, STR("ws")))
        return error_set(err, ERROR_UNAVAILABLE, "%s: a session without an id or a connectUrl",
                         bb->who);
    if (out->state == PROVIDER_ENDED)
        return error_set(err, ERROR_UNAVAILABLE, "%s: the session ended as it began", bb->who);
    return 0;
}

static int bb_get(struct provider *provider, const struct provider_ref *ref, struct arena *arena,
                  struct provider_sandbox *out, struct error *err)
{
    struct browserbase *bb = bb_of(provider);
    auto_json json_t *answer = NULL;
    char path[160];

    if (!rest_id_valid(ref->id))
        return error_set(err, ERROR_NOT_FOUND, "%s: that is no session id", bb->who);
    (void)snprintf(path, sizeof(path), "/v1/sessions/%.*s", STR_ARG(ref->id));
    if (call(bb, "GET", path, NULL, ref->deadline_us, &answer, err) < 0)
        return -1;
    read_session(answer, arena, out);
    if (!str_eq(out->id, ref->id))
        return error_set(err, ERROR_UNAVAILABLE, "%s: an answer about another session", bb->who);
    if (out->state == PROVIDER_ENDED)
        return error_set(err, ERROR_NOT_FOUND, "%s: session '%.*s' is over (%.*s)", bb->who,
                         STR_ARG(ref->id), STR_ARG(json_get_str(answer, "status")));
    return 0;
}

static int bb_connect(struct provider *provider, const struct provider_ref *ref, int64_t ttl_s,
                      struct arena *arena, struct provider_sandbox *out, struct error *err)
{
    (void)ttl_s; /* it was fixed when the session was made */
    return bb_get(provider, ref, arena, out, err);
}

static int bb_kill(struct provider *provider, const struct provider_ref *ref, struct error *err)
{
    struct browserbase *bb = bb_of(provider);
    auto_json json_t *body = json_pack("{s:s}", "status", "REQUEST_RELEASE");
    struct provider_sandbox session;
    auto_arena struct arena arena = {0};
    struct error why;
    char path[160];

    if (!rest_id_valid(ref->id))
        return 0; /* it cannot be there */
    if (bb->project[0])
        (void)json_object_set_new(body, "projectId", json_string(bb->project));
    (void)snprintf(path, sizeof(path), "/v1/sessions/%.*s", STR_ARG(ref->id));
    if (call(bb, "POST", path, body, ref->deadline_us, NULL, &why) == 0 ||
        why.code == ERROR_NOT_FOUND)
        return 0;
    /* A session that is over may refuse to be released again. */
    if ((why.code == ERROR_INVALID || why.code == ERROR_CONFLICT) &&
        bb_get(provider, ref, &arena, &session, err) < 0 && err->code == ERROR_NOT_FOUND)
        return 0;
    *err = why;
    return -1;
}

/* ---- find ---- */

/* The service's query names one member; all are compared in provider_find(). */
static int find_path(struct browserbase *bb, const struct pair *labels, size_t count,
                     struct buf *path, struct error *err)
{
    auto_buf struct buf query;

    buf_init(&query, 4096);
    buf_init(path, HTTP_URL_MAX);
    (void)buf_printf(path, "/v1/sessions?status=RUNNING");
    if (count == 0)
        return 0;
    for (size_t i = 0; i < 2; i++) {
        struct str text = i ? labels[0].value : labels[0].name;

        if (str_find(text, '\'') >= 0 || str_find(text, '\\') >= 0)
            return error_set(err, ERROR_INVALID, "%s: a label with a quote or backslash in it",
                             bb->who);
    }
    (void)buf_printf(&query, "user_metadata['%.*s']:'%.*s'", STR_ARG(labels[0].name),
                     STR_ARG(labels[0].value));
    rest_query(path, "q", buf_str(&query));
    return 0;
}

static int bb_find(struct provider *provider, const struct provider_query *query,
                   struct arena *arena, struct provider_sandbox **out, size_t *out_count,
                   struct error *err)
{
    struct browserbase *bb = bb_of(provider);
    auto_buf struct buf path = {0};
    auto_json json_t *answer = NULL;
    json_t *item;
    size_t i;

    *out = NULL;
    *out_count = 0;
    if (find_path(bb, query->labels, query->label_count, &path, err) < 0 ||
        call(bb, "GET", path.p, NULL, query->deadline_us, &answer, err) < 0)
        return -1;
    if (!json_is_array(answer))
        return error_set(err, ERROR_UNAVAILABLE, "%s: an answer that is no list of sessions",
                         bb->who);
    *out = arena_alloc(arena, (json_array_size(answer) + 1) * sizeof(**out));
    json_array_foreach (answer, i, item) {
        struct provider_sandbox *machine = &(*out)[*out_count];

        read_session(item, arena, machine);
        if (rest_id_valid(machine->id) && !is_over(json_get_str(item, "status")))
            (*out_count)++;
    }
    return 0;
}

static void browserbase_about(const struct provider *provider, struct provider_about *out)
{
    (void)provider;
    out->isolated_by = "unknown";
    out->runs_on = "a service";
}

static const struct provider_ops ops = {
    .type = "browserbase",
    .no_limits = true,
    .about = browserbase_about,
    .open = bb_open,
    .close = bb_close,
    .check = bb_check,
    .create = bb_create,
    .find = bb_find,
    .get = bb_get,
    .connect = bb_connect,
    .kill = bb_kill,
};

static const char *const aliases[] = {"bb", NULL};
static const char *const members[] = {"project_id", NULL};
static const struct provider_env envs[] = {
    {"BROWSERBASE_BASE_URL", "api_url"},
    {"BROWSERBASE_PROJECT_ID", "project_id"},
    {NULL, NULL},
};
const struct provider_type provider_type_browserbase = {.ops = &ops,
                                                        .aliases = aliases,
                                                        .members = members,
                                                        .envs = envs,
                                                        .key_env = "BROWSERBASE_API_KEY",
                                                        .remote = true};
