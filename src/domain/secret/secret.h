/* What the server keeps secret for teams: encrypted in the store under a key that is not in it, and links that only
 * this server can have made.
 *
 * The key is a file beside the store, made at the first start. Who has a copy of the store alone has no secret;
 * who loses the file loses them. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/str.h"

enum { SECRET_SIGNATURE_SIZE = 65, SECRET_TEXT_MAX = 64 * 1024 };

struct secrets;

/* Reads "secret.key" in the directory, or makes it (mode 0600). */
int secrets_open(const char *directory, struct secrets **out, struct error *err);
void secrets_close(struct secrets *secrets); /* NULL is fine */

#define auto_secrets __attribute__((cleanup(secrets_cleanup)))
static inline void secrets_cleanup(struct secrets **secrets)
{
    secrets_close(*secrets);
}

/* AES-256-GCM, as hex. `about` says whose secret it is: it comes back only for the same words. */
int secret_seal(const struct secrets *secrets, struct str about, struct str text,
                struct arena *arena, struct str *out, struct error *err);
/* ERROR_INTERNAL when it was sealed under another key or about something else, or was changed. */
int secret_unseal(const struct secrets *secrets, struct str about, struct str sealed,
                  struct arena *arena, struct str *out, struct error *err);

/* HMAC-SHA-256 of the text, as hex and a NUL, under a key made of ours for this one purpose. */
void secret_sign(const struct secrets *secrets, const char *purpose, struct str text,
                 char out[SECRET_SIGNATURE_SIZE]);
bool secret_signed(const struct secrets *secrets, const char *purpose, struct str text,
                   struct str signature);
