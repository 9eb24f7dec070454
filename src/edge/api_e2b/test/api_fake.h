/* A domain for the tests of this folder: one team ("team-1", key "e2b_00aa"), sandboxes in memory. */
#pragma once

#include <stddef.h>

#include "base/error.h"
#include "domain/build/build.h"
#include "domain/sandbox/sandbox.h"
#include "domain/sandbox/sandbox_history.h"

#define API_FAKE_KEY "e2b_00aa"
/* Of template "mine": …1 is ready, …2 as it is said below. */
#define API_FAKE_BUILD "00000000-0000-4000-8000-00000000000"

struct api_fake {
    struct error fail; /* the next call of the domain fails with this, when code is set */
    size_t kills;
    size_t begun;   /* creates that have begun */
    bool held;      /* creates wait as long as it is set */
    bool waits;     /* a create and a resume have to wait for programs of the template */
    size_t creates; /* calls that got through to the domain */
    bool secure, internet, internet_given, is_private;
    char ingress[INGRESS_TEXT_SIZE];
    char network[256];
    char template_name[64];
    int64_t timeout_s;            /* of the last create, timeout or extend */
    size_t sandboxes;             /* how many there are; ids i0000000000000000000, i...01, ... */
    struct sandbox_filter filter; /* of the last list (its strings are gone) */
    bool paused;                  /* all of them */
    bool auto_pause, auto_pause_disk, auto_resume; /* of the last create */
    struct sandbox_resume resume;                  /* of the last resume or connect */
    struct sandbox_pause pause;                    /* of the last pause */
    char snapshot_name[64];                        /* of the last snapshot; "" = none */
    struct snapshot_filter snapshots;              /* of the last list (its strings are gone) */
    bool snapshot_deleted;
    struct event_filter events; /* of the last list (its strings are gone) */
    char event_type[32];        /* the first of its types */
    char idempotency_key[32];   /* of the last create */
    size_t finds;               /* of API keys, in memory or the store */
    size_t audited;
    size_t volume_count;       /* of the last create */
    bool has_volume;           /* there is one, "v1" */
    int64_t from_us, until_us; /* of the last metrics */
    enum store_build_state build_state;
    int64_t cpu_count, mem_mb, disk_mb; /* of the last build */
    size_t tag_count;                   /* of the last build, assignment or removal */
    char tag[32], recipe[128], password[32], file_team[64];
    int hosts; /* of the last secret; -1: not given */
    char metadata[64];
    char changed[32];            /* name of the last secret that sandboxes were told of */
    struct build_log_query logs; /* of the last look (its strings are gone) */
    int64_t file_length;         /* of the last upload */
    bool made_public, template_deleted, banned;
};
extern struct api_fake api_fake;

void api_fake_id(size_t n, char out[ID_SIZE]);
