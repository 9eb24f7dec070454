/* Volumes, and where they appear inside sandboxes. The row comes before the files, and goes after
 * them, so that a crash leaves nothing that is not known. */
#include "domain/volume/volume.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/encode.h"
#include "base/log.h"
#include "domain/route/route.h"
#include "domain/sandbox/sandbox.h"
#include "domain/sandbox/sandbox_room.h"
#include "domain/volume/volume_internal.h"
#include "store/core/store_name.h"

enum {
    NAME_MAX_LEN = 128,
    AGAIN_US = 1000 * 1000,
    AGAIN_MAX_US = 60 * 1000 * 1000,
    REAP_US = 15 * 1000 * 1000,
};
#define HOUR_US ((int64_t)3600 * 1000000)

static int check_name(struct str name, struct error *err)
{
    bool ok = name.len > 0 && name.len <= NAME_MAX_LEN;

    for (size_t i = 0; ok && i < name.len; i++) {
        char c = name.p[i];

        ok = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
             c == '-' || c == '_';
    }
    return ok ? 0
              : error_set(err, ERROR_INVALID,
                          "a volume's name is made of 1 to %d letters, digits, '-' and '_'",
                          NAME_MAX_LEN);
}

static void make_id(char out[LAYER_NAME_SIZE])
{
    char id[ID_SIZE];

    id_make(id);
    (void)snprintf(out, LAYER_NAME_SIZE, "vol%s", id + 1);
}

int volume_create(struct volumes *all, struct str team_id, struct str name, struct arena *arena,
                  struct store_volume *out, struct error *err)
{
    char id[LAYER_NAME_SIZE], token[2 * 24 + 1];
    struct error ignored = {0};
    int r;

    if (check_name(name, err) < 0)
        return -1;
    make_id(id);
    id_hex(token, 24);
    *out = (struct store_volume){.id = arena_str(arena, str_of(id)),
                                 .team_id = arena_str(arena, team_id),
                                 .name = arena_str(arena, name),
                                 .token = arena_str(arena, str_of(token)),
                                 .created_at_us = clock_wall_us()};
    if (room_take(all->sandboxes, team_id, (int64_t)room_volume_bytes(all->sandboxes), err) < 0)
        return -1;
    r = store_volume_insert(all->store, out, err);
    room_taken(all->sandboxes);
    if (r < 0) {
        if (err->code == ERROR_EXISTS)
            return error_set(err, ERROR_INVALID, "volume '%.*s' exists already", STR_ARG(name));
        return -1;
    }
    if (all->engine->ops->volume_create(all->engine, id, room_volume_bytes(all->sandboxes), err) ==
        0)
        return 0;
    if (store_volume_deleting(all->store, out->id, &ignored) == 0 &&
        all->engine->ops->volume_delete(all->engine, id, &ignored) == 0)
        (void)store_volume_deleted(all->store, out->id, &ignored);
    return error_prefix(err, "make volume");
}

int volume_get(struct volumes *all, struct str team_id, struct str name, struct arena *arena,
               struct store_volume *out, struct error *err)
{
    return store_volume_find(all->store, team_id, name, arena, out, err);
}

int volume_list(struct volumes *all, struct str team_id, struct arena *arena,
                struct store_volume **out, size_t *out_count, struct error *err)
{
    return store_volume_list(all->store, team_id, arena, out, out_count, err);
}

int volume_usage(struct volumes *all, struct str team_id, struct str name, uint64_t *out_bytes,
                 uint64_t *out_limit, struct error *err)
{
    auto_arena struct arena arena = {0};
    struct store_volume volume;
    char id[LAYER_NAME_SIZE];

    if (store_volume_find(all->store, team_id, name, &arena, &volume, err) < 0)
        return -1;
    if (!str_copy(volume.id, id, sizeof(id)))
        return error_set(err, ERROR_INTERNAL, "bad id of a volume");
    *out_limit = room_volume_bytes(all->sandboxes);
    return all->engine->ops->volume_usage(all->engine, id, out_bytes, err);
}

static int delete_files(struct volumes *all, struct str id, struct error *err)
{
    char name[LAYER_NAME_SIZE];

    if (!str_copy(id, name, sizeof(name)))
        return error_set(err, ERROR_INTERNAL, "bad id of a volume");
    if (all->engine->ops->volume_delete(all->engine, name, err) < 0)
        return error_prefix(err, "delete volume");
    return store_volume_deleted(all->store, id, err);
}

