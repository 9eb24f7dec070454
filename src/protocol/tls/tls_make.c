/* See tls_make.h. Extensions are written in the language of openssl.cnf, from names that were checked. */
#include "protocol/tls/tls_make.h"

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>
#include <time.h>

#include "protocol/tls/tls_internal.h"

enum {
    AUTHORITY_DAYS = 3650,
    AGO_S = 3600, /* clocks differ */
    SERIAL_BYTES = 16,
    VALUE_SIZE = 64 + TLS_MAKE_NAMES_MAX * 272,
    LEAF_NAME_MAX = 253,
};

void tls_made_done(struct tls_made *made)
{
    if (made->key.p)
        OPENSSL_cleanse(made->key.p, made->key.len);
    buf_done(&made->certificate);
    buf_done(&made->key);
}

static int failed(struct error *err, const char *what)
{
    return error_set(err, ERROR_INTERNAL, "cannot make %s: %s", what, tls_reason());
}

/* Appends what OpenSSL wrote, and forgets it there. */
static bool take_bio(BIO *bio, struct buf *out)
{
    char *p = NULL;
    long len = BIO_get_mem_data(bio, &p);
    bool ok;

    buf_init(out, TLS_MAKE_SIZE);
    ok = len > 0 && buf_add(out, p, (size_t)len);
    BIO_free(bio);
    return ok;
}

static bool write_key(EVP_PKEY *key, struct buf *out)
{
    BIO *bio = BIO_new(BIO_s_secmem());

    if (!bio)
        bio = BIO_new(BIO_s_mem());
    return bio && PEM_write_bio_PrivateKey(bio, key, NULL, NULL, 0, NULL, NULL) == 1 &&
           take_bio(bio, out);
}

static bool write_certificate(X509 *cert, struct buf *out)
{
    BIO *bio = BIO_new(BIO_s_mem());

    return bio && PEM_write_bio_X509(bio, cert) == 1 && take_bio(bio, out);
}

static bool add_extension(X509 *cert, X509 *issuer, int nid, const char *value)
{
    X509V3_CTX ctx;
    X509_EXTENSION *extension;
    bool ok;

    X509V3_set_ctx(&ctx, issuer, cert, NULL, NULL, 0);
    extension = X509V3_EXT_conf_nid(NULL, &ctx, nid, value);
    ok = extension && X509_add_ext(cert, extension, -1) == 1;
    X509_EXTENSION_free(extension);
    return ok;
}

static bool set_serial(X509 *cert)
{
    unsigned char bytes[SERIAL_BYTES];
    BIGNUM *number;
    bool ok;

    if (RAND_bytes(bytes, sizeof(bytes)) != 1)
        return false;
    bytes[0] = (unsigned char)((bytes[0] & 0x7f) | 0x40); /* positive, and never short */
    number = BN_bin2bn(bytes, sizeof(bytes), NULL);
    ok = number && BN_to_ASN1_INTEGER(number, X509_get_serialNumber(cert));
    BN_free(number);
    return ok;
}

static bool set_name(X509_NAME *name, const char *text)
{
    return X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_UTF8, (const unsigned char *)text, -1,
                                      -1, 0) == 1;
}

static X509 *begin(EVP_PKEY *key, const char *name, int days)
{
    X509 *cert = X509_new();

    if (cert && X509_set_version(cert, X509_VERSION_3) == 1 && set_serial(cert) &&
        X509_gmtime_adj(X509_getm_notBefore(cert), -AGO_S) &&
        X509_time_adj_ex(X509_getm_notAfter(cert), days, 0, NULL) &&
        X509_set_pubkey(cert, key) == 1 && set_name(X509_get_subject_name(cert), name))
        return cert;
    X509_free(cert);
    return NULL;
}

static bool is_domain(const char *text)
{
    size_t len = strlen(text);

    return len > 0 && len < 254 && strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789-.") == len &&
           text[0] != '.' && text[0] != '-' && text[len - 1] != '.';
}

