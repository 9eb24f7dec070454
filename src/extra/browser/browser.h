/* Browsers that programs steer over the DevTools protocol, as Browserbase's API has them: sessions, contexts and extensions.
 *
 * A session is a row and a sandbox of the template `browser`, whose Chromium runs already when it comes from the warm pool. It
 * ends at its time (TIMED_OUT), when it is released or, without keep_alive, when its last client leaves (COMPLETED), and with its
 * sandbox (ERROR). What became of it is seen when somebody looks: nothing here waits for ends. A session without a connected
 * client lives on over a restart of the server.
 *
 * A context is a volume with a profile of Chromium in it; the one session that may write to it works on the volume itself, others on
 * copies.
 *
 * Ids are visible to their team only; for any other they are ERROR_NOT_FOUND. All calls block. */
#pragma once

#include <jansson.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/error.h"
#include "extra/browser/store_browser.h"

struct store;

struct browsers;
struct engine;
struct sandboxes;
struct volumes;
struct secrets;
struct spool;

enum {
    BROWSER_PORT = 9222,
    BROWSER_METADATA_MAX = 512, /* characters of JSON */
    BROWSER_LIST_MAX = 1000,
    BROWSER_SIDE_MAX = 8192,
    BROWSER_ZIP_MAX = 64 << 20, /* of what was downloaded */
};

/* All borrowed. */
struct browsers_config {
    struct sandboxes *sandboxes;
    struct volumes *volumes;
    struct engine *engine;
    struct store *store;
    const struct secrets *secrets;
    struct spool *spool;   /* knows how much of the disk is free; NULL = nobody does */
    const char *directory; /* where extensions and notes are kept */
};

struct browsers *browsers_open(const struct browsers_config *config);
void browsers_close(struct browsers *all);

/* ---- sessions ---- */

struct browser_new {
    struct str team_id;
    int64_t timeout_s; /* 60..21600; 0 = the default */
    bool keep_alive, persist;
    struct str region, metadata, context_id, extension_id; /* STR_NONE = none */
    int64_t width, height;                                 /* 0 = the default */
    bool ignore_certificates, log, record;
    struct str proxy; /* "http://host:port"; STR_NONE = none */
};

/* A request's body as what is wanted; what cannot be had is refused by its name. Strings live in the JSON and the arena. */
int browser_new_read(const json_t *body, struct arena *arena, struct browser_new *out,
                     struct error *err);

int browser_create(struct browsers *all, const struct browser_new *request, struct arena *arena,
                   struct store_browser_session *out, struct error *err);
int browser_get(struct browsers *all, struct str team_id, struct str id, struct arena *arena,
                struct store_browser_session *out, struct error *err);

struct browser_filter {
    struct str team_id, status; /* STR_NONE = any */
    struct str name, value;     /* of the metadata; STR_NONE = any */
};
/* q, "user_metadata['name']:'value'": ERROR_INVALID when it is not. Strings live in the arena. */
int browser_filter_read(struct str q, struct arena *arena, struct browser_filter *out,
                        struct error *err);
int browser_list(struct browsers *all, const struct browser_filter *filter, struct arena *arena,
                 struct store_browser_session **out, size_t *out_count, struct error *err);
/* One that has ended stays as it is. */
int browser_release(struct browsers *all, struct str team_id, struct str id, struct arena *arena,
                    struct store_browser_session *out, struct error *err);
bool browser_runs(const struct store_browser_session *session);

/* ---- connections ---- */

/* What a client of a session shows instead of an API key. until_s: 0 = as long as the session runs; else for who only looks at it, until then. */
enum { BROWSER_SIGNATURE_SIZE = 65 };
void browser_sign(struct browsers *all, struct str session_id, int64_t until_s,
                  char out[BROWSER_SIGNATURE_SIZE]);
/* The session that a client may connect to, and the path of its browser's WebSocket, in the arena. ERROR_FORBIDDEN for a wrong
 * signature, ERROR_NOT_FOUND for a session that is over. */
int browser_connect(struct browsers *all, struct str id, int64_t until_s, struct str signature,
                    struct arena *arena, struct store_browser_session *out, struct str *out_path,
                    struct error *err);
/* A client has come, or has left: the last one ends a session without keep_alive. */
void browser_joined(struct browsers *all, struct str id);
void browser_left(struct browsers *all, struct str id);

/* ---- what is inside ---- */

/* Its pages, as its own list has them: an array of objects. */
int browser_pages(struct browsers *all, const struct store_browser_session *session, json_t **out,
                  struct error *err);
int browser_upload(struct browsers *all, const struct store_browser_session *session,
                   struct str name, struct str data, struct error *err);
/* A zip of what was downloaded. */
typedef int browser_sink_fn(void *arg, struct str data, struct error *err);
int browser_downloads(struct browsers *all, const struct store_browser_session *session,
                      browser_sink_fn *sink, void *arg, struct error *err);

/* What was written down of it, when that was asked for: the text of an array of events, or of pictures. Of one that was
 * released too, for a week. */
enum browser_notes { BROWSER_LOG, BROWSER_RECORDING };
int browser_notes(struct browsers *all, const struct store_browser_session *session,
                  enum browser_notes which, browser_sink_fn *sink, void *arg, struct error *err);

/* ---- contexts ---- */

int browser_context_create(struct browsers *all, struct str team_id, struct arena *arena,
                           struct store_browser_context *out, struct error *err);
int browser_context_get(struct browsers *all, struct str team_id, struct str id,
                        struct arena *arena, struct store_browser_context *out, struct error *err);
/* ERROR_CONFLICT while a session has it. */
int browser_context_delete(struct browsers *all, struct str team_id, struct str id,
                           struct error *err);

/* ---- extensions ---- */

enum { BROWSER_EXTENSIONS_MAX = 100 }; /* of a team */

/* data: a zip. */
int browser_extension_create(struct browsers *all, struct str team_id, struct str name,
                             struct str data, struct arena *arena,
                             struct store_browser_extension *out, struct error *err);
int browser_extension_get(struct browsers *all, struct str team_id, struct str id,
                          struct arena *arena, struct store_browser_extension *out,
                          struct error *err);
int browser_extension_delete(struct browsers *all, struct str team_id, struct str id,
                             struct error *err);

/* Minutes that sessions of the team ran. */
int browser_minutes(struct browsers *all, struct str team_id, int64_t *out, struct error *err);
