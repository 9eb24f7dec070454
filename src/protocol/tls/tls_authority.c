/* How it works
 *
 * All certificates that an authority signs are for one key, made with it, so that a name costs one signature; the
 * newest ones are kept. They are good for a week and made anew after a day. Nothing is remembered of a connection
 * (no tickets, no sessions): whatever differs between two names or two sandboxes cannot be mixed up. */
#include <openssl/err.h>
#include <openssl/x509v3.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/list.h"
#include "base/map.h"
#include "protocol/tls/tls_intercept.h"
#include "protocol/tls/tls_internal.h"

enum { LEAVES_MAX = 1024, LEAF_DAYS = 7 };

static const int64_t leaf_us = 86400LL * 1000000;

struct leaf {
    struct list used; /* the oldest first */
    X509 *cert;
    int64_t until_us;
    char name[];
};

struct tls_authority {
    struct tls_bundle *bundle; /* its own certificate and key */
    EVP_PKEY *key;             /* of all leaves */
    SSL_CTX *ssl_ctx;
    struct map leaves; /* name -> struct leaf */
    struct list used;
};

static int on_protocols(SSL *ssl, const unsigned char **out, unsigned char *out_len,
                        const unsigned char *in, unsigned in_len, void *arg)
{
    unsigned char *chosen;

    (void)ssl;
    (void)arg;
    if (SSL_select_next_proto(&chosen, out_len, tls_http1, TLS_HTTP1_SIZE, in, in_len) !=
        OPENSSL_NPN_NEGOTIATED)
        return SSL_TLSEXT_ERR_ALERT_FATAL;
    *out = chosen;
    return SSL_TLSEXT_ERR_OK;
}

static SSL_CTX *make_ctx(void)
{
    SSL_CTX *ssl_ctx = SSL_CTX_new(TLS_server_method());

    if (!ssl_ctx || !tls_set_up(ssl_ctx) || SSL_CTX_set_num_tickets(ssl_ctx, 0) != 1) {
        SSL_CTX_free(ssl_ctx);
        return NULL;
    }
    (void)SSL_CTX_set_options(ssl_ctx, SSL_OP_NO_TICKET | SSL_OP_IGNORE_UNEXPECTED_EOF);
    (void)SSL_CTX_set_session_cache_mode(ssl_ctx, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_alpn_select_cb(ssl_ctx, on_protocols, NULL);
    return ssl_ctx;
}

static int read_bundle(struct str certificate, struct str key, struct tls_bundle **out,
                       struct error *err)
{
    auto_buf struct buf both = {0};
    int r;

    buf_init(&both, TLS_BUNDLE_MAX);
    (void)buf_add_str(&both, certificate);
    (void)buf_add_char(&both, '\n');
    (void)buf_add_str(&both, key);
    r = tls_bundle_parse(buf_str(&both), out, err);
    if (both.p)
        OPENSSL_cleanse(both.p, both.len);
    return r;
}

int tls_authority_new(struct str certificate, struct str key, struct tls_authority **out,
                      struct error *err)
{
    struct tls_authority *authority = xcalloc(1, sizeof(*authority));

    map_init(&authority->leaves);
    list_init(&authority->used);
    if (read_bundle(certificate, key, &authority->bundle, err) < 0) {
        tls_authority_free(authority);
        return error_prefix(err, "authority");
    }
    authority->key = EVP_EC_gen("P-256");
    authority->ssl_ctx = make_ctx();
    if (X509_check_ca(authority->bundle->items[0].leaf) != 1 || !authority->key ||
        !authority->ssl_ctx) {
        tls_authority_free(authority);
        return error_set(err, ERROR_INVALID, "this certificate cannot sign others");
    }
    *out = authority;
    return 0;
}

static void forget(struct tls_authority *authority, struct leaf *leaf)
{
    (void)map_remove(&authority->leaves, str_of(leaf->name));
    list_remove(&leaf->used);
    X509_free(leaf->cert);
    free(leaf);
}

void tls_authority_free(struct tls_authority *authority)
{
    if (!authority)
        return;
    while (!list_empty(&authority->used))
        forget(authority, container_of(authority->used.next, struct leaf, used));
    map_done(&authority->leaves);
    SSL_CTX_free(authority->ssl_ctx);
    EVP_PKEY_free(authority->key);
    if (authority->bundle)
        tls_bundle_free(authority->bundle);
    free(authority);
}

static struct leaf *make_leaf(struct tls_authority *authority, const char *name)
{
    X509 *cert = tls_make_leaf(&authority->bundle->items[0], authority->key, name, LEAF_DAYS);
    struct leaf *leaf;

    if (!cert)
        return NULL;
    if (authority->leaves.count == LEAVES_MAX)
        forget(authority, container_of(authority->used.next, struct leaf, used));
    leaf = xcalloc(1, sizeof(*leaf) + strlen(name) + 1);
    memcpy(leaf->name, name, strlen(name) + 1);
    leaf->cert = cert;
    leaf->until_us = clock_mono_us() + leaf_us;
    (void)map_put(&authority->leaves, str_of(name), leaf);
    list_push_back(&authority->used, &leaf->used);
    return leaf;
}

static struct leaf *leaf_for(struct tls_authority *authority, const char *name)
{
    struct leaf *leaf = map_get(&authority->leaves, str_of(name));

    if (leaf && leaf->until_us <= clock_mono_us()) {
        forget(authority, leaf);
        leaf = NULL;
    }
    if (!leaf)
        return make_leaf(authority, name);
    list_remove(&leaf->used);
    list_push_back(&authority->used, &leaf->used);
    return leaf;
}

struct stream_filter *tls_filter_signed(struct tls_authority *authority, const char *name,
                                        struct str first)
{
    const struct leaf *leaf = leaf_for(authority, name);
    SSL *ssl = leaf ? SSL_new(authority->ssl_ctx) : NULL;

    if (!ssl || SSL_use_certificate(ssl, leaf->cert) != 1 ||
        SSL_use_PrivateKey(ssl, authority->key) != 1) {
        SSL_free(ssl);
        ERR_clear_error();
        return NULL;
    }
    SSL_set_accept_state(ssl);
    return tls_filter_of(ssl, first);
}
