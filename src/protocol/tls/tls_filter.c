/* How it works
 *
 * Bytes that are written go from where they stand into a record when one piece has enough of them, else through a
 * buffer of the thread: a record costs a header, a tag and often a system call. When the socket takes only a part of
 * a record OpenSSL keeps the rest and wants to be asked with the same bytes again: they are still the first of what
 * the stream's owner gives next, so only their number is remembered.
 *
 * Reading takes in whatever the socket has. What is there beyond the bytes that were asked for is not seen by
 * poll, so has_input() tells of it; but only until a read found that it is no whole record. The same goes for a goodbye
 * that came together with bytes. */
#include <errno.h>
#include <openssl/err.h>

#include "base/alloc.h"
#include "base/log.h"
#include "protocol/stream/stream.h"
#include "protocol/tls/tls_intercept.h"
#include "protocol/tls/tls_internal.h"

enum {
    RECORD_MAX = 16 * 1024,
    FAULT_SIZE = 128,
    HANDSHAKE = 22, /* a kind of records */
    HELLO_HEAD = 9, /* the head of a record, and of the message in it */
    HELLO_MAX = 16 * 1024,
    HANDSHAKES_MAX =
        128, /* records of a client: a handshake has a few, new keys of TLS 1.3 one each */
};

const unsigned char tls_http1[TLS_HTTP1_SIZE] = {8, 'h', 't', 't', 'p', '/', '1', '.', '1'};

struct tls {
    struct stream_filter base;
    SSL *ssl;
    size_t pending; /* bytes of the record that OpenSSL could not send yet */
    bool held;      /* there may be more to read inside */
    bool broken;    /* nothing can be said any more, not even goodbye */
    bool looks;     /* the first bytes have not all come */
    bool prefixed;  /* reads what was there before the filter, not the socket yet */
    bool mute;      /* nothing can be said any more but goodbye */
    uint8_t
        first_len; /* of the first bytes of a server's peer, which are looked at before OpenSSL gets them */
    unsigned char first[HELLO_HEAD];
    unsigned handshakes; /* records of that kind that came */
    char fault[FAULT_SIZE];
};

static _Thread_local char scratch[RECORD_MAX];

static struct tls *tls_of(struct stream_filter *base)
{
    return (struct tls *)base;
}

static void bind_fd(struct tls *tls, int fd)
{
    if (!SSL_get_rbio(tls->ssl) && SSL_set_fd(tls->ssl, fd) != 1)
        tls->broken = true;
    if (!SSL_get_wbio(tls->ssl) && SSL_set_wfd(tls->ssl, fd) != 1)
        tls->broken = true;
    ERR_clear_error(); /* SSL_get_error() looks at what is there, whoever left it */
    errno = 0;
}

static uint64_t bytes_read(const struct tls *tls)
{
    return BIO_number_read(SSL_get_rbio(tls->ssl));
}

static void note_opened(struct tls *tls)
{
    const unsigned char *name;
    unsigned len;

    if (!tls->base.opening || !SSL_is_init_finished(tls->ssl))
        return;
    tls->base.opening = false;
    SSL_get0_alpn_selected(tls->ssl, &name, &len);
    tls->base.protocol = str_n(name, len);
    tls_kernel_note(tls->ssl, &tls->base);
}

/* A certificate that is not believed has a reason of its own. */
static const char *reason_of(const struct tls *tls, int errnum)
{
    long verified = SSL_get_verify_result(tls->ssl);

    if (verified != X509_V_OK && tls->base.opening)
        return X509_verify_cert_error_string(verified);
    return errnum ? strerror(errnum) : tls_reason();
}

static ssize_t broke(struct tls *tls, int errnum)
{
    if (!tls->broken) {
        (void)snprintf(tls->fault, sizeof(tls->fault), "%s", reason_of(tls, errnum));
        log_debug("tls", "%s: %s", tls->base.opening ? "no handshake" : "connection broken",
                  tls->fault);
    }
    tls->broken = true;
    tls->base.kernel_sends = tls->base.kernel_receives = false;
    return errnum ? -errnum : -EPROTO;
}

