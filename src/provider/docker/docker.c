/* The Docker Engine API, as dockerd and podman's service speak it.
 *
 * How it works: plain requests go through fetch; a process is attached to by a connection of our own
 * that the daemon hijacks (docker_conn.c, docker_stream.c). Nothing is kept between calls but the
 * negotiated version of the API. A container stays alive by a shell loop as its first process, which
 * also reaps what is left behind, so neither the image's entry point nor an init of the host is
 * needed. What an image must have: sh, sleep, grep, mv, rm, find, stat, mkdir (coreutils or busybox).
 */
#include "provider/docker/docker.h"

#include <string.h>
#include <sys/un.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "protocol/json/json_shape.h"

enum { API_MAJOR = 1, API_MINOR = 40, API_MINOR_MAX = 999 };

#define DEFAULT_SOCKET "/var/run/docker.sock"

/* ---- settings ---- */

static int set_address(struct docker *docker, const char *url, const char *socket,
                       struct error *err)
{
    struct str rest = str_of(url);

    if (rest.len == 0 || str_starts(rest, STR("unix://"))) {
        const char *path = rest.len ? url + strlen("unix://") : socket;

        if (path[0] != '/' || strlen(path) >= sizeof(((struct sockaddr_un *)0)->sun_path))
            return error_set(err, ERROR_INVALID,
                             "%s: socket '%s' is no absolute path of a usable length", docker->who,
                             path);
        docker->unix_path = xstrdup(path);
        docker->base = xstrdup("http://docker");
        return 0;
    }
    if (str_starts(rest, STR("tcp://"))) {
        ptrdiff_t colon;
        uint64_t port;

        rest = str_skip(rest, strlen("tcp://"));
        if (str_ends(rest, STR("/")))
            rest.len--;
        for (colon = (ptrdiff_t)rest.len - 1; colon >= 0 && rest.p[colon] != ':'; colon--)
            ;
        if (colon > 0 && str_to_u64(str_skip(rest, (size_t)colon + 1), &port) && port > 0 &&
            port < 65536 && str_find(rest, '/') < 0) {
            docker->host = str_dup(str_n(rest.p, (size_t)colon));
            docker->port = xasprintf("%u", (unsigned)port);
            docker->base = xasprintf("http://%.*s", STR_ARG(rest));
            return 0;
        }
    }
    return error_set(
        err, ERROR_INVALID,
        "%s: api_url '%s' must be unix:///path or tcp://host:port (no TLS: put it behind "
        "an ssh or TLS tunnel)",
        docker->who, url);
}

static char *option_text(const json_t *options, const char *name, const char *otherwise)
{
    struct str value = json_get_str(options, name);

    return value.len ? str_dup(value) : xstrdup(otherwise);
}

static int option_bool(struct docker *docker, const json_t *options, const char *name, bool *out,
                       struct error *err)
{
    const json_t *value = json_object_get(options, name);

    if (value && !json_is_boolean(value))
        return error_set(err, ERROR_INVALID, "%s: '%s' must be true or false", docker->who, name);
    if (value)
        *out = json_is_true(value);
    return 0;
}

/* "a" or "b"; *out: is it the first? */
static int option_choice(struct docker *docker, const json_t *options, const char *name,
                         const char *first, const char *second, bool *out, struct error *err)
{
    struct str value = json_get_str(options, name);

    if (!json_object_get(options, name))
        return 0;
    if (!str_is(value, first) && !str_is(value, second))
        return error_set(err, ERROR_INVALID, "%s: '%s' must be \"%s\" or \"%s\"", docker->who, name,
                         first, second);
    *out = str_is(value, first);
    return 0;
}

static int option_names(struct docker *docker, const json_t *options, const char *name,
                        json_t **out, struct error *err)
{
    json_t *value = json_object_get(options, name), *item;
    size_t i;

    if (!value)
        return 0;
    if (!json_is_array(value))
        return error_set(err, ERROR_INVALID, "%s: '%s' must be an array of strings", docker->who,
                         name);
    json_array_foreach (value, i, item) {
        if (!json_is_string(item))
            return error_set(err, ERROR_INVALID, "%s: '%s' must be an array of strings",
                             docker->who, name);
    }
    json_decref(*out);
    *out = json_incref(value);
    return 0;
}

