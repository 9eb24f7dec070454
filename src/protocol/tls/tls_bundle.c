/* Certificates and their keys: read from PEM text, chosen by the name that a client asks for. */
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include "base/alloc.h"
#include "protocol/tls/tls_internal.h"

enum { NAMES_TOLD = 8 };

const char *tls_reason(void)
{
    const char *reason = ERR_reason_error_string(ERR_peek_last_error());

    ERR_clear_error();
    return reason ? reason : "no reason given";
}

static void certificate_done(struct tls_certificate *item)
{
    X509_free(item->leaf);
    sk_X509_pop_free(item->chain, X509_free);
    EVP_PKEY_free(item->key);
}

void tls_bundle_free(struct tls_bundle *bundle)
{
    if (!bundle)
        return;
    for (size_t i = 0; i < bundle->count; i++)
        certificate_done(&bundle->items[i]);
    free(bundle);
}

static int add_certificate(struct tls_certificate *item, const unsigned char *der, long len,
                           size_t number, struct error *err)
{
    X509 *cert = d2i_X509(NULL, &der, len);

    if (!cert)
        return error_set(err, ERROR_INVALID, "certificate %zu cannot be read: %s", number,
                         tls_reason());
    if (!item->leaf) {
        item->leaf = cert;
        return 0;
    }
    if (!item->chain)
        item->chain = sk_X509_new_null();
    if (item->chain && sk_X509_push(item->chain, cert) > 0)
        return 0;
    X509_free(cert);
    return error_set(err, ERROR_INTERNAL, "out of memory");
}

/* Ends an item. */
static int add_key(struct tls_certificate *item, const char *kind, const char *header,
                   const unsigned char *der, long len, size_t number, struct error *err)
{
    if (strstr(kind, "ENCRYPTED") || strstr(header, "ENCRYPTED"))
        return error_set(err, ERROR_INVALID,
                         "the key of certificate %zu is encrypted; store it without a passphrase, "
                         "readable by root only",
                         number);
    if (!item->leaf)
        return error_set(err, ERROR_INVALID, "key %zu has no certificate before it", number);
    item->key = d2i_AutoPrivateKey(NULL, &der, len);
    if (!item->key)
        return error_set(err, ERROR_INVALID, "the key of certificate %zu cannot be read: %s",
                         number, tls_reason());
    if (X509_check_private_key(item->leaf, item->key) != 1) {
        (void)tls_reason();
        return error_set(err, ERROR_INVALID, "the key of certificate %zu is another one's", number);
    }
    return 0;
}

/* 1: there was a block, 0: the text has ended. */
static int parse_block(BIO *bio, struct tls_bundle *bundle, struct error *err)
{
    struct tls_certificate *item = &bundle->items[bundle->count];
    size_t number = bundle->count + 1;
    char *kind = NULL, *header = NULL;
    unsigned char *der = NULL;
    long len = 0;
    int r = 1;

    if (PEM_read_bio(bio, &kind, &header, &der, &len) != 1) {
        bool at_end = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
        const char *reason = tls_reason();

        return at_end ? 0 : error_set(err, ERROR_INVALID, "this is no PEM text: %s", reason);
    }
    if (bundle->count == TLS_CERTIFICATES_MAX)
        r = error_set(err, ERROR_LIMIT, "more than %d certificates", TLS_CERTIFICATES_MAX);
    else if (strcmp(kind, "CERTIFICATE") == 0 || strcmp(kind, "TRUSTED CERTIFICATE") == 0)
        r = add_certificate(item, der, len, number, err) < 0 ? -1 : 1;
    else if (str_ends(str_of(kind), STR("PRIVATE KEY"))) {
        r = add_key(item, kind, header, der, len, number, err) < 0 ? -1 : 1;
        bundle->count += item->key != NULL;
    }
    OPENSSL_free(kind);
    OPENSSL_free(header);
    OPENSSL_clear_free(der, (size_t)len);
    return r;
}

