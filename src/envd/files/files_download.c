/* GET /files: one file, sent by the kernel, or compressed here in pieces as the client takes them.
 *
 * Files of /proc say size 0 and have content all the same; those are read first, whatever their
 * size, up to UNSIZED_MAX. */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "envd/files/files.h"
#include "envd/files/files_accept.h"
#include "envd/files/files_query.h"
#include "envd/files/files_type.h"
#include "envd/files/guest_path.h"
#include "envd/files/guest_stat.h"
#include "envd/files/gzip.h"
#include "envd/view/proc_files.h"

enum {
    UNSIZED_MAX = 4 * 1024 * 1024,
    PIECE = 64 * 1024,
    PIECES_PER_TURN = 4, /* compressed, then others get their turn */
    HEADERS_MAX = 10,
    COMPRESSIONS_MAX = 64, /* at once; each needs 400 KiB. Others get the file as it is. */
};

static unsigned compressions;

struct download {
    struct http_exchange *ex;
    const char *path;
    struct guest_stat st;
    struct files_version version;
    enum files_encoding encoding;
    int fd; /* -1: the file that envd serves itself */
    struct pair headers[HEADERS_MAX];
    size_t header_count;
};

/* Opens without waiting for anybody: a FIFO's writer, a lease, or envd itself. */
static int open_regular(const char *path, int *out_fd, struct guest_stat *st, struct error *err)
{
    auto_close int place = open(path, O_PATH | O_CLOEXEC);
    char by_fd[64];
    int r = place < 0 ? -errno : guest_stat_fd(place, st);

    if (r == -ENOENT || r == -ENOTDIR)
        return error_set(err, ERROR_NOT_FOUND, "path '%s' does not exist", path);
    if (r != 0)
        return error_set_errno(err, -r, "error checking if path exists '%s'", path);
    if (S_ISDIR(st->mode)) /* NOLINT: set when r is 0 */
        return error_set(err, ERROR_INVALID, "path '%s' is a directory", path);
    if (!S_ISREG(st->mode))
        return error_set(err, ERROR_INVALID, "path '%s' is not a regular file", path);
    *out_fd = -1;
    if (guest_stat_is_own(st))
        return 0;
    (void)snprintf(by_fd, sizeof(by_fd), "/proc/self/fd/%d", place);
    *out_fd = open(by_fd, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (*out_fd < 0)
        return error_set_errno(err, errno, "error opening file '%s'", path);
    return 0;
}

/* ---- headers ---- */

static void add_header(struct download *download, struct str name, struct str value)
{
    if (download->header_count < HEADERS_MAX)
        download->headers[download->header_count++] = (struct pair){name, value};
}

static void describe(struct download *download)
{
    const struct guest_stat *st = &download->st;
    struct files_version *version = &download->version;
    struct str name = guest_path_base(download->path);

    version->size = st->size;
    version->mtime_s = st->mtime_s;
    (void)snprintf(version->etag, sizeof(version->etag), "\"%llx-%llx-%llx.%x\"",
                   (unsigned long long)st->ino, (unsigned long long)st->size,
                   (unsigned long long)st->mtime_s, st->mtime_ns);
    files_accept_date(st->mtime_s, version->date);
    add_header(download, STR("content-type"), files_type_of(name));
    add_header(download, STR("content-disposition"),
               files_type_disposition(http_arena(download->ex), name));
    add_header(download, STR("vary"), STR("Accept-Encoding"));
    add_header(download, STR("access-control-allow-origin"), STR("*"));
    if (download->encoding == FILES_GZIP) {
        add_header(download, STR("content-encoding"), STR("gzip"));
        return;
    }
    add_header(download, STR("last-modified"), str_of(version->date));
    add_header(download, STR("etag"), str_of(version->etag));
    add_header(download, STR("accept-ranges"), STR("bytes"));
}

/* ---- as it is ---- */

static void reply_bad_range(struct download *download)
{
    struct arena *arena = http_arena(download->ex);
    struct pair headers[] = {
        {STR("content-type"), STR("application/json")},
        {STR("content-range"),
         str_of(arena_printf(arena, "bytes */%lld", (long long)download->version.size))},
        {STR("access-control-allow-origin"), STR("*")},
    };

    http_reply(download->ex, 416, headers, sizeof(headers) / sizeof(headers[0]),
               STR("{\"code\":416,\"message\":\"invalid range\"}"));
}

static struct files_answer decide_part(const struct download *download)
{
    return files_accept_part(&http_request(download->ex)->headers, &download->version);
}

/* True when there is nothing to send. */
static bool reply_without_content(struct download *download, int status)
{
    if (status == 304)
        http_reply(download->ex, 304, download->headers, download->header_count, STR(""));
    else if (status == 412)
        envd_reply_error(download->ex, 412, "the file is not the one asked for");
    else if (status == 416)
        reply_bad_range(download);
    else
        return false;
    return true;
}

static void send_part(struct download *download)
{
    struct files_answer answer = decide_part(download);
    struct arena *arena = http_arena(download->ex);

    if (reply_without_content(download, answer.status))
        return;
    if (answer.status == 206)
        add_header(download, STR("content-range"),
                   str_of(arena_printf(arena, "bytes %lld-%lld/%lld", (long long)answer.offset,
                                       (long long)(answer.offset + answer.length - 1),
                                       (long long)download->version.size)));
    http_begin(download->ex, answer.status, download->headers, download->header_count,
               answer.length);
    http_write_file(download->ex, take_fd(&download->fd), answer.offset, answer.length);
    http_end(download->ex);
}

/* ---- compressed ---- */

/* Freed when the exchange is over and the handle is closed. */
struct compression {
    struct http_exchange *ex;
    struct gzip *gzip;
    uv_idle_t turn;
    int fd;
    unsigned refs;
    bool done;
};

static void compression_unref(struct compression *work)
{
    if (--work->refs > 0)
        return;
    compressions--;
    gzip_free(work->gzip);
    close_fd(&work->fd);
    free(work);
}

static void on_turn_closed(uv_handle_t *handle)
{
    compression_unref(handle->data);
}

static void on_compression_done(struct http_exchange *ex, void *arg)
{
    struct compression *work = arg;

    (void)ex;
    work->done = true;
    uv_close((uv_handle_t *)&work->turn, on_turn_closed);
    compression_unref(work);
}

static int send_piece(void *arg, struct str data)
{
    (void)http_write(((struct compression *)arg)->ex, data.p, data.len);
    return 0;
}

static void on_turn(uv_idle_t *turn);

static void compress_on(struct compression *work)
{
    auto_free char *piece = xmalloc(PIECE);

    for (int i = 0; i < PIECES_PER_TURN && !work->done; i++) {
        ssize_t n = fd_read_full(work->fd, piece, PIECE);

        if (n < 0) {
            work->done = true;
            http_abort(work->ex); /* too late for a status */
            return;
        }
        (void)gzip_feed(work->gzip, str_n(piece, (size_t)n), n < PIECE, send_piece, work);
        if (n < PIECE) {
            work->done = true;
            http_end(work->ex);
            return;
        }
        if (http_pending(work->ex) > HTTP_HIGH_WATER)
            return; /* on_drain goes on */
    }
    (void)uv_idle_start(&work->turn, on_turn);
}

static void on_turn(uv_idle_t *turn)
{
    struct compression *work = turn->data;

    (void)uv_idle_stop(turn);
    if (!work->done)
        compress_on(work);
}

static void on_drain(struct http_exchange *ex, void *arg)
{
    struct compression *work = arg;

    (void)ex;
    if (!work->done)
        (void)uv_idle_start(&work->turn, on_turn);
}

static void send_compressed(struct download *download)
{
    struct compression *work = xcalloc(1, sizeof(*work));

    work->ex = download->ex;
    work->fd = take_fd(&download->fd);
    work->gzip = gzip_new();
    work->refs = 2;
    compressions++;
    (void)uv_idle_init(loop_uv(http_loop(work->ex)), &work->turn);
    work->turn.data = work;
    http_on_done(work->ex, on_compression_done, work);
    http_on_drain(work->ex, on_drain, work);
    http_begin(work->ex, 200, download->headers, download->header_count, -1);
    compress_on(work);
}

/* ---- read first ---- */

static int read_unsized(int fd, uint64_t ino, struct buf *out)
{
    if (fd < 0)
        return proc_files_read_own(ino, out);
    for (;;) {
        char *to = buf_reserve(out, PIECE);
        ssize_t n = to ? fd_read_full(fd, to, PIECE) : -EFBIG;

        if (n < 0)
            return (int)n;
        buf_grew(out, (size_t)n);
        if (n < PIECE)
            return 0;
    }
}

static int add_compressed(void *arg, struct str data)
{
    return buf_add_str(arg, data) ? 0 : -1;
}

static void send_unsized(struct download *download)
{
    auto_buf struct buf content, packed;
    int r;

    buf_init(&content, UNSIZED_MAX);
    buf_init(&packed, (size_t)2 * UNSIZED_MAX);
    if (reply_without_content(download, decide_part(download).status))
        return;
    r = read_unsized(download->fd, download->st.ino, &content);
    if (r < 0) {
        envd_reply_error(download->ex, 500, "error reading file");
        return;
    }
    if (download->encoding == FILES_GZIP) {
        struct gzip *gzip = gzip_new();

        (void)gzip_feed(gzip, buf_str(&content), true, add_compressed, &packed);
        gzip_free(gzip);
    }
    http_reply(download->ex, 200, download->headers, download->header_count,
               buf_str(download->encoding == FILES_GZIP ? &packed : &content));
}

void files_download(struct envd *envd, struct http_exchange *ex)
{
    auto_files_query struct files_query query = {0};
    const struct http_headers *request = &http_request(ex)->headers;
    struct download download = {.ex = ex, .fd = -1};
    char path[PATH_MAX];
    struct error err = {0};

    if (files_query_read(&query, envd, ex, "read") != 0)
        return;
    download.path = path;
    if (guest_path_resolve(buf_str(&query.path), &query.user, envd->settings.default_workdir, path,
                           &err) != 0 ||
        open_regular(path, &download.fd, &download.st, &err) != 0) {
        envd_reply_failure(ex, &err);
        return;
    }
    download.encoding = files_accept_encoding(http_headers_get(request, "accept-encoding"),
                                              files_accept_is_conditional(request) ||
                                                  compressions >= COMPRESSIONS_MAX);
    describe(&download);
    if (download.encoding == FILES_NOTHING)
        envd_reply_error(ex, 406,
                         "error parsing Accept-Encoding: no acceptable encoding found, "
                         "supported: [gzip]");
    else if (download.fd < 0 || download.st.size == 0)
        send_unsized(&download);
    else if (download.encoding == FILES_GZIP)
        send_compressed(&download);
    else
        send_part(&download);
    close_fd(&download.fd);
}
