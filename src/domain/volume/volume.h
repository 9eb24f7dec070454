/* Volumes: files that outlive sandboxes and can be shared by several. */
#pragma once

#include "base/arena.h"
#include "base/error.h"
#include "base/str.h"
#include "host/engine/engine.h"
#include "store/platform/store_volume.h"

struct routes;
struct sandboxes;
struct volumes;

struct volumes_config {
    struct sandboxes *sandboxes; /* must outlive the volumes */
    struct engine *engine;
    struct store *store;
    struct routes *routes;
};

/* Deletes, or makes, the files that a crash left behind or did not make, and registers itself with the sandboxes. */
int volumes_open(const struct volumes_config *config, struct volumes **out, struct error *err);
/* Ends the boxes that serve volumes. */
void volumes_close(struct volumes *all);

/* A name that is taken is ERROR_INVALID, as clients expect. */
int volume_create(struct volumes *all, struct str team_id, struct str name, struct arena *arena,
                  struct store_volume *out, struct error *err);
/* By id or name. */
int volume_get(struct volumes *all, struct str team_id, struct str name, struct arena *arena,
               struct store_volume *out, struct error *err);
int volume_list(struct volumes *all, struct str team_id, struct arena *arena,
                struct store_volume **out, size_t *out_count, struct error *err);
/* ERROR_CONFLICT while a sandbox (also a paused one) uses it. */
/* How much is in it, and how much may be (0 = no limit). */
int volume_usage(struct volumes *all, struct str team_id, struct str name, uint64_t *out_bytes,
                 uint64_t *out_limit, struct error *err);
int volume_delete(struct volumes *all, struct str team_id, struct str name, struct error *err);
