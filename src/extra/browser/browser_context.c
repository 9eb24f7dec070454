/* Contexts: a volume each, which the session that has it finds in its sandbox. */
#include "base/clock.h"
#include "base/id.h"
#include "domain/volume/volume.h"
#include "extra/browser/browser_internal.h"

int browser_context_create(struct browsers *all, struct str team_id, struct arena *arena,
                           struct store_browser_context *out, struct error *err)
{
    struct store_volume volume = {0};
    struct error ignored;
    char id[UUID_SIZE];
    struct str name;

    id_uuid(id);
    name = str_of(arena_printf(arena, "browser-context-%s", id));
    if (volume_create(all->config.volumes, team_id, name, arena, &volume, err) < 0)
        return -1;
    *out = (struct store_browser_context){.id = arena_str(arena, str_of(id)),
                                          .team_id = team_id,
                                          .volume_id = volume.id,
                                          .created_at_us = clock_wall_us(),
                                          .updated_at_us = clock_wall_us()};
    if (store_browser_context_insert(all->config.store, out, err) == 0)
        return 0;
    (void)volume_delete(all->config.volumes, team_id, volume.id, &ignored);
    return -1;
}

int browser_context_get(struct browsers *all, struct str team_id, struct str id,
                        struct arena *arena, struct store_browser_context *out, struct error *err)
{
    if (id.len >= UUID_SIZE)
        return error_set(err, ERROR_NOT_FOUND, "there is no context of that id");
    return store_browser_context_find(all->config.store, team_id, id, arena, out, err);
}

int browser_context_delete(struct browsers *all, struct str team_id, struct str id,
                           struct error *err)
{
    auto_arena struct arena arena = {0};
    struct store_browser_context context = {0};

    if (browser_context_get(all, team_id, id, &arena, &context, err) < 0)
        return -1;
    if (volume_delete(all->config.volumes, team_id, context.volume_id, err) < 0) {
        if (err->code == ERROR_CONFLICT)
            return error_set(err, ERROR_CONFLICT, "a session uses context '%.*s'",
                             STR_ARG(context.id));
        if (err->code != ERROR_NOT_FOUND)
            return -1;
    }
    return store_browser_context_delete(all->config.store, team_id, context.id, err);
}
