/* Extensions: zips that a team keeps, as files beside the store (browser_files.c). They are unpacked in the sandbox of the session that has one, never here. */
#include <fcntl.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/id.h"
#include "extra/browser/browser_internal.h"

enum { ZIP_MAX = 32 << 20, NAME_MAX_LEN = 255 };

int browser_extension_create(struct browsers *all, struct str team_id, struct str name,
                             struct str data, struct arena *arena,
                             struct store_browser_extension *out, struct error *err)
{
    char id[UUID_SIZE];

    if (!str_starts(data, STR("PK\x03\x04")))
        return error_set(err, ERROR_INVALID, "the extension must be a zip");
    if (name.len > NAME_MAX_LEN || !str_valid_utf8(name))
        return error_set(err, ERROR_INVALID, "the file needs a name of at most 255 bytes");
    id_uuid(id);
    *out = (struct store_browser_extension){.id = arena_str(arena, str_of(id)),
                                            .team_id = team_id,
                                            .file_name = name,
                                            .created_at_us = clock_wall_us(),
                                            .updated_at_us = clock_wall_us()};
    if (browser_file_keep(all, FILE_EXTENSION, team_id, out->id, data, err) < 0)
        return -1;
    if (store_browser_extension_insert(all->config.store, out, BROWSER_EXTENSIONS_MAX, err) == 0)
        return 0;
    browser_file_drop(all, FILE_EXTENSION, out->id);
    return -1;
}

int browser_extension_get(struct browsers *all, struct str team_id, struct str id,
                          struct arena *arena, struct store_browser_extension *out,
                          struct error *err)
{
    if (id.len >= UUID_SIZE)
        return error_set(err, ERROR_NOT_FOUND, "there is no extension of that id");
    return store_browser_extension_find(all->config.store, team_id, id, arena, out, err);
}

int browser_extension_delete(struct browsers *all, struct str team_id, struct str id,
                             struct error *err)
{
    auto_arena struct arena arena = {0};
    struct store_browser_extension extension = {0};

    if (browser_extension_get(all, team_id, id, &arena, &extension, err) < 0 ||
        store_browser_extension_delete(all->config.store, team_id, extension.id, err) < 0)
        return -1;
    browser_file_drop(all, FILE_EXTENSION, extension.id);
    return 0;
}

int extension_give(struct browsers *all, const struct store_browser_session *session, struct str id,
                   struct error *err)
{
    auto_buf struct buf data = {0};
    char path[FILE_PATH_SIZE];
    int r;

    buf_init(&data, ZIP_MAX);
    browser_file_path(all, FILE_EXTENSION, id, path);
    r = fd_read_file_at(AT_FDCWD, path, &data);
    if (r < 0)
        return error_set_errno(err, -r, "read the extension");
    return inside_write(all, session, BROWSER_HOME "/.browser/extension.zip", buf_str(&data), err);
}
