/* How it works
 *
 * Two buffers: the loop fills one while a worker writes the other. When the loop's is full the client waits. The
 * first piece of work makes the file and asks the spool whether the announced length would fit, before the body is
 * asked for: a client that sends "Expect: 100-continue" learns of a full disk without sending anything. Nothing is
 * reserved for bytes that have not come, or a client could hold any amount of disk with one byte. Each piece is charged
 * before it is written, on the worker: the spool may ask the store. */
#include "protocol/http/http_file.h"

#include <errno.h>
#include <fcntl.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/list.h"
#include "protocol/http/http_limits.h"

enum { PIECE = HTTP_FILE_MEMORY / 4, PIECE_MAX = 2 * PIECE };

struct http_file {
    struct work work;
    struct http_exchange *ex; /* NULL when nobody waits any more */
    struct http_file_config config;
    http_file_fn *fn;
    void *arg;
    struct loop *loop;
    struct buf filling;
    int64_t length, announced;
    bool working, paused, ended, told;
    struct error err;
    /* The worker's while it works. */
    int fd, errnum;
    struct error full; /* the spool refused */
    struct spool_charge charge;
    struct buf writing;
};

/* Giving the blocks of a large file back takes a while. */
static void close_file(struct work *work)
{
    close_fd(&container_of(work, struct http_file, work)->fd);
}

static void on_closed(struct work *work)
{
    struct http_file *file = container_of(work, struct http_file, work);

    close_fd(&file->fd);
    buf_done(&file->filling);
    buf_done(&file->writing);
    free(file);
}

static void destroy(struct http_file *file)
{
    spool_release(&file->charge);
    file->work = (struct work){.run = close_file, .done = on_closed, .loop = file->loop};
    if (file->fd < 0 || workers_run(file->config.workers, &file->work) < 0)
        on_closed(&file->work);
}

void http_file_free(struct http_file *file)
{
    if (!file)
        return;
    file->ex = NULL;
    if (!file->working)
        destroy(file);
}

static void tell(struct http_file *file)
{
    if (file->told)
        return;
    file->told = true;
    if (!file->err.code && !file->full.code && !file->errnum && lseek(file->fd, 0, SEEK_SET) < 0)
        file->errnum = errno;
    if (file->full.code && !file->err.code)
        file->err = file->full;
    if (file->errnum && !file->err.code)
        (void)error_set_errno(&file->err, file->errnum, "a file for the request's body in %s",
                              file->config.directory);
    if (file->err.code)
        file->fn(-1, 0, &file->err, file->arg);
    else
        file->fn(file->fd, file->length, NULL, file->arg);
}

/* ---- on a worker ---- */

static void make_file(struct work *work)
{
    struct http_file *file = container_of(work, struct http_file, work);

    if (file->announced > 0 && spool_check(&file->charge, file->announced, &file->full) < 0)
        return;
    file->fd = open(file->config.directory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (file->fd < 0)
        file->errnum = errno;
}

static void write_piece(struct work *work)
{
    struct http_file *file = container_of(work, struct http_file, work);

    if (spool_add(&file->charge, (int64_t)file->writing.len, &file->full) == 0)
        file->errnum = -fd_write_full(file->fd, file->writing.p, file->writing.len);
    buf_clear(&file->writing);
}

/* ---- on the loop ---- */

static void on_written(struct work *work);

static bool put_to_work(struct http_file *file, void (*run)(struct work *work))
{
    file->work = (struct work){.run = run, .done = on_written, .loop = file->loop};
    file->working = workers_run(file->config.workers, &file->work) == 0;
    if (!file->working)
        (void)http_limits_busy(&file->err, "the server is busy; try again in a second");
    return file->working;
}

static void write_on(struct http_file *file)
{
    struct buf full = file->filling;

    file->filling = file->writing;
    file->writing = full;
    if (!put_to_work(file, write_piece))
        tell(file);
}

static void on_data(struct http_exchange *ex, struct str data, void *arg)
{
    struct http_file *file = arg;

    if (file->told)
        return;
    file->length += (int64_t)data.len;
    if (file->length > file->config.max)
        (void)error_set(&file->err, ERROR_LIMIT, "the body is longer than %lld bytes",
                        (long long)file->config.max);
    else
        (void)buf_add_str(&file->filling, data);
    if (file->err.code) {
        http_pause(ex);
        if (!file->working)
            tell(file);
    } else if (file->filling.len >= PIECE && !file->working) {
        write_on(file);
    } else if (file->filling.len >= PIECE) {
        file->paused = true;
        http_pause(ex);
    }
}

static void on_end(struct http_exchange *ex, void *arg)
{
    struct http_file *file = arg;

    (void)ex;
    file->ended = true;
    if (!file->working && file->filling.len)
        write_on(file);
    else if (!file->working)
        tell(file);
}

static void on_written(struct work *work)
{
    struct http_file *file = container_of(work, struct http_file, work);
    bool made = work->run == make_file;

    file->working = false;
    if (!file->ex) {
        destroy(file);
        return;
    }
    if (file->err.code || file->full.code || file->errnum) {
        tell(file);
    } else if (made) {
        http_read_stream(file->ex, on_data, on_end, file);
    } else if (file->filling.len >= PIECE || (file->ended && file->filling.len)) {
        write_on(file);
    } else if (file->ended) {
        tell(file);
    }
    if (file->paused && !file->told) {
        file->paused = false;
        http_resume(file->ex);
    }
}

struct http_file *http_file_read(struct http_exchange *ex, const struct http_file_config *config,
                                 http_file_fn *fn, void *arg, struct error *err)
{
    struct http_file *file = xcalloc(1, sizeof(*file));

    file->ex = ex;
    file->config = *config;
    spool_charge_open(&file->charge, config->spool, config->team_id);
    file->charge.kept = config->kept;
    file->fn = fn;
    file->arg = arg;
    file->loop = http_loop(ex);
    file->fd = -1;
    file->announced = http_request(ex)->content_length;
    buf_init(&file->filling, PIECE_MAX);
    buf_init(&file->writing, PIECE_MAX);
    if (file->announced > config->max)
        (void)error_set(&file->err, ERROR_LIMIT, "the body is longer than %lld bytes",
                        (long long)config->max);
    else if (put_to_work(file, make_file))
        return file;
    *err = file->err;
    http_file_free(file);
    return NULL;
}