static int set_options(struct docker *docker, const json_t *options, struct error *err)
{
    const json_t *pids = json_object_get(options, "pids_limit");
    const json_t *mounts = json_object_get(options, "allow_mounts");

    docker->image = option_text(options, "image", "");
    docker->user = option_text(options, "user", "");
    docker->network = option_text(options, "network", "bridge");
    docker->runtime = option_text(options, "runtime", "");
    docker->no_new_privileges = docker->pull = docker->freeze = true;
    docker->pids_limit = 4096;
    docker->cap_drop = json_pack("[sss]", "NET_RAW", "MKNOD", "AUDIT_WRITE");
    if (option_bool(docker, options, "no_new_privileges", &docker->no_new_privileges, err) < 0 ||
        option_bool(docker, options, "init", &docker->init, err) < 0 ||
        option_choice(docker, options, "pull", "missing", "never", &docker->pull, err) < 0 ||
        option_choice(docker, options, "pause", "freeze", "stop", &docker->freeze, err) < 0 ||
        option_names(docker, options, "cap_drop", &docker->cap_drop, err) < 0 ||
        option_names(docker, options, "cap_add", &docker->cap_add, err) < 0)
        return -1;
    if (pids) {
        docker->pids_limit = json_integer_value(pids);
        if (docker->pids_limit < 8 || docker->pids_limit > 4194304)
            return error_set(err, ERROR_INVALID, "%s: 'pids_limit' must be 8..4194304",
                             docker->who);
    }
    if (json_is_array(mounts))
        return option_names(docker, options, "allow_mounts", &docker->mounts, err);
    if (mounts && !json_is_boolean(mounts))
        return error_set(err, ERROR_INVALID,
                         "%s: 'allow_mounts' must be true, false or an array of host directories",
                         docker->who);
    if (json_is_true(mounts))
        docker->mounts = json_true();
    return 0;
}

static void docker_close(struct provider *provider)
{
    struct docker *docker = provider->impl;

    if (!docker)
        return;
    free(docker->base);
    free(docker->unix_path);
    free(docker->host);
    free(docker->port);
    free(docker->image);
    free(docker->user);
    free(docker->network);
    free(docker->runtime);
    json_decref(docker->cap_drop);
    json_decref(docker->cap_add);
    json_decref(docker->mounts);
    (void)pthread_mutex_destroy(&docker->lock);
    free(docker);
    provider->impl = NULL;
}

static int docker_open(struct provider *provider, const struct provider_config *config,
                       struct error *err)
{
    struct docker *docker = xcalloc(1, sizeof(*docker));
    auto_free char *socket = option_text(config->options, "socket", DEFAULT_SOCKET);

    provider->impl = docker;
    (void)pthread_mutex_init(&docker->lock, NULL);
    (void)snprintf(docker->who, sizeof(docker->who), "docker '%s'", config->name);
    if (set_address(docker, config->api_url ? config->api_url : "", socket, err) < 0 ||
        set_options(docker, config->options, err) < 0) {
        docker_close(provider);
        return -1;
    }
    docker->rest = (struct rest){
        .fetch = config->fetch,
        .who = docker->who,
        .base = docker->base,
        .unix_path = docker->unix_path,
    };
    provider->caps = (struct provider_caps){
        .features = PROVIDER_FILES | PROVIDER_PAUSE | PROVIDER_SNAPSHOT | PROVIDER_PTY |
                    PROVIDER_JOB_LOGS | PROVIDER_JOB_STOP | PROVIDER_HOOKS | PROVIDER_PORTS |
                    PROVIDER_EXEC | PROVIDER_FIND | (docker->mounts ? PROVIDER_MOUNTS : 0),
        .egress = EGRESS_ALLOW_ALL | EGRESS_DENY_ALL,
        .isolation = ISOLATION_PROCESS,
        .snapshot_kind = "docker-image",
    };
    return 0;
}

/* ---- calls ---- */

static bool parse_version(struct str text, uint64_t *minor)
{
    struct str rest = text, major = str_split(&rest, '.');
    uint64_t number;

    return str_to_u64(major, &number) && number == API_MAJOR && str_to_u64(rest, minor) &&
           *minor <= API_MINOR_MAX;
}

