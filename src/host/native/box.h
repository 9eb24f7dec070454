/* A box: one native sandbox as the host sees it. Namespaces, an overlay root on a writable layer of
 * its own, cgroups, a network slot, a listening socket for its envd.
 *
 * Everything a box leaves on the host has a name made of its id or its slot number, so that leftovers
 * are found after a crash without any other record:
 *   RUN/<id>.box     record: slot, boot, pid and start time of its first process, layers, volumes, engine, cgroup
 *   RUN/spare        blocks for records, should the disk be full
 *   RUN/<id>.still   there while a snapshot makes it stand still
 *   RUN/<id>.sock    envd's listening socket
 *   pool/boxes/<id>  writable layer (disk/)
 *   cgroups          quicksand-<instance>/<id> in every hierarchy; of one that went on from its files in a blank box: the
 *                    blank one's id, since the kernel renames no cgroup
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
#include "host/engine/box_engine.h"
#include "host/native/box_fuse.h"

struct network;
struct trees;

enum {
    /* Host user ids: slot n owns the 65536 ids from BOX_UID_FIRST + n * 65536. */
    BOX_IDS_PER_SLOT = 65536,
    BOX_SLOT_COUNT = 16384, /* slot 0 is never used */
};
#define BOX_UID_FIRST 0x40000000u

struct box_cgroups; /* box_cgroup.c */

/* The native engine: what all of its boxes share; made once at start. */
struct boxes {
    struct box_engine
        engine; /* event_fd: epoll of the pidfds of running boxes, data.u32 is the slot */
    int run_fd, layers_fd; /* directories */
    int feeds_fd;          /* the server's, with one directory for each box that has a feed */
    const char *run_dir;
    uid_t server_uid; /* owner of the envds' sockets */
    struct disk *disk;
    struct trees *trees;
    struct network *network;
    struct box_cgroups *cgroups;
    int envd_fd;        /* sealed memfd with envd's program */
    int dev_tree_fd;    /* detached read-only tmpfs: `dev`, cloned per box, and `fuse` */
    int seccomp_fd;     /* memfd with the compiled filter */
    int fuse_fd;        /* the host's FUSE connections (box_fuse.h) */
    int seed_fd;        /* mount namespace that boxes begin in (box_seed.c); -1 = the host's */
    bool attach_layers; /* this kernel wants layers mounted somewhere (box_overlay.c) */
    char boot_id[40];
    long host_cpus;
    char *cpuinfo;         /* of the host, as it was at the start; or NULL */
    char resolv_conf[256]; /* text of /etc/resolv.conf inside */

    pthread_mutex_t lock; /* guards table, slots, next_slot and the fields of struct box below */
    pthread_cond_t idle;  /* some box is no longer busy */
    struct map table;     /* id -> struct box */
    struct box *slots[BOX_SLOT_COUNT];
    uint32_t next_slot;
    bool recovered; /* all that are there are in the table */
    /* A volume is either opened for a box that is in the table, or deleted while none uses it. Shared by all
     * engines. */
    pthread_mutex_t *volume_lock;
};

/* ---- native.c ---- */

struct native_config {
    const char *instance;
    const char *const *resolvers;
    size_t resolver_count;
    bool going_down; /* boxes are only ended: what new ones begin with is not made */
};

void native_init(struct boxes *all);
/* What boxes share, but for the directories, envd, disk and network: those are the caller's. */
int native_open(struct boxes *all, const struct native_config *config, struct error *err);
/* remove: nothing runs any more, take the cgroups away too. Closes the directories and envd. */
void native_close(struct boxes *all, bool remove);

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
    int pidfd;                /* -1 when there is no process */
    int netns_fd;             /* -1 likewise */
    int claim_fd;             /* of a blank one: where its envd waits for box_claim(); or -1 */
    struct box_limits limits; /* of a blank one */
    bool refuses_clones;      /* a blank one, with the filter that volumes and trees need */
    bool child;               /* ours to reap */
    char cgroup[ID_SIZE];     /* its name: the id, or that of the blank box that it was made of */
    uint32_t fuse[BOX_FUSE_MAX]; /* its connections; 0 = none, or not known */
    enum box_end end;            /* BOX_DEAD: why, as far as it is known */
    /* Processes inside that were ended for want of memory, as of the last look and the one before: its
     * first process was one of them only if there are more when it ends. */
    uint64_t oom_kills, oom_kills_before;
    uint32_t layer_count, volume_count;
    char layers[BOX_LAYERS_MAX][LAYER_NAME_SIZE];
    char volumes[BOX_VOLUMES_MAX][LAYER_NAME_SIZE];
    char fill[LAYER_NAME_SIZE]; /* the tree it fills; "" = none */
};

/* ---- box_table.c: which boxes there are ---- */

/* Finds what an earlier warden left: living boxes are adopted, others listed as dead. */
int boxes_recover(struct boxes *all, struct error *err);
/* A descriptor that is kept as long as a box gets a high number, so that the low ones are free for what passes: a new first
 * process takes a copy of those only (box_child.c). */
