/* What is where in a container's file system: relative paths, links, and the one header by which the
 * daemon tells about a file without running anything. */
#include "provider/docker/docker.h"

#include <string.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/encode.h"
#include "protocol/json/json_shape.h"

enum { LINKS_MAX = 16, SCRIPT_MS = 60000, STAT_MAX = 8 * 1024 };

/* As Go numbers its file modes, which is what the daemon sends. */
#define GO_MODE_DIR     (UINT32_C(1) << 31)
#define GO_MODE_SYMLINK (UINT32_C(1) << 27)

int docker_script(struct docker *docker, struct str container, const char *script, const char *a,
                  const char *b, struct buf *errors, struct error *err)
{
    const char *const argv[] = {"/bin/sh", "-c", script, "sh", a, b, NULL};
    struct docker_exec exec = {.argv = argv};
    int code;

    if (docker_run(docker, container, &exec, SCRIPT_MS, errors, errors, &code, err) < 0)
        return -1;
    return code;
}

int docker_path_resolve(struct docker *docker, struct str container, const char *path, char **out,
                        struct error *err)
{
    auto_buf struct buf home;
    struct str given = str_of(path);

    buf_init(&home, DOCKER_PATH_MAX);
    if (given.len == 0 || given.len >= DOCKER_PATH_MAX || !str_valid_utf8(given))
        return error_set(err, ERROR_INVALID, "%s: a path has 1..%d bytes of UTF-8", docker->who,
                         DOCKER_PATH_MAX - 1);
    if (docker_check_id(docker, container, err) < 0)
        return -1;
    if (given.p[0] == '/') {
        *out = xstrdup(path);
        return 0;
    }
    switch (docker_script(docker, container, "printf %s \"${HOME:-/}\"", NULL, NULL, &home, err)) {
    case -1:
        return -1;
    case 0:
        break;
    default:
        return error_set(err, ERROR_CONFLICT, "%s: the user's home is not known", docker->who);
    }
    if (home.len == 0 || home.p[0] != '/')
        return error_set(err, ERROR_CONFLICT, "%s: the user's home is no absolute path",
                         docker->who);
    *out = xasprintf("%s/%s", home.p, path);
    return 0;
}

/* "501", "501:20"; anything else is a name that only the container can look up. */
static bool parse_owner(struct str user, uint32_t *out_uid, uint32_t *out_gid)
{
    struct str group = user, name = str_split(&group, ':');
    uint64_t uid, gid;

    if (!str_to_u64(name, &uid) || !str_to_u64(group, &gid) || uid > UINT32_MAX >> 1 ||
        gid > UINT32_MAX >> 1)
        return false;
    *out_uid = (uint32_t)uid;
    *out_gid = (uint32_t)gid;
    return true;
}

/* The daemons' own parameter for this is of no use: dockerd looks the name up on the host. */
int docker_owner(struct docker *docker, struct str container, uint32_t *out_uid, uint32_t *out_gid,
                 struct error *err)
{
    auto_buf struct buf path, text;
    struct rest_request request = {.method = "GET"};
    auto_json json_t *answer = NULL;
    struct str user, line;
    int code;

    docker_path(&path, container, "/json");
    buf_init(&text, 256);
    request.path = path.p;
    if (docker_call(docker, &request, &answer, err) < 0)
        return -1;
    user = json_get_str(json_object_get(answer, "Config"), "User");
    *out_uid = *out_gid = 0;
    if (!user.len || str_is(user, "root") || str_is(user, "0") ||
        parse_owner(user, out_uid, out_gid))
        return 0;
    code = docker_script(docker, container, "echo \"$(id -u):$(id -g)\"", NULL, NULL, &text, err);
    if (code < 0)
        return -1;
    line = str_trim(buf_str(&text));
    if (code > 0 || !parse_owner(line, out_uid, out_gid))
        return error_set(err, ERROR_CONFLICT, "%s: the user's number is not known", docker->who);
    return 0;
}

void docker_stat_done(struct docker_stat *stat)
{
    free(stat->path);
    stat->path = NULL;
}

/* 1: there, *out_json is what the daemon tells; 0: missing; -1. */
static int head_archive(struct docker *docker, struct str container, const char *path,
                        json_t **out_json, struct error *err)
{
    auto_call struct http_call call = {.fd = -1};
    auto_buf struct buf url, text;
    struct str stat;

    docker_path(&url, container, "/archive");
    buf_init(&text, STAT_MAX);
    rest_query(&url, "path", str_of(path));
    if (docker_conn_request(docker, "HEAD", url.p, NULL, &call, err) < 0)
        return -1;
    if (call.status == 404)
        return 0;
    if (call.status != 200)
        return rest_refused(docker->who, "HEAD", call.status, -1, STR_NONE, err);
    stat = http_call_header(&call, "x-docker-container-path-stat");
    if (!stat.len || stat.len > STAT_MAX || !base64_decode(stat, &text) ||
        json_parse(buf_str(&text), out_json, err) < 0)
        return error_set(err, ERROR_UNAVAILABLE, "%s: it does not tell what '%s' is", docker->who,
                         path);
    return 1;
}

static char *join_link(const char *path, struct str target)
{
    const char *slash = strrchr(path, '/');

    if (target.p[0] == '/')
        return str_dup(target);
    return xasprintf("%.*s/%.*s", (int)(slash ? slash - path : 0), path, STR_ARG(target));
}

int docker_stat(struct docker *docker, struct str container, const char *path,
                struct docker_stat *out, struct error *err)
{
    *out = (struct docker_stat){.path = xstrdup(path)};
    for (int i = 0; i < LINKS_MAX; i++) {
        auto_json json_t *json = NULL;
        struct str target;
        uint64_t mode;
        char *next;
        int got = head_archive(docker, container, out->path, &json, err);

        if (got <= 0)
            return got;
        mode = (uint64_t)json_integer_value(json_object_get(json, "mode"));
        target = json_get_str(json, "linkTarget");
        if (!(mode & GO_MODE_SYMLINK)) {
            out->exists = true;
            out->directory = mode & GO_MODE_DIR;
            out->mode = (uint32_t)mode & 0777;
            out->size = json_integer_value(json_object_get(json, "size"));
            return 0;
        }
        if (target.len == 0 || target.len >= DOCKER_PATH_MAX)
            break;
        next = join_link(out->path, target);
        free(out->path);
        out->path = next;
    }
    return error_set(err, ERROR_INVALID, "%s: '%s' is a link that leads nowhere", docker->who,
                     path);
}
