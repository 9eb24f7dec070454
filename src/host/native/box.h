/* A box: one native sandbox as the host sees it. Namespaces, an overlay root on a writable layer of
 * its own, cgroups, a network slot, a listening socket for its envd.
 *
 * Everything a box leaves on the host has a name made of its id or its slot number, so that leftovers
 * are found after a crash without any other record:
 *   RUN/<id>.box     record: slot, boot, pid and start time of its first process, layers, volumes
 *   RUN/spare        blocks for records, should the disk be full
 *   RUN/<id>.still   there while a snapshot makes it stand still
 *   RUN/<id>.sock    envd's listening socket
 *   pool/boxes/<id>  writable layer (disk/)
 *   cgroups          quicksand-<instance>/<id> in every hierarchy
 *   qs<slot>         host end of its link, in the gateway namespace (network/)
 * Mounts live only in the box's own mount namespace and go with its last process. A stopped box has only
 * its record and its writable layer. */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"
#include "base/map.h"
#include "host/disk/disk.h"
#include "host/engine/engine.h"
#include "host/native/box_fuse.h"

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
    uid_t server_uid; /* owner of the envds' sockets */
    struct disk *disk;
    struct network *network;
    struct box_cgroups *cgroups;
    int envd_fd;        /* sealed memfd with envd's program */
    int dev_tree_fd;    /* detached read-only tmpfs: `dev`, cloned per box, and `fuse` */
    int seccomp_fd;     /* memfd with the compiled filter */
    int fuse_fd;        /* the host's FUSE connections (box_fuse.h) */
    bool attach_layers; /* this kernel wants layers mounted somewhere (box_overlay.c) */
    char boot_id[40];
    long host_cpus;
    char *cpuinfo;         /* of the host, as it was at the start; or NULL */
    char resolv_conf[256]; /* text of /etc/resolv.conf inside; "" = leave the image's */

    pthread_mutex_t lock; /* guards table, slots, next_slot and the fields of struct box below */
    pthread_cond_t idle;  /* some box is no longer busy */
    struct map table;     /* id -> struct box */
    struct box *slots[BOX_SLOT_COUNT];
    uint32_t next_slot;
    /* A volume is either opened for a box that is in the table, or deleted while none uses it. */
    pthread_mutex_t volume_lock;
    int exit_epoll_fd; /* pidfds of running boxes, data.u32 is the slot; the main thread waits on it */
};

enum box_state {
    BOX_STARTING, /* owned by the thread in box_start() */
    BOX_RUNNING,
    BOX_DEAD,    /* first process ended; everything else may still be there */
    BOX_ENDING,  /* owned by the thread in box_kill() or box_stop() */
    BOX_STOPPED, /* nothing but its record and its writable layer */
};

struct box {
    char id[ID_SIZE];
    uint32_t slot; /* 0 = none: stopped, or only leftovers with its name */
    enum box_state state;
    bool busy; /* between boxes_hold() and boxes_release(): it stays until then */
    pid_t pid;
    int pidfd;                   /* -1 when there is no process */
    int netns_fd;                /* -1 likewise */
    bool child;                  /* ours to reap */
    uint32_t fuse[BOX_FUSE_MAX]; /* its connections; 0 = none, or not known */
    enum box_end end;            /* BOX_DEAD: why, as far as it is known */
    /* Processes inside that were ended for want of memory, as of the last look and the one before: its
     * first process was one of them only if there are more when it ends. */
    uint64_t oom_kills, oom_kills_before;
    uint32_t layer_count, volume_count;
    char layers[BOX_LAYERS_MAX][LAYER_NAME_SIZE];
    char volumes[BOX_VOLUMES_MAX][LAYER_NAME_SIZE];
};

/* ---- box_table.c: which boxes there are ---- */

/* Finds what an earlier warden left: living boxes are adopted, others listed as dead. */
int boxes_recover(struct boxes *all, struct error *err);
/* Forgets them all; those that run go on. */
void boxes_done(struct boxes *all);
/* Entry in BOX_STARTING with a slot. Without keep_disk a new one, ERROR_EXISTS when the id is known;
 * with it, of a stopped box, ERROR_NOT_FOUND when there is none. */
