#include "image/unpack/source.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fd.h"
#include "base/thread.h"
#include "image/unpack/decode.h"

enum {
    PIECE_SIZE = 256 * 1024,
    PIECES = 8,
    /* No more than gzip can give of its input; the others can give thousands of times more. */
    RATIO_MAX = 1100,
    RATIO_GRACE = 64 * 1024 * 1024, /* that little may be of any ratio */
};

struct piece {
    unsigned char *p;
    size_t len;
};

struct source {
    int fd;
    const char *name;
    const struct decode_kind *kind; /* NULL = plain */
    unsigned char *in;
    size_t in_len, in_at;
    uint64_t in_total, out_total;
    struct piece pieces[PIECES];
    /* The decompressing thread fills pieces[filled % PIECES], the reader has pieces[taken % PIECES]. */
    bool holding;
    struct thread thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    unsigned filled, taken;
    bool ended, stop; /* nothing comes any more; nobody reads any more */
    struct error failure;
};

static int fail(struct source *source, const char *what)
{
    return error_set(&source->failure, ERROR_INVALID, "'%s': %s", source->name, what);
}

/* 1: there is input, 0: the file has ended, -1. */
static int refill(struct source *source)
{
    ssize_t got;

    if (source->in_at < source->in_len)
        return 1;
    got = fd_read_full(source->fd, source->in, PIECE_SIZE);
    if (got < 0)
        return error_set_errno(&source->failure, (int)-got, "cannot read '%s'", source->name);
    source->in_at = 0;
    source->in_len = (size_t)got;
    source->in_total += (uint64_t)got;
    return got > 0;
}

static int check_ratio(struct source *source)
{
    if (source->out_total > RATIO_GRACE && source->out_total / RATIO_MAX > source->in_total)
        return fail(source, "becomes too large for its compressed size");
    return 0;
}

/* Hands on what the thread filled and waits for room. False: nobody wants more. */
static bool piece_done(struct source *source, size_t len)
{
    bool go_on;

    pthread_mutex_lock(&source->lock);
    source->pieces[source->filled % PIECES].len = len;
    source->filled++;
    pthread_cond_signal(&source->changed);
    while (source->filled - source->taken >= PIECES && !source->stop)
        pthread_cond_wait(&source->changed, &source->lock);
    go_on = !source->stop;
    pthread_mutex_unlock(&source->lock);
    return go_on;
}

/* Streams one after the other. */
static int decode_piece(struct source *source, void *decoder, size_t *out_len, bool *inside)
{
    struct decode_bytes bytes = {.out = source->pieces[source->filled % PIECES].p,
                                 .out_len = PIECE_SIZE};

    while (bytes.out_len > 0) {
        int got = refill(source);
        enum decode_state state;

        if (got < 0)
            return -1;
        if (got == 0 && *inside)
            return fail(source, "ends too early");
        if (got == 0)
            break;
        bytes.in = source->in + source->in_at;
        bytes.in_len = source->in_len - source->in_at;
        state = source->kind->step(decoder, &bytes);
        source->in_at = source->in_len - bytes.in_len;
        if (state == DECODE_DAMAGED)
            return error_set(&source->failure, ERROR_INVALID,
                             "'%s': is not whole: its %s data is damaged, or needs too much memory",
                             source->name, source->kind->name);
        *inside = state == DECODE_INSIDE;
    }
    *out_len = PIECE_SIZE - bytes.out_len;
    return 0;
}

static int decode_all(struct source *source)
{
    void *decoder = source->kind->open();
    bool inside = false;
    size_t len = 0;
    int r = 0;

    if (!decoder)
        return fail(source, "cannot be decompressed: no memory");
    do {
        r = decode_piece(source, decoder, &len, &inside);
        source->out_total += len;
        if (r == 0)
            r = check_ratio(source);
    } while (r == 0 && len > 0 && piece_done(source, len));
    source->kind->close(decoder);
    return r;
}

static void decompress(void *arg)
{
    struct source *source = arg;

    (void)decode_all(source);
    pthread_mutex_lock(&source->lock);
    source->ended = true;
    pthread_cond_signal(&source->changed);
    pthread_mutex_unlock(&source->lock);
}

/* ---- the reader's side ---- */

static int start_thread(struct source *source, struct error *err)
{
    for (int i = 0; i < PIECES; i++)
        source->pieces[i].p = xmalloc(PIECE_SIZE);
    return thread_start(&source->thread, "decompress", THREAD_STACK_DEFAULT, decompress, source,
                        err);
}

int source_open(int fd, const char *name, struct source **out, struct error *err)
{
    struct source *source = xcalloc(1, sizeof(*source));

    source->fd = fd;
    source->name = name;
    source->in = xmalloc(PIECE_SIZE);
    pthread_mutex_init(&source->lock, NULL);
    pthread_cond_init(&source->changed, NULL);
    if (refill(source) < 0) {
        *err = source->failure;
        source_close(source);
        return -1;
    }
    source->kind = decode_kind_of(source->in, source->in_len);
    if (source->kind && start_thread(source, err) < 0) {
        source_close(source);
        return -1;
    }
    *out = source;
    return 0;
}

static ssize_t next_plain(struct source *source, const void **piece, struct error *err)
{
    int got = refill(source);

    if (got < 0)
        *err = source->failure;
    if (got <= 0)
        return got;
    *piece = source->in;
    source->in_at = source->in_len;
    return (ssize_t)source->in_len;
}

ssize_t source_next(struct source *source, const void **piece, struct error *err)
{
    ssize_t len = 0;

    if (!source->kind)
        return next_plain(source, piece, err);
    pthread_mutex_lock(&source->lock);
    if (source->holding) {
        source->taken++;
        source->holding = false;
        pthread_cond_signal(&source->changed);
    }
    while (source->filled == source->taken && !source->ended)
        pthread_cond_wait(&source->changed, &source->lock);
    if (source->filled != source->taken) {
        struct piece *next = &source->pieces[source->taken % PIECES];

        *piece = next->p;
        len = (ssize_t)next->len;
        source->holding = true;
    } else if (source->failure.code != ERROR_NONE) {
        *err = source->failure;
        len = -1;
    }
    pthread_mutex_unlock(&source->lock);
    return len;
}

void source_close(struct source *source)
{
    if (!source)
        return;
    if (source->thread.started) {
        pthread_mutex_lock(&source->lock);
        source->stop = true;
        pthread_cond_signal(&source->changed);
        pthread_mutex_unlock(&source->lock);
        thread_join(&source->thread);
    }
    for (int i = 0; i < PIECES; i++)
        free(source->pieces[i].p);
    free(source->in);
    free(source);
}
