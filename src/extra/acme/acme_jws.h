/* Signed requests of ACME: JSON Web Signatures by a key of P-256 (RFC 7515, 7517, 7638). */
#pragma once

#include "base/arena.h"
#include "base/error.h"
#include "base/str.h"

struct acme_key;

int acme_key_parse(struct str pem, struct acme_key **out, struct error *err);
void acme_key_free(struct acme_key *key);
/* Base64 with the alphabet of URLs and without padding. */
struct str acme_base64(struct arena *arena, struct str bytes);
/* The same of SHA-256. */
struct str acme_digest(struct arena *arena, struct str bytes);
/* What challenges and the authority know the key by. */
struct str acme_key_thumbprint(const struct acme_key *key, struct arena *arena);
/* The body of a request. account: its URL, or NULL while there is none and the key itself has to be shown. payload: JSON, or
 * "" for a request that only reads. */
int acme_jws(const struct acme_key *key, struct arena *arena, const char *account,
             const char *nonce, const char *url, struct str payload, struct str *out,
             struct error *err);
