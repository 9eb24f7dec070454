/* Endpoints for files: plain HTTP, and filesystem.Filesystem. */
#pragma once

#include <limits.h>

#include "envd/core/envd.h"

/* files_download.c, files_upload.c, files_compose.c */
void files_download(struct envd *envd, struct http_exchange *ex);
void files_upload(struct envd *envd, struct http_exchange *ex);
void files_compose(struct envd *envd, struct http_exchange *ex);

/* filesystem_rpc.c, filesystem_list.c, filesystem_remove.c */
call_fn filesystem_stat, filesystem_make_dir, filesystem_move, filesystem_list_dir,
    filesystem_remove;
/* The user, and the request's member resolved for that user. */
int call_path(const struct call *call, const char *member, struct user *user, char out[PATH_MAX],
              struct error *err);
