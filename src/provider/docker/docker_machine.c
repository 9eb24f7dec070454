/* A container after it was made: found, looked at, frozen, thawed, committed, removed.
 *
 * Pause freezes the container: files, memory and processes stay, and so does the memory's use. Where
 * the daemon cannot freeze (rootless on cgroup v1), or with the option pause: "stop", the container
 * is stopped: files stay, processes end. Connect thaws or starts, whichever is due. A daemon that
 * was restarted leaves its containers stopped, which is the same case. */
#include "provider/docker/docker.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "protocol/json/json_shape.h"

enum { CHANGE_MS = 60000, COMMIT_MS = 600000, FOUND_MAX = 10000, SETTLE_TRIES = 5 };

static enum provider_state state_of(struct str status)
{
    if (str_is(status, "running") || str_is(status, "restarting"))
        return PROVIDER_RUNNING;
    if (str_is(status, "removing") || str_is(status, "dead"))
        return PROVIDER_ENDED;
    /* paused, exited, stopped, created, configured, initialized: its files are there */
    return PROVIDER_PAUSED;
}

static void read_labels(struct arena *arena, json_t *labels, struct provider_sandbox *out)
{
    const char *name;
    json_t *value;

    out->labels = arena_alloc(arena, (json_object_size(labels) + 1) * sizeof(*out->labels));
    json_object_foreach (labels, name, value) {
        /* Empty: emptied in a snapshot it was made from. */
        if (json_string_length(value) == 0 || strcmp(name, DOCKER_MARK_LABEL) == 0 ||
            strcmp(name, DOCKER_ENV_LABEL) == 0)
            continue;
        out->labels[out->label_count++] = (struct pair){
            arena_str(arena, str_of(name)), arena_str(arena, str_of(json_string_value(value)))};
    }
}

static int inspect(struct docker *docker, const struct provider_ref *ref, json_t **out,
                   struct error *err)
{
    auto_buf struct buf path = {0};
    struct rest_request request = {
        .method = "GET", .timeout_ms = CHANGE_MS, .deadline_us = ref->deadline_us};

    if (docker_check_id(docker, ref->id, err) < 0)
        return -1;
    docker_path(&path, ref->id, "/json");
    request.path = path.p;
    if (docker_call(docker, &request, out, err) < 0)
        return -1;
    if (!rest_id_valid(json_get_str(*out, "Id")) || !json_is_object(json_object_get(*out, "State")))
        return error_set(err, ERROR_UNAVAILABLE, "%s: an answer that is no container's",
                         docker->who);
    return 0;
}

static void read_inspect(const json_t *answer, struct arena *arena, struct provider_sandbox *out)
{
    const json_t *state = json_object_get(answer, "State");
    const json_t *config = json_object_get(answer, "Config");
    struct str started = json_get_str(state, "StartedAt");

    *out = (struct provider_sandbox){
        .id = arena_str(arena, json_get_str(answer, "Id")),
        .state = state_of(json_get_str(state, "Status")),
        .image = arena_str(arena, json_get_str(config, "Image")),
    };
    if (!clock_parse(started, &out->started_at_us) || out->started_at_us < 0)
        out->started_at_us = 0;
    read_labels(arena, json_object_get(config, "Labels"), out);
}

int docker_get(struct provider *provider, const struct provider_ref *ref, struct arena *arena,
               struct provider_sandbox *out, struct error *err)
{
    struct docker *docker = docker_of(provider);
    auto_json json_t *answer = NULL;

    if (inspect(docker, ref, &answer, err) < 0)
        return -1;
    read_inspect(answer, arena, out);
    if (out->state == PROVIDER_ENDED)
        return error_set(err, ERROR_NOT_FOUND, "%s: container '%.*s' is being removed", docker->who,
                         STR_ARG(ref->id));
    return 0;
}

/* ---- find ---- */

static json_t *filters(const struct pair *labels, size_t count)
{
    json_t *list = json_pack("[s]", DOCKER_MARK_LABEL "=1");

    for (size_t i = 0; i < count; i++)
        (void)json_array_append_new(
            list, json_sprintf("%.*s=%.*s", STR_ARG(labels[i].name), STR_ARG(labels[i].value)));
    return json_pack("{s:o}", "label", list);
}