/* Behind each call that may have read: what the kernel does of the work. */
static void note_kernel(struct tls *tls)
{
    tls->base.kernel_receives = !tls->broken && tls_kernel_receives(tls->ssl);
    if (!tls->base.kernel_sends || !tls_kernel_outdated(tls->ssl))
        return;
    tls->base.kernel_sends = false;
    tls->mute = true;
    log_info(
        "tls",
        "a connection is given up: the peer asked for new keys, which the kernel does not take");
}

const char *tls_filter_fault(const struct stream_filter *filter)
{
    const struct tls *tls = (const struct tls *)filter;

    return tls->broken ? tls->fault : NULL;
}

/* -EAGAIN and what is needed for more, the end, or what broke. */
static ssize_t not_done(struct tls *tls, int result, int *needs)
{
    int errnum = errno;

    switch (SSL_get_error(tls->ssl, result)) {
    case SSL_ERROR_WANT_READ:
        *needs = UV_READABLE;
        return -EAGAIN;
    case SSL_ERROR_WANT_WRITE:
        *needs = UV_WRITABLE;
        return -EAGAIN;
    case SSL_ERROR_ZERO_RETURN:
        return 0;
    case SSL_ERROR_SYSCALL:
        return broke(tls, errnum ? errnum : ECONNRESET);
    default:
        return broke(tls, 0);
    }
}

/* What was there before has all been read: from here on it is the socket. For a server's own bytes it is so in both
 * directions, because OpenSSL asks the kernel for TLS only then (ktls_enable() in SSL_set_fd()). */
static bool turn_to_socket(struct tls *tls, int fd)
{
    if (!tls->prefixed || BIO_pending(SSL_get_rbio(tls->ssl)))
        return false;
    tls->prefixed = false;
    return (tls->first_len ? SSL_set_fd(tls->ssl, fd) : SSL_set_rfd(tls->ssl, fd)) == 1;
}

/* Bytes that reading begins with. */
static void put_before(struct tls *tls, struct str first)
{
    BIO *bio = BIO_new(BIO_s_mem());

    if (!bio || BIO_write(bio, first.p, (int)first.len) != (int)first.len)
        abort(); /* out of memory, as everywhere */
    (void)BIO_set_mem_eof_return(bio, -1);
    SSL_set0_rbio(tls->ssl, bio);
    tls->prefixed = tls->held = true;
}

/* OpenSSL makes room for what the head of a message announces: of a client's first one up to 131 kB, before any of it
 * has come. No client's is longer than a record, nor is its head in pieces. What is no handshake at all OpenSSL finds
 * out by itself. */
static bool is_bounded_hello(const unsigned char head[HELLO_HEAD])
{
    enum { MESSAGE_HEAD = 4 };

    if (head[0] != HANDSHAKE)
        return true;
    return (head[3] << 8 | head[4]) >= MESSAGE_HEAD &&
           (head[6] << 16 | head[7] << 8 | head[8]) <= HELLO_MAX;
}

/* 0: the first bytes were looked at, if they had to be. Else -EAGAIN, -EPIPE: the peer has gone, or what broke. */
static int look_at_first(struct tls *tls, int fd)
{
    while (tls->looks && !tls->broken && tls->first_len < HELLO_HEAD) {
        ssize_t got = recv(fd, tls->first + tls->first_len, HELLO_HEAD - tls->first_len, 0);

        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return got == 0 ? -EPIPE : errno == EAGAIN ? -EAGAIN : (int)broke(tls, errno);
        tls->first_len += (uint8_t)got;
    }
    if (tls->broken || !tls->looks)
        return 0;
    tls->looks = false;
    if (!is_bounded_hello(tls->first)) {
        log_debug("tls", "no handshake: the client's first message is too long, or in pieces");
        tls->broken = true;
    } else {
        put_before(tls, str_n(tls->first, HELLO_HEAD));
        tls->held = false; /* who called reads them at once */
    }
    return 0;
}