int boxes_add(struct boxes *all, const struct box_spec *spec, struct box **out, struct error *err);
/* The box moves to BOX_ENDING and belongs to the caller; NULL in *out when unknown. Somebody else
 * starting or ending it is ERROR_CONFLICT. */
int boxes_take(struct boxes *all, const char *id, struct box **out, struct error *err);
/* For work on a box that takes time: waits for its turn; nobody else gets it, and nothing of it but
 * its processes goes, until boxes_release(). Must be running, or (any) also dead or stopped. */
int boxes_hold(struct boxes *all, const char *id, bool any, struct box **out, struct error *err);
void boxes_release(struct boxes *all, struct box *box);
/* In BOX_ENDING: waits until nobody holds it. */
int boxes_wait_idle(struct boxes *all, struct box *box, struct error *err);
/* Forgets a box and frees its slot. */
void boxes_remove(struct boxes *all, struct box *box);
void boxes_set_running(struct boxes *all, struct box *box);
void boxes_set_dead(struct boxes *all, struct box *box);
/* Frees its slot. */
void boxes_set_stopped(struct boxes *all, struct box *box);
/* Does any box, running or not, name it? */
bool boxes_use_layer(struct boxes *all, const char *layer);
/* Does a box that may have processes name it? */
bool boxes_use_volume(struct boxes *all, const char *volume);
bool boxes_in_state(struct boxes *all, const char *id, enum box_state state);
/* Entries from offset on; returns how many were written. */
size_t boxes_list(struct boxes *all, size_t offset, struct box_info *out, size_t max);
/* The first process of a slot's box ended: fills *out; false when nobody needs to know. */
bool boxes_exited(struct boxes *all, uint32_t slot, struct engine_event *out);
/* Now and then, so that boxes_exited() can tell an end for want of memory from one long after it. */
void boxes_look_for_oom(struct boxes *all, const char *id);
size_t boxes_count(struct boxes *all);
/* Those that may have something besides files. */
size_t boxes_count_live(struct boxes *all);

/* ---- box_record.c: what survives the warden ---- */

int box_record_write(const struct boxes *all, const struct box *box, struct error *err);
/* From now on it is a stopped box's. */
int box_record_stop(const struct boxes *all, const struct box *box, struct error *err);
/* Reads a record, and opens its process when that still lives: BOX_RUNNING, BOX_STOPPED or BOX_DEAD. */
enum box_state box_record_read(const struct boxes *all, struct box *box);
/* Blocks for records when others filled the disk. Call it now and then, while there is space. */
void box_spare_fill(struct boxes *all);
/* The mark of a box that stands still for a snapshot, so that a restarted warden lets it go on. */
int box_record_still(const struct boxes *all, const char *id, bool still, struct error *err);
bool box_record_is_still(const struct boxes *all, const char *id);

/* ---- box_start.c, box_down.c ---- */

/* Tests: the n-th step of the next operation fails; 0 = none. Returns through box_fault(). */
extern _Thread_local int box_fault_at;
/* The step does not fail, but ends this process, as kill -9 would. */
extern _Thread_local bool box_fault_crash;
enum { BOX_FAULT_STATUS = 99 };
/* Every fallible step asks first. */
int box_fault(const char *step, struct error *err);

int box_start(struct boxes *all, const struct box_spec *spec, struct box_info *out,
              struct error *err);
int box_kill(struct boxes *all, const char *id, struct error *err);
/* Ends everything but record and writable layer, and brings that to disk. When only the latter fails,
 * the box is stopped nevertheless. */
int box_stop(struct boxes *all, const char *id, struct error *err);
/* Without the last part of it: what was written may not be on disk. */
int box_end_but_disk(struct boxes *all, const char *id, struct error *err);
/* The ways down, for any half-built box in BOX_STARTING or BOX_ENDING: idempotent, go on after a
 * failure, report the first; the box is dead then. */
int box_teardown(struct boxes *all, struct box *box, struct error *err);
int box_teardown_but_disk(struct boxes *all, struct box *box, struct error *err);

/* ---- box_ops.c: on a box that is there ---- */

int box_limit(struct boxes *all, const char *id, const struct box_limits *limits, bool internet,
              struct error *err);
/* Returns when all of it stands still, and what it wrote is on disk. */
int box_freeze(struct boxes *all, const char *id, bool frozen, struct error *err);
int box_space(struct boxes *all, struct engine_space *out, struct error *err);
int box_usage(struct boxes *all, const char *id, struct box_usage *out, struct error *err);

