/* Shared by the files of the E2B provider. */
#pragma once

#include <stdatomic.h>

#include "protocol/fetch/rest.h"
#include "provider/envd/envd_machine.h"

struct e2b {
    char *api_url, *key, *domain;
    char *sandbox_url; /* one address for all sandboxes, told apart by headers; NULL = by names */
    char *envd_url;    /* envd of the only sandbox there is; NULL = as other ports */
    char *image;       /* when none is asked for */
    char *who;
    bool secure;
    int64_t ttl_s;
    atomic_bool quicksand; /* the endpoint said that it is one */
};

struct e2b_call {
    int64_t deadline_us; /* 0 = none */
    const char *method;
    const char *path;
    const json_t *body;  /* NULL = none */
    uint32_t timeout_ms; /* 0 = 60 s */
};

/* One request to the API; errors as rest_call() has them. out may be NULL. */
int e2b_call(struct provider *provider, const struct e2b_call *call, json_t **out,
             struct error *err);
int e2b_get(struct provider *provider, const struct provider_ref *ref, struct arena *arena,
            struct provider_sandbox *out, struct error *err);

/* e2b_sandbox.c */
int e2b_create(struct provider *provider, const struct provider_spec *spec, struct arena *arena,
               struct provider_sandbox *out, struct error *err);
int e2b_find(struct provider *provider, const struct provider_query *query, struct arena *arena,
             struct provider_sandbox **out, size_t *out_count, struct error *err);
int e2b_connect(struct provider *provider, const struct provider_ref *ref, int64_t ttl_s,
                struct arena *arena, struct provider_sandbox *out, struct error *err);
int e2b_pause(struct provider *provider, const struct provider_ref *ref, struct error *err);
int e2b_kill(struct provider *provider, const struct provider_ref *ref, struct error *err);
int e2b_usage(struct provider *provider, const struct provider_ref *ref, struct provider_usage *out,
              struct error *err);
int e2b_extend(struct provider *provider, const struct provider_ref *ref, int64_t ttl_s,
               struct error *err);
int e2b_snapshot(struct provider *provider, const struct provider_ref *ref, const char *name,
                 struct arena *arena, struct str *out, struct error *err);
int e2b_snapshot_delete(struct provider *provider, struct str team_id, struct str snapshot,
                        struct error *err);

/* e2b_envd.c */
int e2b_envd(struct provider *provider, const struct provider_ref *ref, struct envd_place *place,
             struct error *err);
int e2b_address(struct provider *provider, const struct provider_ref *ref, uint16_t port,
                struct arena *arena, struct provider_address *out, struct error *err);
