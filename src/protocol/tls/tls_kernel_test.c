/* A connection whose records the kernel makes, where it can: everything here must also hold where it cannot. The peer is
 * OpenSSL in a thread of its own, which blocks. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/test.h"
#include "protocol/stream/stream.h"
#include "protocol/stream/stream_tunnel.h"
#include "protocol/tls/tls.h"
#include "protocol/tls/tls_make.h"

enum {
    AMOUNT = 3 * 1024 * 1024 + 17,
    PIECE = 10007, /* no multiple of a record */
    SLOW_PIECE = 4096,
    SMALL_BUFFER = 32 * 1024,
    NARROW = 64 * 1024,
    PATTERN = 251,
};

struct rig {
    struct loop *loop;
    struct tls_context *context;
    struct stream *stream; /* the server's side */
    int fd;                /* its socket, for poll */
};

struct peer {
    int fd;
    int version;        /* 0 = any */
    const char *speaks; /* as ALPN writes it; NULL = nothing told */
    bool kernel;        /* leaves its own records to the kernel, too */
    void (*talk)(SSL *ssl, struct peer *peer);
    pthread_t thread;
    size_t got;
    bool same, ended; /* what came was the pattern; then the goodbye */
    atomic_bool done;
};

static void tcp_pair(int out[2])
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(address);
    auto_close int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    CHECK(bind(fd, (struct sockaddr *)&address, size) == 0 && listen(fd, 1) == 0);
    CHECK_INT(getsockname(fd, (struct sockaddr *)&address, &size), 0);
    out[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK_INT(connect(out[0], (struct sockaddr *)&address, size), 0);
    out[1] = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    CHECK(out[1] >= 0);
}

static void *run_peer(void *arg)
{
    static const char http1[] = "\x08http/1.1";
    struct peer *peer = arg;
    SSL_CTX *ssl_ctx = SSL_CTX_new(TLS_client_method());
    const char *speaks = peer->speaks ? peer->speaks : http1;
    SSL *ssl;

    if (peer->kernel)
        (void)SSL_CTX_set_options(ssl_ctx, SSL_OP_ENABLE_KTLS);
    ssl = SSL_new(ssl_ctx);
    if (peer->version)
        CHECK(SSL_set_min_proto_version(ssl, peer->version) &&
              SSL_set_max_proto_version(ssl, peer->version));
    CHECK_INT(SSL_set_alpn_protos(ssl, (const unsigned char *)speaks, (unsigned)strlen(speaks)), 0);
    CHECK(SSL_set_fd(ssl, peer->fd));
    CHECK_INT(SSL_connect(ssl), 1);
    peer->talk(ssl, peer);
    SSL_free(ssl);
    SSL_CTX_free(ssl_ctx);
    atomic_store(&peer->done, true);
    return NULL;
}

static void begin(struct rig *rig, struct peer *peer)
{
    static const char *const name = "a.test";
    struct tls_made authority = {0}, made = {0};
    auto_buf struct buf bundle = {0};
    int pair[2];

    (void)signal(SIGPIPE, SIG_IGN);
    OK(tls_make_authority("test", &authority, &err));
    OK(tls_make_certificate(&authority, &name, 1, 30, &made, &err));
    buf_init(&bundle, TLS_BUNDLE_MAX);
    CHECK(buf_add_str(&bundle, buf_str(&made.certificate)));
    CHECK(buf_add_str(&bundle, buf_str(&made.key)));
    OK(tls_context_new("h2,http/1.1", buf_str(&bundle), &rig->context, &err));
    tls_made_done(&authority);
    tls_made_done(&made);
    tcp_pair(pair);
    peer->fd = pair[0];
    rig->fd = pair[1];
    rig->loop = loop_new();
    rig->stream = stream_new(rig->loop, rig->fd);
    stream_add_filter(rig->stream, tls_filter_new(rig->context));
    CHECK_INT(pthread_create(&peer->thread, NULL, run_peer, peer), 0);
}

static void await(struct rig *rig, short events)
{
    struct pollfd pfd = {.fd = rig->fd, .events = events};

    CHECK(poll(&pfd, 1, 10 * 1000 * (int)test_patience()) == 1);
}

static ssize_t read_some(struct rig *rig, char *bytes, size_t size)
{
    ssize_t got;

    while ((got = stream_read(rig->stream, bytes, size)) == -EAGAIN)
        await(rig, POLLIN);
    return got;
}