int volume_delete(struct volumes *all, struct str team_id, struct str name, struct error *err)
{
    auto_arena struct arena arena = {0};
    struct store_volume volume;

    if (store_volume_find(all->store, team_id, name, &arena, &volume, err) < 0 ||
        store_volume_deleting(all->store, volume.id, err) < 0)
        return -1;
    content_close(all, volume.id);
    /* From here on it is gone for everybody; what is left of it is tried again. */
    if (delete_files(all, volume.id, err) < 0) {
        log_warn("sandbox", "volume=%.*s: %s, trying again", STR_ARG(volume.id), err->message);
        periodic_soon(&all->collect);
    }
    return 0;
}

/* Deletes those that could not be deleted before. False when some are left. */
static bool delete_left(struct volumes *all)
{
    auto_arena struct arena arena = {0};
    struct store_volume *volumes;
    struct error err = {0};
    size_t count = 0;
    bool done = true;

    if (store_volume_list(all->store, STR_NONE, &arena, &volumes, &count, &err) < 0) {
        log_warn("sandbox", "list volumes: %s", err.message);
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        if (!volumes[i].deleting || delete_files(all, volumes[i].id, &err) == 0)
            continue;
        log_warn("sandbox", "volume=%.*s: %s, trying again", STR_ARG(volumes[i].id), err.message);
        done = false;
    }
    return done;
}

/* Files of volumes that a crash left behind, or did not make. */
static void recover(struct volumes *all)
{
    auto_arena struct arena arena = {0};
    struct store_volume *volumes;
    struct error err = {0};
    size_t count = 0;

    if (store_volume_list(all->store, STR_NONE, &arena, &volumes, &count, &err) < 0) {
        log_warn("sandbox", "list volumes: %s", err.message);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        int result = volumes[i].deleting
                         ? delete_files(all, volumes[i].id, &err)
                         : all->engine->ops->volume_create(all->engine, volumes[i].id.p,
                                                           room_volume_bytes(all->sandboxes), &err);

        if (result < 0)
            log_warn("sandbox", "volume=%.*s: %s", STR_ARG(volumes[i].id), err.message);
    }
}

/* The pause before the next try grows with every failure. */
static void collect(void *arg)
{
    struct volumes *all = arg;

    if (delete_left(all)) {
        all->pause_us = AGAIN_US;
        return;
    }
    periodic_at(&all->collect, clock_mono_us() + all->pause_us);
    all->pause_us = all->pause_us * 2 < AGAIN_MAX_US ? all->pause_us * 2 : AGAIN_MAX_US;
}

static struct volumes *volumes_new(const struct volumes_config *config)
{
    struct volumes *all = xcalloc(1, sizeof(*all));

    *all = (struct volumes){.sandboxes = config->sandboxes,
                            .engine = config->engine,
                            .store = config->store,
                            .routes = config->routes,
                            .pause_us = AGAIN_US,
                            .collect = {.name = "volumes",
                                        .period_us = HOUR_US,
                                        .may_block = true,
                                        .run = collect,
                                        .arg = all},
                            .reap = {.name = "volume-boxes",
                                     .period_us = REAP_US,
                                     .may_block = true,
                                     .run = content_reap,
                                     .arg = all}};
    content_init(all);
    return all;
}

int volumes_open(const struct volumes_config *config, struct volumes **out, struct error *err)
{
    struct volumes *all = volumes_new(config);

    recover(all);
    sandboxes_set_hooks(all->sandboxes,
                        &(struct sandboxes_hooks){.box_ended = content_died, .arg = all});
    routes_set_volume_server(all->routes, content_serve, all);
    if (periodic_add(&all->collect, HOUR_US, err) < 0 ||
        periodic_add(&all->reap, REAP_US, err) < 0) {
        volumes_close(all);
        return -1;
    }
    *out = all;
    return 0;
}

void volumes_close(struct volumes *all)
{
    if (!all)
        return;
    periodic_remove(&all->collect);
    periodic_remove(&all->reap);
    routes_set_volume_server(all->routes, NULL, NULL);
    sandboxes_set_hooks(all->sandboxes, NULL);
    content_done(all);
    free(all);
}