static bool finish_authority(X509 *cert, EVP_PKEY *key, const char *domain)
{
    char allowed[VALUE_SIZE];

    (void)snprintf(allowed, sizeof(allowed),
                   "critical,permitted;DNS:%s,permitted;DNS:localhost,"
                   "permitted;IP:127.0.0.0/255.0.0.0,"
                   "permitted;IP:::1/FFFF:FFFF:FFFF:FFFF:FFFF:FFFF:FFFF:FFFF",
                   domain ? domain : "");
    return X509_set_issuer_name(cert, X509_get_subject_name(cert)) == 1 &&
           add_extension(cert, cert, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") &&
           add_extension(cert, cert, NID_key_usage, "critical,keyCertSign,cRLSign") &&
           add_extension(cert, cert, NID_subject_key_identifier, "hash") &&
           (!domain || add_extension(cert, cert, NID_name_constraints, allowed)) &&
           X509_sign(cert, key, EVP_sha256()) > 0;
}

int tls_make_authority(const char *domain, struct tls_made *out, struct error *err)
{
    EVP_PKEY *key;
    char name[64];
    X509 *cert;
    bool ok;

    if (domain && !is_domain(domain))
        return error_set(err, ERROR_INVALID, "'%s' is no domain: lower case, such as example.com",
                         domain);
    key = EVP_EC_gen("P-256");
    (void)snprintf(name, sizeof(name), "Quicksand %s%.38s", domain ? "local CA for " : "egress CA",
                   domain ? domain : "");
    cert = key ? begin(key, name, AUTHORITY_DAYS) : NULL;
    ok = cert && finish_authority(cert, key, domain) &&
         write_certificate(cert, &out->certificate) && write_key(key, &out->key);
    X509_free(cert);
    EVP_PKEY_free(key);
    return ok ? 0 : failed(err, "an authority");
}

static bool is_ip(const char *text)
{
    struct in6_addr address;

    return inet_pton(AF_INET, text, &address) == 1 || inet_pton(AF_INET6, text, &address) == 1;
}

/* What OpenSSL reads as a list of alternative names; nothing in it may have a meaning of its own. */
static int list_names(const char *const *names, size_t count, char *out, size_t size,
                      struct error *err)
{
    size_t len = 0;

    if (count == 0 || count > TLS_MAKE_NAMES_MAX)
        return error_set(err, ERROR_INVALID, "a certificate has 1 to %d names", TLS_MAKE_NAMES_MAX);
    for (size_t i = 0; i < count; i++) {
        const char *host = strncmp(names[i], "*.", 2) == 0 ? names[i] + 2 : names[i];

        if (!is_ip(names[i]) && !is_domain(host))
            return error_set(err, ERROR_INVALID, "'%s' is no host name", names[i]);
        len += (size_t)snprintf(out + len, size - len, "%s%s:%s", i ? "," : "",
                                is_ip(names[i]) ? "IP" : "DNS", names[i]);
    }
    return 0;
}

static bool finish_certificate(X509 *cert, X509 *issuer, EVP_PKEY *issuer_key, const char *names)
{
    return X509_set_issuer_name(cert, X509_get_subject_name(issuer)) == 1 &&
           add_extension(cert, issuer, NID_basic_constraints, "critical,CA:FALSE") &&
           add_extension(cert, issuer, NID_key_usage, "critical,digitalSignature") &&
           add_extension(cert, issuer, NID_ext_key_usage, "serverAuth") &&
           add_extension(cert, issuer, NID_subject_key_identifier, "hash") &&
           add_extension(cert, issuer, NID_authority_key_identifier, "keyid:always") &&
           add_extension(cert, issuer, NID_subject_alt_name, names) &&
           X509_sign(cert, issuer_key, EVP_sha256()) > 0;
}

int tls_make_certificate(const struct tls_made *authority, const char *const *names, size_t count,
                         int days, struct tls_made *out, struct error *err)
{
    auto_buf struct buf both = {0};
    struct tls_bundle *bundle;
    char list[VALUE_SIZE];
    EVP_PKEY *key;
    X509 *cert;
    bool ok;

    buf_init(&both, (size_t)2 * TLS_MAKE_SIZE);
    (void)buf_add_str(&both, buf_str(&authority->certificate));
    (void)buf_add_str(&both, buf_str(&authority->key));
    if (list_names(names, count, list, sizeof(list), err) < 0 ||
        tls_bundle_parse(buf_str(&both), &bundle, err) < 0)
        return -1;
    OPENSSL_cleanse(both.p, both.len);
    key = EVP_EC_gen("P-256");
    cert = key ? begin(key, names[0][0] == '*' ? names[0] + 2 : names[0], days) : NULL;
    ok = cert && finish_certificate(cert, bundle->items[0].leaf, bundle->items[0].key, list) &&
         write_certificate(cert, &out->certificate) && write_key(key, &out->key);
    X509_free(cert);
    EVP_PKEY_free(key);
    tls_bundle_free(bundle);
    return ok ? 0 : failed(err, "a certificate");
}

/* The name stands among the alternative ones only: the other place for it is too small for some. */
X509 *tls_make_leaf(const struct tls_certificate *issuer, EVP_PKEY *key, const char *name, int days)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyz0123456789-_.";
    char list[VALUE_SIZE];
    size_t len = strlen(name);
    X509 *cert;

    if (len == 0 || len > LEAF_NAME_MAX || strspn(name, allowed) != len)
        return NULL;
    (void)snprintf(list, sizeof(list), "DNS:%s", name);
    cert = begin(key, "Quicksand egress", days);
    if (cert && finish_certificate(cert, issuer->leaf, issuer->key, list))
        return cert;
    X509_free(cert);
    return NULL;
}