static void open_up(struct rig *rig)
{
    int seen;

    while ((seen = stream_peek(rig->stream)) == -EAGAIN && stream_opening(rig->stream))
        await(rig, POLLIN);
    CHECK(seen == 1 || seen == -EAGAIN);
}

static void end(struct rig *rig, struct peer *peer)
{
    if (rig->stream)
        stream_close(rig->stream, false);
    CHECK_INT(pthread_join(peer->thread, NULL), 0);
    if (peer->fd >= 0)
        (void)close(peer->fd);
    loop_free(rig->loop);
    tls_context_free(rig->context);
}

/* ---- bytes that tell where they belong ---- */

static void fill_pattern(char *bytes, size_t at, size_t len)
{
    for (size_t i = 0; i < len; i++)
        bytes[i] = (char)((at + i) % PATTERN);
}

static bool is_pattern(const char *bytes, size_t at, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (bytes[i] != (char)((at + i) % PATTERN))
            return false;
    return true;
}

static int pattern_file(size_t size)
{
    auto_free char *bytes = xmalloc(size);
    int fd = memfd_create("pattern", MFD_CLOEXEC);

    fill_pattern(bytes, 0, size);
    CHECK_INT(write(fd, bytes, size), (ssize_t)size);
    return fd;
}

static void send_pattern(SSL *ssl)
{
    char bytes[PIECE];

    for (size_t at = 0; at < AMOUNT;) {
        size_t len = AMOUNT - at < PIECE ? AMOUNT - at : PIECE;

        fill_pattern(bytes, at, len);
        CHECK_INT(SSL_write(ssl, bytes, (int)len), (int)len);
        at += len;
    }
}

static void take_pattern(SSL *ssl, struct peer *peer, size_t piece, int pause_ms)
{
    char bytes[PIECE];
    int got;

    peer->same = true;
    while ((got = SSL_read(ssl, bytes, (int)piece)) > 0) {
        peer->same = peer->same && is_pattern(bytes, peer->got, (size_t)got);
        peer->got += (size_t)got;
        if (pause_ms && peer->got % (16 * piece) < piece)
            (void)poll(NULL, 0, pause_ms);
    }
    peer->ended = SSL_get_error(ssl, got) == SSL_ERROR_ZERO_RETURN;
}

/* ---- who makes the records ---- */

static void wait_for_end(SSL *ssl, struct peer *peer)
{
    take_pattern(ssl, peer, PIECE, 0);
}

static const int versions[] = {TLS1_2_VERSION, TLS1_3_VERSION};
enum { VERSIONS = sizeof(versions) / sizeof(versions[0]) };

TEST(this_kernel_has_tls)
{
    if (!tls_kernel())
        test_skip("no TLS in this kernel: OpenSSL makes all records, also in the tests below");
}

TEST(the_kernel_sends_if_it_can)
{
    for (size_t i = 0; i < VERSIONS; i++) {
        struct peer peer = {.version = versions[i], .talk = wait_for_end};
        struct rig rig = {0};

        begin(&rig, &peer);
        open_up(&rig);
        CHECK_INT(stream_sink_fd(rig.stream), tls_kernel() ? rig.fd : -1);
        if (versions[i] == TLS1_2_VERSION)
            CHECK_INT(stream_source_fd(rig.stream), tls_kernel() ? rig.fd : -1);
        end(&rig, &peer);
        CHECK(peer.ended);
    }
}

TEST(http2_is_not_for_the_kernel)
{
    struct peer peer = {.speaks = "\x02h2", .talk = wait_for_end};
    struct rig rig = {0};

    begin(&rig, &peer);
    open_up(&rig);
    CHECK_STR(stream_protocol(rig.stream), "h2");
    CHECK_INT(stream_sink_fd(rig.stream), -1);
    CHECK_INT(stream_source_fd(rig.stream), -1);
    end(&rig, &peer);
    CHECK(peer.ended);
}

/* ---- sending ---- */

static void read_slowly(SSL *ssl, struct peer *peer)
{
    take_pattern(ssl, peer, SLOW_PIECE, 1);
}

static void send_file(struct rig *rig, int file, size_t size)
{
    for (size_t at = 0; at < size;) {
        ssize_t sent = stream_send_file(rig->stream, file, (int64_t)at, size - at);

        if (sent == -EAGAIN)
            await(rig, POLLOUT);
        else
            CHECK(sent > 0);
        at += sent > 0 ? (size_t)sent : 0;
    }
}