int box_keep_fd(int fd);
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
/* A blank box moves to BOX_STARTING and belongs to the caller, with the names of the spec. With keep_disk it is the stopped
 * box of the spec's id that does, with the process, slot and cgroup of the blank one, which is gone from the table;
 * what is on the host by the blank one's name goes by box_forget_blank(). */
int boxes_claim(struct boxes *all, const struct box_spec *spec, struct box **out,
                struct error *err);
void boxes_set_running(struct boxes *all, struct box *box);
void boxes_set_dead(struct boxes *all, struct box *box);
/* Frees its slot. */
void boxes_set_stopped(struct boxes *all, struct box *box);
/* Does any box, running or not, name it, or fill it? */
bool boxes_use_layer(struct boxes *all, const char *layer);
/* Who fills it, or any tree (NULL); false when nobody does. */
bool boxes_find_filler(struct boxes *all, const char *layer, char out_id[ID_SIZE]);
/* After boxes_recover(): those that an earlier warden let fill trees, for a server that went with it. */
void boxes_end_fillers(struct boxes *all);
/* Does a box that may have processes name it? */
bool boxes_use_volume(struct boxes *all, const char *volume);
/* In any state. */
bool boxes_has(struct boxes *all, const char *id);
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
/* Reads a record, and opens its process when that still lives: the state is BOX_RUNNING, BOX_STOPPED or BOX_DEAD.
 * False when it is the record of another engine's box. */
bool box_record_read(const struct boxes *all, struct box *box);
/* Blocks for records when others filled the disk. Call it now and then, while there is space. */
void box_spare_fill(struct boxes *all);
/* The mark of a box that stands still for a snapshot, so that a restarted warden lets it go on. */
int box_record_still(const struct boxes *all, const char *id, bool still, struct error *err);
bool box_record_is_still(const struct boxes *all, const char *id);

/* ---- box_start.c, box_claim.c, box_down.c ---- */

/* Tests: the n-th step of the next operation fails; 0 = none. Returns through box_fault(). */
extern _Thread_local int box_fault_at;
/* The step does not fail, but ends this process, as kill -9 would. */
extern _Thread_local bool box_fault_crash;
enum { BOX_FAULT_STATUS = 99 };
/* Every fallible step asks first. */
int box_fault(const char *step, struct error *err);

int box_start(struct boxes *all, const struct box_spec *spec, struct box_info *out,
              struct error *err);
/* Before a box goes on from its files: a dead one is stopped, and somebody who copies its disk just now is waited for. */
int box_make_ready(struct boxes *all, const char *id, struct error *err);
/* Makes a blank box what the spec says. On failure nothing is left of it, and what keeps its disk is stopped as before. */
int box_claim(struct boxes *all, const struct box_spec *spec, struct box_info *out,
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
/* Of the blank box that it was made of: disk, files and record. Idempotent; nothing where that had its own id. */
int box_forget_blank(struct boxes *all, struct box *box, struct error *err);

/* ---- box_ops.c: on a box that is there ---- */

int box_limit(struct boxes *all, const char *id, const struct box_limits *limits,
              struct error *err);
int box_network(struct boxes *all, const char *id, const struct box_network *network,
                struct error *err);
/* Returns when all of it stands still, and what it wrote is on disk. */
int box_freeze(struct boxes *all, const char *id, bool frozen, struct error *err);
int box_usage(struct boxes *all, const char *id, struct box_usage *out, struct error *err);

/* ---- box_dial.c ---- */

/* Non-blocking TCP socket inside the box, connecting to its loopback. */
int box_dial(struct boxes *all, const char *id, uint16_t port, enum engine_dial_kind kind,
             int *out_fd, struct error *err);
/* A file of /proc/net ("tcp"), as the box's network namespace shows it. */
int box_open_net(struct boxes *all, const char *id, const char *name, int *out_fd,
                 struct error *err);

/* ---- box_ports.c ---- */

int box_ports(struct boxes *all, const char *id, struct box_ports *out, struct error *err);
/* Adds the listening sockets of text: the beginning of /proc/net/tcp or tcp6. */
void box_ports_read(struct str text, struct box_ports *out);

/* ---- box_layer.c: snapshots and copies ---- */

int box_snapshot(struct boxes *all, const char *id, const char *layer, struct layer_info *out,
                 struct error *err);
/* The writable layer of a new box as a copy of another's. */
int box_copy_disk(struct boxes *all, const struct box_spec *spec, int *out_dir_fd,
                  struct error *err);
/* Lets go on what a warden that was killed left standing still. */
void box_snapshot_recover(struct boxes *all, const struct box *box);

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
    int fill_fd; /* the tree that it fills */
};
/* Root file system as a detached mount, ids mapped through the child's user namespace. */
int box_mount_root(const struct boxes *all, const struct box_spec *spec,
                   const struct box_place *place, int *out_mount_fd, struct error *err);
