/* Sandboxes and snapshots by the API. */
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "protocol/json/json_shape.h"
#include "provider/e2b/e2b.h"

enum {
    CREATE_MS = 120 * 1000,
    REFRESH_MAX_S = 3600, /* of the call that only ever extends */
    FIND_MAX = 100,
    PATH_SIZE = 512,
};

/* "/sandboxes/ID<tail>" */
static int make_path(const struct e2b *e2b, struct str id, const char *tail, char out[PATH_SIZE],
                     struct error *err)
{
    if (!rest_id_valid(id))
        return error_set(err, ERROR_INVALID, "%s: '%.*s' is not the id of a sandbox", e2b->who,
                         (int)(id.len < 60 ? id.len : 60), id.p ? id.p : "");
    (void)snprintf(out, PATH_SIZE, "/sandboxes/%.*s%s", STR_ARG(id), tail);
    return 0;
}

static int read_sandbox(const struct e2b *e2b, const json_t *json, struct arena *arena,
                        struct provider_sandbox *out, struct error *err)
{
    struct str id = json_get_str(json, "sandboxID"), started = json_get_str(json, "startedAt");
    struct str alias = json_get_str(json, "alias"); /* the template's name, for people */

    if (!rest_id_valid(id))
        return error_set(err, ERROR_UNAVAILABLE, "%s: the answer has no id of a sandbox", e2b->who);
    *out = (struct provider_sandbox){
        .id = arena_str(arena, id),
        .state = str_is(json_get_str(json, "state"), "paused") ? PROVIDER_PAUSED : PROVIDER_RUNNING,
        .image = arena_str(arena, alias.len ? alias : json_get_str(json, "templateID")),
        .token = arena_str(arena, json_get_str(json, "envdAccessToken")),
    };
    if (started.p)
        (void)clock_parse(started, &out->started_at_us);
    out->label_count = json_pairs(json_object_get(json, "metadata"), arena, &out->labels);
    return 0;
}

/* What may be reached, everything else being denied. */
static json_t *restricted_network(const struct provider_spec *spec)
{
    json_t *allow = json_array();

    (void)json_array_extend(allow, spec->allow_domains);
    (void)json_array_extend(allow, spec->allow_cidrs);
    return json_pack("{s:o, s:[s]}", "allowOut", allow, "denyOut", "0.0.0.0/0");
}

/* Ours, not E2B's: only where it is configured to be known. */
static void add_peers(json_t *body, json_t *peers)
{
    if (!json_object_get(body, "network"))
        (void)json_object_set_new(body, "network", json_object());
    (void)json_object_set(json_object_get(body, "network"), "peers", peers);
}

static json_t *create_body(const struct e2b *e2b, const struct provider_spec *spec)
{
    struct str from = spec->snapshot.len ? spec->snapshot
                      : spec->image.len  ? spec->image
                                         : str_of(e2b->image);
    json_t *body = json_object();

    (void)json_object_set_new(body, "templateID", json_str(from));
    (void)json_object_set_new(body, "timeout",
                              json_integer(spec->ttl_s > 0 ? spec->ttl_s : e2b->ttl_s));
    (void)json_object_set_new(body, "autoPause", json_boolean(spec->pause_at_ttl));
    (void)json_object_set_new(body, "secure", json_boolean(e2b->secure));
    (void)json_object_set_new(body, "allow_internet_access",
                              json_boolean(spec->egress != EGRESS_DENY_ALL));
    (void)json_object_set_new(body, "metadata", json_of_pairs(spec->labels, spec->label_count));
    if (spec->env_count)
        (void)json_object_set_new(body, "envVars", json_of_pairs(spec->env, spec->env_count));
    if (spec->egress == EGRESS_RESTRICTED)
        (void)json_object_set_new(body, "network", restricted_network(spec));
    if (spec->peers)
        add_peers(body, spec->peers);
    return body;
}

int e2b_create(struct provider *provider, const struct provider_spec *spec, struct arena *arena,
               struct provider_sandbox *out, struct error *err)
{
    const struct e2b *e2b = provider->impl;
    auto_json json_t *body = NULL, *answer = NULL;

    if (spec->cpu || spec->mem_mb || spec->disk_mb)
        return error_set(
            err, ERROR_UNSUPPORTED,
            "provider '%s' does not support cpu, memory and disk of a single sandbox: its "
            "template has them",
            provider->name);
    body = create_body(e2b, spec);
    if (e2b_call(
            provider,
            &(struct e2b_call){provider_spec_deadline(spec), "POST", "/sandboxes", body, CREATE_MS},
            &answer, err) < 0 ||
        read_sandbox(e2b, answer, arena, out, err) < 0)
        return -1;
    out->started_at_us = out->started_at_us ? out->started_at_us : clock_wall_us();
    out->labels = arena_pairs(arena, spec->labels, spec->label_count);
    out->label_count = spec->label_count;
    return 0;
}

