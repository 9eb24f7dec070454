/* Shared by the files of this room. */
#pragma once

#include <openssl/ssl.h>
#include <pthread.h>
#include <stdint.h>

#include "protocol/tls/tls.h"

enum { TLS_TICKET_KEYS = 3, TLS_PROTOCOLS_SIZE = 64 };

struct tls_ticket_key {
    unsigned char name[16], cipher[32], mac[32];
    int64_t born_ms; /* 0 = none */
};

struct tls_tickets {
    pthread_mutex_t lock;
    struct tls_ticket_key keys[TLS_TICKET_KEYS]; /* the newest first */
};

struct tls_context {
    pthread_mutex_t lock; /* guards ssl_ctx */
    SSL_CTX *ssl_ctx;     /* replaced as a whole; connections hold theirs */
    struct tls_tickets tickets;
    unsigned char protocols[TLS_PROTOCOLS_SIZE]; /* as ALPN writes them */
    size_t protocols_len;
};

/* ---- tls_bundle.c ---- */

struct tls_certificate {
    X509 *leaf;
    STACK_OF(X509) * chain;
    EVP_PKEY *key;
};

struct tls_bundle {
    size_t count;
    struct tls_certificate items[TLS_CERTIFICATES_MAX];
};

int tls_bundle_parse(struct str text, struct tls_bundle **out, struct error *err);
void tls_bundle_free(struct tls_bundle *bundle);
/* Gives the connection the certificates for that name (NULL = none told); false when OpenSSL refuses. */
bool tls_bundle_choose(const struct tls_bundle *bundle, const char *name, SSL *ssl);
void tls_bundle_tell(const struct tls_bundle *bundle, struct buf *out);

/* ---- tls_context.c ---- */

/* What all of our connections have in common, of either side. */
bool tls_set_up(SSL_CTX *ssl_ctx);

/* ---- tls_make.c ---- */

/* A server's certificate for that name and key, signed by the issuer; NULL when it is no name. */
X509 *tls_make_leaf(const struct tls_certificate *issuer, EVP_PKEY *key, const char *name,
                    int days);

/* ---- tls_filter.c ---- */

/* "http/1.1" as ALPN writes it. */
enum { TLS_HTTP1_SIZE = 9 };
extern const unsigned char tls_http1[TLS_HTTP1_SIZE];

/* first: what was read from the socket already (copied). */
struct stream_filter *tls_filter_of(SSL *ssl_consume, struct str first);

/* ---- tls_kernel.c ---- */

struct stream_filter;

/* Connections may leave their records to the kernel; or this one not, as long as its handshake lasts. */
void tls_kernel_allow(SSL_CTX *ssl_ctx);
void tls_kernel_refuse(SSL *ssl);
/* The handshake is over: notes whether the kernel sends. */
void tls_kernel_note(SSL *ssl, struct stream_filter *filter);
/* Does the peer want other keys than those that the kernel has? */
bool tls_kernel_outdated(const SSL *ssl);
/* Does the kernel receive, and has OpenSSL nothing of what it received before? */
bool tls_kernel_receives(SSL *ssl);

/* ---- tls_ticket.c ---- */

void tls_tickets_init(struct tls_tickets *tickets);
void tls_tickets_done(struct tls_tickets *tickets);
void tls_tickets_use(struct tls_tickets *tickets, SSL_CTX *ssl_ctx);

/* The newest reason that OpenSSL gives, and forgets all of them. */
const char *tls_reason(void);
