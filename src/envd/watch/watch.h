/* Watching a directory, or a whole tree, for changes. */
#pragma once

#include <stdbool.h>

#include "base/error.h"
#include "protocol/loop/loop.h"

enum watch_op { WATCH_CREATE, WATCH_RENAME, WATCH_CHMOD, WATCH_WRITE, WATCH_REMOVE };

struct watch_config {
    const char *path; /* absolute; copied */
    bool recursive;
    bool allow_network;          /* also where changes made elsewhere cannot be seen */
    void (*on_ready)(void *arg); /* once: from now on every change is reported */
    /* name is relative to the directory, "." for itself. */
    void (*on_event)(void *arg, enum watch_op op, const char *name);
    /* Something was missed, or no more can be watched: nothing is reported any more. */
    void (*on_failed)(void *arg, const struct error *err);
    void *arg;
};

struct watch;

/* NULL with err: ERROR_NOT_FOUND, ERROR_INVALID for anything that is not a directory. */
struct watch *watch_new(struct loop *loop, const struct watch_config *config, struct error *err);
/* Reports now what happened until now: at least as much as fits into a few turns of the loop. */
void watch_catch_up(struct watch *watch);
/* May be called from a callback. */
void watch_free(struct watch *watch);
