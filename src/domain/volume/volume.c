/* Volumes, and where they appear inside sandboxes. The row comes before the files, and goes after
 * them, so that a crash leaves nothing that is not known. */
#include "domain/volume/volume.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/encode.h"
#include "base/log.h"
#include "domain/sandbox/sandbox_internal.h"
#include "domain/sandbox/sandbox_layers.h"
#include "domain/sandbox/sandbox_room.h"
#include "store/core/store_name.h"

enum { NAME_MAX_LEN = 128 };

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

int volume_create(struct sandboxes *all, struct str team_id, struct str name, struct arena *arena,
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
    if (room_take(all, team_id, (int64_t)all->volume_bytes, err) < 0)
        return -1;
    r = store_volume_insert(all->store, out, err);
    room_taken(all);
    if (r < 0) {
        if (err->code == ERROR_EXISTS)
            return error_set(err, ERROR_INVALID, "volume '%.*s' exists already", STR_ARG(name));
        return -1;
    }
    if (all->engine->ops->volume_create(all->engine, id, all->volume_bytes, err) == 0)
        return 0;
    if (store_volume_deleting(all->store, out->id, &ignored) == 0 &&
        all->engine->ops->volume_delete(all->engine, id, &ignored) == 0)
        (void)store_volume_deleted(all->store, out->id, &ignored);
    return error_prefix(err, "make volume");
}

int volume_get(struct sandboxes *all, struct str team_id, struct str name, struct arena *arena,
               struct store_volume *out, struct error *err)
{
    return store_volume_find(all->store, team_id, name, arena, out, err);
}

int volume_list(struct sandboxes *all, struct str team_id, struct arena *arena,
                struct store_volume **out, size_t *out_count, struct error *err)
{
    return store_volume_list(all->store, team_id, arena, out, out_count, err);
}

int volume_usage(struct sandboxes *all, struct str team_id, struct str name, uint64_t *out_bytes,
                 uint64_t *out_limit, struct error *err)
{
    auto_arena struct arena arena = {0};
    struct store_volume volume;
    char id[LAYER_NAME_SIZE];

    if (store_volume_find(all->store, team_id, name, &arena, &volume, err) < 0)
        return -1;
    if (!str_copy(volume.id, id, sizeof(id)))
        return error_set(err, ERROR_INTERNAL, "bad id of a volume");
    *out_limit = all->volume_bytes;
    return all->engine->ops->volume_usage(all->engine, id, out_bytes, err);
}

static int delete_files(struct sandboxes *all, struct str id, struct error *err)
{
    char name[LAYER_NAME_SIZE];

    if (!str_copy(id, name, sizeof(name)))
        return error_set(err, ERROR_INTERNAL, "bad id of a volume");
    if (all->engine->ops->volume_delete(all->engine, name, err) < 0)
        return error_prefix(err, "delete volume");
    return store_volume_deleted(all->store, id, err);
}

int volume_delete(struct sandboxes *all, struct str team_id, struct str name, struct error *err)
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
        layers_collect_soon(all);
    }
    return 0;
}

bool volumes_collect(struct sandboxes *all)
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

void volumes_recover(struct sandboxes *all)
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
                                                           all->volume_bytes, &err);

        if (result < 0)
            log_warn("sandbox", "volume=%.*s: %s", STR_ARG(volumes[i].id), err.message);
    }
}

/* Absolute, without "..", "." and empty parts, and not where the system has its own mounts. */
static bool path_ok(struct str path)
{
    static const char *const taken[] = {"proc", "sys", "dev"};
    struct str rest = path, part;

    if (path.len < 2 || path.len >= VOLUME_PATH_SIZE || path.p[0] != '/' ||
        path.p[path.len - 1] == '/')
        return false;
    for (size_t i = 0; i < path.len; i++)
        if ((unsigned char)path.p[i] < 0x21 || path.p[i] == 0x7f)
            return false;
    rest = str_skip(rest, 1);
    for (bool first = true; rest.p; first = false) {
        part = str_split(&rest, '/');
        if (part.len == 0 || str_is(part, ".") || str_is(part, ".."))
            return false;
        for (size_t i = 0; first && i < sizeof(taken) / sizeof(taken[0]); i++)
            if (str_is(part, taken[i]))
                return false;
    }
    return true;
}

static int add_mount(struct sandboxes *all, struct str team_id, const struct volume_mount *mount,
                     struct arena *arena, struct buf *out, struct error *err)
{
    struct store_volume volume;

    if (!path_ok(mount->path))
        return error_set(err, ERROR_INVALID,
                         "volume path '%.*s' is not an absolute path that can be used",
                         (int)(mount->path.len < 100 ? mount->path.len : 100), mount->path.p);
    if (store_volume_find(all->store, team_id, mount->name, arena, &volume, err) < 0) {
        if (err->code == ERROR_NOT_FOUND)
            err->code = ERROR_INVALID; /* it is the request that is wrong */
        return -1;
    }
    (void)buf_printf(out, "%s%.*s %.*s %.*s", out->len ? "\n" : "", STR_ARG(volume.id),
                     STR_ARG(volume.name), STR_ARG(mount->path));
    return 0;
}

int volumes_text(struct sandboxes *all, struct str team_id, const struct volume_mount *mounts,
                 size_t count, struct arena *arena, struct str *out, struct error *err)
{
    auto_buf struct buf text = {0};

    *out = STR("");
    if (count > BOX_VOLUMES_MAX)
        return error_set(err, ERROR_INVALID, "at most %d volumes", BOX_VOLUMES_MAX);
    buf_init(&text, 8192);
    for (size_t i = 0; i < count; i++) {
        for (size_t k = 0; k < i; k++)
            if (str_eq(mounts[k].path, mounts[i].path))
                return error_set(err, ERROR_INVALID, "two volumes at the same path");
        if (add_mount(all, team_id, &mounts[i], arena, &text, err) < 0)
            return -1;
    }
    if (text.overflowed)
        return error_set(err, ERROR_INVALID, "volumeMounts is too large");
    if (text.len)
        *out = arena_str(arena, buf_str(&text));
    return 0;
}

size_t volumes_read(struct str text, struct volume_line out[BOX_VOLUMES_MAX])
{
    size_t count = 0;

    while (text.len && count < BOX_VOLUMES_MAX) {
        struct str line = str_split(&text, '\n');

        out[count].id = str_split(&line, ' ');
        out[count].mount.name = str_split(&line, ' ');
        out[count++].mount.path = line;
    }
    return count;
}

int volumes_to_spec(struct str text, struct box_spec *out, struct error *err)
{
    struct volume_line lines[BOX_VOLUMES_MAX];
    size_t count = volumes_read(text, lines);

    for (size_t i = 0; i < count; i++)
        if (!str_copy(lines[i].id, out->volumes[i].name, LAYER_NAME_SIZE) ||
            !str_copy(lines[i].mount.path, out->volumes[i].path, VOLUME_PATH_SIZE))
            return error_set(err, ERROR_INTERNAL, "bad volume in the store");
    out->volume_count = (uint32_t)count;
    return 0;
}
