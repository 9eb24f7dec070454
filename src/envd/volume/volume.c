/* How it works: the request's path is cut into a directory and a name. The directory is opened with
 * links and ".." kept beneath the volume (openat2), and what is done to the name is done relative to
 * that descriptor and without following a link. So a guest that changes the tree meanwhile can make
 * a request fail, and no more. */
#include "envd/volume/volume.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/encode.h"
#include "base/path.h"
#include "envd/core/auth.h"
#include "protocol/http/http_errors.h"
#include "protocol/json/json_out.h"
#include "protocol/json/json_shape.h"

enum {
    BODY_MAX = 4096,
    LIST_MAX = 20000,
    LIST_TEXT_MAX = 16 * 1024 * 1024,
    DEPTH_MAX = 64,
    OWNER = 1000, /* the user that programs in sandboxes have by default */
    DIR_MODE = 0755,
    IDLE_MAX_S = 86400,
};

int volume_open(struct volume *volume, struct str id, struct error *err)
{
    if (!str_copy(id, volume->id, sizeof(volume->id)))
        return error_set(err, ERROR_INVALID, "'volumeID' is too long");
    volume->root_fd = open(VOLUME_DIR, O_PATH | O_DIRECTORY | O_CLOEXEC);
    volume->last_used_us = clock_mono_us();
    return volume->root_fd < 0 ? error_set_errno(err, errno, "open the volume") : 0;
}

int volume_error(struct error *err, int errnum, const char *what, const char *path)
{
    if (errnum == ENOENT || errnum == ENOTDIR)
        return error_set(err, ERROR_NOT_FOUND, "path '%.200s' not found", path);
    if (errnum == EEXIST)
        return error_set(err, ERROR_EXISTS, "path '%.200s' exists already", path);
    if (errnum == ELOOP)
        return error_set(err, ERROR_INVALID, "path '%.200s': too many links", path);
    if (errnum == EDQUOT)
        errnum = ENOSPC;
    return error_set_errno(err, errnum, "%s '%.200s'", what, path);
}

void volume_fail(struct http_exchange *ex, const struct error *err)
{
    auto_json json_t *json = json_object();
    auto_free char *text = NULL;

    json_object_set_new(json, "code", json_str(str_of(http_error_connect_code(err->code))));
    json_object_set_new(json, "message", json_str(str_of(err->message)));
    text = json_text(json);
    envd_reply_json(ex, http_error_status(err->code), str_of(text));
}

/* ---- places ---- */

int volume_place(const struct volume *volume, const char *path, struct volume_place *out,
                 struct error *err)
{
    char parent[PATH_MAX];
    char *slash;

    out->dir_fd = -1;
    (void)str_copy(str_of(path), out->path, sizeof(out->path));
    memcpy(parent, out->path, sizeof(parent));
    slash = strrchr(parent, '/');
    (void)str_copy(str_of(slash[1] ? slash + 1 : "."), out->name, sizeof(out->name));
    slash[slash == parent] = '\0';
    out->dir_fd = path_open_in_root(volume->root_fd, parent, O_PATH | O_DIRECTORY, 0);
    if (out->dir_fd < 0)
        return volume_error(err, -out->dir_fd, "open", out->path);
    return 0;
}

void volume_place_done(struct volume_place *place)
{
    close_fd(&place->dir_fd);
}

/* ---- entries ---- */

static const char *type_of(mode_t mode)
{
    if (S_ISREG(mode))
        return "file";
    if (S_ISDIR(mode))
        return "directory";
    return S_ISLNK(mode) ? "symlink" : "unknown";
}

static void add_time(struct buf *out, const char *name, const struct timespec *time)
{
    char text[CLOCK_TEXT_SIZE];

    clock_format((int64_t)time->tv_sec * 1000000 + time->tv_nsec / 1000, text);
    json_out_str(out, name, str_of(text));
}

static void add_stat(int dir_fd, const char *name, const char *path, const struct stat *st,
                     struct buf *out)
{
    char target[PATH_MAX];
    ssize_t len;

