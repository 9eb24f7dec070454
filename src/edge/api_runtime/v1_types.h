/* What the wire calls things: JSON of the domain's objects, and what requests may say. */
#pragma once

#include "edge/api_runtime/v1_internal.h"
#include "runtime/core/event.h"
#include "runtime/job/job.h"
#include "runtime/sandbox/sandbox.h"
#include "runtime/session/session.h"
#include "store/runtime/store_execution.h"

/* What some answers say of a sandbox besides; STR_NONE = not told. */
struct v1_besides {
    struct str tier, team, team_id;
    bool ports; /* were asked for */
};
/* Adds it as text: a tree would be made only to be written. Absent values are null, so that a client finds every
 * member. */
void v1_types_sandbox(struct buf *out, const struct runtime_sandbox *sandbox,
                      const struct v1_besides *besides);
/* New references; absent values likewise. */
json_t *v1_types_job(const struct job *job);
/* Without its output. */
json_t *v1_types_execution(const struct store_execution *execution);
/* Of a command that was to be kept, in its result. */
void v1_types_kept(json_t *out, const struct runtime_result *result);
json_t *v1_types_snapshot(const struct runtime_snapshot *snapshot);
json_t *v1_types_session(const struct session *session);
json_t *v1_types_file(const struct provider_file *file);
/* "2026-01-31T12:00:00.000000Z", or null for 0. */
json_t *v1_types_time(int64_t at_us);

/* After a removal: 204, or 200 telling what could not be reached when it was forced and is forgotten. */
void v1_types_removed(struct v1_call *call, int r, const struct error *forced);

/* What creates of sandboxes and sessions have in common. Borrows from call->json. */
int v1_types_overrides(struct v1_call *call, struct runtime_overrides *out, struct error *err);

/* ---- members of the body ---- */

/* ERROR_INVALID when it is there and of another type. Absent (or null) keeps what was in out. */
int v1_body_str(struct v1_call *call, const char *name, struct str *out, struct error *err);
int v1_body_int(struct v1_call *call, const char *name, int64_t min, int64_t max, int64_t *out,
                struct error *err);
int v1_body_bool(struct v1_call *call, const char *name, bool *out, struct error *err);
/* An object (or array, by kind) of strings; borrowed. */
int v1_body_object(struct v1_call *call, const char *name, json_t **out, struct error *err);
int v1_body_strings(struct v1_call *call, const char *name, json_type kind, json_t **out,
                    struct error *err);

/* ---- parameters of the query ---- */

/* In the arena; STR_NONE when it is absent or empty. */
int v1_query_str(struct v1_call *call, const char *name, struct str *out, struct error *err);
int v1_query_int(struct v1_call *call, const char *name, int64_t min, int64_t max, int64_t *out,
                 struct error *err);
/* "", "1", "true" are true; "0", "false" false. */
int v1_query_bool(struct v1_call *call, const char *name, bool *out, struct error *err);
