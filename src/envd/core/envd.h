/* envd's state, and what its request handlers share. One loop, on whose thread all of it is, and one
 * worker thread for what may take long in the kernel. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/str.h"
#include "envd/core/lease.h"
#include "envd/core/settings.h"
#include "envd/core/users.h"
#include "envd/process/process.h"
#include "envd/watch/watch_event.h"
#include "protocol/http/http_server.h"
#include "protocol/loop/workers.h"

#define ENVD_VERSION "0.6.13"

enum { ENVD_REMOVALS_MAX = 1024 };

/* When it is there for a volume; see volume.h. */
struct volume {
    char id[64]; /* "": this is an ordinary envd */
    int root_fd;
    unsigned open;        /* transfers under way */
    int64_t last_used_us; /* monotonic */
};

struct envd {
    struct loop *loop;
    struct volume volume;
    struct settings settings;
    struct process_table processes;
    struct watchers watchers;
    struct workers *workers;
    unsigned removals; /* that the worker has to finish; it has room for ENVD_REMOVALS_MAX */
    struct lease lease;
    uint64_t mem_bytes; /* the sandbox's limit when no cgroup file tells; 0 = unknown */
};

/* One listening socket's view: who may do what differs. */
struct envd_door {
    struct envd *envd;
    bool control; /* the engine's own socket: /init without a token set before is allowed */
};

/* A remote procedure call, while its handler runs. */
struct call {
    struct envd *envd;
    struct http_exchange *ex;
    json_t *request;   /* an object; NULL when binary is set */
    struct str binary; /* the message, of an endpoint that reads those of the binary codec itself */
};

/* Answers call->ex, now or later, and returns 0; or returns -1 and the caller answers with err. */
typedef int call_fn(struct call *call, struct error *err);

/* Who the call acts as: Basic authorization, or the default user. */
int call_user(const struct call *call, struct user *out, struct error *err);
/* After so much silence a stream says that it is still there. */
int64_t call_keepalive_ms(const struct call *call);

/* Plain HTTP answers: JSON with the headers every answer has. */
void envd_reply_json(struct http_exchange *ex, int status, struct str body);
void envd_reply_error(struct http_exchange *ex, int status, const char *message);
/* Status derived from the code. */
void envd_reply_failure(struct http_exchange *ex, const struct error *err);

/* http_exchange_fn of the server; arg is a struct envd_door. */
void endpoints_handle(struct http_exchange *ex, void *arg);

/* init.c */
void init_handle(struct envd_door *door, struct http_exchange *ex);
/* POST /init/authority, of the engine alone: one more authority to be trusted, while it runs. */
void init_authority(struct envd_door *door, struct http_exchange *ex);
void init_envs(struct envd *envd, struct http_exchange *ex);
/* lease.c */
void lease_start(struct envd *envd);
void lease_set(struct envd *envd, int64_t seconds, int64_t revision);
void lease_handle(struct envd_door *door, struct http_exchange *ex);
/* metrics.c */
void metrics_init(void);
void metrics_handle(struct envd *envd, struct http_exchange *ex);
/* watch_rpc.c */
call_fn watch_rpc_dir, watch_rpc_create, watch_rpc_events, watch_rpc_remove;
