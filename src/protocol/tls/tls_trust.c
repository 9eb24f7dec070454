/* Whom we believe as a client: the authorities that the host trusts, read once, all from one file, since later none may
 * be opened. */
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <unistd.h>

#include "base/alloc.h"
#include "protocol/tls/tls_intercept.h"
#include "protocol/tls/tls_internal.h"

struct tls_trust {
    SSL_CTX *ssl_ctx;
};

/* Where distributions keep all of them in one file; NULL when there is none. */
static const char *host_file(void)
{
    static const char *const files[] = {
        "/etc/ssl/certs/ca-certificates.crt",                /* Debian, Arch, Alpine */
        "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", /* Fedora */
        "/etc/pki/tls/certs/ca-bundle.crt",
        "/etc/ssl/ca-bundle.pem", /* SUSE */
        "/etc/ssl/cert.pem",
    };

    for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++)
        if (access(files[i], R_OK) == 0)
            return files[i];
    return NULL;
}

int tls_trust_new(const char *file, struct tls_trust **out, struct error *err)
{
    SSL_CTX *ssl_ctx = SSL_CTX_new(TLS_client_method());
    const char *host = host_file();

    if (!ssl_ctx || !tls_set_up(ssl_ctx)) {
        SSL_CTX_free(ssl_ctx);
        return error_set(err, ERROR_INTERNAL, "TLS cannot be set up: %s", tls_reason());
    }
    if ((host && SSL_CTX_load_verify_file(ssl_ctx, host) != 1) ||
        (file && SSL_CTX_load_verify_file(ssl_ctx, file) != 1)) {
        (void)error_set(err, ERROR_INVALID, "no certificates can be read from '%s': %s",
                        file ? file : host, tls_reason());
        SSL_CTX_free(ssl_ctx);
        return -1;
    }
    SSL_CTX_set_verify(ssl_ctx, SSL_VERIFY_PEER, NULL);
    /* Many close without a goodbye. Whether a message was whole is said by HTTP. */
    (void)SSL_CTX_set_options(ssl_ctx, SSL_OP_IGNORE_UNEXPECTED_EOF);
    (void)SSL_CTX_set_session_cache_mode(ssl_ctx, SSL_SESS_CACHE_OFF);
    *out = xcalloc(1, sizeof(**out));
    (*out)->ssl_ctx = ssl_ctx;
    return 0;
}

void tls_trust_free(struct tls_trust *trust)
{
    if (!trust)
        return;
    SSL_CTX_free(trust->ssl_ctx);
    free(trust);
}

struct stream_filter *tls_filter_verified(struct tls_trust *trust, const char *name)
{
    SSL *ssl = SSL_new(trust->ssl_ctx);

    if (!ssl || SSL_set1_host(ssl, name) != 1 || SSL_set_tlsext_host_name(ssl, name) != 1 ||
        SSL_set_alpn_protos(ssl, tls_http1, TLS_HTTP1_SIZE) != 0)
        abort(); /* out of memory, as everywhere */
    SSL_set_hostflags(ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    SSL_set_connect_state(ssl);
    return tls_filter_of(ssl, STR_NONE);
}
