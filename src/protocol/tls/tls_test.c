/* The filter beneath an HTTP server, spoken to by OpenSSL's own client. */
#include "protocol/tls/tls.h"

#include <malloc.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "protocol/http/test/http_test_rig.h"
#include "protocol/stream/stream.h"
#include "protocol/tls/tls_make.h"

enum {
    STEP = 16 * 1024,
    UPLOAD = 2 * 1024 * 1024,
    IDLE = 100,
    IDLE_MAX = 40 * 1000,
    IDLE_MS = 60 * 1000, /* longer than any of these tests */
};

static struct tls_context *context;
static struct tls_made authority;
static uint32_t head_ms; /* 0 = as usual */

static struct stream_filter *new_filter(void *unused)
{
    (void)unused;
    return tls_filter_new(context);
}

/* Adds a certificate for the name, and its key. */
static void add_pair(struct buf *bundle, const char *name)
{
    struct tls_made made = {0};

    if (!authority.key.len)
        OK(tls_make_authority("test", &authority, &err));
    OK(tls_make_certificate(&authority, &name, 1, 30, &made, &err));
    CHECK(buf_add_str(bundle, buf_str(&made.certificate)));
    CHECK(buf_add_str(bundle, buf_str(&made.key)));
    tls_made_done(&made);
}

static void begin(struct rig *rig, const char *protocols, const char *const *names)
{
    struct http_server_config config = rig_config;
    auto_buf struct buf bundle = {0};

    (void)signal(SIGPIPE, SIG_IGN);
    buf_init(&bundle, TLS_BUNDLE_MAX);
    for (; *names; names++)
        add_pair(&bundle, *names);
    OK(tls_context_new(protocols, buf_str(&bundle), &context, &err));
    config.filter = new_filter;
    config.idle_timeout_ms = IDLE_MS;
    if (head_ms)
        config.head_timeout_ms = head_ms;
    rig_start(rig, &config);
}

static void end(struct rig *rig)
{
    rig_stop(rig);
    tls_context_free(context);
    tls_made_done(&authority);
}

static const char *const one_name[] = {"a.test", NULL};

/* ---- a client that blocks, in a thread of its own ---- */

struct client {
    int fd;
    const char *head;
    size_t upload;
    const char *name;     /* SNI; NULL = none */
    struct str protocols; /* as ALPN writes them */
    int version;          /* 0 = any */
    const char *ciphers;  /* of TLS 1.2; NULL = any */
    SSL_SESSION *session; /* to resume; then the one that was given */
    bool renegotiates;
    int new_keys;      /* so many times before it asks (TLS 1.3) */
    struct buf answer; /* until the server's close_notify */
    char subject[100], protocol[20];
    bool connected, reused, refused_again, answered;
    int got_version;
    atomic_bool done;
};

static int on_session(SSL *ssl, SSL_SESSION *session)
{
    struct client *client = SSL_get_app_data(ssl);

    SSL_SESSION_free(client->session);
    client->session = session;
    return 1;
}

static SSL *open_client(struct client *client, SSL_CTX *ssl_ctx)
{
    SSL *ssl;

    (void)SSL_CTX_set_session_cache_mode(ssl_ctx,
                                         SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL);
    SSL_CTX_sess_set_new_cb(ssl_ctx, on_session);
    SSL_CTX_set_security_level(ssl_ctx, 0); /* so that it would even speak TLS 1.1 */
    ssl = SSL_new(ssl_ctx);
    (void)SSL_set_app_data(ssl, client);
    if (client->version) {
        CHECK(SSL_set_min_proto_version(ssl, client->version));
        CHECK(SSL_set_max_proto_version(ssl, client->version));
    }
    if (client->ciphers)
        CHECK(SSL_set_cipher_list(ssl, client->ciphers));
    if (client->name)
        CHECK(SSL_set_tlsext_host_name(ssl, client->name));
    if (client->protocols.len)
        CHECK_INT(SSL_set_alpn_protos(ssl, (const unsigned char *)client->protocols.p,
                                      (unsigned)client->protocols.len),
                  0);
    if (client->session)
        (void)SSL_set_session(ssl, client->session);
    (void)SSL_set_fd(ssl, client->fd);
    return ssl;
}

