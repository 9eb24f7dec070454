/* Request and response bodies, and the checks that need nothing but the body. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/str.h"
#include "domain/sandbox/sandbox.h"

enum api_generation { API_V1, API_V2 };

/* POST /sandboxes and /v2/sandboxes. The raw options at the end are only looked at to refuse what
 * would otherwise be ignored. */
struct api_new_sandbox {
    struct str template_id;
    int64_t timeout_s;
    int64_t cpu_count, mem_mb, disk_mb; /* ours: 0 = the template's */
    bool internet, internet_given;
    const struct network_policy
        *policy; /* of network, with its say in internet; NULL = all or nothing */
    bool secure;
    bool is_private; /* its ports need a token */
    struct ingress ingress;
    struct pair *pairs, *env; /* of metadata and env_vars */
    size_t pair_count, env_count;
    bool auto_pause;
    bool auto_pause_memory;
    bool resumes; /* from auto_resume */
    struct volume_mount volumes[SANDBOX_VOLUMES_MAX];
    size_t volume_count; /* from volume_mounts */
    json_t *metadata, *env_vars, *auto_resume, *network, *volume_mounts, *iam, *mcp;
};

/* Reads; what a sandbox may be is checked by the domain. *out_tree keeps the strings alive. */
int api_types_new_sandbox(struct str body, enum api_generation generation, struct arena *arena,
                          struct api_new_sandbox *out, json_t **out_tree, struct error *err);
/* ERROR_INVALID when the member `name` is neither an object of strings nor missing. */
int api_types_check_strings(const json_t *object, const char *name, struct error *err);
/* Adds, or replaces what has that name. */
void api_types_pair(struct pair *pairs, size_t *count, struct str name, struct str value);

/* {"timeout": n}: required when fallback < 0, else the fallback stands for an absent body, too. */
int api_types_timeout(struct str body, int64_t fallback_s, int64_t *out_s, struct error *err);
/* {"timeout": n, "memory": false, "autoPause": bool}; timeout as above. */
int api_types_resume(struct str body, int64_t fallback_s, struct sandbox_resume *out,
                     struct error *err);
/* {"memory": bool}; absent: true. */
int api_types_pause(struct str body, bool *out_memory, struct error *err);
/* {"duration": n}, 0..3600; absent: 15. */
int api_types_refresh(struct str body, int64_t *out_s, struct error *err);

/* The members of "network" about the way in, beside the others; secure is read already. (api_ingress.c) */
bool api_ingress_has(const char *name);
int api_ingress_read(const json_t *network, struct api_new_sandbox *body, struct error *err);
void api_ingress_write(const struct sandbox_view *view, json_t *network);

/* Answers; new references. */
/* domain: told when the view has none. */
json_t *api_types_sandbox(const struct sandbox_view *view, struct str domain); /* create, connect */
json_t *api_types_sandbox_detail(const struct sandbox_view *view, struct str domain); /* GET one */
json_t *api_types_sandbox_listed(const struct sandbox_view *view);                    /* in lists */
