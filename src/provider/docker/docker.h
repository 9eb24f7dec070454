/* What the files of the docker provider share. Private to them. */
#pragma once

#include <pthread.h>
#include <sys/types.h>

#include "protocol/fetch/rest.h"
#include "protocol/http/http_call.h"
#include "provider/core/provider_ops.h"
#include "provider/docker/docker_frame.h"

/* On every container of ours, so that a search without labels finds no others. */
#define DOCKER_MARK_LABEL "dev.quicksand"
/* Names of the variables that were given, so that a snapshot can leave their values out. */
#define DOCKER_ENV_LABEL "dev.quicksand.env"
#define DOCKER_SNAP_REPO "quicksand-snap"

struct docker {
    char who[96]; /* "docker 'name'" */
    struct rest rest;
    char *base;      /* "http://docker" or "http://host:port" */
    char *unix_path; /* or NULL: */
    char *host;
    char *port;

    char *image, *user, *network, *runtime;
    json_t *cap_drop, *cap_add;
    json_t *mounts; /* true, or an array of host directories; NULL = refused */
    int64_t pids_limit;
    bool no_new_privileges, init, pull, freeze;

    pthread_mutex_t lock;
    char version[16]; /* "v1.40" once it was negotiated */
};

static inline struct docker *docker_of(const struct provider *provider)
{
    return provider->impl;
}

/* ---- docker.c ---- */

/* "v1.40": the oldest version that has all we use, or the oldest the daemon still speaks. */
int docker_version(struct docker *docker, int64_t deadline_us, char out[16], struct error *err);
/* path: behind the version, encoded. */
int docker_call(struct docker *docker, const struct rest_request *request, json_t **out,
                struct error *err);
/* Method, path and nothing else. */
int docker_post(struct docker *docker, const char *method, const char *path, uint32_t timeout_ms,
                int64_t deadline_us, struct error *err);
int docker_check_id(const struct docker *docker, struct str id, struct error *err);
/* "/containers/ID/what" with what as printf. */
void docker_path(struct buf *path, struct str id, const char *what);

/* ---- docker_conn.c: a connection of our own, for what must be hijacked ---- */

enum { DOCKER_CONN_MAX = 64 * 1024 }; /* of what comes with the head, or of a refusal */

/* Sends one request, reads the answer's head. The caller inits nothing and calls http_call_done() in
 * any case; the connection may be taken out of it. */
int docker_conn_request(struct docker *docker, const char *method, const char *path,
                        const json_t *body, struct http_call *out, struct error *err);
/* Reads what is left of a refusal's body (bounded) and makes the error of it. Always -1. */
int docker_conn_refused(struct docker *docker, const char *method, struct http_call *call,
                        struct error *err);

/* ---- docker_stream.c: a process in a container and its bytes ---- */

struct docker_exec {
    const char *const *argv;
    json_t *env; /* array of "K=V", or NULL */
    const char *user;
    bool stdin_open, tty;
};

struct docker_stream {
    struct docker *docker;
    char exec_id[132];
    int fd;
    bool tty, ended;
    struct docker_frame frame;
    struct buf in; /* read and not yet handed out: from `at` on */
    size_t at;
};

/* Creates and starts it. The caller calls docker_stream_close() in any case. */
int docker_stream_open(struct docker *docker, struct str container, const struct docker_exec *exec,
                       struct docker_stream *out, struct error *err);
void docker_stream_close(struct docker_stream *stream);
/* 1: a piece, until the next call; 0: nothing within timeout_ms, or wake_fd became readable; -1:
 * broken. stream->ended: and nothing follows (with 0). wake_fd: -1 = none. */
int docker_stream_read(struct docker_stream *stream, int wake_fd, uint32_t timeout_ms,
                       enum docker_stream_kind *out_kind, struct str *out, struct error *err);