static void note(struct client *client, SSL *ssl)
{
    X509 *cert = SSL_get1_peer_certificate(ssl);
    const unsigned char *name;
    unsigned len;

    client->connected = true;
    client->reused = SSL_session_reused(ssl);
    client->got_version = SSL_version(ssl);
    (void)X509_NAME_get_text_by_NID(X509_get_subject_name(cert), NID_commonName, client->subject,
                                    sizeof(client->subject));
    SSL_get0_alpn_selected(ssl, &name, &len);
    (void)str_copy(str_n(name, len), client->protocol, sizeof(client->protocol));
    X509_free(cert);
}

static void *run_client(void *arg)
{
    struct client *client = arg;
    SSL_CTX *ssl_ctx = SSL_CTX_new(TLS_client_method());
    SSL *ssl = open_client(client, ssl_ctx);
    auto_free char *bytes = xcalloc(1, STEP);
    int got;

    if (SSL_connect(ssl) == 1) {
        note(client, ssl);
        if (client->renegotiates)
            client->refused_again = SSL_renegotiate(ssl) != 1 || SSL_do_handshake(ssl) != 1;
        for (int i = 0; i < client->new_keys && !client->refused_again; i++)
            client->refused_again = SSL_key_update(ssl, SSL_KEY_UPDATE_NOT_REQUESTED) != 1 ||
                                    SSL_do_handshake(ssl) != 1;
        if (!client->refused_again && SSL_write(ssl, client->head, (int)strlen(client->head)) <= 0)
            client->refused_again = true;
        for (size_t left = client->upload; left; left -= STEP)
            CHECK_INT(SSL_write(ssl, bytes, STEP), STEP);
        while ((got = SSL_read(ssl, bytes, STEP)) > 0)
            CHECK(buf_add(&client->answer, bytes, (size_t)got));
        client->answered = client->answer.len > 0;
        (void)SSL_shutdown(ssl); /* else its session counts as broken */
    }
    SSL_free(ssl);
    SSL_CTX_free(ssl_ctx);
    atomic_store(&client->done, true);
    return NULL;
}

static void ask(struct rig *rig, struct client *client)
{
    pthread_t thread;

    if (!client->head)
        client->head = "GET /hello HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
    atomic_store(&client->done, false);
    client->connected = client->reused = false;
    client->fd = rig_connect(rig);
    buf_init(&client->answer, RIG_BIG + 10000);
    CHECK_INT(pthread_create(&thread, NULL, run_client, client), 0);
    while (!atomic_load(&client->done))
        rig_turn(rig);
    CHECK_INT(pthread_join(thread, NULL), 0);
    (void)close(client->fd);
    buf_done(&client->answer);
}

static void check(const char *head, size_t upload, size_t size, const char *ends)
{
    struct client client = {.head = head, .upload = upload};
    struct rig rig;
    pthread_t thread;

    begin(&rig, "", one_name);
    client.fd = rig_connect(&rig);
    buf_init(&client.answer, RIG_BIG + 10000);
    CHECK_INT(pthread_create(&thread, NULL, run_client, &client), 0);
    while (!atomic_load(&client.done))
        rig_turn(&rig);
    CHECK_INT(pthread_join(thread, NULL), 0);
    CHECK(client.answer.len >= size && client.answer.len < size + 400);
    CHECK(str_ends(buf_str(&client.answer), str_of(ends)));
    CHECK_INT(seen.finishes, 1);
    (void)close(client.fd);
    buf_done(&client.answer);
    SSL_SESSION_free(client.session);
    end(&rig);
}

TEST(answers)
{
    check("GET /hello HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", 0, 5, "hello");
}

TEST(sends_bytes)
{
    check("GET /big HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", 0, RIG_BIG, "xxxx");
}

