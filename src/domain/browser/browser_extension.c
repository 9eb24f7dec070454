/* Extensions: zips that a team keeps, as files beside the store. They are unpacked in the sandbox of the session that has one, never here. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/id.h"
#include "domain/browser/browser_internal.h"

enum { PATH_SIZE = 512, ZIP_MAX = 32 << 20, NAME_MAX_LEN = 255 };

/* id: one that we made, from its row. */
static void path_of(const struct browsers *all, struct str id, char out[PATH_SIZE])
{
    (void)snprintf(out, PATH_SIZE, "%s/extensions/%.*s.zip", all->config.directory, STR_ARG(id));
}

static int write_file(const struct browsers *all, struct str id, struct str data, struct error *err)
{
    auto_close int fd = -1;
    char path[PATH_SIZE];
    int r;

    (void)snprintf(path, sizeof(path), "%s/extensions", all->config.directory);
    if (mkdir(path, 0700) < 0 && errno != EEXIST)
        return error_set_errno(err, errno, "make the directory of extensions");
    path_of(all, id, path);
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    r = fd < 0 ? -errno : fd_write_full(fd, data.p, data.len);
    if (r == 0 && fdatasync(fd) < 0)
        r = -errno;
    if (r == 0)
        return 0;
    (void)unlink(path);
    return error_set_errno(err, -r, "keep the extension");
}

int browser_extension_create(struct browsers *all, struct str team_id, struct str name,
                             struct str data, struct arena *arena,
                             struct store_browser_extension *out, struct error *err)
{
    char id[UUID_SIZE], path[PATH_SIZE];

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
    if (write_file(all, out->id, data, err) < 0)
        return -1;
    if (store_browser_extension_insert(all->config.store, out, BROWSER_EXTENSIONS_MAX, err) == 0)
        return 0;
    path_of(all, out->id, path);
    (void)unlink(path);
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
    char path[PATH_SIZE];

    if (browser_extension_get(all, team_id, id, &arena, &extension, err) < 0 ||
        store_browser_extension_delete(all->config.store, team_id, extension.id, err) < 0)
        return -1;
    path_of(all, extension.id, path);
    (void)unlink(path);
    return 0;
}

int extension_give(struct browsers *all, const struct store_browser_session *session, struct str id,
                   struct error *err)
{
    auto_buf struct buf data = {0};
    char path[PATH_SIZE];
    int r;

    buf_init(&data, ZIP_MAX);
    path_of(all, id, path);
    r = fd_read_file_at(AT_FDCWD, path, &data);
    if (r < 0)
        return error_set_errno(err, -r, "read the extension");
    return inside_write(all, session, BROWSER_HOME "/.browser/extension.zip", buf_str(&data), err);
}