/* ---- box_dial.c ---- */

/* Non-blocking TCP socket inside the box, connecting to its loopback. */
int box_dial(struct boxes *all, const char *id, uint16_t port, bool v6, int *out_fd,
             struct error *err);

/* ---- box_layer.c: layers and volumes ---- */

int box_snapshot(struct boxes *all, const char *id, const char *layer, struct layer_info *out,
                 struct error *err);
/* The writable layer of a new box as a copy of another's. */
int box_copy_disk(struct boxes *all, const struct box_spec *spec, int *out_dir_fd,
                  struct error *err);
/* Lets go on what a warden that was killed left standing still. */
void box_snapshot_recover(struct boxes *all, const char *id);
int box_layer_delete(struct boxes *all, const char *layer, struct error *err);
/* Those whose names come after `after`, in order; returns how many were written, or -1. */
int box_layer_list(struct boxes *all, const char *after, struct layer_info *out, size_t max,
                   struct error *err);
int box_volume_create(struct boxes *all, const char *name, uint64_t limit_bytes, struct error *err);
int box_volume_delete(struct boxes *all, const char *name, struct error *err);

/* ---- box_mounts.c: done by the warden, before the child runs on ---- */

/* A spec's layers are first those in DATA/layers, which are stacked, then snapshots, of which only
 * the last counts: it holds all that was in those before it (host/disk/disk.h). *out_top: its name, NULL
 * when there is none. */
int box_layers_check(const struct boxes *all, const struct box_spec *spec, const char **out_top,
                     struct error *err);
/* For whom a root is made: namespaces of its first process (mntns_fd only where layers must be
 * attached), its writable layer. */
struct box_place {
    uint32_t slot;
    int userns_fd, mntns_fd, disk_fd;
};
/* Root file system as a detached mount, ids mapped through the child's user namespace. */
int box_mount_root(const struct boxes *all, const struct box_spec *spec,
                   const struct box_place *place, int *out_mount_fd, struct error *err);
/* A volume's directory likewise. */
int box_mount_volume(const struct boxes *all, const char *name, int userns_fd, int *out_mount_fd,
                     struct error *err);
int box_make_dev_tree(int *out_fd, struct error *err);
/* A box's /dev as a detached mount. */
int box_mount_dev(const struct boxes *all, int *out_mount_fd, struct error *err);

/* ---- box_overlay.c ---- */

struct box_overlay {
    const int *lowers; /* detached mounts, the lowest first */
    size_t lower_count;
    int box_fd;            /* detached mount of the writable layer, -1 = none */
    int upper_fd, work_fd; /* directories in it */
    uid_t base;            /* host id of root inside */
    int mntns_fd;          /* where layers are attached, if they must be */
};
/* Detached mount. */
int box_overlay_make(const struct box_overlay *overlay, bool attached, int *out_mount_fd,
                     struct error *err);
/* A detached copy of a directory's mount, with ids mapped and more MOUNT_ATTR_*. */
int box_overlay_map(int dir_fd, const char *path, int userns_fd, uint64_t attrs, int *out_tree_fd,
                    struct error *err);
struct box_probe {
    int layers_fd;
    const char *layer; /* a directory in it */
    int other_fd;      /* any directory that neither holds nor lies in that one */
};
/* Finds out what this kernel can do: whether layers must be attached, or what is missing. */
int box_overlay_probe(const struct box_probe *probe, bool *out_attach, struct error *err);

/* ---- box_namespace.c ---- */

struct clone_args;
/* clone3() with a new user namespace that belongs to the host user `base`. In the child that is still its
 * effective user. */
pid_t box_namespace_clone(struct clone_args *args, uid_t base, struct error *err);
int box_namespace_open(pid_t pid, const char *kind, struct error *err);
/* 65536 ids of the process's new user namespace, from `base` on. */
int box_namespace_map(pid_t pid, uid_t base, struct error *err);
/* This thread in another mount namespace for a while; no way back ends the process. */
struct box_visit {
    int home_fd, root_fd, cwd_fd;
};
int box_namespace_visit(int mntns_fd, struct box_visit *out, struct error *err);
void box_namespace_leave(struct box_visit *visit);

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
enum { BOX_DOORS = 3 };
/* The v1 hierarchies that hold limits, each as a file that takes in the thread that writes "0" to it;
 * where there is none (pure v2) the descriptor is left as it was. */