/* A client that asks for new keys, or for another handshake, all the time would have OpenSSL at work for ever inside of
 * one read. What it sends behind this is reset by the kernel. */
static void on_message(int sent, int version, int kind, const void *p, size_t len, SSL *ssl,
                       void *arg)
{
    struct tls *tls = arg;

    (void)version;
    if (sent || !len || (kind != SSL3_RT_HEADER && kind != SSL3_RT_INNER_CONTENT_TYPE) ||
        *(const unsigned char *)p != HANDSHAKE || ++tls->handshakes != HANDSHAKES_MAX)
        return;
    log_info("tls", "a connection is given up: the peer asked for new keys %d times",
             HANDSHAKES_MAX);
    (void)shutdown(SSL_get_fd(ssl), SHUT_RDWR);
}

static ssize_t tls_read(struct stream_filter *base, int fd, void *p, size_t size)
{
    struct tls *tls = tls_of(base);
    uint64_t before;
    size_t done = 0;
    ssize_t r = 0;

    base->read_needs = UV_READABLE;
    r = look_at_first(tls, fd);
    if (r < 0)
        return r == -EPIPE ? 0 : r;
    bind_fd(tls, fd);
    if (tls->broken)
        return -EPROTO;
    before = bytes_read(tls);
    while (done < size) {
        int got = SSL_read(tls->ssl, (char *)p + done, (int)(size - done));

        if (got <= 0) {
            r = not_done(tls, got, &base->read_needs);
            if (r == -EAGAIN && turn_to_socket(tls, fd))
                continue;
            break;
        }
        done += (size_t)got;
    }
    note_opened(tls);
    /* What ended it behind some bytes is for the next read: the socket may have nothing more to tell. */
    tls->held = done == size ? SSL_has_pending(tls->ssl) : done && r != -EAGAIN;
    note_kernel(tls);
    if (bytes_read(tls) != before)
        base->write_needs = UV_WRITABLE; /* what writing waited for may have come */
    return done ? (ssize_t)done : r;
}

/* The next record: at most so many bytes, of those behind the first `skip`. */
static struct str next_record(const struct iovec *iov, size_t count, size_t skip, size_t max)
{
    size_t len = 0;

    for (size_t i = 0; i < count && len < max; i++) {
        size_t from = skip < iov[i].iov_len ? skip : iov[i].iov_len;
        size_t part = iov[i].iov_len - from;
        const char *p = (const char *)iov[i].iov_base + from;

        skip -= from;
        if (!len && part >= max)
            return str_n(p, max);
        if (part > max - len)
            part = max - len;
        memcpy(scratch + len, p, part);
        len += part;
    }
    return str_n(scratch, len);
}

static ssize_t tls_write(struct stream_filter *base, int fd, const struct iovec *iov, size_t count)
{
    struct tls *tls = tls_of(base);
    int looked = look_at_first(tls, fd);
    size_t done = 0;
    uint64_t before;

    base->write_needs = looked == -EAGAIN ? UV_READABLE : UV_WRITABLE;
    if (looked < 0)
        return looked;
    bind_fd(tls, fd);
    if (tls->broken || tls->mute)
        return -EPROTO;
    before = bytes_read(tls);
    for (;;) {
        struct str record =
            next_record(iov, count, done, tls->pending ? tls->pending : (size_t)RECORD_MAX);
        int sent = record.len ? SSL_write(tls->ssl, record.p, (int)record.len) : 0;

        if (sent <= 0) {
            ssize_t r = record.len ? not_done(tls, sent, &base->write_needs) : 0;

            if (r == -EAGAIN && turn_to_socket(tls, fd))
                continue;
            note_opened(tls);
            tls->pending = r == -EAGAIN && !base->opening ? record.len : 0;
            tls->held = tls->held || (bytes_read(tls) != before && SSL_has_pending(tls->ssl));
            return done || !record.len ? (ssize_t)done : r ? r : -EPIPE;
        }
        note_opened(tls);
        tls->pending = 0;
        done += (size_t)sent;
    }
}

