/* Events and logs of sandboxes, also of those that ended. Kept for a week. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/names.h"
#include "base/str.h"
#include "store/platform/store_event.h"

struct sandboxes;
struct setup;

enum { EVENTS_MAX = 1000 };
#define SANDBOX_EVENT_PREFIX "sandbox.lifecycle."

struct event_filter {
    struct str team_id;
    struct str sandbox_id; /* STR_NONE = all of the team */
    const struct str *types;
    size_t type_count; /* 0 = any */
    int64_t min_level;
    struct str search;         /* in the message; STR_NONE = any */
    int64_t from_us, until_us; /* inclusive; 0 = any */
    bool ascending;
    bool with_envd;       /* and lines of envd, while it runs; not with an offset */
    size_t offset, limit; /* 1..EVENTS_MAX */
};

struct event_page {
    struct store_event *items;
    size_t count;
    struct arena *arena; /* private */
    bool seen;           /* private */
};

/* ERROR_NOT_FOUND when a sandbox is given that the team never had (or long ago). */
int sandbox_events(struct sandboxes *all, const struct event_filter *filter, struct arena *arena,
                   struct event_page *out, struct error *err);

/* An event as clients and webhooks get it. */
json_t *sandbox_event_json(const struct store_event *event);

/* ---- for the domain itself ---- */

/* Why a sandbox ended, or a box of nobody went. */
enum sandbox_end {
    END_KILLED,
    END_TIMEOUT,
    END_CRASHED,
    END_OUT_OF_MEMORY,
    END_HOST_RESTART,
    END_FROM_OUTSIDE,
    END_FILES_LOST,
    END_CREATE_FAILED,
    END_LEFTOVER,
    END_WARM_UNWANTED,
    END_WARM_FAILED,
    END_CONTENT_IDLE,
};
/* As stored and told to clients. */
extern const struct names sandbox_end_names;

bool history_matches(const struct event_filter *filter, const struct store_event *event);
/* sandbox_logs.c: puts the lines of envd into the page. */
void logs_merge(struct sandboxes *all, const struct event_filter *filter, struct arena *arena,
                struct event_page *page);
struct store_event history_created(void);
struct store_event history_paused(bool disk_only);
/* At the end of its time, although its processes were to be kept. */
struct store_event history_paused_cold(void);
/* Its box ended by itself. */
struct store_event history_paused_crashed(enum sandbox_end reason);
struct store_event history_resumed(bool from_disk);
struct store_event history_ended(enum sandbox_end reason);
void history_updated(struct sandboxes *all, struct str id, struct str what);
void history_network(struct sandboxes *all, struct str id, bool internet, bool lists);
void history_snapshot(struct sandboxes *all, struct str id, struct str snapshot_id);
void history_memory_lost(struct sandboxes *all, struct str id);
/* Its start command has no ready command, and listened on no port in time. */
void history_silent(struct sandboxes *all, struct str id, const struct setup *setup);
