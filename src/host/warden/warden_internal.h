/* Shared by the files of this folder. */
#pragma once

#include "base/list.h"
#include "host/native/box.h"
#include "host/network/network.h"
#include "host/warden/warden.h"

enum { WARDEN_PATH_SIZE = 512 };

/* Everything a warden holds. */
struct warden {
    const struct warden_config *config;
    struct boxes boxes;
    struct network_config network;
    char run_dir[WARDEN_PATH_SIZE];
    char instance[9];
    int lock_fd; /* DATA/lock: one server per data directory */
    pid_t server_pid;
    int server_pidfd;
    int event_fd; /* our end of the event channel */
    bool going_down;
    bool knows_boxes; /* all that are there are in the table */
    /* envd outside of sandboxes */
    pid_t process_pid;
    int process_fd; /* its listening socket */
    int process_pidfd, process_parent_fd;
    /* the disk's thread; boxes.lock guards disk_stop */
    pthread_t disk_thread;
    pthread_cond_t disk_wake;
    bool has_disk_thread, disk_stop;
    /* channels that are served; boxes.lock guards them */
    struct list channels;
    pthread_cond_t channel_ended;
};

/* ---- warden_host.c: the host side of a data directory ---- */

int warden_open_host(struct warden *warden, struct error *err);
/* After warden_serve_end(). remove: nothing runs any more, take the mounts, cgroups and network away too. */
void warden_close_host(struct warden *warden, bool remove);

/* ---- warden_listen.c ---- */

int warden_listen(const struct warden_sockets *sockets, struct error *err);

/* ---- warden_serve.c: answering the server ---- */

/* One thread for a channel until its other end closes. dial: it carries struct engine_dial_request
 * and nothing else. Consumes the descriptor. */
int warden_serve_channel(struct warden *warden, int fd_consume, bool dial, struct error *err);
/* Closes them all and waits for what is under way. False when something is still at work after that: then
 * nothing that it may use can be freed. */
bool warden_serve_end(struct warden *warden);

/* ---- warden_server.c: the unprivileged process ---- */

int warden_start_server(struct warden *warden, struct error *err);

/* ---- warden_disk.c: tending the pool ---- */

int warden_disk_start(struct warden *warden, struct error *err);
void warden_disk_stop(struct warden *warden); /* also when it was never started */

/* ---- warden_process.c: envd outside of sandboxes ---- */

int warden_process_start(struct warden *warden, struct error *err);
void warden_process_ended(struct warden *warden); /* its pidfd says so */
void warden_process_stop(struct warden *warden);  /* also when it was never started */