int docker_find(struct provider *provider, const struct provider_query *query, struct arena *arena,
                struct provider_sandbox **out, size_t *out_count, struct error *err)
{
    struct docker *docker = docker_of(provider);
    auto_json json_t *wanted = filters(query->labels, query->label_count);
    auto_json json_t *answer = NULL;
    json_t *item;
    auto_free char *text = json_text(wanted);
    auto_buf struct buf path;
    struct rest_request request = {
        .method = "GET", .timeout_ms = CHANGE_MS, .deadline_us = query->deadline_us};
    size_t i;

    *out = NULL;
    *out_count = 0;
    buf_init(&path, HTTP_URL_MAX);
    (void)buf_printf(&path, "/containers/json?all=1");
    rest_query(&path, "filters", str_of(text));
    if (path.overflowed)
        return error_set(err, ERROR_LIMIT, "%s: the labels are too long", docker->who);
    request.path = path.p;
    if (docker_call(docker, &request, &answer, err) < 0)
        return -1;
    if (!json_is_array(answer) || json_array_size(answer) > FOUND_MAX)
        return error_set(err, ERROR_UNAVAILABLE, "%s: an answer that is no list of containers",
                         docker->who);
    *out = arena_alloc(arena, (json_array_size(answer) + 1) * sizeof(**out));
    json_array_foreach (answer, i, item) {
        struct provider_sandbox *machine = &(*out)[*out_count];
        struct str id = json_get_str(item, "Id");

        if (!rest_id_valid(id) || state_of(json_get_str(item, "State")) == PROVIDER_ENDED)
            continue;
        *machine = (struct provider_sandbox){
            .id = arena_str(arena, id),
            .state = state_of(json_get_str(item, "State")),
            .image = arena_str(arena, json_get_str(item, "Image")),
            .started_at_us = json_integer_value(json_object_get(item, "Created")) * 1000000,
        };
        read_labels(arena, json_object_get(item, "Labels"), machine);
        (*out_count)++;
    }
    return 0;
}

/* ---- states ---- */

static int change(struct docker *docker, const struct provider_ref *ref, const char *verb,
                  struct error *err)
{
    auto_buf struct buf path;

    docker_path(&path, ref->id, verb);
    return docker_post(docker, "POST", path.p, CHANGE_MS, ref->deadline_us, err);
}

/* Another caller may do the same at the same time: what counts is the state afterwards. */
int docker_connect(struct provider *provider, const struct provider_ref *ref, int64_t ttl_s,
                   struct arena *arena, struct provider_sandbox *out, struct error *err)
{
    struct docker *docker = docker_of(provider);
    struct error why = {0};

    (void)ttl_s;
    for (int i = 0; i < SETTLE_TRIES; i++) {
        auto_json json_t *answer = NULL;
        struct str status;

        if (inspect(docker, ref, &answer, err) < 0)
            return -1;
        status = json_get_str(json_object_get(answer, "State"), "Status");
        if (state_of(status) == PROVIDER_RUNNING) {
            read_inspect(answer, arena, out);
            return 0;
        }
        if (state_of(status) == PROVIDER_ENDED)
            return error_set(err, ERROR_NOT_FOUND, "%s: container '%.*s' is being removed",
                             docker->who, STR_ARG(ref->id));
        if (change(docker, ref, str_is(status, "paused") ? "/unpause" : "/start", &why) < 0 &&
            (why.code == ERROR_NOT_FOUND || why.code == ERROR_TIMEOUT))
            break;
    }
    if (why.code == ERROR_NONE)
        return error_set(err, ERROR_CONFLICT, "%s: container '%.*s' does not stay up", docker->who,
                         STR_ARG(ref->id));
    *err = why;
    return -1;
}

int docker_pause(struct provider *provider, const struct provider_ref *ref, struct error *err)
{
    struct docker *docker = docker_of(provider);
    auto_json json_t *answer = NULL, *again = NULL;
    struct error why;

    if (inspect(docker, ref, &answer, err) < 0)
        return -1;
    if (state_of(json_get_str(json_object_get(answer, "State"), "Status")) != PROVIDER_RUNNING)
        return 0;
    if (!docker->freeze)
        return change(docker, ref, "/stop?t=5", err);
    if (change(docker, ref, "/pause", &why) == 0)
        return 0;
    if (inspect(docker, ref, &again, err) < 0)
        return -1;
    if (state_of(json_get_str(json_object_get(again, "State"), "Status")) != PROVIDER_RUNNING)
        return 0;
    if (why.code != ERROR_UNAVAILABLE && why.code != ERROR_INVALID) {
        *err = why;
        return -1;
    }
    log_warn("docker", "container=%.*s cannot be frozen, is stopped instead: %s", STR_ARG(ref->id),
             why.message);
    return change(docker, ref, "/stop?t=5", err);
}