static int negotiate(struct docker *docker, int64_t deadline_us, char out[16], struct error *err)
{
    auto_json json_t *answer = NULL;
    struct rest_request request = {.method = "GET",
                                   .path = "/version",
                                   .timeout_ms = 15000,
                                   .deadline_us = deadline_us,
                                   .answer_max = 256 * 1024};
    uint64_t newest, oldest, use = API_MINOR;

    if (rest_call(&docker->rest, &request, &answer, err) < 0)
        return -1;
    if (!parse_version(json_get_str(answer, "ApiVersion"), &newest))
        return error_set(err, ERROR_UNAVAILABLE, "%s: what answers is no Docker Engine API",
                         docker->who);
    if (!parse_version(json_get_str(answer, "MinAPIVersion"), &oldest))
        oldest = 0;
    if (oldest > use)
        use = oldest;
    if (newest < use)
        return error_set(err, ERROR_UNSUPPORTED,
                         "%s: the daemon speaks API 1.%llu at most, 1.%d is needed: upgrade it",
                         docker->who, (unsigned long long)newest, API_MINOR);
    (void)snprintf(out, 16, "v1.%u", (unsigned)use);
    return 0;
}

int docker_version(struct docker *docker, int64_t deadline_us, char out[16], struct error *err)
{
    (void)pthread_mutex_lock(&docker->lock);
    memcpy(out, docker->version, 16);
    (void)pthread_mutex_unlock(&docker->lock);
    if (out[0])
        return 0;
    if (negotiate(docker, deadline_us, out, err) < 0)
        return -1;
    (void)pthread_mutex_lock(&docker->lock);
    memcpy(docker->version, out, 16);
    (void)pthread_mutex_unlock(&docker->lock);
    return 0;
}

int docker_call(struct docker *docker, const struct rest_request *request, json_t **out,
                struct error *err)
{
    struct rest_request versioned = *request;
    char version[16];
    auto_free char *path = NULL;

    if (docker_version(docker, request->deadline_us, version, err) < 0)
        return -1;
    path = xasprintf("/%s%s", version, request->path);
    versioned.path = path;
    return rest_call(&docker->rest, &versioned, out, err);
}

int docker_post(struct docker *docker, const char *method, const char *path, uint32_t timeout_ms,
                int64_t deadline_us, struct error *err)
{
    struct rest_request request = {
        .method = method, .path = path, .timeout_ms = timeout_ms, .deadline_us = deadline_us};

    return docker_call(docker, &request, NULL, err);
}

int docker_check_id(const struct docker *docker, struct str id, struct error *err)
{
    if (!rest_id_valid(id))
        return error_set(err, ERROR_NOT_FOUND, "%s: '%.*s' is no container id", docker->who,
                         (int)(id.len < 80 ? id.len : 80), id.p ? id.p : "");
    return 0;
}

void docker_path(struct buf *path, struct str id, const char *what)
{
    buf_init(path, HTTP_URL_MAX);
    (void)buf_printf(path, "/containers/%.*s%s", STR_ARG(id), what);
}

/* Also forgets the version: the daemon may have been upgraded. */
static int docker_check(struct provider *provider, struct error *err)
{
    struct docker *docker = docker_of(provider);
    char version[16];

    (void)pthread_mutex_lock(&docker->lock);
    docker->version[0] = '\0';
    (void)pthread_mutex_unlock(&docker->lock);
    return docker_version(docker, 0, version, err);
}

static void docker_about(const struct provider *provider, struct provider_about *out)
{
    (void)provider;
    out->isolated_by = "container";
    out->runs_on = "this host";
}

static const struct provider_ops ops = {
    .type = "docker",
    .no_disk_limit = true,
    .about = docker_about,
    .open = docker_open,
    .close = docker_close,
    .check = docker_check,
    .create = docker_create,
    .find = docker_find,
    .get = docker_get,
    .connect = docker_connect,
    .pause = docker_pause,
    .kill = docker_kill,
    .snapshot = docker_snapshot,
    .snapshot_delete = docker_snapshot_delete,
    .address = docker_address,
    .usage = docker_usage,
    .start = docker_start,
    .read = docker_read,
    .write = docker_write,
    .list = docker_list,
    .remove = docker_remove,
};

static const char *const members[] = {
    "socket", "image", "user",  "network",  "runtime", "pids_limit",   "no_new_privileges",
    "init",   "pull",  "pause", "cap_drop", "cap_add", "allow_mounts", NULL};
const struct provider_type provider_type_docker = {.ops = &ops, .members = members};
