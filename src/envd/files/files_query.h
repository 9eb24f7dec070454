/* What GET and POST /files have in common: query, permission, user, path. */
#pragma once

#include "base/buf.h"
#include "envd/core/envd.h"

struct files_query {
    struct buf path, username, signature, expiration;
    bool has_path;
    struct user user;
};

#define auto_files_query __attribute__((cleanup(files_query_done)))

/* Checks permission and finds the user; answers and returns -1 when refused. operation is "read" or
 * "write". */
int files_query_read(struct files_query *query, struct envd *envd, struct http_exchange *ex,
                     const char *operation);
void files_query_done(struct files_query *query);