TEST(sends_a_file)
{
    check("GET /file HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", 0, RIG_BIG - 6, "fffftail");
}

TEST(takes_an_upload)
{
    check("POST /count HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: 2097152\r\n\r\n",
          UPLOAD, 11, "got 2097152");
}

TEST(refuses_what_is_none)
{
    struct rig rig;
    struct buf out;
    int fd, errnum;

    begin(&rig, "", one_name);
    fd = rig_connect(&rig);
    buf_init(&out, 1000);
    rig_send(&rig, fd, STR("GET / HTTP/1.1\r\nHost: h\r\n\r\n"));
    rig_read(&rig, fd, NULL, &out, &errnum);
    CHECK(str_find_str(buf_str(&out), STR("HTTP/")) < 0);
    CHECK_INT(seen.requests, 0);
    (void)close(fd);
    buf_done(&out);
    end(&rig);
}

/* ---- what is agreed on ---- */

TEST(versions)
{
    static const struct {
        int version;
        bool works;
    } cases[] = {{TLS1_1_VERSION, false}, {TLS1_2_VERSION, true}, {TLS1_3_VERSION, true}};
    struct rig rig;

    begin(&rig, "", one_name);
    for (size_t i = 0; i < 3; i++) {
        struct client client = {.version = cases[i].version};

        ask(&rig, &client);
        CHECK_INT(client.connected, cases[i].works);
        CHECK_INT(client.got_version, cases[i].works ? cases[i].version : 0);
        SSL_SESSION_free(client.session);
    }
    end(&rig);
}

TEST(weak_ciphers_are_refused)
{
    struct client weak = {.version = TLS1_2_VERSION, .ciphers = "ECDHE+AES+SHA:ECDHE+SHA256"};
    struct client good = {.version = TLS1_2_VERSION, .ciphers = "ECDHE+AESGCM"};
    struct rig rig;

    begin(&rig, "", one_name);
    ask(&rig, &weak);
    CHECK(!weak.connected);
    ask(&rig, &good);
    CHECK(good.connected);
    SSL_SESSION_free(good.session);
    end(&rig);
}

TEST(nobody_renegotiates)
{
    struct client client = {.version = TLS1_2_VERSION, .renegotiates = true};
    struct rig rig;

    begin(&rig, "", one_name);
    ask(&rig, &client);
    CHECK(client.connected && client.refused_again);
    SSL_SESSION_free(client.session);
    end(&rig);
}

/* Some are fine. Without an end OpenSSL would be at work for this peer alone as long as it likes. */
TEST(new_keys_have_an_end)
{
    struct client few = {.version = TLS1_3_VERSION, .new_keys = 20};
    struct client many = {.version = TLS1_3_VERSION, .new_keys = 1000};
    struct rig rig;

    begin(&rig, "", one_name);
    ask(&rig, &few);
    CHECK(few.connected && few.answered);
    ask(&rig, &many);
    CHECK(many.connected && !many.answered);
    SSL_SESSION_free(few.session);
    SSL_SESSION_free(many.session);
    end(&rig);
}

TEST(certificate_by_name)
{
    static const char *const names[] = {"*.a.test", "a.test", "x.a.test", "b.test", NULL};
    static const struct {
        const char *asked, *subject;
    } cases[] = {
        {NULL, "a.test"},       {"b.test", "b.test"},    {"X.A.test", "x.a.test"},
        {"y.a.test", "a.test"}, {"none.test", "a.test"}, {"z.y.a.test", "a.test"},
    };
    struct rig rig;

    begin(&rig, "", names);
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct client client = {.name = cases[i].asked};

        ask(&rig, &client);
        CHECK_STR(str_of(client.subject), cases[i].subject);
        SSL_SESSION_free(client.session);
    }
    end(&rig);
}

