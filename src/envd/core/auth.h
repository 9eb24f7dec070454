/* Who may call: the access token, or for files a signature made with it. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/str.h"
#include "envd/core/settings.h"
#include "protocol/http/http_server.h"

/* Compares in constant time; an unset token equals nothing. */
bool auth_token_is(const struct settings *settings, struct str given);
/* May this request pass without a signature? True too for the paths that check for themselves. */
bool auth_allows(const struct settings *settings, const struct http_exchange *ex);

struct auth_signature {
    struct str path, username, signature; /* as in the query; STR_NONE when absent */
    struct str expiration;
    const char *operation; /* "read" or "write" */
};

/* Header token or signature of a /files request. ERROR_UNAUTHORIZED with the exact words clients
 * expect. */
int auth_check_files(const struct settings *settings, struct str token_header,
                     const struct auth_signature *signature, int64_t now_s, struct error *err);
