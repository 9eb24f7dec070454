/* FilesystemEvent messages, and what all watchers of envd share. */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/list.h"
#include "base/map.h"
#include "envd/core/users.h"
#include "envd/watch/watch.h"

enum {
    WATCHERS_MAX = 64,                 /* both kinds; the kernel allows 128 by default, to all */
    WATCH_QUEUE_MAX = 8 * 1024 * 1024, /* bytes of messages nobody has taken yet, per watcher */
    WATCH_IDLE_MS = 10 * 60 * 1000,    /* then a polled one may be removed to make room */
    WATCH_EVENT_MAX = 64 * 1024,
};

struct watchers {
    struct map polled; /* id -> struct watch_poll */
    size_t count;
};

/* What a client asked to watch. */
struct watch_request {
    char path[PATH_MAX]; /* resolved for the user */
    bool recursive, include_entry, allow_network;
};

/* Makes messages for one watcher. */
struct watch_view {
    char path[PATH_MAX];
    bool include_entry;
    struct user_names names; /* re-read when older than a second */
    int64_t names_at_ms;
    struct buf entry;
};

void watch_view_init(struct watch_view *view, const struct watch_request *request);
void watch_view_done(struct watch_view *view);
/* Appends {"name":...,"type":...,"entry":...}. Removed and renamed ones have no entry, nor those
 * that are gone already. */
void watch_view_add(struct watch_view *view, struct buf *out, enum watch_op op, const char *name);
