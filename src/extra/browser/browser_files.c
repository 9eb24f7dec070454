/* Files of browsers on the host's disk, beside the store: notes of sessions (log, record) and extensions (zip). Each has a
 * row that counts its bytes for the team's limit of disk. The row comes before the file and goes after it, so nothing is
 * on the disk that is not counted; what a crash leaves of a note goes with the old ones. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/spool.h"
#include "domain/sandbox/sandbox_room.h"
#include "extra/browser/browser_internal.h"

enum { KEPT_S = 7 * 86400, PRUNE_BATCH = 100 };

static const char *const kinds[] = {
    [FILE_LOG] = "log", [FILE_RECORD] = "record", [FILE_EXTENSION] = "zip"};

static void directory_of(const struct browsers *all, enum browser_file kind,
                         char out[FILE_PATH_SIZE])
{
    (void)snprintf(out, FILE_PATH_SIZE, "%s/%s", all->config.directory,
                   kind == FILE_EXTENSION ? "extensions" : "browser");
}

void browser_file_path(const struct browsers *all, enum browser_file kind, struct str id,
                       char out[FILE_PATH_SIZE])
{
    (void)snprintf(out, FILE_PATH_SIZE, "%s/%s/%.*s.%s", all->config.directory,
                   kind == FILE_EXTENSION ? "extensions" : "browser", STR_ARG(id), kinds[kind]);
}

void browser_file_drop(struct browsers *all, enum browser_file kind, struct str id)
{
    char path[FILE_PATH_SIZE];
    struct error err = {0};

    browser_file_path(all, kind, id, path);
    if (unlink(path) < 0 && errno != ENOENT)
        log_warn("browser", "'%s' is not deleted: %s", path, strerror(errno));
    else if (store_browser_file_delete(all->config.store, id, str_of(kinds[kind]), &err) < 0)
        log_warn("browser", "'%s' still counts for its team: %s", path, err.message);
}

static int write_file(const char *path, struct str bytes)
{
    auto_close int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    int r = fd < 0 ? -errno : fd_write_full(fd, bytes.p, bytes.len);

    return r < 0 ? r : fdatasync(fd) < 0 ? -errno : 0;
}

/* Against the team's limit, and the disk that all share. */
static int charge(struct browsers *all, const struct store_browser_file *file, struct error *err)
{
    struct spool_charge space;
    int r;

    spool_charge_open(&space, all->config.spool, file->team_id);
    space.kept = true;
    if (spool_check(&space, file->bytes, err) < 0 ||
        room_take(all->config.sandboxes, file->team_id, file->bytes, err) < 0)
        return -1;
    r = store_browser_file_put(all->config.store, file, err);
    room_taken(all->config.sandboxes);
    return r;
}

int browser_file_keep(struct browsers *all, enum browser_file kind, struct str team_id,
                      struct str id, struct str bytes, struct error *err)
{
    const struct store_browser_file file = {.id = id,
                                            .kind = str_of(kinds[kind]),
                                            .team_id = team_id,
                                            .bytes = (int64_t)bytes.len,
                                            .made_at_us = clock_wall_us()};
    char path[FILE_PATH_SIZE];
    int r;

    directory_of(all, kind, path);
    if (mkdir(path, 0700) < 0 && errno != EEXIST)
        return error_set_errno(err, errno, "make the directory '%s'", path);
    if (charge(all, &file, err) < 0)
        return -1;
    browser_file_path(all, kind, id, path);
    r = write_file(path, bytes);
    if (r == 0)
        return 0;
    browser_file_drop(all, kind, id);
    return error_set_errno(err, -r, "write '%s'", path);
}

/* ---- what is old, or of older servers ---- */

/* Notes without a row. */
static void drop_strays(struct browsers *all)
{
    char path[FILE_PATH_SIZE];
    struct dirent *entry;
    struct stat about;
    DIR *dir;

    directory_of(all, FILE_LOG, path);
    dir = opendir(path);
    while (dir && (entry = readdir(dir)))
        if (entry->d_name[0] != '.' &&
            fstatat(dirfd(dir), entry->d_name, &about, AT_SYMLINK_NOFOLLOW) == 0 &&
            about.st_mtime + KEPT_S < clock_wall_us() / 1000000)
            (void)unlinkat(dirfd(dir), entry->d_name, 0);
    if (dir)
        (void)closedir(dir);
}

void browser_files_prune(struct browsers *all)
{
    auto_arena struct arena arena = {0};
    struct store_browser_file *files;
    struct error err = {0};
    size_t count;

    if (store_browser_file_old(all->config.store, clock_wall_us() - (int64_t)KEPT_S * 1000000,
                               PRUNE_BATCH, &arena, &files, &count, &err) < 0) {
        log_warn("browser", "old notes are not deleted: %s", err.message);
        return;
    }
    for (size_t i = 0; i < count; i++)
        browser_file_drop(all, str_is(files[i].kind, kinds[FILE_LOG]) ? FILE_LOG : FILE_RECORD,
                          files[i].id);
    drop_strays(all);
}

void browser_files_settle(struct browsers *all)
{
    auto_arena struct arena arena = {0};
    struct store_browser_file *files;
    char path[FILE_PATH_SIZE];
    struct error err = {0};
    struct stat about;
    size_t count = 0;

    if (store_browser_file_orphans(all->config.store, &arena, &files, &count, &err) == 0)
        for (size_t i = 0; i < count; i++)
            browser_file_drop(all, FILE_EXTENSION, files[i].id);
    if (store_browser_file_missing(all->config.store, &arena, &files, &count, &err) < 0)
        return;
    for (size_t i = 0; i < count; i++) {
        browser_file_path(all, FILE_EXTENSION, files[i].id, path);
        files[i].bytes = stat(path, &about) == 0 ? about.st_size : 0;
        (void)store_browser_file_put(all->config.store, &files[i], &err);
    }
}