TEST(protocols)
{
    static const struct {
        struct str asked;
        bool works;
        const char *chosen;
    } cases[] = {
        {{"", 0}, true, ""},
        {{"\x02h2", 3}, true, "h2"},
        {{"\x08http/1.1\x02h2", 12}, true, "h2"}, /* ours is the order that counts */
        {{"\x08http/1.1", 9}, true, "http/1.1"},
        {{"\x04smtp", 5}, false, ""},
    };
    struct rig rig;

    begin(&rig, "h2,http/1.1", one_name);
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct client client = {.protocols = cases[i].asked};

        ask(&rig, &client);
        CHECK_INT(client.connected, cases[i].works);
        CHECK_STR(str_of(client.protocol), cases[i].chosen);
        SSL_SESSION_free(client.session);
    }
    end(&rig);
}

TEST(a_stream_knows_its_protocol)
{
    struct client client = {.protocols = STR("\x02h2"),
                            .head = "GET /kept HTTP/1.1\r\nHost: h\r\n\r\n"};
    struct stream *stream;
    struct buf rest = {0};
    pthread_t thread;
    struct rig rig;

    begin(&rig, "h2", one_name);
    client.fd = rig_connect(&rig);
    buf_init(&client.answer, 100);
    CHECK_INT(pthread_create(&thread, NULL, run_client, &client), 0);
    while (!seen.kept)
        rig_turn(&rig);
    stream = http_detach(seen.kept, &rest);
    CHECK(!stream_opening(stream) && stream_filtered(stream));
    CHECK_STR(stream_protocol(stream), "h2");
    stream_close(stream, false);
    CHECK_INT(pthread_join(thread, NULL), 0);
    (void)close(client.fd);
    buf_done(&rest);
    SSL_SESSION_free(client.session);
    end(&rig);
}

/* ---- tickets ---- */

#define CHECK_RESUMES(rig, client, expected)   \
    do {                                       \
        ask(rig, client);                      \
        CHECK((client)->connected);            \
        CHECK_INT((client)->reused, expected); \
    } while (0)

TEST(tickets_resume_until_their_keys_are_gone)
{
    static const int versions[] = {TLS1_2_VERSION, TLS1_3_VERSION};
    struct rig rig;

    begin(&rig, "", one_name);
    for (size_t i = 0; i < 2; i++) {
        struct client client = {.version = versions[i]};

        CHECK_RESUMES(&rig, &client, false);
        for (int again = 0; again < 3; again++)
            CHECK_RESUMES(&rig, &client, true);
        clock_test_pass(INT64_C(61) * 60 * 1000000);
        CHECK_RESUMES(&rig, &client, true);
        clock_test_pass(INT64_C(4) * 3600 * 1000000);
        CHECK_RESUMES(&rig, &client, false);
        SSL_SESSION_free(client.session);
    }
    end(&rig);
}

/* ---- reload ---- */

TEST(certificates_are_replaced_and_tickets_stay)
{
    struct client client = {.name = "a.test"}, fresh = {.name = "a.test"};
    auto_buf struct buf bundle = {0};
    struct rig rig;

    begin(&rig, "", one_name);
    CHECK_RESUMES(&rig, &client, false);
    CHECK_STR(str_of(client.subject), "a.test");
    buf_init(&bundle, TLS_BUNDLE_MAX);
    add_pair(&bundle, "b.test");
    OK(tls_context_replace(context, buf_str(&bundle), &err));
    CHECK_RESUMES(&rig, &client, true);
    ask(&rig, &fresh);
    CHECK_STR(str_of(fresh.subject), "b.test");
    SSL_SESSION_free(client.session);
    SSL_SESSION_free(fresh.session);
    end(&rig);
}

