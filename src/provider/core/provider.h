/* Kinds of places that hold machines, behind one table of functions.
 *
 * A provider knows one API and no rule: it does not retry, remember or choose. An entry that is
 * NULL is a capability the provider lacks; provider_*() answers ERROR_UNSUPPORTED naming provider
 * and capability before anything is sent. All calls block their thread, each request with a timeout, and
 * those about machines at most until their deadline_us (base/clock.h; 0 = none): then ERROR_TIMEOUT.
 *
 * Errors every provider maps its own to: ERROR_NOT_FOUND (no such sandbox, snapshot, file),
 * ERROR_QUOTA (429, limits; message says which; retry_after_s when told), ERROR_UNAUTHORIZED (key refused),
 * ERROR_UNAVAILABLE (connect failed, 5xx, garbage: may be tried again), ERROR_TIMEOUT,
 * ERROR_CONFLICT (state), ERROR_INVALID (the request was refused as wrong; of a command whose program is
 * not there or may not be run, errnum is ENOENT or EACCES). */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/error.h"
#include "base/pair.h"
#include "base/str.h"

struct fetch;
struct provider;
struct provider_config;
struct sandbox_creates;
struct sandboxes;

enum provider_feature {
    PROVIDER_FILES = 1 << 0,
    PROVIDER_PAUSE = 1 << 1,
    PROVIDER_SNAPSHOT = 1 << 2,
    PROVIDER_PTY = 1 << 3,
    PROVIDER_JOB_LOGS = 1 << 4, /* logs of background jobs while they run */
    PROVIDER_JOB_STOP = 1 << 5,
    PROVIDER_HOOKS = 1 << 6,  /* onCreate, onResume */
    PROVIDER_MOUNTS = 1 << 7, /* host directories or volumes */
    PROVIDER_PORTS = 1 << 8,  /* url(port) */
    PROVIDER_EXEC = 1 << 9,
    PROVIDER_CDP = 1 << 10, /* a browser, by the Chrome DevTools protocol */
    PROVIDER_TTL = 1 << 11, /* ends or pauses its sandboxes by itself; extend() */
    PROVIDER_FIND = 1 << 12,
    PROVIDER_PEERS = 1 << 13,  /* private networks of a team */
    PROVIDER_SCREEN = 1 << 14, /* has the template desktop, or one can be built */
};

enum provider_egress {
    EGRESS_ALLOW_ALL = 1,
    EGRESS_DENY_ALL = 2,
    EGRESS_RESTRICTED = 4,
};

enum provider_isolation { ISOLATION_NONE, ISOLATION_PROCESS, ISOLATION_STRONG };

struct provider_caps {
    unsigned features; /* of enum provider_feature; agrees with the table of functions */
    unsigned egress;   /* what is really enforced */
    enum provider_isolation isolation;
    const char *snapshot_kind; /* "e2b-ref", "docker-image", "daytona-ref"; NULL = none */
};

/* Name of one feature, as in messages and in JSON: "pause", "job_logs", ... */
const char *provider_feature_name(enum provider_feature feature);
const char *provider_egress_name(enum provider_egress egress); /* "allow-all", ... */

/* The engine in this process, given by the program that has one: what provider/embedded needs. */
struct provider_embedded {
    int (*open)(const struct provider_config *config, struct provider **out, struct error *err);
    struct sandboxes *sandboxes;
    struct sandbox_creates *creates;
    void *arg;
    /* Path of the Unix socket of a running sandbox's envd. */
    int (*envd_socket)(void *arg, struct str id, char *out, size_t size, struct error *err);
    const char *proxy_url; /* "http://127.0.0.1:3000": other ports, by the headers of the proxy */
    const char *
        https_domain; /* "example.org": ports are at https://PORT-ID.example.org, too; NULL = not */
};

