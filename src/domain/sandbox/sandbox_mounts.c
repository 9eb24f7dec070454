/* Volumes of a sandbox: from a request to the text of its row, one line "id name path" each, and from there to the engine. */
#include "domain/sandbox/sandbox_internal.h"
#include "domain/sandbox/sandbox_plan.h"
#include "store/platform/store_volume.h"

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

int mounts_text(struct sandboxes *all, struct str team_id, const struct volume_mount *mounts,
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

size_t mounts_read(struct str text, struct mount_line out[BOX_VOLUMES_MAX])
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

int mounts_to_spec(struct str text, struct box_spec *out, struct error *err)
{
    struct mount_line lines[BOX_VOLUMES_MAX];
    size_t count = mounts_read(text, lines);

    for (size_t i = 0; i < count; i++)
        if (!str_copy(lines[i].id, out->volumes[i].name, LAYER_NAME_SIZE) ||
            !str_copy(lines[i].mount.path, out->volumes[i].path, VOLUME_PATH_SIZE))
            return error_set(err, ERROR_INTERNAL, "bad volume in the store");
    out->volume_count = (uint32_t)count;
    return 0;
}
