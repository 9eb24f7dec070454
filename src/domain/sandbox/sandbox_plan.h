/* What a box is started with: from a request or a row to a plan, and from there to the engine's box_spec. */
#pragma once

#include "base/arena.h"
#include "base/buf.h"
#include "domain/network/network_peers.h"
#include "domain/sandbox/sandbox.h"
#include "domain/sandbox/sandbox_setup.h"
#include "store/platform/store_sandbox.h"
#include "store/platform/store_template.h"

struct plan {
    struct str team_id;
    int64_t timeout_s;
    bool secure, internet, internet_given, auto_pause, auto_pause_disk, auto_resume;
    bool is_unique; /* nobody else will start from these layers, or with these limits */
    struct store_template template;
    struct setup setup;
    struct box_spec spec;     /* without id */
    struct sandboxes *pinned; /* the layers of spec are */
    bool is_private;          /* its ports need a token */
    char access_token[TOKEN_SIZE], traffic_token[TOKEN_SIZE];
    char ingress[INGRESS_TEXT_SIZE];
    char *metadata, *env;     /* JSON */
    struct arena arena;       /* of what follows */
    const struct pair *pairs; /* of metadata */
    size_t pair_count;
    struct buf init_body;
    struct store_limits limits; /* of the team */
    int64_t kept_mb;            /* room_kept() */
    struct str idempotency_key, idempotency_hash;
    struct sandbox_joint *joint; /* of the request */
    struct str volumes, network; /* as in the store */
    struct network_peers peers;  /* of `network` */
    const char
        *not_built; /* the shipped recipe that a plan failed for; NULL = for another reason */
};
void plan_done(struct plan *plan);
/* Of JSON text; what is not a string is left out. */
size_t pairs_read(struct str text, struct arena *arena, struct pair **out);
#define auto_plan __attribute__((cleanup(plan_done)))
int plan_from_request(struct sandboxes *all, const struct sandbox_new *request, struct arena *arena,
                      struct plan *plan, struct error *err);
/* Another one like a sandbox that is there, from other layers ("a,b"). number: of a fork among several, from 1; 0 = the only
 * one. */
int plan_from_row(struct sandboxes *all, const struct store_sandbox *row, struct str layers,
                  const struct sandbox_fork *fork, size_t number, struct plan *plan,
                  struct error *err);
int plan_run(struct sandboxes *all, const struct plan *plan, struct arena *arena,
             struct sandbox_view *out, struct error *err);

/* ---- sandbox_idempotency.c ---- */

void idempotency_init(struct sandboxes *all);
void idempotency_done(struct sandboxes *all);
int create_once(struct sandboxes *all, const struct sandbox_new *request, struct arena *arena,
                struct sandbox_view *out, struct error *err);
/* sandbox_create.c; hash: STR_NONE without a key */
int create_new(struct sandboxes *all, const struct sandbox_new *request, struct str hash,
               struct arena *arena, struct sandbox_view *out, struct error *err);

/* ---- box_spec ---- */

int spec_set_network(struct sandboxes *all, const struct store_sandbox *row, struct box_spec *out,
                     struct error *err);
int spec_from_row(struct sandboxes *all, const struct store_sandbox *row, struct box_spec *out,
                  struct error *err);
/* Fills in the layers of "a,b". */
int spec_set_layers(struct str layers, struct box_spec *out, struct error *err);
int spec_from_template(const struct store_template *template, struct box_spec *out,
                       struct error *err);
/* end_at_us, or what max_life_s allows. */
int64_t end_within_life(const struct sandboxes *all, int64_t running_since_us, int64_t end_at_us);
int check_timeout_max(const struct sandboxes *all, int64_t timeout_s, struct error *err);

/* ---- sandbox_mounts.c ---- */

struct mount_line {
    struct str id;
    struct volume_mount mount;
};
/* What a request asks for, checked, as it is kept in the store. */
int mounts_text(struct sandboxes *all, struct str team_id, const struct volume_mount *mounts,
                size_t count, struct arena *arena, struct str *out, struct error *err);
size_t mounts_read(struct str text, struct mount_line out[BOX_VOLUMES_MAX]);
int mounts_to_spec(struct str text, struct box_spec *out, struct error *err);