int box_cgroup_doors(struct box_cgroups *cgroups, const char *id, int out_fds[BOX_DOORS],
                     struct error *err);
/* SIGKILL to all, frozen or not. Missing is fine. */
int box_cgroup_kill(struct box_cgroups *cgroups, const char *id, struct error *err);
/* For those that were killed and are still inside the kernel: what they wait for or work on is taken away. */
void box_cgroup_hurry(struct box_cgroups *cgroups, const char *id);
/* Frozen: returns when all processes stand still. When they do not in time, lets them go on:
 * ERROR_TIMEOUT. */
int box_cgroup_freeze(struct box_cgroups *cgroups, const char *id, bool frozen, struct error *err);
/* Was it told to freeze? */
bool box_cgroup_frozen(struct box_cgroups *cgroups, const char *id);
/* All but disk_bytes. */
int box_cgroup_usage(struct box_cgroups *cgroups, const char *id, struct box_usage *out,
                     struct error *err);
int box_cgroup_remove(struct box_cgroups *cgroups, const char *id, struct error *err);
/* How many processes in it the kernel killed for lack of memory. */
uint64_t box_cgroup_oom_kills(struct box_cgroups *cgroups, const char *id);
/* Is this process in the box's cgroup? */
bool box_cgroup_holds(struct box_cgroups *cgroups, const char *id, pid_t pid);
/* Calls fn for each box directory found. */
void box_cgroup_each(struct box_cgroups *cgroups, void (*fn)(const char *id, void *arg), void *arg);
/* What the child mounts read-only at /sys/fs/cgroup: 2 for one v2 tree, 1 for v1 controllers. */
int box_cgroup_version(const struct box_cgroups *cgroups);

/* ---- box_seccomp.c ---- */

/* Compiles the filter into a memfd of struct sock_filter. */
int box_seccomp_compile(int *out_fd, struct error *err);
/* For good, in a thread that starts boxes: leaves their guests a few thousand instructions for filters. */
int box_seccomp_fill(struct error *err);
/* In the child: a second filter, for a box with volumes. -1 with errno. */
int box_seccomp_refuse_clones(void);
/* Bit set of the capabilities a sandbox's root keeps. */
uint64_t box_capabilities(void);

/* ---- box_child.c: runs in the new namespaces; no allocation, no locks, only system calls ---- */

enum { BOX_FILTER_MAX = 1024 }; /* instructions */

struct box_child {
    int channel;          /* socket to the warden */
    int listen_fd;        /* envd's socket */
    int envd_fd;          /* envd's program */
    int device_fd;        /* directory with the node `fuse` */
    int doors[BOX_DOORS]; /* of its v1 cgroups, or -1 */
    int cgroup_version;
    uint64_t mem_bytes;
    uint32_t pids_max;
    uint32_t cpu_count;
    uint32_t cpu_first; /* first of the processors it runs on */
    long host_cpus;
    const char *cpuinfo; /* the host's, or NULL */
    uint64_t capabilities;
    const char *resolv_conf;
    const void *filter; /* struct sock_filter[filter_len] */
    size_t filter_len;
    const struct box_volume *volumes; /* where they go; the mounts come after the others */
    size_t volume_count;
};

/* Sent by the child when it is about to exec (errnum 0) or when a step failed. */
struct box_child_report {
    int32_t errnum;
    uint32_t fuse[BOX_FUSE_MAX]; /* its connections */
    char step[60];
};

/* box_cpus.c: whether it may run on all of the host's, on that one; the files /sys/devices/system/cpu/online and
 * /proc/cpuinfo as it should see them (0 or -errno). */
bool box_cpus_all(const struct box_child *child);
bool box_cpus_has(const struct box_child *child, uint64_t cpu);
int box_cpus_write_list(const struct box_child *child, int fd);
int box_cpus_write_info(const struct box_child *child, int fd);

/* The warden's word to go on carries two descriptors: root mount, /dev tree. Then one message for each
 * volume, with its mount. */
struct box_child_go {
    char group[DISK_GROUP_SIZE]; /* its disk's */
};
_Noreturn void box_child_run(const struct box_child *child);
