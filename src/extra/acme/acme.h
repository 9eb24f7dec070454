/* A certificate from a public authority, by ACME (RFC 8555). Blocks its thread; nothing is kept but what the caller
 * keeps. */
#pragma once

#include <stddef.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/str.h"

#define ACME_LETS_ENCRYPT "https://acme-v02.api.letsencrypt.org/directory"

/* What shows the authority that a name is ours. */
struct acme_challenge {
    const char *domain; /* without "*." */
    const char *token;  /* HTTP: the last part of the path */
    const char
        *value; /* HTTP: what is found there; DNS: the TXT record of _acme-challenge.DOMAIN */
};

struct acme_config {
    const char *directory; /* URL of the authority */
    const char *email;     /* NULL = none */
    const char *
        ca_file; /* certificates by which the authority itself is trusted, besides the system's; NULL = none */
    struct str account_key; /* PEM */
    const char *const *names;
    size_t name_count;
    bool dns; /* challenges in DNS, which wildcards need; else by HTTP on port 80 */
    /* Returns when it can be seen from outside. */
    int (*show)(void *arg, const struct acme_challenge *challenge, struct error *err);
    void (*hide)(void *arg, const struct acme_challenge *challenge);
    void *arg;
};

/* PEM text of a new account's key. */
int acme_make_key(struct buf *out, struct error *err);
/* PEM text of the certificate with its chain, and of its key. */
int acme_obtain(const struct acme_config *config, struct buf *out_chain, struct buf *out_key,
                struct error *err);
