/* The file ~/.quicksand/credentials: addresses of servers and a key for each, as lines "url = URL" and
 * "key = KEY", with "name = NAME" before them when it has one: a context. A server adds its first key at the
 * end; the last pair for an address is the one that holds. "use = URL" says which is the current one. */
#pragma once

#include <stddef.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/str.h"

#define CLI_DEFAULT_URL "http://127.0.0.1:3000"

enum { CLI_CREDENTIALS_MAX = 64 * 1024 };

struct cli_credential {
    char *url; /* NULL: of a file that names no server; good for any */
    char *key;
    char *name; /* may be NULL */
};

struct cli_credentials {
    struct cli_credential *items;
    size_t count;
    char *current; /* an address, or NULL */
};

void cli_credentials_parse(struct str text, struct cli_credentials *out);
/* A missing file is no error; one that cannot be read is, because the user must act. */
int cli_credentials_load(const char *path, struct cli_credentials *out, struct error *err);
void cli_credentials_done(struct cli_credentials *credentials);
/* url NULL: the current one, or the server at CLI_DEFAULT_URL, or else the last in the file. NULL when there is none. */
const struct cli_credential *cli_credentials_find(const struct cli_credentials *credentials,
                                                  const char *url);
/* Do both lead to the same server? All spellings of this host's loopback do. */
bool cli_same_server(const char *url, const char *other);

/* By the context's name or its address; the last one. NULL when there is none. */
const struct cli_credential *cli_credentials_named(const struct cli_credentials *credentials,
                                                   const char *word);
/* In the place of those for this address or of this name, and the current one. */
void cli_credentials_put(struct cli_credentials *credentials, const char *url, const char *name,
                         const char *key);
/* By name or address; false when there is none. */
bool cli_credentials_use(struct cli_credentials *credentials, const char *word);
bool cli_credentials_remove(struct cli_credentials *credentials, const char *word);
/* As cli_credentials_parse() reads it. */
void cli_credentials_write(const struct cli_credentials *credentials, struct buf *out);