/* Servers decode the parameter, then the whole filter, then each name and value. */
static void add_filter(struct buf *path, const struct pair *labels, size_t count)
{
    auto_buf struct buf filter = {0}, twice = {0};

    buf_init(&filter, HTTP_URL_MAX);
    buf_init(&twice, HTTP_URL_MAX);
    for (size_t i = 0; i < count; i++) {
        if (i)
            (void)buf_add_char(&filter, '&');
        rest_encode(&filter, labels[i].name);
        (void)buf_add_char(&filter, '=');
        rest_encode(&filter, labels[i].value);
    }
    /* The signs between them stay signs. */
    for (size_t i = 0; i < filter.len; i++)
        if (filter.p[i] == '%')
            (void)buf_add_str(&twice, STR("%25"));
        else
            (void)buf_add_char(&twice, filter.p[i]);
    rest_query(path, "metadata", buf_str(&twice));
}

int e2b_find(struct provider *provider, const struct provider_query *query, struct arena *arena,
             struct provider_sandbox **out, size_t *out_count, struct error *err)
{
    const struct e2b *e2b = provider->impl;
    auto_json json_t *answer = NULL;
    auto_buf struct buf path = {0};
    const json_t *item;
    size_t i;

    buf_init(&path, HTTP_URL_MAX);
    (void)buf_add_str(&path, STR("/v2/sandboxes"));
    if (query->label_count)
        add_filter(&path, query->labels, query->label_count);
    (void)buf_printf(&path, "%cstate=running,paused&limit=%d", query->label_count ? '&' : '?',
                     FIND_MAX);
    if (path.overflowed)
        return error_set(err, ERROR_LIMIT, "%s: the labels are too long", e2b->who);
    if (e2b_call(provider, &(struct e2b_call){query->deadline_us, "GET", path.p}, &answer, err) < 0)
        return -1;
    if (!json_is_array(answer))
        return error_set(err, ERROR_UNAVAILABLE, "%s: the answer is no list", e2b->who);
    *out = arena_alloc(arena, (json_array_size(answer) + 1) * sizeof(**out));
    json_array_foreach (answer, i, item) {
        if (read_sandbox(e2b, item, arena, &(*out)[i], err) < 0)
            return -1;
    }
    *out_count = i;
    return 0;
}

int e2b_get(struct provider *provider, const struct provider_ref *ref, struct arena *arena,
            struct provider_sandbox *out, struct error *err)
{
    const struct e2b *e2b = provider->impl;
    auto_json json_t *answer = NULL;
    char path[PATH_SIZE];

    if (make_path(e2b, ref->id, "", path, err) < 0 ||
        e2b_call(provider, &(struct e2b_call){ref->deadline_us, "GET", path}, &answer, err) < 0)
        return -1;
    return read_sandbox(e2b, answer, arena, out, err);
}

int e2b_connect(struct provider *provider, const struct provider_ref *ref, int64_t ttl_s,
                struct arena *arena, struct provider_sandbox *out, struct error *err)
{
    const struct e2b *e2b = provider->impl;
    auto_json json_t *body = NULL, *answer = NULL;
    char path[PATH_SIZE];

    body = json_pack("{s:I}", "timeout", (json_int_t)(ttl_s > 0 ? ttl_s : e2b->ttl_s));
    if (make_path(e2b, ref->id, "/connect", path, err) < 0 ||
        e2b_call(provider, &(struct e2b_call){ref->deadline_us, "POST", path, body, CREATE_MS},
                 &answer, err) < 0 ||
        read_sandbox(e2b, answer, arena, out, err) < 0)
        return -1;
    out->state = PROVIDER_RUNNING;
    return 0;
}

int e2b_pause(struct provider *provider, const struct provider_ref *ref, struct error *err)
{
    auto_arena struct arena arena = {0};
    struct provider_sandbox sandbox = {0};
    struct error ignored = {0};
    char path[PATH_SIZE];

    if (make_path(provider->impl, ref->id, "/pause", path, err) < 0)
        return -1;
    if (e2b_call(provider, &(struct e2b_call){ref->deadline_us, "POST", path, NULL, CREATE_MS},
                 NULL, err) == 0)
        return 0;
    /* 409 may mean that it is paused already, or that it cannot be now. */
    if (err->code != ERROR_CONFLICT || e2b_get(provider, ref, &arena, &sandbox, &ignored) < 0 ||
        sandbox.state != PROVIDER_PAUSED)
        return -1;
    *err = (struct error){0};
    return 0;
}

