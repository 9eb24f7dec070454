/* The content of a volume. An envd that /init gave a volume serves nothing else: no programs, no
 * files of its own; its sandbox is only there to reach the volume with the ids that other sandboxes
 * see. Everything is beneath the volume's directory, whatever links there are in it. */
#pragma once

#include <linux/limits.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/error.h"
#include "envd/core/envd.h"

#define VOLUME_DIR    "/volume"
#define VOLUME_PREFIX "/volumecontent/"

/* Where a request leads: a directory that is there, and a name in it. */
struct volume_place {
    int dir_fd;              /* O_PATH */
    char name[NAME_MAX + 1]; /* "." for the volume itself */
    char path[PATH_MAX];     /* as in the query */
};

struct volume_query {
    char path[PATH_MAX];           /* absolute in the volume, without "." and doubled slashes */
    int64_t uid, gid, mode, depth; /* -1: not given */
    bool force, force_given;
};

int volume_open(struct volume *volume, struct str id, struct error *err);
/* Answers any request of a volume's envd but /health and /init. */
void volume_handle(struct envd *envd, struct http_exchange *ex);

/* volume_query.c */
/* /volumecontent/<id>/<kind>: true with the kind when it is this volume's. */
bool volume_query_kind(const char *id, struct str path, struct str *out);
int volume_query_read(struct str text, struct volume_query *out, struct error *err);
/* Are owner and mode in their range, or -1? */
int volume_query_check(const struct volume_query *query, struct error *err);
/* -1 when it is not there. */
int volume_query_number(struct str text, const char *name, int64_t *out, struct error *err);

/* volume_file.c */
void volume_file_get(struct envd *envd, struct http_exchange *ex, const struct volume_query *query);
void volume_file_put(struct envd *envd, struct http_exchange *ex, const struct volume_query *query);

/* For both. */
int volume_place(const struct volume *volume, const char *path, struct volume_place *out,
                 struct error *err);
void volume_place_done(struct volume_place *place);
#define auto_place __attribute__((cleanup(volume_place_done)))
/* Appends the entry as JSON. */
int volume_add_entry(const struct volume_place *place, struct buf *out, struct error *err);
/* Owner and mode of the query (-1: as given here). */
int volume_set_owner(int fd, const struct volume_query *query, uid_t uid, gid_t gid, mode_t mode,
                     struct error *err);
void volume_fail(struct http_exchange *ex, const struct error *err);
int volume_error(struct error *err, int errnum, const char *what, const char *path);