struct provider_config {
    const char *name;    /* "e2b", "docker", "bb", ...: the operator's word */
    const char *type;    /* "e2b", "docker", "daytona", "process", "browserbase" */
    const char *api_url; /* "embedded" or a URL; "" = the type's own default */
    const char *domain;
    const char *api_key; /* the secret itself; "" = none */
    const json_t
        *options;        /* the whole record of the config file: type's own settings; may be NULL */
    struct fetch *fetch; /* borrowed */
    const struct provider_embedded *embedded; /* borrowed; NULL when there is no engine here */
    bool public_only; /* api_url is a team's: it must not lead into our own networks */
};

/* Checks the settings; talks to nobody. The config's strings are copied. */
int provider_new(const struct provider_config *config, struct provider **out, struct error *err);
void provider_free(struct provider *provider);
/* For a new key: calls about sandboxes that somebody still makes with `old` are made with `by`, which must
 * live as long as `old`. What has begun with `old` goes on. */
void provider_replace(struct provider *old, struct provider *by); /* NULL is fine */
const char *provider_name(const struct provider *provider);
const char *provider_type(const struct provider *provider);
const struct provider_caps *provider_caps(const struct provider *provider);

/* What it is, as far as that is known: an endpoint with E2B's API may be the public cloud, another
 * Quicksand, or something else. Never blocks; provider_check() finds out. */
struct provider_about {
    const char *software;    /* "e2b", "quicksand", "docker", ..., "unknown" */
    const char *isolation;   /* "none", "process", "strong", "unknown" */
    const char *isolated_by; /* "microvm", "namespaces", "container", "nothing", "unknown" */
    const char *runs_on;     /* "this host", "another host", "a service", "unknown" */
};
void provider_about(const struct provider *provider, struct provider_about *out);

/* The longest ttl_s that it takes now, in seconds; 0 = not known, the create tells. Never blocks. */
int64_t provider_ttl_max(const struct provider *provider);

/* ---- sandboxes ---- */

enum provider_state {
    PROVIDER_RUNNING,
    PROVIDER_PAUSING, /* its time is up: it still runs, but starts no command any more */
    PROVIDER_PAUSED,
    PROVIDER_STARTING,
    PROVIDER_ENDED
};

/* What is asked for. Strings and arrays are borrowed for the call. */
struct provider_sandbox;
struct conn;

/* Of who made the machine: what is written in the transaction that makes the machine's row, where that is in the same store. */
struct provider_joint {
    int (*run)(void *arg, const struct provider_sandbox *machine, struct conn *conn,
               struct error *err);
    void *arg;
    bool done; /* told: it is in the store; else it is still to be done by who asked */
};

struct provider_spec {
    struct str team_id;  /* embedded engine only: whose sandbox */
    struct str image;    /* template, image; STR_NONE = the provider's default */
    struct str snapshot; /* start from this (the kind was checked before); STR_NONE = image */
    const struct pair *labels;
    size_t label_count;
    const struct pair *env;
    size_t env_count;
    enum provider_egress egress;
    json_t *allow_domains, *allow_cidrs; /* arrays of strings for EGRESS_RESTRICTED, or NULL */
    json_t *peers;                /* {"network", "name"}; only with PROVIDER_PEERS; or NULL */
    json_t *mounts;               /* as in the request; only with PROVIDER_MOUNTS */
    int64_t ttl_s;                /* life without activity; 0 = the provider's default */
    bool pause_at_ttl;            /* else it is killed */
    int64_t cpu, mem_mb, disk_mb; /* 0 = default */
    json_t *options; /* of the profile: type's own settings (browserSettings, ...); may be NULL */
    struct provider_joint *joint; /* embedded engine only; or NULL */
    /* The caller's deadline, or NULL. It moves on by the time that an image takes to arrive: the provider shows its
     * progress meanwhile. */
    int64_t *deadline_us;
};

static inline int64_t provider_spec_deadline(const struct provider_spec *spec)
{
    return spec->deadline_us ? *spec->deadline_us : 0;
}

/* What there is. Strings live in the arena of the call. */
struct provider_sandbox {
    struct str id; /* the provider's own */
    enum provider_state state;
    struct str image;
    struct str token;   /* envd's access token, when it is told; a secret */
    struct str address; /* where its envd answers, when the provider tells; else STR_NONE */
    struct str cdp_url; /* PROVIDER_CDP */
    struct str warning; /* of provider_create(); STR_NONE */
    int64_t started_at_us;
    struct pair *labels;
    size_t label_count;
};

