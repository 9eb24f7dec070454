/* Makes a container and starts it; one that does not start is removed again. */
#include "provider/docker/docker.h"

#include <limits.h>
#include <string.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "protocol/json/json_shape.h"

enum { CREATE_MS = 120000, PULL_MS = 600000, MOUNTS_MAX = 32, MEM_MB_MIN = 8 };

/* Keeps the container alive and reaps orphans: a shell that waits for one child takes every other
 * child's status on the way. SIGTERM ends it, so that a stop need not wait for its grace period. */
static const char *const keep_alive = "trap 'exit 0' TERM; while :; do sleep 3600 & wait $!; done";

static int add_pairs(const struct docker *docker, const struct pair *pairs, size_t count,
                     const char *what, json_t *list, json_t *object, struct error *err)
{
    for (size_t i = 0; i < count; i++) {
        struct str name = pairs[i].name, value = pairs[i].value;
        auto_free char *key = str_dup(name);

        if (name.len == 0 || str_find(name, '=') >= 0 || str_find(name, '\0') >= 0 ||
            str_find(value, '\0') >= 0 || !str_valid_utf8(name) || !str_valid_utf8(value))
            return error_set(err, ERROR_INVALID,
                             "%s: %s '%s' cannot be passed on: not UTF-8, or '=' "
                             "or NUL in it",
                             docker->who, what, key);
        if (object) {
            (void)json_object_set_new(object, key, json_str(value));
        } else {
            auto_free char *pair = xasprintf("%s=%.*s", key, STR_ARG(value));

            (void)json_array_append_new(list, json_string(pair));
        }
    }
    return 0;
}

/* ---- mounts ---- */

static bool beneath(const char *path, const char *dir)
{
    size_t len = strlen(dir);

    while (len > 1 && dir[len - 1] == '/')
        len--;
    if (len == 1)
        return true;
    return strncmp(path, dir, len) == 0 && (path[len] == '/' || path[len] == '\0');
}

/* The directory as it really is: links in it must not lead out of what the operator allowed. */
static int check_host_path(const struct docker *docker, const char *path, char real[PATH_MAX],
                           struct error *err)
{
    json_t *item;
    size_t i;

    if (path[0] != '/' || !realpath(path, real))
        return error_set(err, ERROR_INVALID, "%s: mount source '%s' is not there", docker->who,
                         path);
    if (json_is_true(docker->mounts))
        return 0;
    json_array_foreach (docker->mounts, i, item) {
        char allowed[PATH_MAX];

        if (realpath(json_string_value(item), allowed) && beneath(real, allowed))
            return 0;
    }
    return error_set(err, ERROR_FORBIDDEN, "%s: mount source '%s' is not beneath allow_mounts",
                     docker->who, path);
}

static struct str first_str(const json_t *object, const char *a, const char *b, const char *c)
{
    struct str value = json_get_str(object, a);

    if (!value.p)
        value = json_get_str(object, b);
    return value.p ? value : json_get_str(object, c);
}

static int add_mounts(const struct docker *docker, const json_t *mounts, json_t *host,
                      struct error *err)
{
    json_t *list, *mount;
    size_t i;

    if (!mounts || json_array_size(mounts) == 0)
        return 0;
    if (!docker->mounts)
        return error_set(err, ERROR_UNSUPPORTED,
                         "%s: mounts are not switched on (option allow_mounts)", docker->who);
    if (json_array_size(mounts) > MOUNTS_MAX)
        return error_set(err, ERROR_LIMIT, "%s: more than %d mounts", docker->who, MOUNTS_MAX);
    list = json_array();
    (void)json_object_set_new(host, "Mounts", list);
    json_array_foreach (mounts, i, mount) {
        char real[PATH_MAX];
        struct str guest = first_str(mount, "guest_path", "guestPath", "target");
        auto_free char *source = str_dup(first_str(mount, "host_path", "hostPath", "source"));
        bool read_only = json_is_true(json_object_get(mount, "read_only")) ||
                         json_is_true(json_object_get(mount, "readOnly")) ||
                         str_is(json_get_str(mount, "mode"), "ro");

        if (!str_starts(guest, STR("/")) || guest.len < 2)
            return error_set(err, ERROR_INVALID, "%s: a mount's guest_path must be absolute",
                             docker->who);
        if (check_host_path(docker, source, real, err) < 0)
            return -1;
        (void)json_array_append_new(list, json_pack("{s:s, s:s, s:o, s:b}", "Type", "bind",
                                                    "Source", real, "Target", json_str(guest),
                                                    "ReadOnly", read_only));
    }
    return 0;
}