TEST(a_bad_bundle_changes_nothing)
{
    auto_buf struct buf one = {0}, other = {0}, mixed = {0};
    struct client client = {0};
    ptrdiff_t key;
    struct rig rig;

    begin(&rig, "", one_name);
    buf_init(&one, TLS_BUNDLE_MAX);
    buf_init(&other, TLS_BUNDLE_MAX);
    buf_init(&mixed, TLS_BUNDLE_MAX);
    add_pair(&one, "b.test");
    add_pair(&other, "b.test");
    key = str_find_str(buf_str(&one), STR("-----BEGIN PRIVATE KEY"));
    CHECK(key > 0);
    FAILS(tls_context_replace(context, STR(""), &err), ERROR_INVALID, "neither");
    FAILS(tls_context_replace(context, STR("-----BEGIN CERTIFICATE-----\n?"), &err), ERROR_INVALID,
          "PEM");
    FAILS(tls_context_replace(context, str_n(one.p, (size_t)key), &err), ERROR_INVALID,
          "no private key");
    FAILS(tls_context_replace(context, str_skip(buf_str(&one), (size_t)key), &err), ERROR_INVALID,
          "no certificate before it");
    key = str_find_str(buf_str(&other), STR("-----BEGIN PRIVATE KEY"));
    CHECK(buf_add(&mixed, one.p, (size_t)str_find_str(buf_str(&one), STR("-----BEGIN PRIVATE"))));
    CHECK(buf_add_str(&mixed, str_skip(buf_str(&other), (size_t)key)));
    FAILS(tls_context_replace(context, buf_str(&mixed), &err), ERROR_INVALID, "another one's");
    buf_clear(&mixed);
    CHECK(buf_add(&mixed, one.p, (size_t)str_find_str(buf_str(&one), STR("-----BEGIN PRIVATE"))));
    CHECK(buf_add_str(&mixed, STR("-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n"
                                  "-----END ENCRYPTED PRIVATE KEY-----\n")));
    FAILS(tls_context_replace(context, buf_str(&mixed), &err), ERROR_INVALID, "encrypted");
    ask(&rig, &client);
    CHECK_STR(str_of(client.subject), "a.test");
    SSL_SESSION_free(client.session);
    end(&rig);
}

TEST(certificates_are_told)
{
    static const char *const names[] = {"*.a.test", NULL};
    auto_buf struct buf told = {0};
    struct rig rig;

    begin(&rig, "", names);
    buf_init(&told, 1000);
    tls_context_tell(context, &told);
    CHECK(str_starts(buf_str(&told), STR("*.a.test until 20")));
    end(&rig);
}

/* ---- limits ---- */

static void wait_until_closed(struct rig *rig, int fd, struct str drip)
{
    char byte;

    for (size_t i = 0; recv(fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK) < 0; i++) {
        if (i < drip.len)
            (void)send(fd, drip.p + i, 1, MSG_NOSIGNAL);
        rig_wait_ms(rig, 20);
    }
}

TEST(a_handshake_has_the_time_of_a_head)
{
    /* A record of 256 bytes that comes a byte at a time. */
    struct str slow =
        STR("\x16\x03\x01\x01\x00\x01\x00\x00\xfc\x03\x03.............................");
    struct rig rig;
    int silent, dripping;
    int64_t start;

    head_ms = 300;
    begin(&rig, "", one_name);
    silent = rig_connect(&rig);
    dripping = rig_connect(&rig);
    start = clock_mono_ms();
    wait_until_closed(&rig, dripping, slow);
    wait_until_closed(&rig, silent, STR(""));
    CHECK(clock_mono_ms() - start >= 250);
    CHECK_INT(http_server_connections(rig.server), 0);
    (void)close(silent);
    (void)close(dripping);
    end(&rig);
}

