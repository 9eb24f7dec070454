/* POST /files/compose: several files become one. The whole is put together beside its destination
 * and takes that place at once; then the parts are deleted. A failure leaves everything as it was.
 *
 * Copying is left to the kernel, some megabytes per turn of the loop. */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "envd/core/envd.h"
#include "envd/files/files.h"
#include "envd/files/guest_path.h"
#include "envd/files/guest_stat.h"
#include "envd/files/upload_file.h"
#include "protocol/json/json_out.h"
#include "protocol/json/json_shape.h"

enum {
    BODY_MAX = 8 * 1024 * 1024,
    SOURCES_MAX = 65536,
    TURN_BYTES = 16 * 1024 * 1024,
    PIECE = 256 * 1024,
};

/* Freed when the exchange is over and the handle is closed. */
struct compose {
    struct envd *envd;
    struct http_exchange *ex;
    struct user user;
    char destination[PATH_MAX];
    char **sources;
    size_t count, at;
    int fd; /* of the source being copied */
    struct upload_file file;
    bool writing;
    uv_idle_t turn;
    unsigned refs;
};

static void compose_unref(struct compose *compose)
{
    if (--compose->refs > 0)
        return;
    if (compose->writing)
        upload_file_abort(&compose->file);
    close_fd(&compose->fd);
    for (size_t i = 0; i < compose->count; i++)
        free(compose->sources[i]);
    free(compose->sources);
    free(compose);
}

static void on_turn_closed(uv_handle_t *handle)
{
    compose_unref(handle->data);
}

static void on_done(struct http_exchange *ex, void *arg)
{
    struct compose *compose = arg;

    (void)ex;
    uv_close((uv_handle_t *)&compose->turn, on_turn_closed);
    compose_unref(compose);
}

static void fail(struct compose *compose, const struct error *err)
{
    if (compose->writing)
        upload_file_abort(&compose->file);
    compose->writing = false;
    envd_reply_failure(compose->ex, err);
}

/* ---- the request ---- */

static int check_source(const struct compose *compose, const char *path, struct str shown,
                        struct error *err)
{
    struct guest_stat st, destination;
    int r = guest_stat(path, true, &st);

    if (strcmp(path, compose->destination) == 0)
        return error_set(err, ERROR_INVALID,
                         "source path \"%.*s\" cannot be the same as destination", STR_ARG(shown));
    if (r != 0)
        return error_set(err, ERROR_NOT_FOUND, "source file not found: %.*s", STR_ARG(shown));
    if (!S_ISREG(st.mode) || guest_stat_is_own(&st))
        return error_set(err, ERROR_INVALID, "source path is not a regular file: %.*s",
                         STR_ARG(shown));
    /* Under another name: deleting the part would delete the whole. */
    if (guest_stat(compose->destination, true, &destination) == 0 && destination.ino == st.ino &&
        destination.dev_major == st.dev_major && destination.dev_minor == st.dev_minor)
        return error_set(err, ERROR_INVALID,
                         "source path \"%.*s\" cannot be the same as destination", STR_ARG(shown));
    return 0;
}

static int read_sources(struct compose *compose, const json_t *paths, struct error *err)
{
    const char *workdir = compose->envd->settings.default_workdir;
    size_t count = json_array_size(paths);
    char path[PATH_MAX];

    if (paths && !json_is_array(paths))
        return error_set(err, ERROR_INVALID, "invalid request body: source_paths is no array");
    if (count == 0)
        return error_set(err, ERROR_INVALID, "source_paths must not be empty");
    if (count > SOURCES_MAX)
        return error_set(err, ERROR_LIMIT, "more than %d source paths", SOURCES_MAX);
    compose->sources = xcalloc(count, sizeof(*compose->sources));
    for (size_t i = 0; i < count; i++) {
        const json_t *item = json_array_get(paths, i);
        struct str text = str_n(json_string_value(item), json_string_length(item));

        if (!json_is_string(item))
            return error_set(err, ERROR_INVALID, "invalid request body: a source path is no text");
        if (guest_path_resolve(text, &compose->user, workdir, path, err) != 0)
            return error_prefix(err, "error resolving source path");
        if (check_source(compose, path, text, err) != 0)
            return -1;
        compose->sources[compose->count++] = xstrdup(path);
    }
    return 0;
}

struct compose_request {
    json_t *source_paths;
    struct str destination, username;
};

static const struct json_field fields[] = {
    JSON_FIELD(struct compose_request, source_paths, "source_paths", 0),
    JSON_FIELD(struct compose_request, destination, "destination", 0),
    JSON_FIELD(struct compose_request, username, "username", 0),
    JSON_END,
};