/* What the last call took is all with the peer, although nobody waits for it: records are not lost in the kernel. */
TEST_TIMEOUT(a_file_arrives_to_its_last_byte, 300)
{
    int small = SMALL_BUFFER;

    for (size_t i = 0; i < VERSIONS; i++) {
        struct peer peer = {.version = versions[i], .talk = read_slowly};
        auto_close int file = pattern_file(AMOUNT);
        struct rig rig = {0};

        begin(&rig, &peer);
        (void)setsockopt(peer.fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
        open_up(&rig);
        stream_widen(rig.stream, NARROW);
        send_file(&rig, file, AMOUNT);
        stream_shut(rig.stream, SHUT_WR);
        end(&rig, &peer);
        CHECK_INT(peer.got, AMOUNT);
        CHECK(peer.same);
    }
}

TEST(pieces_are_one_stream)
{
    struct peer peer = {.talk = wait_for_end};
    char bytes[PIECE];
    struct rig rig = {0};
    size_t at = 0;

    begin(&rig, &peer);
    open_up(&rig);
    while (at < AMOUNT) {
        size_t part = AMOUNT - at < PIECE ? AMOUNT - at : PIECE;
        struct iovec iov[] = {{bytes, part / 3}, {bytes + part / 3, part - part / 3}};
        ssize_t sent;

        fill_pattern(bytes, at, part);
        sent = stream_write(rig.stream, iov, 2, at + part < AMOUNT);
        if (sent == -EAGAIN)
            await(&rig, POLLOUT);
        else
            CHECK(sent > 0);
        at += sent > 0 ? (size_t)sent : 0;
    }
    end(&rig, &peer);
    CHECK_INT(peer.got, AMOUNT);
    CHECK(peer.same && peer.ended);
}

/* ---- tunnels ---- */

struct far {
    int fd;
    size_t got;
    bool same;
    int errnum;
    pthread_t thread;
};

/* Takes all, then gives as much. */
static void *run_far(void *arg)
{
    struct far *far = arg;
    auto_free char *bytes = xmalloc(AMOUNT);
    ssize_t got;

    far->same = true;
    while ((got = read(far->fd, bytes, PIECE)) > 0) {
        far->same = far->same && is_pattern(bytes, far->got, (size_t)got);
        far->got += (size_t)got;
    }
    far->errnum = got < 0 ? errno : 0;
    fill_pattern(bytes, 0, AMOUNT);
    for (size_t at = 0; at < AMOUNT && !far->errnum; at += (size_t)got) {
        got = write(far->fd, bytes + at, AMOUNT - at);
        CHECK(got > 0);
    }
    (void)close(far->fd);
    return NULL;
}

static void on_tunnel_end(void *arg)
{
    atomic_store((atomic_bool *)arg, true);
}

/* The server's side of the connection, tunnelled to `far` until both have said goodbye. */
static void run_tunnel(struct rig *rig, struct far *far)
{
    struct stream_tunnel *tunnel;
    atomic_bool over = false;
    int pair[2];

    tcp_pair(pair);
    far->fd = pair[0];
    CHECK_INT(pthread_create(&far->thread, NULL, run_far, far), 0);
    tunnel = stream_tunnel_new(rig->loop, rig->stream, stream_new(rig->loop, pair[1]), STR_NONE,
                               STR_NONE, on_tunnel_end, &over);
    rig->stream = NULL;
    while (!atomic_load(&over))
        (void)uv_run(loop_uv(rig->loop), UV_RUN_ONCE);
    stream_tunnel_free(tunnel, false);
    CHECK_INT(pthread_join(far->thread, NULL), 0);
}

static void send_then_take(SSL *ssl, struct peer *peer)
{
    send_pattern(ssl);
    (void)SSL_shutdown(ssl);
    take_pattern(ssl, peer, PIECE, 0);
}

TEST_TIMEOUT(a_tunnel_carries_both_ways, 300)
{
    for (size_t i = 0; i < 2 * (size_t)VERSIONS; i++) {
        struct peer peer = {.version = versions[i / 2], .kernel = i % 2, .talk = send_then_take};
        struct far far = {0};
        struct rig rig = {0};

        begin(&rig, &peer);
        open_up(&rig);
        run_tunnel(&rig, &far);
        end(&rig, &peer);
        CHECK_INT(far.got, AMOUNT);
        CHECK(far.same);
        CHECK_INT(peer.got, AMOUNT);
        CHECK(peer.same && peer.ended);
    }
}

static void send_and_shut_at_once(SSL *ssl, struct peer *peer)
{
    int cork = 1;

    (void)setsockopt(peer->fd, IPPROTO_TCP, TCP_CORK, &cork, sizeof(cork));
    CHECK_INT(SSL_write(ssl, "last", 4), 4);
    (void)SSL_shutdown(ssl);
    cork = 0;
    (void)setsockopt(peer->fd, IPPROTO_TCP, TCP_CORK, &cork, sizeof(cork));
    take_pattern(ssl, peer, PIECE, 0);
}

struct reader {
    char bytes[16];
    size_t got;
    bool ended;
};

static void on_readable(struct stream *stream, int status, int events, void *arg)
{
    struct reader *reader = arg;
    ssize_t got =
        stream_read(stream, reader->bytes + reader->got, sizeof(reader->bytes) - reader->got);

    (void)events;
    CHECK(status == 0 && (got >= 0 || got == -EAGAIN));
    reader->got += got > 0 ? (size_t)got : 0;
    reader->ended = got == 0;
    if (reader->ended)
        stream_watch(stream, 0, NULL, NULL);
}

/* The socket stays open and silent behind it. */
TEST(a_goodbye_in_the_same_packet_is_heard)
{
    struct peer peer = {.talk = send_and_shut_at_once};
    struct reader reader = {0};
    struct rig rig = {0};

    begin(&rig, &peer);
    stream_watch(rig.stream, UV_READABLE, on_readable, &reader);
    while (!reader.ended)
        (void)uv_run(loop_uv(rig.loop), UV_RUN_ONCE);
    CHECK_STR(str_n(reader.bytes, reader.got), "last");
    end(&rig, &peer);
    CHECK(peer.ended);
}

static void send_then_vanish(SSL *ssl, struct peer *peer)
{
    send_pattern(ssl);
    (void)shutdown(peer->fd, SHUT_WR); /* an end of TCP, and none of TLS */
    take_pattern(ssl, peer, PIECE, 0);
}

TEST_TIMEOUT(an_end_without_goodbye_is_a_break, 300)
{
    for (size_t i = 0; i < VERSIONS; i++) {
        struct peer peer = {.version = versions[i], .talk = send_then_vanish};
        struct far far = {0};
        struct rig rig = {0};

        begin(&rig, &peer);
        open_up(&rig);
        run_tunnel(&rig, &far);
        end(&rig, &peer);
        CHECK_INT(far.errnum, ECONNRESET);
        CHECK(!peer.ended);
    }
}

/* ---- new keys ---- */

static void renew(SSL *ssl, struct peer *peer, int whose)
{
    CHECK_INT(SSL_key_update(ssl, whose), 1);
    CHECK_INT(SSL_write(ssl, "again", 5), 5);
    take_pattern(ssl, peer, PIECE, 0);
}

static void renew_own(SSL *ssl, struct peer *peer)
{
    renew(ssl, peer, SSL_KEY_UPDATE_NOT_REQUESTED);
}

static void renew_both(SSL *ssl, struct peer *peer)
{
    renew(ssl, peer, SSL_KEY_UPDATE_REQUESTED);
}

static void check_renewed(void (*talk)(SSL *ssl, struct peer *peer), bool works)
{
    struct peer peer = {.version = TLS1_3_VERSION, .talk = talk};
    char bytes[16], answer[PIECE];
    struct iovec iov = {answer, PIECE};
    struct rig rig = {0};

    fill_pattern(answer, 0, PIECE);
    begin(&rig, &peer);
    open_up(&rig);
    CHECK_INT(read_some(&rig, bytes, sizeof(bytes)), 5);
    CHECK_INT(stream_write(rig.stream, &iov, 1, false), works ? PIECE : -EPROTO);
    end(&rig, &peer);
    CHECK_INT(peer.got, works ? PIECE : 0);
    CHECK(peer.ended);
}

TEST(the_peer_renews_its_keys)
{
    check_renewed(renew_own, true);
}

/* The kernel keeps the old ones: nothing is said that nobody could read. */
TEST(the_peer_wants_new_keys_of_ours)
{
    check_renewed(renew_both, !tls_kernel());
}
