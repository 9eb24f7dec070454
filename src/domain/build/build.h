/* Builds: a recipe becomes a template.
 *
 * A template has a name, tags name its builds, and sandboxes start from what a build made. A build is made
 * (build_new), its files are uploaded (build_file_add), then it is started with its recipe and runs in a thread of
 * its own, in boxes of the engine that nobody else sees. What each step gave is a layer, kept under a key
 * that says all it came from, so that a step that was run once is not run again.
 *
 * All calls block and may come from any worker thread. What belongs to another team is ERROR_NOT_FOUND. Strings
 * that are returned live in the caller's arena. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/cancel.h"
#include "base/error.h"
#include "base/spool.h"
#include "base/str.h"
#include "store/platform/store_build.h"

struct builds;
struct engine;
struct sandboxes;
struct volumes;
struct build_images;

struct builds_config {
    struct engine *engine;
    struct store *store;
    struct sandboxes *sandboxes;
    struct volumes *volumes;
    struct spool *spool; /* counts temporary files on the disk; NULL = nobody does */
    const char *data;    /* DATA: store/uploads and feeds are in it */
    const char
        *unpack; /* path of the program of that name; NULL or "" = none: no COPY, no images */
    const struct build_images *images;  /* NULL = no images: fromImage is refused */
    size_t max, team_max;               /* under way at the same time; 0 = 4, 2 */
    size_t queue_max;                   /* of a team, waiting; 0 = 32 */
    int64_t cpu_count, mem_mb, disk_mb; /* of a build's boxes, at least; 0 = 2, 1024, 10240 */
    int64_t timeout_s;                  /* of a build; 0 = one hour */
    int64_t ready_s;                    /* for a start command without a ready command; 0 = 20 */
    int64_t cache_days,
        cache_mb;             /* what was not used for so long, or is above, goes; 0 = 30, 20480 */
    struct build_packages {   /* where releases of Debian are bootstrapped from */
        const char *mirror;   /* URL of the archive; NULL or "" = none: fromBootstrap is refused */
        const char *security; /* of the security updates; NULL or "" = without them */
        const char *keyring;  /* path of the keys that sign them; NULL or "" = Debian's own */
        int64_t stall_s;      /* how long one may send nothing; 0 = 30 */
    } packages;
};

/* Builds that were under way when the last server ended are errors from now on. */
int builds_open(const struct builds_config *config, struct builds **out, struct error *err);
/* Ends what is under way, as errors. NULL is fine. */
void builds_close(struct builds *all);

/* ---- making one ---- */

enum { BUILD_MEM_MIN_MB = 128 };

struct build_wanted {
    struct str team_id;
    struct str name;        /* "name", "name:tag", "team/name", or the id of a template */
    const struct str *tags; /* besides the one in the name; none at all = "default" */
    size_t tag_count;
    int64_t cpu_count, mem_mb, disk_mb; /* of sandboxes; 0 = the template's, else the platform's */
};

struct build_made {
    struct str template_id, build_id; /* the second is a UUID */
    bool is_public;
    struct str alias;     /* "name" */
    struct str full_name; /* "team/name" */
    const struct str *tags;
    size_t tag_count;
};

/* POST /v3/templates. ERROR_INVALID: "CPU count must be 1 or an even number", "CPU count must be at most 32", "CPU
 * count must be at least 1", "Memory must be divisible by 2", "Memory must be at least 128 MiB", "invalid template
 * name '…'", "invalid tag '…'"; the team of "team/name" is another: ERROR_FORBIDDEN; a snapshot has the name:
 * ERROR_CONFLICT. */
int build_new(struct builds *all, const struct build_wanted *wanted, struct arena *arena,
              struct build_made *out, struct error *err);

/* POST /v2/templates/{id}/builds/{build}. The recipe is JSON (docs/templates.md). The build is 'building' when this
 * returns; it may have to wait for its turn. ERROR_INVALID: build id that is no UUID, or a fault of the recipe
 * ("step 3: …"); ERROR_NOT_FOUND; ERROR_CONFLICT when it was started before; ERROR_QUOTA when too many wait. */
int build_start(struct builds *all, struct str team_id, struct str template_id, struct str build_id,
                struct str recipe, struct error *err);
/* Returns when nothing of it runs any more; it is 'error' then, "the build was cancelled". ERROR_CONFLICT when it
 * has ended. */
