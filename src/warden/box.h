/* A box: one native sandbox as the host sees it. Namespaces, an overlay root on a writable layer of
 * its own, cgroups, a network slot, a listening socket for its agent.
 *
 * Everything a box leaves on the host has a name made of its id or its slot number, so that leftovers
 * are found after a crash without any other record:
 *   RUN/<id>.box     record: slot, boot, pid and start time of its first process
 *   RUN/<id>.sock    the agent's listening socket
 *   pool/boxes/<id>  writable layer (disk/)
 *   cgroups          quicksand-<instance>/<id> in every hierarchy
 *   qs<slot>         host end of its link, in the gateway namespace (network/)
 * Mounts live only in the box's own mount namespace and go with its last process. */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"
#include "base/map.h"
#include "engine/engine.h"

struct disk;
struct network;

enum {
    /* Host user ids: slot n owns the 65536 ids from BOX_UID_FIRST + n * 65536. */
    BOX_IDS_PER_SLOT = 65536,
    BOX_SLOT_COUNT = 16384, /* slot 0 is never used */
};
#define BOX_UID_FIRST 0x40000000u

struct box_cgroups; /* box_cgroup.c */

/* What all boxes of this warden share; made once at start. */
struct boxes {
    int run_fd, layers_fd; /* directories */
    const char *run_dir;
    uid_t server_uid; /* owner of the agents' sockets */
    struct disk *disk;
    struct network *network;
    struct box_cgroups *cgroups;
    int agent_fd;    /* sealed memfd with envd's program */
    int dev_tree_fd; /* detached read-only tmpfs: `dev`, cloned per box, and `fuse` */
    int seccomp_fd;  /* memfd with the compiled filter */
    char boot_id[40];
    long host_cpus;
    char resolv_conf[256]; /* text of /etc/resolv.conf inside; "" = leave the image's */

    pthread_mutex_t lock; /* guards table, slots, next_slot and the fields of struct box below */
    struct map table;     /* id -> struct box */
    struct box *slots[BOX_SLOT_COUNT];
    uint32_t next_slot;
    int exit_epoll_fd; /* pidfds of running boxes, data.u32 is the slot; the main thread waits on it */
};

enum box_state {
    BOX_STARTING, /* owned by the thread in box_start() */
    BOX_RUNNING,
    BOX_DEAD,   /* first process ended; everything else may still be there */
    BOX_ENDING, /* owned by the thread in box_kill() */
};

struct box {
    char id[ID_SIZE];
    uint32_t slot; /* 0 = unknown: only leftovers with its name */
    enum box_state state;
    pid_t pid;
    int pidfd;    /* -1 when there is no process */
    int netns_fd; /* -1 likewise */
    bool child;   /* ours to reap */
};

/* ---- box_table.c: which boxes there are ---- */

/* Finds what an earlier warden left: living boxes are adopted, others listed as dead. */
int boxes_recover(struct boxes *all, struct error *err);
/* New entry in BOX_STARTING with a slot; ERROR_EXISTS when the id is known. */
int boxes_add(struct boxes *all, const char *id, struct box **out, struct error *err);
/* The box moves to BOX_ENDING and belongs to the caller; NULL in *out when unknown. Somebody else
 * ending it is ERROR_CONFLICT. */
int boxes_take(struct boxes *all, const char *id, struct box **out, struct error *err);
/* Forgets a box and frees its slot. */
void boxes_remove(struct boxes *all, struct box *box);
/* Frees the table; the boxes themselves go on. */
void boxes_forget(struct boxes *all);
void boxes_set_running(struct boxes *all, struct box *box);
/* Entries from offset on; returns how many were written. */
size_t boxes_list(struct boxes *all, size_t offset, struct box_info *out, size_t max);
/* The first process of a slot's box ended: fills *out; false when nobody needs to know. */
bool boxes_exited(struct boxes *all, uint32_t slot, struct engine_event *out);
size_t boxes_count(struct boxes *all);

/* ---- box_record.c: what survives the warden ---- */

int box_record_write(const struct boxes *all, const struct box *box, struct error *err);
/* Reads a record and opens its process when that still lives. False when there is none. */
bool box_record_read(const struct boxes *all, struct box *box);

/* ---- box_start.c, box_kill.c ---- */

