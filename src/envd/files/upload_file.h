/* One file being written for a client. It appears under its name when it is complete: the bytes go
 * to a temporary file beside it, which then takes its place. */
#pragma once

#include <limits.h>
#include <stdbool.h>

#include "base/error.h"
#include "base/str.h"
#include "envd/core/users.h"
#include "protocol/http/http.h"

/* Names of temporary files begin so; what follows is 'n' for a new file and 'r' for one that will be
 * replaced. */
#define UPLOAD_TEMP_PREFIX ".envd-upload-"

struct upload_file {
    char path[PATH_MAX]; /* where it goes, links resolved */
    char temp[PATH_MAX]; /* "" when it is written in place */
    int fd;              /* -1: not open */
};

int upload_file_open(struct upload_file *file, const char *path, const struct user *user,
                     struct error *err);
int upload_file_write(struct upload_file *file, struct str data, struct error *err);
/* X-Metadata-* request headers become user.e2b.* attributes. */
int upload_file_commit(struct upload_file *file, const struct http_headers *headers,
                       struct error *err);
/* Leaves no trace of an unfinished file; nothing to do after a commit. */
void upload_file_abort(struct upload_file *file);
