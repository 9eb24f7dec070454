/* Shared by the files of this folder. */
#pragma once

#include "base/list.h"
#include "base/thread.h"
#include "host/native/box.h"
#include "host/network/network.h"
#include "host/warden/warden.h"

enum { WARDEN_PATH_SIZE = 512, WARDEN_ENGINES_MAX = 4, WARDEN_HOW_SIZE = 24 };

struct warden_child {
    pid_t pid; /* 0 = it does not run */
    int pidfd;
};
#define WARDEN_CHILD_NONE ((struct warden_child){.pidfd = -1})

/* Everything a warden holds. */
struct warden {
    const struct warden_config *config;
    struct box_engine *engines[WARDEN_ENGINES_MAX];
    size_t engine_count;
    struct boxes boxes; /* the native engine */
    struct disk *disk;
    struct trees *trees;
    pthread_mutex_t volume_lock; /* box.h */
    struct network_config network;
    char run_dir[WARDEN_PATH_SIZE];
    char instance[9];
    int lock_fd; /* DATA/lock: one server per data directory */
    struct warden_child server;
    int event_fd; /* our end of the event channel */
    bool going_down;
    int tls_listen_fd; /* DATA/run/tls.sock */
    int tls_fd;        /* our end of the server's channel */
    int tls_bundle_fd; /* what it took last */
    /* envd outside of sandboxes */
    struct warden_child process;
    int process_fd; /* its listening socket */
    int process_parent_fd;
    /* the egress process */
    struct warden_child egress;
    int egress_fd;        /* where the server reaches it */
    pthread_mutex_t lock; /* guards channels and what each of them starts */
    /* the disk's thread */
    struct thread disk_thread;
    /* channels that are served */
    struct list channels;
    pthread_cond_t channel_ended;
};

/* ---- warden_host.c: the host side of a data directory ---- */

int warden_open_host(struct warden *warden, struct error *err);
/* In warden_parts.c: copies the programs of the configuration that the data directory lacks or has differently. */
int warden_install_parts(const struct warden *warden, int data_fd, struct error *err);
/* After warden_serve_end(). remove: nothing runs any more, take the mounts, cgroups and network away too. */
void warden_close_host(struct warden *warden, bool remove);

/* ---- warden_engines.c ---- */

/* Before any channel is served. Of each kind one. */
void warden_engine_add(struct warden *warden, struct box_engine *engine);
/* NULL when there is none. */
struct box_engine *warden_engine(const struct warden *warden, uint32_t kind);
/* Whose box it is; the first one's when nobody has it, to say so. */
struct box_engine *warden_engine_of(const struct warden *warden, const char *id);
/* Of all engines, from offset on; returns how many were written. */
size_t warden_list(const struct warden *warden, size_t offset, struct box_info *out, size_t max);
bool warden_runs_boxes(const struct warden *warden);
/* As box_engine_ops.end_all, of all engines. */
size_t warden_end_all(const struct warden *warden, bool dead_only, struct error *err);

/* ---- warden_pool.c ---- */

int warden_layer_delete(struct warden *warden, const char *layer, struct error *err);
/* Those whose names come after `after`, in order; returns how many were written, or -1. */
int warden_layer_list(struct warden *warden, const char *after, struct layer_info *out, size_t max,
                      struct error *err);
int warden_layer_seal(struct warden *warden, const char *layer, struct layer_info *out,
                      struct error *err);
int warden_layer_publish(struct warden *warden, const char *snapshot, const char *layer,
                         uint64_t limit_bytes, struct layer_info *out, struct error *err);
int warden_layer_check(struct warden *warden, const char *layer, struct error *err);
/* Now and then: trees that are being filled, and those that were deleted. */
void warden_trees_tend(struct warden *warden);
int warden_volume_create(struct warden *warden, const char *name, uint64_t limit_bytes,
                         struct error *err);
int warden_volume_delete(struct warden *warden, const char *name, struct error *err);
int warden_volume_usage(struct warden *warden, const char *name, uint64_t *out_bytes,
                        struct error *err);
int warden_space(struct warden *warden, struct engine_space *out, struct error *err);

/* ---- warden_listen.c ---- */

int warden_listen(const struct warden_sockets *sockets, struct error *err);
/* A socket at DATA/<name>, to which only that user (and root) may connect. */
int warden_listen_at(const struct warden *warden, const char *name, uid_t uid, int backlog,
                     int *out_fd, struct error *err);
/* Also the path. -1 is fine. */
void warden_unlisten_at(const struct warden *warden, const char *name, int *fd);

/* ---- warden_serve.c: answering the server ---- */

/* One thread for a channel until its other end closes. dial: it carries struct engine_dial_request
 * and nothing else. Consumes the descriptor. */
int warden_serve_channel(struct warden *warden, int fd_consume, bool dial, struct error *err);
/* Closes them all and waits for what is under way. False when something is still at work after that: then
 * nothing that it may use can be freed. */
bool warden_serve_end(struct warden *warden);

/* ---- warden_child.c ---- */

/* `what` for messages. */
int warden_child_watch(struct warden_child *child, pid_t pid, const char *what, struct error *err);
/* What to poll: readable when it has ended; -1 when there is none. */
int warden_child_poll(const struct warden_child *child);
/* After that: its exit status, or -1 of one that a signal ended; in words, too. */
int warden_child_ended(struct warden_child *child, char how[WARDEN_HOW_SIZE]);
void warden_child_kill(struct warden_child *child); /* also when there is none */

/* ---- warden_server.c: the unprivileged process ---- */

int warden_start_server(struct warden *warden, struct error *err);

/* ---- warden_tls.c: certificates for it ---- */

/* A new channel, with certificates in it; leaves *out_theirs alone without TLS. */
int warden_tls_channel(struct warden *warden, int *out_theirs, struct error *err);
/* Without somebody who waits for the answer: it is in the log. */
void warden_tls_reload(struct warden *warden);
void warden_tls_asked(struct warden *warden); /* somebody connects */
void warden_tls_stop(struct warden *warden);  /* also when it was never started */

/* ---- warden_disk.c: tending the pool ---- */

int warden_disk_start(struct warden *warden, struct error *err);
void warden_disk_stop(struct warden *warden); /* also when it was never started */

/* ---- warden_egress.c: the egress process ---- */

int warden_egress_start(struct warden *warden, struct error *err);
void warden_egress_ended(struct warden *warden); /* its pidfd says so */
void warden_egress_stop(struct warden *warden);  /* also when it was never started */

/* ---- warden_process.c: envd outside of sandboxes ---- */

int warden_process_start(struct warden *warden, struct error *err);
void warden_process_ended(struct warden *warden); /* its pidfd says so */
void warden_process_stop(struct warden *warden);  /* also when it was never started */
