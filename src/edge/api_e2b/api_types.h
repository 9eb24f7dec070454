/* Request and response bodies, and the checks that need nothing but the body. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/str.h"
#include "domain/sandbox/sandbox.h"

enum {
    API_METADATA_MAX = 64 * 1024, /* as JSON text */
    API_NAME_MAX = 256,
};

enum api_generation { API_V1, API_V2 };

/* POST /sandboxes and /v2/sandboxes. The raw options at the end are only looked at to refuse what
 * would otherwise be ignored. */
struct api_new_sandbox {
    struct str template_id;
    int64_t timeout_s;
    int64_t cpu_count, mem_mb, disk_mb; /* ours: 0 = the template's */
    bool internet, internet_given;
    bool secure;
    json_t *metadata, *env_vars; /* objects of strings, or NULL */
    bool auto_pause;
    bool auto_pause_memory;
    bool resumes; /* from auto_resume */
    struct volume_mount volumes[SANDBOX_VOLUMES_MAX];
    size_t volume_count; /* from volume_mounts */
    json_t *auto_resume, *network, *volume_mounts, *iam, *mcp;
};

/* Reads and checks. *out_tree keeps the strings alive. */
int api_types_new_sandbox(struct str body, enum api_generation generation, int64_t max_timeout_s,
                          struct api_new_sandbox *out, json_t **out_tree, struct error *err);

/* {"timeout": n}: required when fallback < 0, else the fallback stands for an absent body, too. */
int api_types_timeout(struct str body, int64_t fallback_s, int64_t max_timeout_s, int64_t *out_s,
                      struct error *err);
/* {"timeout": n, "memory": false, "autoPause": bool}; timeout as above. */
int api_types_resume(struct str body, int64_t fallback_s, int64_t max_timeout_s,
                     struct sandbox_resume *out, struct error *err);
/* {"memory": bool}; absent: true. */
int api_types_pause(struct str body, bool *out_memory, struct error *err);
/* {"duration": n}, 0..3600; absent: 15. */
int api_types_refresh(struct str body, int64_t *out_s, struct error *err);

/* In "denyOut": all traffic to the outside. */
#define API_NETWORK_EVERYTHING "0.0.0.0/0"

/* "allowOut" and "denyOut", each an array, null or NULL. *out_deny_all: everything is denied. (api_network.c) */
int api_network_lists(const json_t *allow_out, const json_t *deny_out, bool *out_deny_all,
                      struct error *err);

/* Answers; new references. */
/* domain: told when the view has none. */
json_t *api_types_sandbox(const struct sandbox_view *view, struct str domain); /* create, connect */
json_t *api_types_sandbox_detail(const struct sandbox_view *view, struct str domain); /* GET one */
json_t *api_types_sandbox_listed(const struct sandbox_view *view);                    /* in lists */