int build_cancel(struct builds *all, struct str team_id, struct str template_id,
                 struct str build_id, struct error *err);

/* ---- looking at one ---- */

/* template_id STR_NONE = whichever it is of. ERROR_INVALID for what is no UUID. out->state, reason and reason_step are
 * what status and reason{message, step} are made of; reason.logEntries are build_reason_logs(). */
int build_get(struct builds *all, struct str team_id, struct str template_id, struct str build_id,
              struct arena *arena, struct store_build *out, struct error *err);
/* What the step that failed wrote: the last lines of it, oldest first. None when it did not fail. */
int build_reason_logs(struct builds *all, const struct store_build *build, struct arena *arena,
                      struct store_build_log **out, size_t *out_count, struct error *err);

enum { BUILD_LOGS_MAX = 100 };

struct build_log_query {
    struct str build_id; /* that build_get() found */
    int64_t offset;      /* of the first, in the order of the query; 0 = from the start */
    int64_t cursor_us;   /* only those from this time on (backward: up to it); 0 = all */
    bool backward;       /* newest first */
    int64_t level;       /* STORE_LEVEL_…: this and above; 0 = all */
    size_t limit;        /* 1 to BUILD_LOGS_MAX */
};
int build_logs(struct builds *all, const struct build_log_query *wanted, struct arena *arena,
               struct store_build_log **out, size_t *out_count, struct error *err);

/* ---- files of COPY steps ---- */

/* hash: the client's name of the content, 64 hex digits, else ERROR_INVALID. */
int build_file_find(struct builds *all, struct str team_id, struct str hash, bool *out_present,
                    struct error *err);
/* fd: a file of DATA/store without a name (http_file.h) that holds the whole body; it stays the caller's. A body that
 * is there already, whosever it is, is not stored again. length: how long it must be, -1 = not known; another one
 * is ERROR_INVALID. */
int build_file_add(struct builds *all, struct str team_id, struct str hash, int fd, int64_t length,
                   struct error *err);

/* ---- moving ---- */

/* The files of a template or snapshot, of the build that the name's tag selects, as a layer of an image (tar, gzip):
 * *out_fd is a file without a name at its begin, which the caller owns, as it does the charge for it. An export waits for a turn among the builds of its
 * team, then takes as long as reading and compressing the files. ERROR_QUOTA when too many of the team wait;
 * ERROR_CONFLICT when it was cancelled. */
int build_export(struct builds *all, struct str team_id, struct str name,
                 const struct cancel *cancel, int *out_fd, int64_t *out_bytes,
                 struct spool_charge *out_charge, struct error *err);

/* ---- images: what the client of registries (src/image) does for builds ---- */

struct build_image_source {
    struct str team_id;
    struct str reference; /* "ubuntu:22.04"; STR_NONE with blobs */
    struct str
        blobs; /* "sha256:…": a manifest whose blobs were uploaded; STR_NONE with a reference */
    struct str username,
        password; /* STR_NONE = those of the team or of the configuration, or none */
};

struct build_image {
    struct str digest;     /* "sha256:…" of the manifest of the platform that was chosen */
    struct str name;       /* for people: the whole reference */
    const struct str *env; /* "NAME=value" */
    size_t env_count;
    struct str user, workdir; /* "" = none */
    const struct str *entrypoint, *cmd, *shell;
    size_t entrypoint_count, cmd_count, shell_count;
    const struct build_blob {
        struct str digest;
        int64_t bytes;
    } * layers; /* lowest first */
    size_t layer_count;
};

/* What is told meanwhile, and whether to go on. */
struct build_watch {
    void *arg;
    void (*line)(void *arg, struct str line);
    bool (*stopped)(void *arg);
    /* So many bytes are about to be written to the disk; -1 = they must not. Any thread. */
    int (*grow)(void *arg, int64_t bytes, struct error *err);
};

struct build_images {
    void *arg;
    /* Manifest and settings; no layer is fetched. The message of an error names the reference. */
    int (*resolve)(void *arg, const struct build_image_source *source,
                   const struct build_watch *watch, struct arena *arena, struct build_image *out,
                   struct error *err);
    /* Fetches what is not there yet, checks digests, and makes feed_dir/0, feed_dir/1, … hard links to the blobs of the
     * layers, lowest first. */
    int (*fetch)(void *arg, const struct build_image_source *source,
                 const struct build_image *image, const char *feed_dir,
                 const struct build_watch *watch, struct error *err);
};
