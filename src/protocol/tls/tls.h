/* The server's side of TLS, by OpenSSL: a context has the certificates and what all connections share, a
 * filter is one connection (protocol/stream/stream.h).
 *
 * A bundle is what a context is made of: for each certificate its PEM text, leaf first, then its private
 * key. The first is for clients that name no host, or one that no certificate is for.
 *
 * TLS 1.2 and 1.3, only with forward secrecy and authenticated ciphers. Sessions are resumed by tickets, whose
 * keys live in memory for some hours. OpenSSL writes to sockets by write(2): SIGPIPE must be ignored.
 *
 * Where the kernel has TLS, it makes the records of the server's connections (tls_kernel.c), so that files and tunnels go
 * past our memory; but not for a protocol other than http/1.1, which would have nothing of it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/str.h"

struct stream_filter;
struct tls_context;

enum { TLS_BUNDLE_MAX = 1024 * 1024, TLS_CERTIFICATES_MAX = 64 };

/* protocols: for ALPN, comma separated, the best first. A client that knows none of them is refused, one that
 * does not ask gets what it speaks. */
int tls_context_new(const char *protocols, struct str bundle, struct tls_context **out,
                    struct error *err);
/* New connections get these certificates, from any thread's next tls_filter_new() on; those that are there keep
 * theirs. When it fails everything stays as it was. */
int tls_context_replace(struct tls_context *context, struct str bundle, struct error *err);
/* After the last of its filters. */
void tls_context_free(struct tls_context *context);
/* One line for each certificate: its names and its end. */
void tls_context_tell(struct tls_context *context, struct buf *out);

/* For one accepted connection. */
struct stream_filter *tls_filter_new(struct tls_context *context);

/* The client's side, with whoever is there: no certificate is checked and no name told. For servers that are
 * reached by a way that only leads to them. protocol: the one that is spoken (ALPN). */
struct stream_filter *tls_filter_unverified(const char *protocol);

/* Has this kernel TLS of its own? Asked by who may (CAP_NET_ADMIN) it loads the module that has it. */
bool tls_kernel(void);
