/* Sessions of browsers, profiles that are kept for them, and extensions (store_browser.c). Durable: who was told of one
 * finds it again. */
#pragma once

#include "base/arena.h"
#include "base/error.h"
#include "base/str.h"

struct store;

struct store_browser_session {
    struct str id, team_id, sandbox_id;
    struct str context_id; /* "" = none */
    struct str status;     /* RUNNING, COMPLETED, TIMED_OUT, ERROR */
    struct str region;
    struct str metadata; /* JSON, an object; "" = none */
    bool keep_alive;     /* it goes on when its client leaves */
    bool persist;        /* it is the one that writes to its context */
    bool wants_log, wants_record;
    int64_t created_at_us, updated_at_us, expires_at_us;
    int64_t ended_at_us; /* 0 = not yet */
};

/* Older ones that have ended go when the team has more than `keep`. ERROR_CONFLICT when it is to write to a context that another
 * running one writes to. */
int store_browser_session_insert(struct store *store, const struct store_browser_session *session,
                                 int64_t keep, struct error *err);
/* team_id: STR_NONE = any. */
int store_browser_session_find(struct store *store, struct str team_id, struct str id,
                               struct arena *arena, struct store_browser_session *out,
                               struct error *err);
/* The newest first. status: STR_NONE = any. */
int store_browser_session_list(struct store *store, struct str team_id, struct str status,
                               int64_t limit, struct arena *arena,
                               struct store_browser_session **out, size_t *out_count,
                               struct error *err);
/* Of one that runs; one that has ended stays as it is. */
int store_browser_session_end(struct store *store, struct str id, struct str status, int64_t at_us,
                              struct error *err);
/* Seconds that sessions of the team ran since a time. */
int store_browser_session_seconds(struct store *store, struct str team_id, int64_t now_us,
                                  int64_t *out, struct error *err);

struct store_browser_context {
    struct str id, team_id, volume_id;
    int64_t created_at_us, updated_at_us;
};

int store_browser_context_insert(struct store *store, const struct store_browser_context *context,
                                 struct error *err);
int store_browser_context_find(struct store *store, struct str team_id, struct str id,
                               struct arena *arena, struct store_browser_context *out,
                               struct error *err);
int store_browser_context_touch(struct store *store, struct str id, int64_t at_us,
                                struct error *err);
/* ERROR_CONFLICT while a running session has it. */
int store_browser_context_delete(struct store *store, struct str team_id, struct str id,
                                 struct error *err);

struct store_browser_extension {
    struct str id, team_id, file_name;
    int64_t created_at_us, updated_at_us;
};

/* ERROR_QUOTA when the team has `max`. */
int store_browser_extension_insert(struct store *store,
                                   const struct store_browser_extension *extension, int64_t max,
                                   struct error *err);
int store_browser_extension_find(struct store *store, struct str team_id, struct str id,
                                 struct arena *arena, struct store_browser_extension *out,
                                 struct error *err);
int store_browser_extension_delete(struct store *store, struct str team_id, struct str id,
                                   struct error *err);

/* A file of a browser that a team keeps on the host's disk. */
struct store_browser_file {
    struct str id;   /* of the session or extension */
    struct str kind; /* log, record, zip */
    struct str team_id;
    int64_t bytes, made_at_us;
};

/* Replaces one of the same id and kind. */
int store_browser_file_put(struct store *store, const struct store_browser_file *file,
                           struct error *err);
int store_browser_file_delete(struct store *store, struct str id, struct str kind,
                              struct error *err);
/* At most `max` notes (log, record) made before a time. */
int store_browser_file_old(struct store *store, int64_t before_us, size_t max, struct arena *arena,
                           struct store_browser_file **out, size_t *out_count, struct error *err);
/* Extensions' files whose extension is not there: the server ended while it was made or deleted. */
int store_browser_file_orphans(struct store *store, struct arena *arena,
                               struct store_browser_file **out, size_t *out_count,
                               struct error *err);
/* Extensions without a file's row, as older servers made them; bytes are 0. */
int store_browser_file_missing(struct store *store, struct arena *arena,
                               struct store_browser_file **out, size_t *out_count,
                               struct error *err);
