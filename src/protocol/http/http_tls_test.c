/* TLS as a filter, by OpenSSL: proof that the door is wide enough, not a feature. */
#include <errno.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "protocol/http/test/http_test_rig.h"
#include "protocol/stream/stream.h"

enum { RECORD_MAX = 16 * 1024, UPLOAD = 2 * 1024 * 1024 };

static SSL_CTX *server_context;

struct tls {
    struct stream_filter base;
    SSL *ssl;
    size_t staged_len; /* given to OpenSSL, which wants the same again */
    char staged[RECORD_MAX];
};

/* -EAGAIN and what is needed for more, the end, or what broke. */
static ssize_t not_done(struct tls *tls, int result, int *needs)
{
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
        return errno ? -errno : -ECONNRESET;
    default:
        return -EPROTO;
    }
}

static void bind_fd(struct tls *tls, int fd)
{
    if (SSL_get_fd(tls->ssl) < 0)
        CHECK_INT(SSL_set_fd(tls->ssl, fd), 1);
}

static ssize_t tls_read(struct stream_filter *base, int fd, void *p, size_t size)
{
    struct tls *tls = (struct tls *)base;
    uint64_t before;
    size_t done = 0;
    ssize_t r = 0;

    bind_fd(tls, fd);
    before = BIO_number_read(SSL_get_rbio(tls->ssl));
    base->read_needs = UV_READABLE;
    while (done < size && !r) {
        int got = SSL_read(tls->ssl, (char *)p + done, (int)(size - done));

        if (got <= 0) {
            r = not_done(tls, got, &base->read_needs);
            break;
        }
        done += (size_t)got;
    }
    /* What writing waited for may have come. */
    if (BIO_number_read(SSL_get_rbio(tls->ssl)) != before)
        base->write_needs = UV_WRITABLE;
    return done ? (ssize_t)done : r;
}

static void stage(struct tls *tls, const struct iovec *iov, size_t count, size_t skip)
{
    for (size_t i = 0; i < count; i++) {
        size_t from = skip < iov[i].iov_len ? skip : iov[i].iov_len;
        size_t len = iov[i].iov_len - from;

        skip -= from;
        if (len > RECORD_MAX - tls->staged_len)
            len = RECORD_MAX - tls->staged_len;
        memcpy(tls->staged + tls->staged_len, (const char *)iov[i].iov_base + from, len);
        tls->staged_len += len;
    }
}

static ssize_t tls_write(struct stream_filter *base, int fd, const struct iovec *iov, size_t count)
{
    struct tls *tls = (struct tls *)base;
    size_t done = 0;

    bind_fd(tls, fd);
    base->write_needs = UV_WRITABLE;
    for (;;) {
        int sent;

        if (!tls->staged_len)
            stage(tls, iov, count, done);
        if (!tls->staged_len)
            return (ssize_t)done;
        sent = SSL_write(tls->ssl, tls->staged, (int)tls->staged_len);
        if (sent <= 0) {
            ssize_t r = not_done(tls, sent, &base->write_needs);

            return done ? (ssize_t)done : r ? r : -EPIPE;
        }
        done += tls->staged_len; /* no partial writes: all or nothing */
        tls->staged_len = 0;
    }
}

static bool tls_has_input(const struct stream_filter *base)
{
    return SSL_pending(((const struct tls *)base)->ssl) > 0;
}

static void tls_shut(struct stream_filter *base, int fd)
{
    struct tls *tls = (struct tls *)base;

    bind_fd(tls, fd);
    (void)SSL_shutdown(tls->ssl);
}

static void tls_free(struct stream_filter *base)
{
    SSL_free(((struct tls *)base)->ssl);
    free(base);
}

static struct stream_filter *tls_new(void *unused)
{
    static const struct stream_filter_ops ops = {.read = tls_read,
                                                 .write = tls_write,
                                                 .has_input = tls_has_input,
                                                 .shut = tls_shut,
                                                 .free = tls_free};
    struct tls *tls = xcalloc(1, sizeof(*tls));

    (void)unused;
    tls->base.ops = &ops;
    tls->ssl = SSL_new(server_context);
    SSL_set_accept_state(tls->ssl);
    return &tls->base;
}

