/* A connection on a loop as protocols see it: bytes in and out, without blocking. Below is a socket; a
 * filter may stand between the two (TLS, say), so that reads and writes are no longer those of the
 * socket, unless the kernel does the filter's work. Who can do something faster with a bare socket asks for
 * stream_source_fd() and stream_sink_fd().
 *
 * Results are bytes, or -errno; -EAGAIN: not now, stream_watch() tells when. Less than was asked for
 * means the same for the rest. All calls on the loop's thread. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "base/str.h"
#include "protocol/loop/loop.h"

struct stream;

/* What stands between. It owns nothing but itself: the descriptor is the stream's. */
struct stream_filter;

struct stream_filter_ops {
    /* As stream_read() and stream_write(). write() counts bytes that are with the kernel in whatever form;
     * what it could not pass on it is given again, perhaps with more behind. */
    ssize_t (*read)(struct stream_filter *filter, int fd, void *p, size_t size);
    ssize_t (*write)(struct stream_filter *filter, int fd, const struct iovec *iov, size_t count);
    /* Would read() do something although the socket is silent? */
    bool (*has_input)(const struct stream_filter *filter);
    /* As stream_peek(); NULL: what the socket has tells enough. */
    int (*peek)(struct stream_filter *filter, int fd);
    /* Tells the peer, as far as that is possible now, that nothing follows. */
    void (*shut)(struct stream_filter *filter, int fd);
    void (*free)(struct stream_filter *filter);
};

struct stream_filter {
    const struct stream_filter_ops *ops;
    /* What the socket must be (UV_READABLE, UV_WRITABLE) for another try to read or write: writing may have to
     * read first, and the other way round. Kept by the filter, at the begin as for a bare socket. */
    int read_needs, write_needs;
    /* Also kept by the filter: the two sides still agree on how to speak (a handshake), and on what they will
     * speak above it; "" when that was no matter. */
    bool opening;
    struct str protocol;
    /* The same: the kernel does the filter's work, so that what is sent goes into the socket as it is and write() is
     * not called; and what comes out of the socket is what the peer sent, as long as has_input() is false. What the
     * socket then refuses to give, and its end, are for read(). */
    bool kernel_sends, kernel_receives;
};

/* events: what of the wanted ones is possible. status: < 0 when the socket is in error. */
typedef void stream_fn(struct stream *stream, int status, int events, void *arg);

/* Takes a socket that is connected or connecting. NULL (closed) when it cannot be watched. */
struct stream *stream_new(struct loop *loop, int fd_consume);
/* Before anything was read or written. */
void stream_add_filter(struct stream *stream, struct stream_filter *filter_consume);
/* Drops what is not with the kernel; reset: the peer must see a break and not an end. No callback after this
 * returns. */
void stream_close(struct stream *stream, bool reset);

/* fn is called whenever something of `wanted` is possible, until told otherwise: UV_READABLE, UV_WRITABLE,
 * UV_DISCONNECT (the peer has closed its side), UV_PRIORITIZED (nothing can follow in either direction).
 * 0: nothing is wanted, and whoever has the stream next may watch it. */
void stream_watch(struct stream *stream, int wanted, stream_fn *fn, void *arg);

ssize_t stream_read(struct stream *stream, void *p, size_t size); /* 0: the peer sends no more */
/* What was not taken comes first at the next call. more: something follows at once. */
ssize_t stream_write(struct stream *stream, const struct iovec *iov, size_t count, bool more);
/* -EIO: the file is shorter than that. */
ssize_t stream_send_file(struct stream *stream, int fd, int64_t offset, size_t len);
/* Looks without taking anything away: 1 something came, 0 the peer sends no more, or -errno. */
int stream_peek(struct stream *stream);
/* SHUT_WR: the peer sees an end behind what was written; SHUT_RDWR: so does who watches. */
void stream_shut(struct stream *stream, int how);
/* No byte of the peer's own can have come yet: its filter and ours have not met. */
bool stream_opening(const struct stream *stream);
/* What a filter agreed on to be spoken above it, known once that is over ("h2"); "" when nothing was said. */
struct str stream_protocol(const struct stream *stream);
/* Is there a filter, so that nobody on the way reads along? */
bool stream_filtered(const struct stream *stream);
/* How much the kernel may take before it says "not now". */
void stream_widen(struct stream *stream, int size);
/* Never another's on the same loop, also not a later one's. */
uint64_t stream_number(const struct stream *stream);
/* The address of the peer; false when it has none. */
bool stream_peer(const struct stream *stream, struct sockaddr_storage *out);
/* The socket, which is still the stream's, when reads, or writes, are just those of the socket; else -1. Any call on the
 * stream may change it when there is a filter. */
int stream_source_fd(const struct stream *stream);
int stream_sink_fd(const struct stream *stream);
/* As stream_read() and stream_write(), into and out of a pipe instead of memory. -EOPNOTSUPP: not with what comes next,
 * which is for stream_read(). */
ssize_t stream_read_pipe(struct stream *stream, int pipe, size_t size);
ssize_t stream_write_pipe(struct stream *stream, int pipe, size_t len);