/* A volume's directory likewise. */
int box_mount_volume(const struct boxes *all, const char *name, int userns_fd, int *out_mount_fd,
                     struct error *err);
/* What the server left for this box in DATA/feeds, read-only. */
int box_mount_feed(const struct boxes *all, const char *id, int userns_fd, int *out_mount_fd,
                   struct error *err);
/* The tree that a box fills. */
int box_mount_fill(int tree_fd, int userns_fd, int *out_mount_fd, struct error *err);
/* The writable layer that a spec asks for. top_layer: of box_layers_check(). out_raised: as in disk_box_reopen(). */
int box_make_disk(struct boxes *all, const struct box_spec *spec, const char *top_layer,
                  int *out_fd, bool *out_raised, struct error *err);

/* ---- box_places.c ---- */

/* Where volumes, feed and tree go, in the order in which they are mounted. */
struct box_places {
    struct box_volume at[BOX_VOLUMES_MAX + 2];
    size_t count;
};
void box_places_choose(const struct box_spec *spec, struct box_places *out);
/* Begins the tree that it is to fill, if there is one. */
int box_places_fill(const struct boxes *all, const struct box_spec *spec, int *out_fd,
                    struct error *err);
/* One of them, as a detached mount. */
int box_places_mount(const struct boxes *all, const struct box_spec *spec, size_t place,
                     const struct box_place *of, int *out_fd, struct error *err);

int box_make_dev_tree(int *out_fd, struct error *err);
/* The root of a blank box: directories to mount on, nothing else. */
int box_mount_blank(const struct boxes *all, int *out_mount_fd, struct error *err);
/* A box's /dev as a detached mount; and a directory with those where v1 cgroups are mounted. */
int box_mount_dev(const struct boxes *all, int *out_mount_fd, struct error *err);
int box_mount_cgroup(const struct boxes *all, int *out_mount_fd, struct error *err);
/* The box's directories of the host's own mounts, read-only: of v2, or of v1 memory and cpu and of v2 beside them. A mount of its own
 * namespace would be a file system more, and each costs memory for every cgroup of the host. It looks the same, since
 * the kernel tells the way to it from the root of the reader's namespace. */
enum { BOX_CGROUP_TREES = 3 };
int box_mount_cgroup_trees(const struct boxes *all, const char *id, int out_fds[BOX_CGROUP_TREES],
                           size_t *out_count, struct error *err);

/* ---- box_inside.c: done by the warden, in the mount namespace of a blank box ---- */

struct box_move {
    const struct boxes *all;
    const struct box *box; /* with the limits it has */
    const struct box_spec *spec;
    int mntns_fd, root_fd;
    const struct box_places *places;
    const int *place_fds; /* a detached mount for each */
};
/* Lets the box have another root: all of its mounts and processes move there, the blank one is out of reach. Then come
 * volumes, feed and tree, sizes and processors. */
int box_inside_move(const struct box_move *to, struct error *err);

/* ---- box_seed.c ---- */

int box_seed_open(const struct boxes *all, int *out_fd, struct error *err);
/* Do boxes begin there? */
bool box_seeded(const struct boxes *all);
struct clone_args;
/* box_namespace_clone(), from there. */
pid_t box_seed_clone(const struct boxes *all, struct clone_args *args, uid_t base,
                     struct error *err);

/* ---- box_close.c ---- */

/* By another thread, soon. -1 is none. */
void box_close_later(int fd);
/* Likewise, of the root of a box that ended, with others of those. */
void box_close_root(int fd);
/* Until that has closed all. */
void box_close_wait(void);

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
/* This thread with the file system ids of a box's root, so that what it makes is that root's. Capabilities
 * stay. */
int box_ids_enter(uid_t base, struct error *err);
void box_ids_leave(void);
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
/* Every thread in it, dying ones too; none of cgroups within. */
void box_cgroup_each_task(struct box_cgroups *cgroups, const char *id,
                          void (*fn)(pid_t task, void *arg), void *arg);
void box_cgroup_each(struct box_cgroups *cgroups, void (*fn)(const char *id, void *arg), void *arg);
/* Beneath each hierarchy. */
void box_cgroup_path(const struct box_cgroups *cgroups, const char *id, char *out, size_t size);
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
    bool seeded; /* there is nothing of the host around it */
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
    bool refuse_clones;
    bool blank; /* envd gets the channel, for box_claim() */
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

/* The warden's word to go on carries three descriptors: root mount, /dev tree, that of v1 cgroups. Then come a message with the
 * cgroups' directories, and one for each volume, with its mount. */
struct box_child_go {
    char group[DISK_GROUP_SIZE]; /* its disk's; in a blank box: of all disks */
};
struct rlimit;
/* How many processes a box may have: limit is what this process may have. */
void box_processes_limit(uint64_t mem_bytes, uint64_t pids_max, struct rlimit *limit);
_Noreturn void box_child_run(const struct box_child *child);