/* Gone already is success. */
static int forgive_absent(int result, struct error *err)
{
    if (result == 0 || err->code != ERROR_NOT_FOUND)
        return result;
    *err = (struct error){0};
    return 0;
}

int e2b_kill(struct provider *provider, const struct provider_ref *ref, struct error *err)
{
    char path[PATH_SIZE];

    if (make_path(provider->impl, ref->id, "", path, err) < 0)
        return -1;
    return forgive_absent(
        e2b_call(provider, &(struct e2b_call){ref->deadline_us, "DELETE", path}, NULL, err), err);
}

int e2b_extend(struct provider *provider, const struct provider_ref *ref, int64_t ttl_s,
               struct error *err)
{
    bool refresh = ttl_s <= REFRESH_MAX_S;
    auto_json json_t *body =
        json_pack("{s:I}", refresh ? "duration" : "timeout", (json_int_t)ttl_s);
    char path[PATH_SIZE];

    if (ttl_s < 1)
        return error_set(err, ERROR_INVALID, "a sandbox lives for at least a second");
    if (make_path(provider->impl, ref->id, refresh ? "/refreshes" : "/timeout", path, err) < 0)
        return -1;
    return e2b_call(provider, &(struct e2b_call){ref->deadline_us, "POST", path, body}, NULL, err);
}

static int64_t measure(const json_t *sample, const char *name)
{
    const json_t *value = json_object_get(sample, name);

    return json_is_number(value) && json_number_value(value) >= 0
               ? (int64_t)json_number_value(value)
               : -1;
}

int e2b_usage(struct provider *provider, const struct provider_ref *ref, struct provider_usage *out,
              struct error *err)
{
    const struct e2b *e2b = provider->impl;
    auto_json json_t *answer = NULL;
    const json_t *last, *percent;
    char path[PATH_SIZE];

    if (make_path(e2b, ref->id, "/metrics", path, err) < 0 ||
        e2b_call(provider, &(struct e2b_call){ref->deadline_us, "GET", path}, &answer, err) < 0)
        return -1;
    if (!json_is_array(answer))
        return error_set(err, ERROR_UNAVAILABLE,
                         "%s: unexpected answer: expected a list of metrics", e2b->who);
    last = json_array_get(answer, json_array_size(answer) - 1);
    if (!last) /* not measured yet */
        return 0;
    percent = json_object_get(last, "cpuUsedPct");
    (void)clock_parse(json_get_str(last, "timestamp"), &out->at_us);
    out->cpu_percent = json_is_number(percent) ? json_number_value(percent) : -1;
    out->cpu_count = measure(last, "cpuCount");
    out->mem_used = measure(last, "memUsed");
    out->mem_total = measure(last, "memTotal");
    out->disk_used = measure(last, "diskUsed");
    out->disk_total = measure(last, "diskTotal");
    return 0;
}

int e2b_snapshot(struct provider *provider, const struct provider_ref *ref, const char *name,
                 struct arena *arena, struct str *out, struct error *err)
{
    const struct e2b *e2b = provider->impl;
    auto_json json_t *body = name && name[0] ? json_pack("{s:s}", "name", name) : json_object();
    auto_json json_t *answer = NULL;
    struct str id;
    char path[PATH_SIZE];

    if (make_path(e2b, ref->id, "/snapshots", path, err) < 0 ||
        e2b_call(provider, &(struct e2b_call){ref->deadline_us, "POST", path, body, CREATE_MS},
                 &answer, err) < 0)
        return -1;
    id = json_get_str(answer, "snapshotID");
    if (id.len == 0 || id.len > 256)
        return error_set(err, ERROR_UNAVAILABLE, "%s: the answer has no id of a snapshot",
                         e2b->who);
    *out = arena_str(arena, id);
    return 0;
}

int e2b_snapshot_delete(struct provider *provider, struct str team_id, struct str snapshot,
                        struct error *err)
{
    auto_buf struct buf path = {0};

    (void)team_id;
    buf_init(&path, HTTP_URL_MAX);
    (void)buf_add_str(&path, STR("/templates/"));
    rest_encode(&path, snapshot);
    if (path.overflowed || snapshot.len == 0)
        return error_set(err, ERROR_INVALID, "this is not the id of a snapshot");
    return forgive_absent(e2b_call(provider, &(struct e2b_call){0, "DELETE", path.p}, NULL, err),
                          err);
}