/* Puts the last n bytes of the piece just read back. */
void docker_stream_unread(struct docker_stream *stream, size_t n);
/* 1: it has ended, with this code; 0: it runs; -1. */
int docker_stream_exit(struct docker_stream *stream, int *out_code, struct error *err);
/* Waits for the exit code of one whose stream has ended. */
int docker_stream_wait(struct docker_stream *stream, uint32_t timeout_ms, int *out_code,
                       struct error *err);

/* Runs to the end; output beyond the buffers' maximum is ERROR_LIMIT. out, errors: may be NULL. */
int docker_run(struct docker *docker, struct str container, const struct docker_exec *exec,
               uint32_t timeout_ms, struct buf *out, struct buf *errors, int *out_code,
               struct error *err);

/* ---- docker_create.c ---- */
int docker_create(struct provider *provider, const struct provider_spec *spec, struct arena *arena,
                  struct provider_sandbox *out, struct error *err);

/* ---- docker_machine.c ---- */
int docker_find(struct provider *provider, const struct provider_query *query, struct arena *arena,
                struct provider_sandbox **out, size_t *out_count, struct error *err);
int docker_usage(struct provider *provider, const struct provider_ref *ref,
                 struct provider_usage *out, struct error *err);
int docker_get(struct provider *provider, const struct provider_ref *ref, struct arena *arena,
               struct provider_sandbox *out, struct error *err);
int docker_connect(struct provider *provider, const struct provider_ref *ref, int64_t ttl_s,
                   struct arena *arena, struct provider_sandbox *out, struct error *err);
int docker_pause(struct provider *provider, const struct provider_ref *ref, struct error *err);
int docker_kill(struct provider *provider, const struct provider_ref *ref, struct error *err);
int docker_snapshot(struct provider *provider, const struct provider_ref *ref, const char *name,
                    struct arena *arena, struct str *out, struct error *err);
int docker_snapshot_delete(struct provider *provider, struct str team_id, struct str snapshot,
                           struct error *err);
int docker_address(struct provider *provider, const struct provider_ref *ref, uint16_t port,
                   struct arena *arena, struct provider_address *out, struct error *err);

/* ---- docker_exec.c ---- */
int docker_start(struct provider *provider, const struct provider_ref *ref,
                 const struct provider_command *command, struct provider_process **out,
                 struct error *err);

/* ---- docker_path.c: what is in a container's file system ---- */

struct docker_stat {
    char *path; /* absolute, links at its end followed */
    bool exists, directory;
    uint32_t mode; /* permissions */
    int64_t size;
};

enum { DOCKER_PATH_MAX = 4096 };

/* The path as an absolute one. *out: free(). */
int docker_path_resolve(struct docker *docker, struct str container, const char *path, char **out,
                        struct error *err);
/* Missing is no failure: exists is false. The caller calls docker_stat_done() in any case. */
int docker_stat(struct docker *docker, struct str container, const char *path,
                struct docker_stat *out, struct error *err);
void docker_stat_done(struct docker_stat *stat);
/* To whom new files belong: the container's user. */
int docker_owner(struct docker *docker, struct str container, uint32_t *out_uid, uint32_t *out_gid,
                 struct error *err);
/* A fixed script with arguments, as the container's user. 0, or its exit code; -1. */
int docker_script(struct docker *docker, struct str container, const char *script, const char *a,
                  const char *b, struct buf *errors, struct error *err);

/* ---- docker_files.c ---- */
int docker_read(struct provider *provider, const struct provider_ref *ref, const char *path,
                provider_sink_fn *sink, void *arg, struct error *err);
int docker_write(struct provider *provider, const struct provider_ref *ref, const char *path,
                 provider_source_fn *source, void *arg, int64_t length, struct error *err);
int docker_list(struct provider *provider, const struct provider_ref *ref, const char *path,
                struct arena *arena, struct provider_file **out, size_t *out_count,
                struct error *err);
int docker_remove(struct provider *provider, const struct provider_ref *ref, const char *path,
                  struct error *err);
