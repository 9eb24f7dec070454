/* Both sides of a connection that is read on its way: towards the client a certificate for the name that it asked for,
 * signed by an authority that it trusts; towards the server a client that believes nobody without a good certificate
 * for that name. HTTP/1.1 is the only protocol that is agreed on.
 *
 * Nothing here opens a file once the authority and the trust are made. */
#pragma once

#include "protocol/tls/tls.h"

struct tls_authority;
struct tls_trust;

/* Both as PEM text. */
int tls_authority_new(struct str certificate, struct str key, struct tls_authority **out,
                      struct error *err);
void tls_authority_free(struct tls_authority *authority); /* or NULL; its filters may live on */
/* The side of the client, who asked for that name (lower case). first: what was read from it already. NULL when no
 * certificate can be made for the name. */
struct stream_filter *tls_filter_signed(struct tls_authority *authority, const char *name,
                                        struct str first);

/* The certificates that the host trusts, and those of a file besides (NULL: none). Without any certificate nobody is
 * believed. */
int tls_trust_new(const char *file, struct tls_trust **out, struct error *err);
void tls_trust_free(struct tls_trust *trust); /* or NULL; its filters may live on */
/* The side of the server, which has to be of that name. */
struct stream_filter *tls_filter_verified(struct tls_trust *trust, const char *name);

/* Why there is no connection, for people: of a filter of this room whose reads fail. NULL when nothing failed. */
const char *tls_filter_fault(const struct stream_filter *filter);