static int find_user(struct compose *compose, struct str name, struct error *err)
{
    if (name.len == 0)
        name = str_of(compose->envd->settings.default_user);
    if (users_find(name, &compose->user, err) == 0)
        return 0;
    return error_set(err, ERROR_UNAUTHORIZED,
                     "error looking up user '%.*s': user: unknown user %.*s", STR_ARG(name),
                     STR_ARG(name));
}

static int prepare(struct compose *compose, struct str body, struct error *err)
{
    struct compose_request request = {0};
    auto_json json_t *tree = NULL;

    if (json_parse_as(fields, body.len ? body : STR("{}"), &request, &tree, err) != 0)
        return error_prefix(err, "invalid request body");
    if (json_array_size(request.source_paths) == 0 && !request.destination.len)
        return error_set(err, ERROR_INVALID, "source_paths must not be empty");
    if (!request.destination.len)
        return error_set(err, ERROR_INVALID, "destination is required");
    if (find_user(compose, request.username, err) != 0)
        return -1;
    if (guest_path_resolve(request.destination, &compose->user,
                           compose->envd->settings.default_workdir, compose->destination, err) != 0)
        return error_prefix(err, "error resolving destination path");
    if (read_sources(compose, request.source_paths, err) != 0 ||
        upload_file_open(&compose->file, compose->destination, &compose->user, err) != 0)
        return -1;
    compose->writing = true;
    return 0;
}

/* ---- copying ---- */

static ssize_t copy_by_hand(struct compose *compose, struct error *err)
{
    auto_free char *piece = xmalloc(PIECE);
    ssize_t n = fd_read_full(compose->fd, piece, PIECE);

    if (n > 0 && upload_file_write(&compose->file, str_n(piece, (size_t)n), err) != 0)
        return -1;
    if (n < 0)
        return error_set_errno(err, (int)-n, "error composing source %s",
                               compose->sources[compose->at]);
    return n;
}

/* How many bytes; 0 at the source's end. */
static ssize_t copy_some(struct compose *compose, struct error *err)
{
    ssize_t n = copy_file_range(compose->fd, NULL, compose->file.fd, NULL, TURN_BYTES, 0);

    if (n > 0)
        return n;
    if (n < 0 && (errno == ENOSPC || errno == EDQUOT))
        return error_set(err, ERROR_NO_SPACE, "not enough disk space available");
    /* Not between all file systems; and files of /proc say that they are empty. */
    return copy_by_hand(compose, err);
}

static int open_source(struct compose *compose, struct error *err)
{
    const char *path = compose->sources[compose->at];

    compose->fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (compose->fd < 0)
        return error_set_errno(err, errno, "error opening source file %s", path);
    return 0;
}

static void finish(struct compose *compose)
{
    const struct http_headers none = {0};
    auto_buf struct buf answer = {0};
    struct error err = {0};

    if (upload_file_commit(&compose->file, &none, &err) != 0) {
        fail(compose, &err);
        return;
    }
    compose->writing = false;
    for (size_t i = 0; i < compose->count; i++)
        (void)unlink(compose->sources[i]);
    buf_init(&answer, (size_t)12 * PATH_MAX); /* each byte may need six */
    json_out_open(&answer, NULL, '{');
    json_out_str(&answer, "name", guest_path_base(compose->destination));
    json_out_str(&answer, "path", str_of(compose->destination));
    json_out_str(&answer, "type", STR("file"));
    json_out_close(&answer, "}");
    envd_reply_json(compose->ex, 200, buf_str(&answer));
}

static void on_turn(uv_idle_t *turn)
{
    struct compose *compose = turn->data;
    struct error err = {0};
    int64_t budget = TURN_BYTES;

    while (budget > 0 && compose->at < compose->count) {
        ssize_t n = 0;

        if (compose->fd < 0 && open_source(compose, &err) != 0)
            n = -1;
        else
            n = copy_some(compose, &err);
        if (n < 0) {
            (void)uv_idle_stop(turn);
            fail(compose, &err);
            return;
        }
        budget -= n + PIECE; /* opening is not free either */
        if (n == 0) {
            close_fd(&compose->fd);
            compose->at++;
        }
    }
    if (compose->at < compose->count)
        return;
    (void)uv_idle_stop(turn);
    finish(compose);
}

static void on_body(struct http_exchange *ex, struct str body, void *arg)
{
    struct compose *compose = xcalloc(1, sizeof(*compose));
    struct error err = {0};

    compose->envd = arg;
    compose->ex = ex;
    compose->fd = compose->file.fd = -1;
    compose->refs = 2;
    (void)uv_idle_init(loop_uv(compose->envd->loop), &compose->turn);
    compose->turn.data = compose;
    http_on_done(ex, on_done, compose);
    if (prepare(compose, body, &err) != 0)
        fail(compose, &err);
    else
        (void)uv_idle_start(&compose->turn, on_turn);
}

void files_compose(struct envd *envd, struct http_exchange *ex)
{
    http_read_all(ex, BODY_MAX, on_body, envd);
}