/* ---- the container ---- */

static json_t *host_config(const struct docker *docker, const struct provider_spec *spec)
{
    json_t *host = json_object();
    int64_t memory = (spec->mem_mb < MEM_MB_MIN ? MEM_MB_MIN : spec->mem_mb) * 1024 * 1024;

    (void)json_object_set_new(
        host, "NetworkMode",
        json_string(spec->egress == EGRESS_DENY_ALL ? "none" : docker->network));
    (void)json_object_set_new(host, "PidsLimit", json_integer(docker->pids_limit));
    (void)json_object_set(host, "CapDrop", docker->cap_drop);
    if (docker->cap_add)
        (void)json_object_set(host, "CapAdd", docker->cap_add);
    if (docker->no_new_privileges)
        (void)json_object_set_new(host, "SecurityOpt", json_pack("[s]", "no-new-privileges"));
    if (docker->init)
        (void)json_object_set_new(host, "Init", json_true());
    if (docker->runtime[0])
        (void)json_object_set_new(host, "Runtime", json_string(docker->runtime));
    if (spec->cpu > 0)
        (void)json_object_set_new(host, "NanoCpus", json_integer(spec->cpu * 1000000000));
    if (spec->mem_mb > 0) {
        (void)json_object_set_new(host, "Memory", json_integer(memory));
        (void)json_object_set_new(host, "MemorySwap", json_integer(memory));
    }
    return host;
}

static json_t *env_names(const struct provider_spec *spec)
{
    auto_buf struct buf names;

    buf_init(&names, 64 * 1024);
    for (size_t i = 0; i < spec->env_count; i++)
        (void)buf_printf(&names, "%s%.*s", i ? "," : "", STR_ARG(spec->env[i].name));
    return json_str(buf_str(&names));
}

static int container_json(const struct docker *docker, const struct provider_spec *spec,
                          struct str image, json_t **out, struct error *err)
{
    json_t *host = host_config(docker, spec), *env = json_array(), *labels = json_object();
    auto_json json_t *body = json_pack(
        "{s:o, s:[], s:[s,s,s], s:o, s:o, s:o}", "Image", json_str(image), "Entrypoint", "Cmd",
        "/bin/sh", "-c", keep_alive, "Env", env, "Labels", labels, "HostConfig", host);

    (void)json_object_set_new(labels, DOCKER_MARK_LABEL, json_string("1"));
    (void)json_object_set_new(labels, DOCKER_ENV_LABEL, env_names(spec));
    if (docker->user[0])
        (void)json_object_set_new(body, "User", json_string(docker->user));
    if (add_pairs(docker, spec->labels, spec->label_count, "label", NULL, labels, err) < 0 ||
        add_pairs(docker, spec->env, spec->env_count, "variable", env, NULL, err) < 0 ||
        add_mounts(docker, spec->mounts, host, err) < 0)
        return -1;
    *out = take_ptr(&body);
    return 0;
}

/* The daemon tells progress line by line and answers 200 whatever happens; a failure is a line with
 * "error" in it. */
static int read_progress(struct docker *docker, struct fetch_stream *stream, struct error *err)
{
    int64_t deadline = clock_mono_ms() + PULL_MS;
    auto_buf struct buf tail;
    char piece[4096];

    buf_init(&tail, 2 * sizeof(piece));
    while (clock_mono_ms() < deadline) {
        ssize_t n = fetch_read(stream, piece, sizeof(piece), 10000, err);

        if (n < 0 && err->code == ERROR_TIMEOUT)
            continue;
        if (n < 0)
            return error_prefix(err, "%s: pull", docker->who);
        if (n == 0) {
            if (str_find_str(buf_str(&tail), STR("\"error\":")) >= 0)
                return rest_refused(docker->who, "pull", 404, -1,
                                    STR("the registry does not give it to the daemon"), err);
            return 0;
        }
        if (tail.len + (size_t)n > tail.max)
            buf_drop(&tail, tail.len);
        (void)buf_add(&tail, piece, (size_t)n);
    }
    return error_set(err, ERROR_TIMEOUT, "%s: pull: not done within %d s", docker->who,
                     PULL_MS / 1000);
}