/* In a process of its own, so that only the server's memory is counted. */
static pid_t open_idle(struct rig *rig, int ready)
{
    pid_t pid = fork();

    if (pid == 0) {
        SSL_CTX *ssl_ctx = SSL_CTX_new(TLS_client_method());

        (void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
        for (int i = 0; i < IDLE; i++) {
            SSL *ssl = SSL_new(ssl_ctx);
            char answer[1000];

            (void)SSL_set_fd(ssl, rig_connect(rig));
            if (SSL_connect(ssl) != 1 ||
                SSL_write(ssl, "GET /hello HTTP/1.1\r\nHost: h\r\n\r\n", 32) <= 0 ||
                SSL_read(ssl, answer, sizeof(answer)) <= 0)
                _exit(1);
        }
        CHECK_INT(write(ready, "!", 1), 1);
        (void)pause();
    }
    return pid;
}

TEST_TIMEOUT(idle_connections_hold_little, 60)
{
    size_t before, used;
    struct rig rig;
    int ready[2];
    pid_t pid;

    begin(&rig, "", one_name);
    CHECK_INT(pipe(ready), 0);
    before = mallinfo2().uordblks;
    pid = open_idle(&rig, ready[1]);
    for (;;) {
        char byte;

        rig_turn(&rig);
        if (seen.requests == IDLE && read(ready[0], &byte, 1) == 1)
            break;
    }
    CHECK_INT(http_server_connections(rig.server), IDLE);
    used = (mallinfo2().uordblks - before) / IDLE;
    if (used > IDLE_MAX)
        test_fail(__FILE__, __LINE__, "an idle connection holds %zu bytes", used);
    printf("# an idle connection holds %zu bytes\n", used);
    CHECK_INT(kill(pid, SIGKILL), 0);
    CHECK_INT(waitpid(pid, NULL, 0), pid);
    (void)close(ready[0]);
    (void)close(ready[1]);
    end(&rig);
}

/* ---- making ---- */

TEST(authorities_sign_for_their_domain_only)
{
    static const struct {
        const char *name;
        bool valid;
    } cases[] = {{"x.test", true}, {"test", true}, {"localhost", true}, {"evil.example", false}};

    OK(tls_make_authority("test", &authority, &err));
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct tls_made made = {0};
        BIO *ca = BIO_new_mem_buf(authority.certificate.p, (int)authority.certificate.len), *bio;
        X509 *issuer = PEM_read_bio_X509(ca, NULL, NULL, NULL), *leaf;
        X509_STORE *store = X509_STORE_new();
        X509_STORE_CTX *ctx = X509_STORE_CTX_new();

        OK(tls_make_certificate(&authority, &cases[i].name, 1, 30, &made, &err));
        bio = BIO_new_mem_buf(made.certificate.p, (int)made.certificate.len);
        leaf = PEM_read_bio_X509(bio, NULL, NULL, NULL);
        CHECK(X509_STORE_add_cert(store, issuer) == 1);
        CHECK(X509_STORE_CTX_init(ctx, store, leaf, NULL) == 1);
        X509_STORE_CTX_set_flags(ctx, X509_V_FLAG_X509_STRICT);
        CHECK_INT(X509_verify_cert(ctx), cases[i].valid);
        X509_STORE_CTX_free(ctx);
        X509_STORE_free(store);
        X509_free(issuer);
        X509_free(leaf);
        BIO_free(ca);
        BIO_free(bio);
        tls_made_done(&made);
    }
    tls_made_done(&authority);
}

TEST(names_are_checked)
{
    const char *bad = "a.test,DNS:evil.example",
               *few[] = {"a.test", "*.a.test", "127.0.0.1", "::1"};
    struct tls_made made = {0};
    struct tls_facts facts;

    FAILS(tls_make_authority("a,b", &made, &err), ERROR_INVALID, "no domain");
    FAILS(tls_make_authority("", &made, &err), ERROR_INVALID, "no domain");
    OK(tls_make_authority("a.test", &authority, &err));
    FAILS(tls_make_certificate(&authority, &bad, 1, 30, &made, &err), ERROR_INVALID,
          "no host name");
    OK(tls_make_certificate(&authority, few, 4, 30, &made, &err));
    OK(tls_make_facts(buf_str(&made.certificate), "9-x.a.test", &facts, &err));
    CHECK(facts.matches && facts.ends_us > clock_wall_us() + INT64_C(29) * 86400 * 1000000);
    OK(tls_make_facts(buf_str(&made.certificate), "b.test", &facts, &err));
    CHECK(!facts.matches);
    tls_made_done(&made);
    tls_made_done(&authority);
}
