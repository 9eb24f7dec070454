/* A libuv loop owned by one thread, and the ways other threads may reach it.
 *
 * Rules kept by everything in this folder and above it:
 *  - a completion callback is called exactly once;
 *  - no callback is called from inside the call that registers it;
 *  - none is called after the matching close returned.
 *
 * libuv's own thread pool is process-global and is not used for anything (no uv_fs_*, no
 * uv_getaddrinfo, no uv_queue_work). */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <uv.h>

struct loop;

/* Embedded in whatever is handed to another thread. */
struct loop_errand {
    void (*fn)(struct loop_errand *errand); /* runs on the loop's thread */
    struct loop_errand *next;
};

struct loop *loop_new(void);
/* Closes what the loop itself owns, runs pending close callbacks, frees. Not while it runs. */
void loop_free(struct loop *loop);
uv_loop_t *loop_uv(struct loop *loop);
/* Runs until loop_stop(). */
void loop_run(struct loop *loop);
void loop_stop(struct loop *loop);                             /* any thread */
void loop_post(struct loop *loop, struct loop_errand *errand); /* any thread; order is kept */
/* fn(arg) at the end of the current turn of the loop, when nothing is on the call stack any more: for
 * objects that may still be there. */
void loop_later(struct loop *loop, void (*fn)(void *arg), void *arg);
/* The same with free(p). */
void loop_free_later(struct loop *loop, void *p);

/* Scratch for reads: one buffer per loop, valid until the read callback returns. */
enum {
    LOOP_READ_SIZE = 64 * 1024,  /* what one read should take */
    LOOP_READ_WIDE = 256 * 1024, /* the buffer's size, for who passes on what he reads */
};
char *loop_read_buffer(struct loop *loop);

/* A number that this loop gives once. Its own thread only. */
uint64_t loop_number(struct loop *loop);