/* ---- requests ---- */

static bool finish_request(X509_REQ *request, EVP_PKEY *key, const char *names, struct buf *out_der)
{
    STACK_OF(X509_EXTENSION) *extensions = sk_X509_EXTENSION_new_null();
    X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, NULL, NID_subject_alt_name, names);
    unsigned char *der = NULL;
    int len = -1;

    if (extensions && extension && sk_X509_EXTENSION_push(extensions, extension) > 0) {
        extension = NULL;
        if (X509_REQ_set_pubkey(request, key) == 1 &&
            X509_REQ_add_extensions(request, extensions) == 1 &&
            X509_REQ_sign(request, key, EVP_sha256()) > 0)
            len = i2d_X509_REQ(request, &der);
    }
    if (len > 0) {
        buf_init(out_der, TLS_MAKE_SIZE);
        (void)buf_add(out_der, der, (size_t)len);
    }
    OPENSSL_free(der);
    X509_EXTENSION_free(extension);
    sk_X509_EXTENSION_pop_free(extensions, X509_EXTENSION_free);
    return len > 0;
}

int tls_make_request(const char *const *names, size_t count, struct buf *out_key,
                     struct buf *out_der, struct error *err)
{
    char list[VALUE_SIZE];
    X509_REQ *request;
    EVP_PKEY *key;
    bool ok;

    if (list_names(names, count, list, sizeof(list), err) < 0)
        return -1;
    key = EVP_EC_gen("P-256");
    request = X509_REQ_new();
    ok = key && request && finish_request(request, key, list, out_der) && write_key(key, out_key);
    X509_REQ_free(request);
    EVP_PKEY_free(key);
    return ok ? 0 : failed(err, "a request for a certificate");
}

/* ---- looking ---- */

int tls_make_hash(struct str certificate, char *out, size_t size)
{
    BIO *bio = BIO_new_mem_buf(certificate.p, (int)certificate.len);
    X509 *cert = bio ? PEM_read_bio_X509(bio, NULL, NULL, NULL) : NULL;

    if (cert)
        (void)snprintf(out, size, "%08lx", X509_subject_name_hash(cert));
    BIO_free(bio);
    X509_free(cert);
    ERR_clear_error();
    return cert ? 0 : -1;
}

static int64_t time_of(const ASN1_TIME *time)
{
    struct tm tm = {0};

    return ASN1_TIME_to_tm(time, &tm) == 1 ? (int64_t)timegm(&tm) * 1000000 : 0;
}

int tls_make_facts(struct str certificate, const char *name, struct tls_facts *out,
                   struct error *err)
{
    BIO *bio = BIO_new_mem_buf(certificate.p, (int)certificate.len);
    X509 *cert = bio ? PEM_read_bio_X509(bio, NULL, NULL, NULL) : NULL;

    BIO_free(bio);
    if (!cert)
        return error_set(err, ERROR_INVALID, "this is no certificate: %s", tls_reason());
    out->begins_us = time_of(X509_get0_notBefore(cert));
    out->ends_us = time_of(X509_get0_notAfter(cert));
    out->matches = X509_check_host(cert, name, 0, X509_CHECK_FLAG_NEVER_CHECK_SUBJECT, NULL) == 1;
    X509_free(cert);
    return 0;
}