static void make_context(void)
{
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *cert = X509_new();

    CHECK(key && cert);
    (void)X509_gmtime_adj(X509_getm_notBefore(cert), 0);
    (void)X509_gmtime_adj(X509_getm_notAfter(cert), 3600);
    (void)X509_set_pubkey(cert, key);
    CHECK(X509_sign(cert, key, EVP_sha256()) > 0);
    server_context = SSL_CTX_new(TLS_server_method());
    CHECK_INT(SSL_CTX_use_certificate(server_context, cert), 1);
    CHECK_INT(SSL_CTX_use_PrivateKey(server_context, key), 1);
    X509_free(cert);
    EVP_PKEY_free(key);
}

/* ---- a client that blocks, in a thread of its own ---- */

struct client {
    int fd;
    const char *head;
    size_t upload;
    struct buf answer; /* until the server's close_notify */
    atomic_bool done;
};

static void *run_client(void *arg)
{
    struct client *client = arg;
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    SSL *ssl = SSL_new(context);
    auto_free char *bytes = xcalloc(1, RECORD_MAX);
    int got;

    (void)SSL_set_fd(ssl, client->fd);
    CHECK_INT(SSL_connect(ssl), 1);
    CHECK(SSL_write(ssl, client->head, (int)strlen(client->head)) > 0);
    for (size_t left = client->upload; left; left -= RECORD_MAX)
        CHECK_INT(SSL_write(ssl, bytes, RECORD_MAX), RECORD_MAX);
    while ((got = SSL_read(ssl, bytes, RECORD_MAX)) > 0)
        CHECK(buf_add(&client->answer, bytes, (size_t)got));
    SSL_free(ssl);
    SSL_CTX_free(context);
    atomic_store(&client->done, true);
    return NULL;
}

static void ask(struct rig *rig, struct client *client)
{
    pthread_t thread;

    client->fd = rig_connect(rig);
    buf_init(&client->answer, RIG_BIG + 10000);
    CHECK_INT(pthread_create(&thread, NULL, run_client, client), 0);
    while (!atomic_load(&client->done))
        rig_turn(rig);
    CHECK_INT(pthread_join(thread, NULL), 0);
    (void)close(client->fd);
}

static void check(const char *head, size_t upload, size_t size, const char *ends)
{
    struct http_server_config config = rig_config;
    struct client client = {.head = head, .upload = upload};
    struct rig rig;

    make_context();
    config.filter = tls_new;
    rig_start(&rig, &config);
    ask(&rig, &client);
    CHECK(client.answer.len >= size && client.answer.len < size + 400);
    CHECK(str_ends(buf_str(&client.answer), str_of(ends)));
    CHECK_INT(seen.finishes, 1);
    buf_done(&client.answer);
    rig_stop(&rig);
    SSL_CTX_free(server_context);
}

TEST(tls_answers)
{
    check("GET /hello HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", 0, 5, "hello");
}

TEST(tls_sends_bytes)
{
    check("GET /big HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", 0, RIG_BIG, "xxxx");
}

TEST(tls_sends_a_file)
{
    check("GET /file HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", 0, RIG_BIG - 6, "fffftail");
}

TEST(tls_takes_an_upload)
{
    check("POST /count HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: 2097152\r\n\r\n",
          UPLOAD, 11, "got 2097152");
}

TEST(tls_refuses_what_is_none)
{
    struct http_server_config config = rig_config;
    struct rig rig;
    struct buf out;
    int fd, errnum;

    make_context();
    config.filter = tls_new;
    rig_start(&rig, &config);
    fd = rig_connect(&rig);
    buf_init(&out, 1000);
    rig_send(&rig, fd, STR("GET / HTTP/1.1\r\nHost: h\r\n\r\n"));
    rig_read(&rig, fd, NULL, &out, &errnum);
    CHECK(str_find_str(buf_str(&out), STR("HTTP/")) < 0);
    CHECK_INT(seen.requests, 0);
    (void)close(fd);
    buf_done(&out);
    rig_stop(&rig);
    SSL_CTX_free(server_context);
}