    json_out_open(out, NULL, '{');
    json_out_str(out, "name", str_of(strcmp(name, ".") == 0 ? "/" : name));
    json_out_str(out, "path", str_of(path));
    json_out_str(out, "type", str_of(type_of(st->st_mode)));
    json_out_int(out, "size", st->st_size);
    json_out_uint(out, "mode", st->st_mode & 07777U);
    json_out_uint(out, "uid", st->st_uid);
    json_out_uint(out, "gid", st->st_gid);
    add_time(out, "atime", &st->st_atim);
    add_time(out, "mtime", &st->st_mtim);
    add_time(out, "ctime", &st->st_ctim);
    if (S_ISLNK(st->st_mode) && (len = readlinkat(dir_fd, name, target, sizeof(target))) > 0)
        json_out_str(out, "target", str_n(target, (size_t)len));
    json_out_close(out, "}");
}

int volume_add_entry(const struct volume_place *place, struct buf *out, struct error *err)
{
    struct stat st;

    if (fstatat(place->dir_fd, place->name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return volume_error(err, errno, "stat", place->path);
    add_stat(place->dir_fd, place->name, place->path, &st, out);
    return 0;
}

static int reply_entry(struct http_exchange *ex, int status, const struct volume_place *place,
                       struct error *err)
{
    auto_buf struct buf text = {0};

    buf_init(&text, 64 * 1024);
    if (volume_add_entry(place, &text, err) < 0)
        return -1;
    envd_reply_json(ex, status, buf_str(&text));
    return 0;
}

int volume_set_owner(int fd, const struct volume_query *query, uid_t uid, gid_t gid, mode_t mode,
                     struct error *err)
{
    char by_fd[64];

    (void)snprintf(by_fd, sizeof(by_fd), "/proc/self/fd/%d", fd);
    if (fchownat(fd, "", query->uid >= 0 ? (uid_t)query->uid : uid,
                 query->gid >= 0 ? (gid_t)query->gid : gid, AT_EMPTY_PATH) < 0)
        return volume_error(err, errno, "change the owner of", query->path);
    if (query->mode >= 0)
        mode = (mode_t)query->mode;
    /* By its descriptor: a link is refused, not followed. */
    if (mode != (mode_t)-1 && chmod(by_fd, mode & 07777) < 0)
        return errno == EOPNOTSUPP ? error_set(err, ERROR_INVALID,
                                               "'%.200s' is a link: it has no mode", query->path)
                                   : volume_error(err, errno, "change the mode of", query->path);
    return 0;
}

/* ---- directories ---- */

struct listing {
    struct buf text;
    unsigned count;
    bool full;
};

static void list_level(int dir_fd_consume, const char *path, int64_t depth, struct listing *listing)
{
    DIR *dir = fdopendir(dir_fd_consume);
    struct dirent *entry;

    if (!dir) {
        close_fd(&dir_fd_consume);
        return;
    }
    while (!listing->full && (entry = readdir(dir))) {
        char below[PATH_MAX];
        struct stat st;
        int len = snprintf(below, sizeof(below), "%s/%s", strcmp(path, "/") == 0 ? "" : path,
                           entry->d_name);

        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 || len < 0 ||
            len >= PATH_MAX || fstatat(dirfd(dir), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
            continue;
        listing->count++;
        add_stat(dirfd(dir), entry->d_name, below, &st, &listing->text);
        listing->full = listing->count >= LIST_MAX || listing->text.overflowed;
        if (depth > 1 && S_ISDIR(st.st_mode)) {
            int fd =
                openat(dirfd(dir), entry->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

            if (fd >= 0)
                list_level(fd, below, depth - 1, listing);
        }
    }
    (void)closedir(dir);
}

static int dir_get(struct envd *envd, struct http_exchange *ex, const struct volume_query *query,
                   struct error *err)
{
    auto_buf struct buf text = {0};
    struct listing listing = {0};
    int fd;

    if (query->depth == 0 || query->depth > DEPTH_MAX)
        return error_set(err, ERROR_INVALID, "'depth' must be from 1 to %d", DEPTH_MAX);
    fd = path_open_in_root(envd->volume.root_fd, query->path, O_RDONLY | O_DIRECTORY, 0);
    if (fd < 0)
        return volume_error(err, -fd, "open", query->path);
    buf_init(&listing.text, LIST_TEXT_MAX);
    (void)buf_add_char(&listing.text, '[');
    list_level(fd, query->path, query->depth < 0 ? 1 : query->depth, &listing);
    (void)buf_add_char(&listing.text, ']');
    text = listing.text;
    if (listing.full)
        return error_set(err, ERROR_LIMIT, "more than %d entries: list a directory below",
                         LIST_MAX);
    envd_reply_json(ex, 200, buf_str(&text));
    return 0;
}

static int make_dir(int dir_fd, const char *name, const struct volume_query *query,
                    struct error *err)
{
    auto_close int fd = -1;

    if (mkdirat(dir_fd, name, 0700) < 0)
        return volume_error(err, errno, "make", query->path);
    fd = openat(dir_fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return volume_error(err, errno, "open", query->path);
    return volume_set_owner(fd, query, OWNER, OWNER, DIR_MODE, err);
}

/* All that is missing above the last part. */
static int make_parents(const struct volume *volume, const struct volume_query *query,
                        struct error *err)
{
    char path[PATH_MAX];

    memcpy(path, query->path, sizeof(path));
    for (char *p = path + 1; (p = strchr(p, '/')); *p++ = '/') {
        auto_place struct volume_place place = {.dir_fd = -1};

        *p = '\0';
        if (volume_place(volume, path, &place, err) < 0)
            return -1;
        if (make_dir(place.dir_fd, place.name, query, err) < 0 && err->code != ERROR_EXISTS)
            return -1;
    }
    return 0;
}

static int dir_post(struct envd *envd, struct http_exchange *ex, const struct volume_query *query,
                    struct error *err)
{
    auto_place struct volume_place place = {.dir_fd = -1};
    struct stat st;

    if (query->force && make_parents(&envd->volume, query, err) < 0)
        return -1;
    if (volume_place(&envd->volume, query->path, &place, err) < 0)
        return -1;
    if (make_dir(place.dir_fd, place.name, query, err) < 0 &&
        !(query->force && err->code == ERROR_EXISTS &&
          fstatat(place.dir_fd, place.name, &st, 0) == 0 && S_ISDIR(st.st_mode)))
        return -1;
    return reply_entry(ex, 201, &place, err);
}

/* ---- any path ---- */

static int path_get(struct envd *envd, struct http_exchange *ex, const struct volume_query *query,
                    struct error *err)
{
    auto_place struct volume_place place = {.dir_fd = -1};

    if (volume_place(&envd->volume, query->path, &place, err) < 0)
        return -1;
    return reply_entry(ex, 200, &place, err);
}

static int path_delete(struct envd *envd, struct http_exchange *ex,
                       const struct volume_query *query, struct error *err)
{
    auto_place struct volume_place place = {.dir_fd = -1};
    struct stat st;
    int r;

    if (volume_place(&envd->volume, query->path, &place, err) < 0)
        return -1;
    if (strcmp(place.name, ".") == 0)
        return error_set(err, ERROR_INVALID, "the volume itself cannot be removed from inside");
    if (fstatat(place.dir_fd, place.name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return volume_error(err, errno, "stat", place.path);
    r = path_remove_tree(place.dir_fd, place.name);
    if (r < 0)
        return volume_error(err, -r, "remove", place.path);
    http_reply(ex, 204, NULL, 0, STR_NONE);
    return 0;
}

struct change {
    int64_t uid, gid, mode;
};

static const struct json_field change_fields[] = {
    JSON_FIELD(struct change, uid, "uid", 0),
    JSON_FIELD(struct change, gid, "gid", 0),
    JSON_FIELD(struct change, mode, "mode", 0),
    JSON_END,
};

static int patch(struct envd *envd, struct http_exchange *ex, struct str body, struct error *err)
{
    auto_place struct volume_place place = {.dir_fd = -1};
    struct change change = {-1, -1, -1};
    auto_json json_t *tree = NULL;
    struct volume_query query = {0};
    auto_close int fd = -1;

    if (volume_query_read(http_request(ex)->query, &query, err) < 0 ||
        json_parse_as(change_fields, body, &change, &tree, err) < 0)
        return -1;
    query.uid = change.uid;
    query.gid = change.gid;
    query.mode = change.mode;
    if (volume_query_check(&query, err) < 0 ||
        volume_place(&envd->volume, query.path, &place, err) < 0)
        return -1;
    fd = openat(place.dir_fd, place.name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return volume_error(err, errno, "open", place.path);
    if (volume_set_owner(fd, &query, (uid_t)-1, (gid_t)-1, (mode_t)-1, err) < 0)
        return -1;
    return reply_entry(ex, 200, &place, err);
}

static void on_patch(struct http_exchange *ex, struct str body, void *arg)
{
    struct error err = {0};

    if (patch(arg, ex, body, &err) < 0)
        volume_fail(ex, &err);
}

/* ---- requests ---- */

static int dispatch(struct envd *envd, struct http_exchange *ex, struct error *err)
{
    const struct http_request *request = http_request(ex);
    struct volume_query query = {0};
    struct str kind;

    if (!volume_query_kind(envd->volume.id, request->path, &kind))
        return error_set(err, ERROR_NOT_FOUND, "the token is not for this volume");
    if (volume_query_read(request->query, &query, err) < 0)
        return -1;
    if (str_is(kind, "dir") && str_is(request->method, "GET"))
        return dir_get(envd, ex, &query, err);
    if (str_is(kind, "dir") && str_is(request->method, "POST"))
        return dir_post(envd, ex, &query, err);
    if (str_is(kind, "path") && str_is(request->method, "GET"))
        return path_get(envd, ex, &query, err);
    if (str_is(kind, "path") && str_is(request->method, "DELETE"))
        return path_delete(envd, ex, &query, err);
    if (str_is(kind, "path") && str_is(request->method, "PATCH"))
        http_read_all(ex, BODY_MAX, on_patch, envd);
    else if (str_is(kind, "file") && str_is(request->method, "GET"))
        volume_file_get(envd, ex, &query);
    else if (str_is(kind, "file") && str_is(request->method, "PUT"))
        volume_file_put(envd, ex, &query);
    else
        return error_set(err, ERROR_NOT_FOUND, "there is no such endpoint");
    return 0;
}

/* For the engine: 204 when nothing happened for so many seconds, else 409. */
static void reply_idle(struct envd *envd, struct http_exchange *ex)
{
    int64_t seconds = 0;
    struct error err = {0};

    if (volume_query_number(http_request(ex)->query, "seconds", &seconds, &err) < 0 ||
        seconds < 0 || seconds > IDLE_MAX_S)
        envd_reply_error(ex, 400, "'seconds' is missing or too many");
    else if (envd->volume.open > 0 ||
             clock_mono_us() - envd->volume.last_used_us < seconds * 1000000)
        envd_reply_error(ex, 409, "busy");
    else
        http_reply(ex, 204, NULL, 0, STR_NONE);
}

static bool authorized(const struct envd *envd, const struct http_exchange *ex)
{
    struct str header = http_header(ex, "authorization");

    return str_starts(header, STR("Bearer ")) &&
           auth_token_is(&envd->settings, str_trim(str_skip(header, 7)));
}

void volume_handle(struct envd *envd, struct http_exchange *ex)
{
    struct error err = {0};

    if (str_is(http_request(ex)->path, "/idle")) {
        reply_idle(envd, ex);
        return;
    }
    envd->volume.last_used_us = clock_mono_us();
    if (!authorized(envd, ex))
        (void)error_set(&err, ERROR_UNAUTHORIZED, "the volume's token is missing or wrong");
    if (err.code != ERROR_NONE || dispatch(envd, ex, &err) < 0)
        volume_fail(ex, &err);
}
