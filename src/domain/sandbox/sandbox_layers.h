/* Layers that sandboxes use, and the thread that deletes what nobody uses (sandbox_keeper.c). */
#pragma once

#include "base/arena.h"
#include "base/error.h"
#include "base/str.h"
#include "host/engine/engine.h"
#include "store/platform/store_sandbox.h"

struct aside;
struct layer_info;
struct sandboxes;

void layers_init(struct sandboxes *all);
void layers_done(struct sandboxes *all);
/* What is pinned is not deleted. */
void layers_pin(struct sandboxes *all, const struct box_spec *spec);
void layers_unpin(struct sandboxes *all, const struct box_spec *spec);
/* Deletes what nobody uses. False when something is left that will have to be tried again. */
bool layers_collect(struct sandboxes *all);
/* Finds layers that the store does not know: *out (malloc()ed) are the leftovers of a crash; others are kept
 * aside. */
int layers_recover(struct sandboxes *all, struct aside *aside, struct layer_info **out,
                   size_t *out_count, struct error *err);
void layers_delete(struct sandboxes *all, const struct layer_info *layers, size_t count);
/* Seals the files of a sandbox as a new layer, which is pinned on success. */
struct sealed {
    struct store_sandbox row;
    struct str layers;   /* the sandbox's and the new one */
    struct box_spec pin; /* of the new one alone */
    int64_t bytes;       /* that the new one holds */
};
int layers_seal(struct sandboxes *all, struct str team_id, struct str id, struct arena *arena,
                struct sealed *out, struct error *err);

/* ---- sandbox_keeper.c ---- */

/* Before anybody can want something of it. */
void keeper_init(struct sandboxes *all);
int keeper_start(struct sandboxes *all, struct error *err);
void keeper_stop(struct sandboxes *all);
void layers_collect_soon(struct sandboxes *all);
