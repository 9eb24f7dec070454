/* A request's body in a file: one without a name, so that nothing of it stays when the client leaves in the
 * middle or the server ends. The loop never waits for the disk: workers write. */
#pragma once

#include "base/error.h"
#include "base/spool.h"
#include "protocol/http/http_server.h"
#include "protocol/loop/workers.h"

struct http_file;

enum { HTTP_FILE_MEMORY = 512 * 1024 }; /* of one at most, until it is written */

struct http_file_config {
    const char *directory; /* where the file's bytes go; borrowed */
    int64_t max;           /* one byte more is ERROR_LIMIT */
    struct workers *workers;
    struct spool *spool; /* counts the bytes on the disk; NULL = nobody does */
    struct str team_id;  /* whose they are; copied */
    bool kept;           /* the file will stay: what the team keeps already counts too */
};

/* Once, on the loop: the file at its begin, open until http_file_free(); or fd -1 and err. Not called when the
 * exchange ends before. */
typedef void http_file_fn(int fd, int64_t length, const struct error *err, void *arg);

/* Asks for the body when the spool has room for the announced length, which is not taken ahead: space is taken
 * as bytes arrive. NULL with err when the body is too long or the server is busy. */
struct http_file *http_file_read(struct http_exchange *ex, const struct http_file_config *config,
                                 http_file_fn *fn, void *arg, struct error *err);
/* At the end of the exchange, or later: the file is gone then, unless somebody gave it a name. */
void http_file_free(struct http_file *file);
