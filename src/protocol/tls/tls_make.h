/* Certificates made here: a local authority, and what it signs. PEM text in and out; keys are of P-256. */
#pragma once

#include "base/buf.h"
#include "base/error.h"

enum { TLS_MAKE_NAMES_MAX = 16, TLS_MAKE_SIZE = 16 * 1024 };

struct tls_made {
    struct buf certificate, key;
};

void tls_made_done(struct tls_made *made);

/* An authority that can sign for that domain and what is below it, for localhost and loopback, and for nothing
 * else: whoever gets its key can pretend to be no other site to those who trust it. NULL: for any, to be trusted by
 * sandboxes of this server only. */
int tls_make_authority(const char *domain, struct tls_made *out, struct error *err);
/* A server's certificate for these names and addresses, signed by the authority. */
int tls_make_certificate(const struct tls_made *authority, const char *const *names, size_t count,
                         int days, struct tls_made *out, struct error *err);
/* A key alone, and a request for a certificate (DER) by it: for authorities elsewhere. */
int tls_make_request(const char *const *names, size_t count, struct buf *out_key,
                     struct buf *out_der, struct error *err);

/* The hash of a certificate's name, in hex, by which OpenSSL finds files of authorities. -1: it is no certificate. */
int tls_make_hash(struct str certificate, char *out, size_t size);

/* What a certificate says of itself. */
struct tls_facts {
    int64_t begins_us, ends_us; /* wall time */
    bool matches;               /* the name that was asked for */
};

/* Of the first certificate in the text. */
int tls_make_facts(struct str certificate, const char *name, struct tls_facts *out,
                   struct error *err);
