/* Shared by the files of trees, and by disk_small.c for its copies. */
#pragma once

#include <pthread.h>

#include "base/list.h"
#include "host/disk/tree.h"
#include "host/disk/tree_walk.h"

enum {
    TREE_NAME_SIZE = 64,        /* of an entry of DATA/layers */
    TREE_LOOK_BYTES = 64 << 20, /* a copy looks at the host's free space so often */
};

#define TREE_NEW   ".new-"
#define TREE_LINKS ".links-"
#define TREE_OLD   ".old-"

/* One that a box fills (tree_watch.c). */
struct tree_fill {
    struct list link;
    char name[TREE_NAME_SIZE];
    uint64_t limit;
    bool over; /* it had to end */
    /* as of the last look at all of it */
    uint64_t bytes, host_free;
    int64_t look_at_ms;   /* not before */
    int64_t unused_at_ms; /* no box has had it since; 0 = one has */
};

struct trees {
    int layers_fd;
    bool stop;            /* atomic */
    bool has_old;         /* there is something to remove; atomic */
    pthread_mutex_t lock; /* guards what follows */
    struct list fills;
    uint64_t last_old;
};

static inline bool trees_stopped(const struct trees *trees)
{
    return __atomic_load_n(&trees->stop, __ATOMIC_RELAXED);
}

/* ---- tree_copy.c ---- */

struct tree_copying {
    const struct trees *trees; /* may stop it, and want some space left on the host; or NULL */
    int root_fd;               /* an empty directory */
    int links_fd;              /* another: files with several names; for exact ones nothing */
    bool exact; /* with all that the overlay noted; ERROR_UNSUPPORTED for what would get lost */
    uint64_t entries_max; /* as in a walk */
    uint64_t bytes_max;   /* 0 = none; ERROR_LIMIT */
};

/* Does what is no directory have one name only, as exact copies want it? */
bool tree_entry_is_alone(const struct tree_entry *entry);
/* Nobody changes the source meanwhile. What was copied until it failed stays. */
int tree_copy_into(const struct tree_copying *of, int source_fd, struct error *err);

/* ---- tree_stamp.c ---- */

struct tree_stamp {
    struct tree_info info;
    uint64_t digest[2];
};

/* Reads all of it but file contents. */
int tree_stamp_make(const struct trees *trees, int root_fd, struct tree_stamp *out,
                    struct error *err);
/* The same of one that is being filled: not more than a guess. */
int tree_stamp_measure(const struct trees *trees, int root_fd, struct tree_stamp *out,
                       struct error *err);
int tree_stamp_write(int root_fd, const struct tree_stamp *stamp, struct error *err);
/* ERROR_NOT_FOUND when there is none. */
int tree_stamp_read(int root_fd, struct tree_stamp *out, struct error *err);

/* ---- tree_remove.c ---- */

/* Out of the way; removed later. Missing is success. */
int tree_set_aside(struct trees *trees, const char *entry, struct error *err);
void tree_find_old(struct trees *trees);
/* For as long; true when there may be more. */
bool tree_remove_old(struct trees *trees, int budget_ms);

/* ---- tree_watch.c ---- */

/* Is there enough on the host's file system for more trees? */
int tree_check_space(const struct trees *trees, struct error *err);
void tree_watch_add(struct trees *trees, const char *name, uint64_t limit);
/* False when nobody fills it. */
bool tree_watch_take(struct trees *trees, const char *name, struct tree_fill *out);
void tree_watch_tend(struct trees *trees, const struct trees_tending *tending);

/* ---- tree.c ---- */

/* `.new-<name>`, when there is neither that nor the layer. */
int tree_make_new(const struct trees *trees, const char *name, struct error *err);
int tree_open_entry(const struct trees *trees, const char *entry, int *out_fd, struct error *err);
/* All of `.new-<name>` to disk, then a layer of that name. */
int tree_finish(struct trees *trees, const char *name, int root_fd, const struct tree_stamp *stamp,
                struct error *err);