/* Is it there and does it take our key? */
int provider_check(struct provider *provider, struct error *err);
int provider_create(struct provider *provider, const struct provider_spec *spec,
                    struct arena *arena, struct provider_sandbox *out, struct error *err);
/* Which machines: those with all the labels. team_id as above. */
struct provider_query {
    struct str team_id;
    const struct pair *labels;
    size_t label_count;
    int64_t deadline_us;
};
/* Newest first, running and paused. */
int provider_find(struct provider *provider, const struct provider_query *query,
                  struct arena *arena, struct provider_sandbox **out, size_t *out_count,
                  struct error *err);

/* A sandbox in all calls below: team_id as above, id and token as create or get told. */
struct provider_ref {
    struct str team_id, id, token, address;
    int64_t deadline_us; /* not of processes and files: those have their own limits */
};

/* ERROR_NOT_FOUND when it is gone. Never wakes it. */
int provider_get(struct provider *provider, const struct provider_ref *ref, struct arena *arena,
                 struct provider_sandbox *out, struct error *err);
/* Running afterwards: attaches, resumes or starts it; ttl_s from now. */
int provider_connect(struct provider *provider, const struct provider_ref *ref, int64_t ttl_s,
                     struct arena *arena, struct provider_sandbox *out, struct error *err);
/* Files stay; never deletes. Paused already is success. */
int provider_pause(struct provider *provider, const struct provider_ref *ref, struct error *err);
/* Gone already is success. */
int provider_kill(struct provider *provider, const struct provider_ref *ref, struct error *err);
int provider_extend(struct provider *provider, const struct provider_ref *ref, int64_t ttl_s,
                    struct error *err);
/* *out: the provider's reference to it. name: [a-z0-9-]. */
int provider_snapshot(struct provider *provider, const struct provider_ref *ref, const char *name,
                      struct arena *arena, struct str *out, struct error *err);
/* Gone already is success. */
int provider_snapshot_delete(struct provider *provider, struct str team_id, struct str snapshot,
                             struct error *err);

/* Where a port of the sandbox answers. */
struct provider_address {
    struct str url;       /* for people and for us */
    struct str local_url; /* how this process reaches it, with `headers`; may equal url */
    struct pair *headers;
    size_t header_count;
    bool public_only; /* as of the provider's */
};
int provider_address(struct provider *provider, const struct provider_ref *ref, uint16_t port,
                     struct arena *arena, struct provider_address *out, struct error *err);

/* What a machine uses now; -1 = not known. A paused one is not resumed. */
struct provider_usage {
    int64_t at_us;                                                 /* when it was measured */
    double cpu_percent;                                            /* 100 = all its processors */
    int64_t cpu_count, mem_used, mem_total, disk_used, disk_total; /* bytes */
};
int provider_usage(struct provider *provider, const struct provider_ref *ref,
                   struct provider_usage *out, struct error *err);
/* What a machine sent and received, since it was made. */
struct provider_traffic {
    int64_t sent_bytes, received_bytes, sent_packets, received_packets, connections, refused;
};
int provider_traffic(struct provider *provider, const struct provider_ref *ref,
                     struct provider_traffic *out, struct error *err);

enum { PROVIDER_PORTS_MAX = 128 };

/* The TCP ports that programs in a machine listen on, in ascending order, without those of its envd. */
struct provider_ports {
    size_t count;
    struct provider_port {
        uint16_t number;
        bool loopback; /* on the machine's loopback interface only */
    } at[PROVIDER_PORTS_MAX];
};
int provider_ports(struct provider *provider, const struct provider_ref *ref,
                   struct provider_ports *out, struct error *err);

/* ---- processes ---- */

