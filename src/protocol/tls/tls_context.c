/* How it works
 *
 * What OpenSSL calls a context is made once for each set of certificates and never changed: a reload makes another
 * one, and the old one goes with its last connection, the certificates with it. Keys of tickets and the list of
 * protocols outlive them. */
#include <openssl/err.h>

#include "base/alloc.h"
#include "protocol/tls/tls_internal.h"

static int bundle_index = -1;
static pthread_once_t index_once = PTHREAD_ONCE_INIT;

static void free_bundle(void *parent, void *bundle, CRYPTO_EX_DATA *data, int index, long argl,
                        void *argp)
{
    (void)parent;
    (void)data;
    (void)index;
    (void)argl;
    (void)argp;
    tls_bundle_free(bundle);
}

static void make_index(void)
{
    bundle_index = SSL_CTX_get_ex_new_index(0, NULL, NULL, NULL, free_bundle);
}

static struct tls_bundle *bundle_of(const SSL_CTX *ssl_ctx)
{
    return SSL_CTX_get_ex_data(ssl_ctx, bundle_index);
}

static int on_certificate(SSL *ssl, void *arg)
{
    (void)arg;
    return tls_bundle_choose(bundle_of(SSL_get_SSL_CTX(ssl)),
                             SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name), ssl);
}

static int on_protocols(SSL *ssl, const unsigned char **out, unsigned char *out_len,
                        const unsigned char *in, unsigned in_len, void *arg)
{
    const struct tls_context *context = arg;
    unsigned char *chosen;

    if (SSL_select_next_proto(&chosen, out_len, context->protocols,
                              (unsigned)context->protocols_len, in,
                              in_len) != OPENSSL_NPN_NEGOTIATED)
        return SSL_TLSEXT_ERR_ALERT_FATAL;
    *out = chosen;
    if (!str_eq(str_n(chosen, *out_len), str_n(tls_http1 + 1, TLS_HTTP1_SIZE - 1)))
        tls_kernel_refuse(ssl);
    return SSL_TLSEXT_ERR_OK;
}

bool tls_set_up(SSL_CTX *ssl_ctx)
{
    (void)SSL_CTX_set_options(ssl_ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
                                           SSL_OP_CIPHER_SERVER_PREFERENCE |
                                           SSL_OP_PRIORITIZE_CHACHA);
    /* Idle connections hold no buffers; what is written again after "not now" may stand elsewhere. */
    (void)SSL_CTX_set_mode(ssl_ctx, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                        SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_NO_AUTO_CHAIN);
    SSL_CTX_set_read_ahead(ssl_ctx, 1);
    return SSL_CTX_set_min_proto_version(ssl_ctx, TLS1_2_VERSION) == 1 &&
           SSL_CTX_set_cipher_list(ssl_ctx, "ECDHE+AESGCM:ECDHE+CHACHA20") == 1 &&
           SSL_CTX_set1_groups_list(ssl_ctx, "X25519:P-256:P-384") == 1;
}

static bool set_up(struct tls_context *context, SSL_CTX *ssl_ctx)
{
    static const unsigned char id[] = "quicksand";

    SSL_CTX_set_cert_cb(ssl_ctx, on_certificate, NULL);
    if (context->protocols_len)
        SSL_CTX_set_alpn_select_cb(ssl_ctx, on_protocols, context);
    tls_tickets_use(&context->tickets, ssl_ctx);
    tls_kernel_allow(ssl_ctx);
    return tls_set_up(ssl_ctx) && SSL_CTX_set_session_id_context(ssl_ctx, id, sizeof(id) - 1) == 1;
}

/* A certificate that OpenSSL will not use (too short a key, say) is found here and not in the first handshake. */
static int check_usable(SSL_CTX *ssl_ctx, const struct tls_bundle *bundle, struct error *err)
{
    SSL *ssl = SSL_new(ssl_ctx);
    int r = ssl ? 0 : error_set(err, ERROR_INTERNAL, "TLS cannot be used: %s", tls_reason());

    for (size_t i = 0; i < bundle->count && r == 0; i++) {
        const struct tls_certificate *item = &bundle->items[i];

        if (SSL_use_cert_and_key(ssl, item->leaf, item->key, item->chain, 1) != 1)
            r = error_set(err, ERROR_INVALID, "certificate %zu cannot be used: %s", i + 1,
                          tls_reason());
    }
    SSL_free(ssl);
    return r;
}

int tls_context_replace(struct tls_context *context, struct str bundle, struct error *err)
{
    struct tls_bundle *parsed = NULL;
    SSL_CTX *made, *old;

    (void)pthread_once(&index_once, make_index);
    if (tls_bundle_parse(bundle, &parsed, err) < 0)
        return -1;
    made = SSL_CTX_new(TLS_server_method());
    if (!made || SSL_CTX_set_ex_data(made, bundle_index, parsed) != 1) {
        tls_bundle_free(parsed);
        SSL_CTX_free(made);
        return error_set(err, ERROR_INTERNAL, "TLS cannot be used: %s", tls_reason());
    }
    if (!set_up(context, made)) {
        SSL_CTX_free(made);
        return error_set(err, ERROR_INTERNAL, "TLS cannot be set up: %s", tls_reason());
    }
    if (check_usable(made, parsed, err) < 0) {
        SSL_CTX_free(made);
        return -1;
    }
    (void)pthread_mutex_lock(&context->lock);
    old = context->ssl_ctx;
    context->ssl_ctx = made;
    (void)pthread_mutex_unlock(&context->lock);
    SSL_CTX_free(old);
    return 0;
}

/* As ALPN writes a list: each name behind its length. */
static bool set_protocols(struct tls_context *context, struct str list)
{
    while (list.p && list.len) {
        struct str name = str_split(&list, ',');

        if (!name.len || context->protocols_len + 1 + name.len > TLS_PROTOCOLS_SIZE)
            return false;
        context->protocols[context->protocols_len++] = (unsigned char)name.len;
        memcpy(context->protocols + context->protocols_len, name.p, name.len);
        context->protocols_len += name.len;
    }
    return true;
}

int tls_context_new(const char *protocols, struct str bundle, struct tls_context **out,
                    struct error *err)
{
    struct tls_context *context = xcalloc(1, sizeof(*context));

    (void)pthread_mutex_init(&context->lock, NULL);
    tls_tickets_init(&context->tickets);
    if (!set_protocols(context, str_of(protocols))) {
        tls_context_free(context);
        return error_set(err, ERROR_INVALID, "'%s' is no list of protocols", protocols);
    }
    if (tls_context_replace(context, bundle, err) < 0) {
        tls_context_free(context);
        return -1;
    }
    *out = context;
    return 0;
}

void tls_context_free(struct tls_context *context)
{
    if (!context)
        return;
    SSL_CTX_free(context->ssl_ctx);
    tls_tickets_done(&context->tickets);
    (void)pthread_mutex_destroy(&context->lock);
    free(context);
}

void tls_context_tell(struct tls_context *context, struct buf *out)
{
    (void)pthread_mutex_lock(&context->lock);
    tls_bundle_tell(bundle_of(context->ssl_ctx), out);
    (void)pthread_mutex_unlock(&context->lock);
}
