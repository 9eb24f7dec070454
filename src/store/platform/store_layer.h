/* Layers made by snapshots and builds, and who uses them. */
#pragma once

#include "store/core/store.h"

/* Before the layer is made: what nobody uses is deleted later, so a crash leaves nothing. */
int store_layer_add(struct store *store, struct str name, struct str team_id, int64_t at_us,
                    struct error *err);
/* Once it is made. base: the layer it holds too ('' = none); its bytes are added. *out_bytes: in all. */
int store_layer_size(struct store *store, struct str name, struct str base, int64_t bytes,
                     int64_t *out_bytes, struct error *err);
/* What the layers "a,b" hold together; those that the operator installed are not known here. */
int store_layers_bytes(struct store *store, struct str layers, int64_t *out_bytes,
                       struct error *err);
struct store_shared {
    int64_t bytes;  /* of all of the layers */
    int64_t shared; /* of those that others use as well */
    int64_t users;  /* the most that one of them has besides: sandboxes, snapshots, builds */
};
/* The same for one user, as the tables say; blocks that layers share on disk are counted with each. */
int store_layers_shared(struct store *store, struct str layers, struct store_shared *out,
                        struct error *err);
/* What a team keeps beside its sandboxes: volumes (those that are being deleted too), and the bytes of the
 * layers that somebody uses, of the files it uploaded for builds, and of notes and extensions of browsers. */
struct store_kept {
    int64_t volumes, layer_bytes, file_bytes;
};
int store_team_kept(struct store *store, struct str team_id, struct store_kept *out,
                    struct error *err);
/* At most max of those that nobody uses. */
int store_layer_unused(struct store *store, size_t max, struct arena *arena, struct str **out,
                       size_t *out_count, struct error *err);
int store_layer_state(struct store *store, struct str name, bool *out_known, bool *out_used,
                      struct error *err);
/* After it was deleted. */
int store_layer_forget(struct store *store, struct str name, struct error *err);