int tls_bundle_parse(struct str text, struct tls_bundle **out, struct error *err)
{
    struct tls_bundle *bundle = xcalloc(1, sizeof(*bundle));
    BIO *bio = BIO_new_mem_buf(text.p, (int)text.len);
    int r;

    ERR_clear_error();
    do
        r = bio ? parse_block(bio, bundle, err) : error_set(err, ERROR_INTERNAL, "out of memory");
    while (r > 0);
    BIO_free(bio);
    if (r == 0 && bundle->count < TLS_CERTIFICATES_MAX && bundle->items[bundle->count].leaf)
        r = error_set(err, ERROR_INVALID, "certificate %zu has no private key", bundle->count + 1);
    else if (r == 0 && bundle->count == 0)
        r = error_set(err, ERROR_INVALID, "there is neither a certificate nor a key");
    if (r < 0) {
        if (bundle->count < TLS_CERTIFICATES_MAX)
            certificate_done(&bundle->items[bundle->count]);
        tls_bundle_free(bundle);
        return -1;
    }
    *out = bundle;
    return 0;
}

/* ---- choosing ---- */

static bool is_for(const struct tls_certificate *item, const char *name, unsigned flags)
{
    flags |= X509_CHECK_FLAG_NEVER_CHECK_SUBJECT | X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS;
    return X509_check_host(item->leaf, name, 0, flags, NULL) == 1;
}

/* All of them: one has an RSA key, another an elliptic curve, and OpenSSL takes what the client knows. */
static size_t use_all(const struct tls_bundle *bundle, const char *name, unsigned flags, SSL *ssl)
{
    size_t used = 0;

    for (size_t i = 0; i < bundle->count; i++) {
        const struct tls_certificate *item = &bundle->items[i];

        if (is_for(item, name, flags) &&
            SSL_use_cert_and_key(ssl, item->leaf, item->key, item->chain, 0) == 1)
            used++;
    }
    ERR_clear_error();
    return used;
}

bool tls_bundle_choose(const struct tls_bundle *bundle, const char *name, SSL *ssl)
{
    const struct tls_certificate *first = &bundle->items[0];

    SSL_certs_clear(ssl); /* of another try, when the client was asked to begin anew */
    if (name &&
        (use_all(bundle, name, X509_CHECK_FLAG_NO_WILDCARDS, ssl) || use_all(bundle, name, 0, ssl)))
        return true;
    return SSL_use_cert_and_key(ssl, first->leaf, first->key, first->chain, 1) == 1;
}

/* ---- telling ---- */

static void tell_names(X509 *cert, struct buf *out)
{
    GENERAL_NAMES *names = X509_get_ext_d2i(cert, NID_subject_alt_name, NULL, NULL);
    int count = names ? sk_GENERAL_NAME_num(names) : 0, told = 0;

    for (int i = 0; i < count && told < NAMES_TOLD; i++) {
        const GENERAL_NAME *name = sk_GENERAL_NAME_value(names, i);

        if (name->type != GEN_DNS)
            continue;
        (void)buf_printf(out, "%s%.*s", told ? ", " : "", ASN1_STRING_length(name->d.dNSName),
                         (const char *)ASN1_STRING_get0_data(name->d.dNSName));
        told++;
    }
    if (!told)
        (void)buf_printf(out, "no host name");
    GENERAL_NAMES_free(names);
}

static void tell_end(X509 *cert, struct buf *out)
{
    struct tm end;

    if (ASN1_TIME_to_tm(X509_get0_notAfter(cert), &end) != 1)
        return;
    (void)buf_printf(out, " until %04d-%02d-%02d%s", end.tm_year + 1900, end.tm_mon + 1,
                     end.tm_mday,
                     X509_cmp_current_time(X509_get0_notAfter(cert)) < 0    ? " (expired)"
                     : X509_cmp_current_time(X509_get0_notBefore(cert)) > 0 ? " (not valid yet)"
                                                                            : "");
}

void tls_bundle_tell(const struct tls_bundle *bundle, struct buf *out)
{
    for (size_t i = 0; i < bundle->count; i++) {
        tell_names(bundle->items[i].leaf, out);
        tell_end(bundle->items[i].leaf, out);
        (void)buf_add_char(out, '\n');
    }
}