struct provider_command {
    const char *const *argv; /* NULL at the end; never through a shell of ours */
    const struct pair *env;
    size_t env_count;
    const char *cwd;  /* NULL = the sandbox's default */
    const char *user; /* NULL = the default */
    const char *tag;  /* to find it again; NULL = none */
    bool open_stdin;
    bool pty;
    uint16_t cols, rows;
    int64_t timeout_ms; /* its whole life, enforced also by the provider when it can; 0 = none */
    uint32_t input_ms;  /* how long input may wait for the process to read it; 0 = the usual */
};

struct provider_process;

enum provider_event_kind { PROVIDER_STARTED, PROVIDER_STDOUT, PROVIDER_STDERR, PROVIDER_EXITED };

struct provider_event {
    enum provider_event_kind kind;
    struct str data; /* of STDOUT (also what a terminal prints) and STDERR; until the next call */
    int64_t pid;     /* of STARTED; 0 = unknown */
    int exit_code;   /* of EXITED; 128 + signal when it was killed */
    bool timed_out;  /* of EXITED: its timeout ended it */
    bool out_of_memory; /* of EXITED: the sandbox's memory did; only some providers know */
};

/* One reader; input, resize, signal and cancel from any thread. In a paused sandbox it fails with
 * ERROR_CONFLICT; errnum, then and when it cannot be reached: EHOSTDOWN, nothing has begun;
 * ECONNABORTED, it may have. */
int provider_start(struct provider *provider, const struct provider_ref *ref,
                   const struct provider_command *command, struct provider_process **out,
                   struct error *err);
/* To one that runs, by its tag (or pid, when tag is NULL). ERROR_NOT_FOUND when it has ended. */
int provider_attach(struct provider *provider, const struct provider_ref *ref, const char *tag,
                    int64_t pid, struct provider_process **out, struct error *err);
bool provider_can_attach(const struct provider *provider);
/* 1 = an event, 0 = nothing within timeout_ms, -1 = the stream broke (the process may go on),
 * ERROR_CONFLICT after cancel. Nothing follows EXITED. */
int provider_process_next(struct provider_process *process, uint32_t timeout_ms,
                          struct provider_event *out, struct error *err);
/* For a thread that waits for many processes: after next() has returned 0, and until it is called again, fd can be
 * read (-1 = nothing can) as soon as there is more; it is called after ms in any case. Cancel is not seen at fd. */
struct provider_wait {
    int fd;
    int64_t ms;
};
struct provider_wait provider_process_wait(struct provider_process *process);
int provider_process_input(struct provider_process *process, struct str data, struct error *err);
int provider_process_close_stdin(struct provider_process *process, struct error *err);
int provider_process_resize(struct provider_process *process, uint16_t cols, uint16_t rows,
                            struct error *err);
int provider_process_signal(struct provider_process *process, int signal, struct error *err);
/* Any thread: next() returns -1 at once. The process goes on. */
void provider_process_cancel(struct provider_process *process);
/* Lets go of it; the process goes on. NULL is fine. */
void provider_process_free(struct provider_process *process);

/* ---- files: absolute paths, or relative to the default user's home ---- */

/* Sink and source as in fetch: -1 gives up. */
typedef ssize_t provider_source_fn(void *arg, void *p, size_t size);
typedef int provider_sink_fn(void *arg, struct str data);

/* ERROR_NOT_FOUND, ERROR_INVALID (a directory). */
int provider_read(struct provider *provider, const struct provider_ref *ref, const char *path,
                  provider_sink_fn *sink, void *arg, struct error *err);
/* Makes parents; replaces as a whole. length: FETCH_BODY_LATER (-1) when unknown. */
int provider_write(struct provider *provider, const struct provider_ref *ref, const char *path,
                   provider_source_fn *source, void *arg, int64_t length, struct error *err);

struct provider_file {
    struct str name, path;
    bool directory;
    int64_t size;
    uint32_t mode;
    int64_t modified_at_us;
};
int provider_list(struct provider *provider, const struct provider_ref *ref, const char *path,
                  struct arena *arena, struct provider_file **out, size_t *out_count,
                  struct error *err);
/* Recursive; gone already is ERROR_NOT_FOUND. */
int provider_remove(struct provider *provider, const struct provider_ref *ref, const char *path,
                    struct error *err);