int docker_kill(struct provider *provider, const struct provider_ref *ref, struct error *err)
{
    struct docker *docker = docker_of(provider);
    auto_buf struct buf path = {0};

    if (docker_check_id(docker, ref->id, err) < 0)
        return 0; /* it cannot be there */
    docker_path(&path, ref->id, "?force=1&v=1");
    if (docker_post(docker, "DELETE", path.p, CHANGE_MS, ref->deadline_us, err) == 0 ||
        err->code == ERROR_NOT_FOUND)
        return 0;
    /* Somebody else is removing it. */
    if (err->code == ERROR_CONFLICT && strstr(err->message, "already in progress"))
        return 0;
    return -1;
}

/* ---- snapshots ---- */

static bool name_valid(const char *name)
{
    size_t len = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-");

    return name[len] == '\0' && len > 0 && len <= 120 && name[0] != '-';
}

static bool plain(struct str s)
{
    static const char ok[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/";

    return s.len > 0 && s.len < 256 && strspn(s.p, ok) >= s.len;
}

/* An image keeps the labels and variables of its container, and a container made of it would have
 * them again: it would be found under the labels of another, and the values may be secrets. So they
 * are emptied in the image. */
static void add_changes(const json_t *container, struct buf *path)
{
    json_t *labels = json_object_get(json_object_get(container, "Config"), "Labels"), *value;
    struct str names = json_get_str(labels, DOCKER_ENV_LABEL);
    const char *name;
    char change[300];

    while (names.len > 0) {
        struct str one = str_split(&names, ',');

        (void)snprintf(change, sizeof(change), "ENV %.*s=", STR_ARG(one));
        if (plain(one))
            rest_query(path, "changes", str_of(change));
    }
    json_object_foreach (labels, name, value) {
        (void)snprintf(change, sizeof(change), "LABEL %s=\"\"", name);
        if (plain(str_of(name)))
            rest_query(path, "changes", str_of(change));
    }
}

int docker_snapshot(struct provider *provider, const struct provider_ref *ref, const char *name,
                    struct arena *arena, struct str *out, struct error *err)
{
    struct docker *docker = docker_of(provider);
    auto_json json_t *body = json_object(), *answer = NULL;
    auto_json json_t *container = NULL;
    auto_buf struct buf path = {0};
    struct rest_request request = {
        .method = "POST", .body = body, .timeout_ms = COMMIT_MS, .deadline_us = ref->deadline_us};

    if (!name_valid(name))
        return error_set(err, ERROR_INVALID, "%s: '%s' is no name for a snapshot", docker->who,
                         name);
    if (inspect(docker, ref, &container, err) < 0)
        return -1;
    buf_init(&path, HTTP_URL_MAX);
    (void)buf_printf(&path, "/commit?container=%.*s&repo=%s&tag=%s&pause=1", STR_ARG(ref->id),
                     DOCKER_SNAP_REPO, name);
    add_changes(container, &path);
    if (path.overflowed)
        return error_set(err, ERROR_LIMIT, "%s: too many labels and variables", docker->who);
    request.path = path.p;
    if (docker_call(docker, &request, &answer, err) < 0)
        return -1;
    if (!json_get_str(answer, "Id").len)
        return error_set(err, ERROR_UNAVAILABLE, "%s: a snapshot without an id", docker->who);
    *out = str_of(arena_printf(arena, "%s:%s", DOCKER_SNAP_REPO, name));
    return 0;
}

/* Never by force: podman would remove the containers that use the image. */
int docker_snapshot_delete(struct provider *provider, struct str team_id, struct str snapshot,
                           struct error *err)
{
    struct docker *docker = docker_of(provider);
    struct str name = snapshot, repo = str_split(&name, ':');
    auto_free char *tag = str_dup(name);
    auto_buf struct buf path = {0};

    (void)team_id;
    if (!str_is(repo, DOCKER_SNAP_REPO) || !name_valid(tag))
        return error_set(err, ERROR_INVALID, "%s: '%.*s' is no snapshot of ours", docker->who,
                         (int)(snapshot.len < 80 ? snapshot.len : 80), snapshot.p);
    buf_init(&path, HTTP_URL_MAX);
    (void)buf_printf(&path, "/images/%s:%s", DOCKER_SNAP_REPO, tag);
    if (docker_post(docker, "DELETE", path.p, CHANGE_MS, 0, err) == 0 ||
        err->code == ERROR_NOT_FOUND)
        return 0;
    return -1;
}

/* ---- ports ---- */

static struct str address_of(const json_t *answer)
{
    const json_t *settings = json_object_get(answer, "NetworkSettings");
    struct str address = json_get_str(settings, "IPAddress");
    const char *name;
    json_t *network;

    if (address.len)
        return address;
    json_object_foreach (json_object_get(settings, "Networks"), name, network) {
        address = json_get_str(network, "IPAddress");
        if (!address.len)
            address = json_get_str(network, "GlobalIPv6Address");
        if (address.len)
            return address;
    }
    return STR_NONE;
}

int docker_address(struct provider *provider, const struct provider_ref *ref, uint16_t port,
                   struct arena *arena, struct provider_address *out, struct error *err)
{
    struct docker *docker = docker_of(provider);
    auto_json json_t *answer = NULL;
    struct str address;
    bool six;

    if (inspect(docker, ref, &answer, err) < 0)
        return -1;
    address = address_of(answer);
    if (!address.len || address.len > 45 ||
        address.len != strspn(address.p, "0123456789abcdefABCDEF.:"))
        return error_set(err, ERROR_CONFLICT,
                         "%s: container '%.*s' has no network address (no network, or not running)",
                         docker->who, STR_ARG(ref->id));
    six = str_find(address, ':') >= 0;
    *out = (struct provider_address){0};
    out->url = str_of(arena_printf(arena, "http://%s%.*s%s:%u", six ? "[" : "", STR_ARG(address),
                                   six ? "]" : "", (unsigned)port));
    out->local_url = out->url;
    return 0;
}

/* ---- what it uses ---- */

static int64_t whole(const json_t *object, const char *name)
{
    const json_t *value = json_object_get(object, name);

    return json_is_integer(value) && json_integer_value(value) >= 0 ? json_integer_value(value)
                                                                    : -1;
}

/* 100 = all processors that the container may use. The daemon measures for a second. */
static double cpu_percent(const json_t *stats, int64_t cpu_count)
{
    const json_t *now = json_object_get(stats, "cpu_stats");
    const json_t *before = json_object_get(stats, "precpu_stats");
    int64_t used = whole(json_object_get(now, "cpu_usage"), "total_usage") -
                   whole(json_object_get(before, "cpu_usage"), "total_usage");
    int64_t host = whole(now, "system_cpu_usage") - whole(before, "system_cpu_usage");
    int64_t online = whole(now, "online_cpus");

    if (used < 0 || host <= 0 || online <= 0 || cpu_count <= 0)
        return -1;
    return (double)used / (double)host * (double)online * 100 / (double)cpu_count;
}

int docker_usage(struct provider *provider, const struct provider_ref *ref,
                 struct provider_usage *out, struct error *err)
{
    struct docker *docker = provider->impl;
    struct rest_request request = {
        .method = "GET", .timeout_ms = CHANGE_MS, .deadline_us = ref->deadline_us};
    auto_json json_t *about = NULL, *stats = NULL;
    auto_buf struct buf path = {0};
    const json_t *memory;
    int64_t nano, cache;

    if (inspect(docker, ref, &about, err) < 0)
        return -1;
    docker_path(&path, ref->id, "/stats?stream=false");
    request.path = path.p;
    if (docker_call(docker, &request, &stats, err) < 0)
        return -1;
    nano = whole(json_object_get(about, "HostConfig"), "NanoCpus");
    out->cpu_count = nano > 0 ? (nano + 999999999) / 1000000000
                              : whole(json_object_get(stats, "cpu_stats"), "online_cpus");
    out->cpu_percent = cpu_percent(stats, out->cpu_count);
    memory = json_object_get(stats, "memory_stats");
    out->mem_used = whole(memory, "usage");
    out->mem_total = whole(memory, "limit");
    /* As 'docker stats' shows it: without what the kernel can drop. */
    cache = whole(json_object_get(memory, "stats"), "inactive_file");
    if (cache > 0 && out->mem_used >= cache)
        out->mem_used -= cache;
    return 0;
}
