/* A request's body in a file: one without a name, so that nothing of it stays when the client leaves in the
 * middle or the server ends. The loop never waits for the disk: workers write. */
#pragma once

#include "base/error.h"
#include "protocol/http/http_limits.h"

struct http_file;

struct http_file_config {
    const char *directory; /* where the file's bytes go; borrowed */
    int64_t max;           /* one byte more is ERROR_LIMIT */
    struct workers *workers;
    struct http_limits *limits; /* of what lies in such files at the same time */
    struct str team_id;         /* whose share it is; borrowed */
};

/* Once, on the loop: the file at its begin, open until http_file_free(); or fd -1 and err. Not called when the
 * exchange ends before. */
typedef void http_file_fn(int fd, int64_t length, const struct error *err, void *arg);

/* Asks for the body. When its length is known, the room on the disk is taken before. NULL with err when the
 * server is busy. */
struct http_file *http_file_read(struct http_exchange *ex, const struct http_file_config *config,
                                 http_file_fn *fn, void *arg, struct error *err);
/* At the end of the exchange, or later: the file is gone then, unless somebody gave it a name. */
void http_file_free(struct http_file *file);
