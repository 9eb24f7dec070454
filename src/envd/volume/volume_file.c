/* Reading and writing files of a volume. A file is written beside its place and renamed when it is
 * whole; only through a link it is written where the link leads. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/id.h"
#include "base/path.h"
#include "envd/volume/volume.h"

enum { OWNER = 1000, FILE_MODE = 0644, DROP_MAX = 64 * 1024 * 1024 };

/* ---- reading ---- */

static void on_read_done(struct http_exchange *ex, void *arg)
{
    struct volume *volume = arg;

    (void)ex;
    volume->open--;
    volume->last_used_us = clock_mono_us();
}

static int open_file(const struct volume *volume, const struct volume_query *query, int *out_fd,
                     struct stat *st, struct error *err)
{
    auto_close int fd =
        path_open_in_root(volume->root_fd, query->path, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0);

    if (fd < 0) {
        int errnum = -fd;

        fd = -1;
        return volume_error(err, errnum, "open", query->path);
    }
    if (fstat(fd, st) < 0)
        return volume_error(err, errno, "stat", query->path);
    if (!S_ISREG(st->st_mode))
        return error_set(err, ERROR_INVALID, "path '%.200s' is not a regular file", query->path);
    *out_fd = take_fd(&fd);
    return 0;
}

void volume_file_get(struct envd *envd, struct http_exchange *ex, const struct volume_query *query)
{
    static const struct pair headers[] = {
        {STR_INIT("content-type"), STR_INIT("application/octet-stream")},
        {STR_INIT("access-control-allow-origin"), STR_INIT("*")},
    };
    struct error err = {0};
    struct stat st = {0};
    int fd = -1;

    if (open_file(&envd->volume, query, &fd, &st, &err) < 0) {
        volume_fail(ex, &err);
        return;
    }
    envd->volume.open++;
    http_on_done(ex, on_read_done, &envd->volume);
    http_begin(ex, 200, headers, sizeof(headers) / sizeof(headers[0]), st.st_size);
    http_write_file(ex, fd, 0, st.st_size);
    http_end(ex);
}

/* ---- writing ---- */

struct writing {
    struct volume *volume;
    struct volume_query query;
    struct volume_place place;
    int fd;
    char temp[64]; /* "": written in place */
    struct error err;
    size_t dropped;
    bool replied;
};

static void writing_free(struct writing *writing)
{
    if (writing->temp[0])
        (void)unlinkat(writing->place.dir_fd, writing->temp, 0);
    close_fd(&writing->fd);
    volume_place_done(&writing->place);
    free(writing);
}

static void on_write_done(struct http_exchange *ex, void *arg)
{
    struct writing *writing = arg;

    on_read_done(ex, writing->volume);
    writing_free(writing);
}

static int open_temp(struct writing *writing, const struct stat *st)
{
    struct volume_place *place = &writing->place;
    struct error *err = &writing->err;
    char id[17];

    id_hex(id, 8);
    (void)snprintf(writing->temp, sizeof(writing->temp), ".quicksand-upload-%s", id);
    writing->fd = openat(place->dir_fd, writing->temp,
                         O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (writing->fd < 0) {
        writing->temp[0] = '\0';
        return volume_error(err, errno, "make", place->path);
    }
    return volume_set_owner(writing->fd, &writing->query, st ? st->st_uid : OWNER,
                            st ? st->st_gid : OWNER, st ? st->st_mode & 07777 : FILE_MODE, err);
}

static int open_linked(struct writing *writing)
{
    struct stat st;

    writing->fd = path_open_in_root(writing->volume->root_fd, writing->place.path,
                                    O_WRONLY | O_CREAT | O_NONBLOCK | O_NOCTTY, FILE_MODE);
    if (writing->fd < 0)
        return volume_error(&writing->err, -writing->fd, "open", writing->place.path);
    if (fstat(writing->fd, &st) < 0 || !S_ISREG(st.st_mode))
        return error_set(&writing->err, ERROR_INVALID, "path '%.200s' is not a regular file",
                         writing->place.path);
    if (ftruncate(writing->fd, 0) < 0)
        return volume_error(&writing->err, errno, "shorten", writing->place.path);
    return volume_set_owner(writing->fd, &writing->query, (uid_t)-1, (gid_t)-1, (mode_t)-1,
                            &writing->err);
}

static int begin(struct writing *writing)
{
    struct volume_place *place = &writing->place;
    struct error *err = &writing->err;
    struct stat st;

    if (volume_place(writing->volume, writing->query.path, place, err) < 0)
        return -1;
    if (fstatat(place->dir_fd, place->name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? open_temp(writing, NULL)
                               : volume_error(err, errno, "stat", place->path);
    if (writing->query.force_given && !writing->query.force)
        return volume_error(err, EEXIST, "write", place->path);
    if (S_ISLNK(st.st_mode))
        return open_linked(writing);
    if (!S_ISREG(st.st_mode))
        return error_set(err, ERROR_INVALID, "path '%.200s' is not a regular file", place->path);
    return open_temp(writing, &st);
}

static void on_data(struct http_exchange *ex, struct str data, void *arg)
{
    struct writing *writing = arg;
    int r;

    if (writing->err.code == ERROR_NONE) {
        r = fd_write_full(writing->fd, data.p, data.len);
        if (r < 0)
            (void)volume_error(&writing->err, -r, "write", writing->place.path);
        return;
    }
    /* So that the client sees the answer and not a broken connection; but not for ever. */
    writing->dropped += data.len;
    if (writing->dropped > DROP_MAX && !writing->replied) {
        writing->replied = true;
        volume_fail(ex, &writing->err);
    }
}

static int commit(struct writing *writing, struct buf *out)
{
    struct volume_place *place = &writing->place;

    if (writing->temp[0] && renameat(place->dir_fd, writing->temp, place->dir_fd, place->name) < 0)
        return volume_error(&writing->err, errno, "replace", place->path);
    writing->temp[0] = '\0';
    return volume_add_entry(place, out, &writing->err);
}

static void on_end(struct http_exchange *ex, void *arg)
{
    struct writing *writing = arg;
    auto_buf struct buf text = {0};

    if (writing->replied)
        return;
    writing->replied = true;
    buf_init(&text, 64 * 1024);
    if (writing->err.code == ERROR_NONE && commit(writing, &text) == 0)
        envd_reply_json(ex, 201, buf_str(&text));
    else
        volume_fail(ex, &writing->err);
}

void volume_file_put(struct envd *envd, struct http_exchange *ex, const struct volume_query *query)
{
    struct writing *writing = xcalloc(1, sizeof(*writing));

    writing->volume = &envd->volume;
    writing->query = *query;
    writing->fd = writing->place.dir_fd = -1;
    envd->volume.open++;
    http_on_done(ex, on_write_done, writing);
    (void)begin(writing);
    http_read_stream(ex, on_data, on_end, writing);
}