static int pull(struct docker *docker, struct str image, const struct provider_spec *spec,
                struct error *err)
{
    char version[16];
    auto_buf struct buf url;
    struct fetch_stream *stream = NULL;
    struct fetch_request request = {.method = "POST",
                                    .unix_path = docker->unix_path,
                                    .timeout_ms = CREATE_MS,
                                    .deadline_us = provider_spec_deadline(spec)};
    struct str name = image;
    const char *slash = memrchr(image.p, '/', image.len);
    size_t from = slash ? (size_t)(slash - image.p) : 0;
    int64_t begin_us;
    int result;

    if (docker_version(docker, request.deadline_us, version, err) < 0)
        return -1;
    buf_init(&url, HTTP_URL_MAX);
    (void)buf_printf(&url, "%s/%s/images/create", docker->base, version);
    rest_query(&url, "fromImage", name);
    /* Without a tag all of a repository's images would be pulled. */
    if (str_find(str_skip(image, from), ':') < 0)
        rest_query(&url, "tag", STR("latest"));
    request.url = url.p;
    if (fetch_open(docker->rest.fetch, &request, &stream, err) < 0)
        return error_prefix(err, "%s: pull", docker->who);
    begin_us = clock_mono_us();
    result = fetch_status(stream) >= 400
                 ? rest_refused(docker->who, "pull", fetch_status(stream), -1,
                                STR("the daemon cannot get the image"), err)
                 : read_progress(docker, stream, err);
    fetch_close(stream);
    /* A daemon that tells its progress does not hang: that time is not counted. */
    if (request.deadline_us)
        *spec->deadline_us += clock_mono_us() - begin_us;
    return result;
}

static int start(struct docker *docker, struct str id, int64_t deadline_us, struct error *err)
{
    auto_buf struct buf path;
    struct error why, ignored;

    docker_path(&path, id, "/start");
    if (docker_post(docker, "POST", path.p, CREATE_MS, deadline_us, &why) == 0)
        return 0;
    buf_done(&path);
    docker_path(&path, id, "?force=1&v=1");
    (void)docker_post(docker, "DELETE", path.p, CREATE_MS, deadline_us, &ignored);
    if (why.code == ERROR_NOT_FOUND) /* e.g. a network that is not there */
        why.code = ERROR_INVALID;
    *err = why;
    return -1;
}

int docker_create(struct provider *provider, const struct provider_spec *spec, struct arena *arena,
                  struct provider_sandbox *out, struct error *err)
{
    struct docker *docker = docker_of(provider);
    struct str image = spec->snapshot.len ? spec->snapshot
                       : spec->image.len  ? spec->image
                                          : str_of(docker->image);
    auto_json json_t *body = NULL, *answer = NULL;
    struct rest_request request = {.method = "POST",
                                   .path = "/containers/create",
                                   .timeout_ms = CREATE_MS,
                                   .deadline_us = provider_spec_deadline(spec)};
    struct str id;
    int result;

    if (image.len == 0)
        return error_set(err, ERROR_INVALID, "%s: no image: give one, or set its option 'image'",
                         docker->who);
    if (container_json(docker, spec, image, &body, err) < 0)
        return -1;
    request.body = body;
    result = docker_call(docker, &request, &answer, err);
    if (result < 0 && err->code == ERROR_NOT_FOUND && docker->pull && !spec->snapshot.len) {
        if (pull(docker, image, spec, err) < 0)
            return error_prefix(err, "image '%.*s'", STR_ARG(image));
        request.deadline_us = provider_spec_deadline(spec);
        result = docker_call(docker, &request, &answer, err);
    }
    if (result < 0)
        return error_prefix(err, "image '%.*s'", STR_ARG(image));
    id = json_get_str(answer, "Id");
    if (!rest_id_valid(id))
        return error_set(err, ERROR_UNAVAILABLE, "%s: a container without an id", docker->who);
    if (start(docker, id, request.deadline_us, err) < 0)
        return -1;
    *out = (struct provider_sandbox){
        .id = arena_str(arena, id),
        .state = PROVIDER_RUNNING,
        .image = arena_str(arena, image),
        .started_at_us = clock_wall_us(),
        .labels = arena_pairs(arena, spec->labels, spec->label_count),
        .label_count = spec->label_count,
    };
    return 0;
}