static bool tls_has_input(const struct stream_filter *base)
{
    return ((const struct tls *)base)->held;
}

static int tls_peek(struct stream_filter *base, int fd)
{
    struct tls *tls = tls_of(base);
    char byte;
    int got = look_at_first(tls, fd);

    if (got < 0)
        return got == -EPIPE ? 0 : got;
    bind_fd(tls, fd);
    if (tls->broken)
        return -EPROTO;
    base->read_needs = UV_READABLE;
    do {
        got = SSL_peek(tls->ssl, &byte, 1);
        if (got > 0)
            tls->held = true;
        else
            got = (int)not_done(tls, got, &base->read_needs);
    } while (got == -EAGAIN && turn_to_socket(tls, fd));
    note_opened(tls);
    note_kernel(tls);
    return got;
}

static void tls_shut(struct stream_filter *base, int fd)
{
    struct tls *tls = tls_of(base);

    bind_fd(tls, fd);
    if (!tls->broken && !base->opening && !tls->pending)
        (void)SSL_shutdown(tls->ssl);
    ERR_clear_error();
}

static void tls_free(struct stream_filter *base)
{
    SSL_free(tls_of(base)->ssl);
    free(base);
}

struct stream_filter *tls_filter_of(SSL *ssl_consume, struct str first)
{
    static const struct stream_filter_ops ops = {.read = tls_read,
                                                 .write = tls_write,
                                                 .has_input = tls_has_input,
                                                 .peek = tls_peek,
                                                 .shut = tls_shut,
                                                 .free = tls_free};
    struct tls *tls = xcalloc(1, sizeof(*tls));

    tls->base.ops = &ops;
    tls->base.opening = true;
    tls->ssl = ssl_consume;
    if (!ssl_consume)
        abort(); /* out of memory, as everywhere */
    if (first.len)
        put_before(tls, first);
    return &tls->base;
}

struct stream_filter *tls_filter_new(struct tls_context *context)
{
    struct stream_filter *filter;

    (void)pthread_mutex_lock(&context->lock);
    filter = tls_filter_of(SSL_new(context->ssl_ctx), STR_NONE);
    (void)pthread_mutex_unlock(&context->lock);
    SSL_set_accept_state(tls_of(filter)->ssl);
    SSL_set_msg_callback(tls_of(filter)->ssl, on_message);
    SSL_set_msg_callback_arg(tls_of(filter)->ssl, filter);
    tls_of(filter)->looks = true;
    return filter;
}

static SSL_CTX *client_ctx;
static pthread_once_t client_once = PTHREAD_ONCE_INIT;

static void make_client_ctx(void)
{
    client_ctx = SSL_CTX_new(TLS_client_method());
    if (!client_ctx)
        abort();
    SSL_CTX_set_verify(client_ctx, SSL_VERIFY_NONE, NULL);
    (void)SSL_CTX_set_mode(client_ctx, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE |
                                           SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    (void)SSL_CTX_set_options(client_ctx, SSL_OP_NO_RENEGOTIATION);
    SSL_CTX_set_read_ahead(client_ctx, 1);
}

struct stream_filter *tls_filter_unverified(const char *protocol)
{
    unsigned char offered[TLS_PROTOCOLS_SIZE];
    size_t len = strnlen(protocol, sizeof(offered) - 1);
    struct stream_filter *filter;
    SSL *ssl;

    (void)pthread_once(&client_once, make_client_ctx);
    filter = tls_filter_of(SSL_new(client_ctx), STR_NONE);
    ssl = tls_of(filter)->ssl;
    SSL_set_connect_state(ssl);
    offered[0] = (unsigned char)len;
    memcpy(offered + 1, protocol, len);
    (void)SSL_set_alpn_protos(ssl, offered, (unsigned)len + 1);
    return filter;
}
