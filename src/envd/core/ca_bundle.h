/* A certificate authority that all programs in the sandbox shall trust. */
#pragma once

#include "base/error.h"
#include "base/str.h"

#define CA_BUNDLE_PATH "/etc/ssl/certs/ca-certificates.crt"
/* Where the other distributions have theirs: what a bundle begins with that is not there. */
#define CA_BUNDLE_OTHERS \
    "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem", "/etc/ssl/ca-bundle.pem"
/* Authorities by the hash of their names, as OpenSSL looks for them. */
#define CA_HASHED_DIR "/etc/ssl/certs"
/* From here update-ca-certificates(8) takes it when it makes the bundle anew. */
#define CA_EXTRA_PATH "/usr/local/share/ca-certificates/e2b-ca.crt"

enum { CA_BUNDLE_MAX = 256 * 1024 };

/* Puts pem into the bundle file, in the place of what this was told to install before (`previous`,
 * or STR_NONE). Nothing happens when it is there already. */
int ca_bundle_install(const char *bundle_path, const char *extra_path, struct str pem,
                      struct str previous, struct error *err);
/* A link to the file, by the hash of the authority's name (eight hex digits; others are left alone). */
void ca_bundle_link(const char *directory, struct str hash, const char *extra_path);
