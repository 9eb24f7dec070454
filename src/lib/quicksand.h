/* libquicksand: the agent runtime of Quicksand in another program.
 *
 * Sandboxes are found by key or made, used and thrown away through the same providers as those of
 * `quicksand serve`: E2B endpoints (a Quicksand server is one), Docker, Daytona, Browserbase, plain
 * processes. The engine itself is not in the library: it needs root and processes of its own. To use
 * it, run a server and name it as the endpoint (E2B_API_URL and E2B_API_KEY, or in the
 * configuration).
 *
 * All calls block their thread, within bounds, and are safe from any. They return 0, or -1 and then
 * qs_error() tells why. Strings are UTF-8 and end with NUL; those that come back are freed with
 * qs_free(). What is not asked for may be NULL. Running out of memory ends the program. */
#ifndef QUICKSAND_H
#define QUICKSAND_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define QS_API __attribute__((visibility("default")))
#else
#define QS_API
#endif

struct qs; /* a runtime */

QS_API const char *qs_version(void);

/* Why the last call of this thread failed: for people, and as one of "invalid", "unauthorized",
 * "forbidden", "not_found", "conflict", "exists", "limit", "quota", "no_space", "timeout",
 * "unavailable", "unsupported", "internal". Valid until its next call. */
QS_API const char *qs_error(void);
QS_API const char *qs_error_code(void);
QS_API void qs_free(void *p);

/* config: JSON as of the server's --runtime-config, or NULL for the environment alone (E2B_API_URL,
 * E2B_API_KEY, DAYTONA_API_KEY, ...). store: an SQLite file that remembers keys, snapshots and jobs,
 * or ":memory:". Warnings go to stderr. */
QS_API int qs_open(const char *config, const char *store, struct qs **out);
/* Sandboxes go on. No call may be under way. NULL is fine. */
QS_API void qs_close(struct qs *qs);

/* Array of {name, type, state, default, isolation, features, egress, ...}. check: asks them now. */
QS_API int qs_providers(struct qs *qs, int check, char **out_json);

/* ---- sandboxes ---- */

enum { QS_ID_SIZE = 32 };
enum qs_tier { QS_RESUMED, QS_RESTORED, QS_CREATED };

/* The sandbox with this key (NULL: always a new one): resumed, restored from its newest snapshot or
 * created. spec: JSON object or NULL, with any of provider, profile, template, snapshot, env,
 * network, lifecycle, limits, timeout, output_limit, persistent, metadata, mounts, options, mcp,
 * workspace_root, repo, branch, git_token, agent_type, agent_id, task_id: what POST
 * /api/v1/sandboxes takes. */
QS_API int qs_ensure(struct qs *qs, const char *key, const char *spec, char out_id[QS_ID_SIZE],
                     enum qs_tier *out_tier);
/* {id, key, provider, external_id, template, state, ...}; id may be "key:KEY" here and below. */
QS_API int qs_show(struct qs *qs, const char *id, char **out_json);
QS_API int qs_pause(struct qs *qs, const char *id);
QS_API int qs_resume(struct qs *qs, const char *id);
QS_API int qs_kill(struct qs *qs, const char *id); /* killed already is success */
/* Where a port of it answers. */
QS_API int qs_url(struct qs *qs, const char *id, uint16_t port, char **out);

/* ---- commands ---- */

enum qs_stream { QS_STDOUT = 1, QS_STDERR = 2 };
typedef void qs_output_fn(void *arg, enum qs_stream stream, const char *data, size_t len);

/* Zero what is not needed. */
struct qs_command {
    const char *const *argv; /* NULL at the end: as it is, through no shell ... */
    const char *line;        /* ... or a line for the shell; exactly one of both */
    const char *cwd, *user;
    const char *const *env; /* "NAME=VALUE", NULL at the end */
    const void *input;      /* standard input, whole */
    size_t input_len;
    int64_t timeout_ms;      /* 0 = the profile's */
    size_t output_limit;     /* of each stream; 0 = the profile's */
    qs_output_fn *on_output; /* called as it comes, on the calling thread; nothing is kept then */
    void *on_output_arg;
    void *reserved[4];
};

struct qs_result {
    int exit_code; /* a value: a command that fails is a call that succeeds */
    int timed_out; /* then 124 */
    int truncated;
    int64_t duration_ms;
    char *out, *err; /* end with NUL; freed by qs_result_free() */
    size_t out_len, err_len;
    void *reserved[4];
};

QS_API int qs_exec(struct qs *qs, const char *id, const struct qs_command *command,
                   struct qs_result *out);
QS_API void qs_result_free(struct qs_result *result);

/* ---- files: absolute, or relative to the home of the sandbox's user ---- */

QS_API int qs_put(struct qs *qs, const char *id, const char *path, const void *data, size_t len);
/* "limit" when it is longer than max; *out ends with a NUL that is not counted. */
QS_API int qs_get(struct qs *qs, const char *id, const char *path, size_t max, char **out,
                  size_t *out_len);
/* Array of {name, path, type, size, mode}. */
QS_API int qs_list(struct qs *qs, const char *id, const char *path, char **out_json);
QS_API int qs_remove(struct qs *qs, const char *id, const char *path);

/* ---- snapshots ---- */

/* alias: a name to find it by, or NULL. */
QS_API int qs_snapshot(struct qs *qs, const char *id, const char *alias, char out_id[QS_ID_SIZE]);
/* A new sandbox that begins as this snapshot (id or alias); spec as above. */
QS_API int qs_restore(struct qs *qs, const char *snapshot, const char *spec,
                      char out_id[QS_ID_SIZE]);
QS_API int qs_snapshot_remove(struct qs *qs, const char *snapshot);

#ifdef __cplusplus
}
#endif

#endif