/* Tests: the n-th step of the next start or teardown fails; 0 = none. Returns through box_fault(). */
extern _Thread_local int box_fault_at;
/* Every fallible step asks first. */
int box_fault(const char *step, struct error *err);

int box_start(struct boxes *all, const struct box_spec *spec, struct box_info *out,
              struct error *err);
int box_kill(struct boxes *all, const char *id, struct error *err);
/* The one way down, for any half-built box: idempotent, goes on after a failure, reports the first. */
int box_teardown(struct boxes *all, struct box *box, struct error *err);
int box_limit(struct boxes *all, const char *id, const struct box_limits *limits, bool internet,
              struct error *err);
int box_freeze(struct boxes *all, const char *id, bool frozen, struct error *err);
/* Non-blocking TCP socket inside the box, connecting to its loopback. */
int box_dial(struct boxes *all, const char *id, uint16_t port, bool v6, int *out_fd,
             struct error *err);

/* ---- box_mounts.c: done by the warden, before the child runs on ---- */

/* Root file system as a detached mount, ids mapped through the child's user namespace. */
int box_mount_root(const struct boxes *all, const struct box_spec *spec, uint32_t slot,
                   int userns_fd, int box_dir_fd, int *out_mount_fd, struct error *err);
int box_make_dev_tree(int *out_fd, struct error *err);

/* ---- box_cgroup.c ---- */

int box_cgroups_open(const char *instance, struct box_cgroups **out, struct error *err);
void box_cgroups_close(struct box_cgroups *cgroups);
/* Removes our (empty) directories. */
void box_cgroups_destroy(struct box_cgroups *cgroups);
/* Directories and limits. *out_fd: the v2 directory, for CLONE_INTO_CGROUP. */
int box_cgroup_create(struct box_cgroups *cgroups, const char *id, const struct box_limits *limits,
                      int *out_fd, struct error *err);
int box_cgroup_limit(struct box_cgroups *cgroups, const char *id, const struct box_limits *limits,
                     struct error *err);
/* Puts a process into the v1 hierarchies that hold limits. */
int box_cgroup_attach(struct box_cgroups *cgroups, const char *id, pid_t pid, struct error *err);
/* SIGKILL to all, frozen or not. Missing is fine. */
int box_cgroup_kill(struct box_cgroups *cgroups, const char *id, struct error *err);
int box_cgroup_freeze(struct box_cgroups *cgroups, const char *id, bool frozen, struct error *err);
int box_cgroup_remove(struct box_cgroups *cgroups, const char *id, struct error *err);
/* Did the kernel kill something in it for lack of memory? */
bool box_cgroup_oom(struct box_cgroups *cgroups, const char *id);
/* Is this process in the box's cgroup? */
bool box_cgroup_holds(struct box_cgroups *cgroups, const char *id, pid_t pid);
/* Calls fn for each box directory found. */
void box_cgroup_each(struct box_cgroups *cgroups, void (*fn)(const char *id, void *arg), void *arg);
/* What the child mounts read-only at /sys/fs/cgroup: 2 for one v2 tree, 1 for v1 controllers. */
int box_cgroup_version(const struct box_cgroups *cgroups);

/* ---- box_seccomp.c ---- */

/* Compiles the filter into a memfd of struct sock_filter. */
int box_seccomp_compile(int *out_fd, struct error *err);
/* Bit set of the capabilities a sandbox's root keeps. */
uint64_t box_capabilities(void);

/* ---- box_child.c: runs in the new namespaces; no allocation, no locks, only system calls ---- */

enum { BOX_FILTER_MAX = 1024 }; /* instructions */

struct box_child {
    int channel;    /* socket to the warden */
    int warden_end; /* the warden's end of it, to be closed here */
    int listen_fd;  /* agent's socket */
    int agent_fd;   /* agent's program */
    int device_fd;  /* directory with the node `fuse` */
    int cgroup_version;
    uint64_t mem_bytes;
    uint32_t cpu_count;
    uint32_t cpu_first; /* first of the processors it runs on */
    long host_cpus;
    uint64_t capabilities;
    const char *resolv_conf;
    const void *filter; /* struct sock_filter[filter_len] */
    size_t filter_len;
};

/* Sent by the child when it is about to exec (errnum 0) or when a step failed. */
struct box_child_report {
    int32_t errnum;
    char step[60];
};

/* The warden's word to go on carries two descriptors: root mount, /dev tree. */
_Noreturn void box_child_run(const struct box_child *child);
