/* Makes a data directory of a backup. A file in it says so until all is there; a server does not start with it. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backup/backup.h"
#include "backup/backup_parts.h"
#include "backup/backup_unpack.h"
#include "base/cleanup.h"
#include "base/path.h"
#include "host/disk/disk.h"
#include "host/disk/tree.h"
#include "store/core/store_export.h"

#define UNFINISHED "restoring"

enum { PATH_SIZE = 512, TEND_BYTES = 64 << 20, POOL_MIN_GB = 16 };

struct restoring {
    const struct backup_config *config;
    struct backup_file *file;
    struct backup_unpack *unpack;
    struct backup_parts parts;
    int data_fd, layers_fd, lock_fd;
    struct disk *disk;
    struct trees *trees;
    uint64_t untended;
    uint64_t entries;
    bool begun; /* something is in the data directory */
};

int backup_check_restored(const char *data_dir, struct error *err)
{
    char path[PATH_SIZE];

    (void)snprintf(path, sizeof(path), "%s/" UNFINISHED, data_dir);
    if (access(path, F_OK) < 0)
        return 0;
    return error_set(err, ERROR_CONFLICT,
                     "a restore into '%s' did not end: run 'quicksand restore' again", data_dir);
}

/* ---- the data directory ---- */

static void remove_all(const struct restoring *restoring)
{
    static const char *const made[] = {"pool",  "pool.img", "pool.img.new", "layers",
                                       "store", "tls",      UNFINISHED};
    struct error ignored;
    int r = 0;

    (void)disk_unmount(&(struct disk_config){.data_dir = restoring->config->data_dir}, &ignored);
    /* What says that it did not end goes last. */
    for (size_t i = 0; i < sizeof(made) / sizeof(*made) && r == 0; i++)
        r = path_remove_tree(restoring->data_fd, made[i]);
}

static bool is_used(int data_fd)
{
    static const char *const names[] = {"instance", "store", "pool", "pool.img", "layers"};

    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        if (faccessat(data_fd, names[i], F_OK, AT_SYMLINK_NOFOLLOW) == 0)
            return true;
    return false;
}

static int mark_begun(struct restoring *restoring, struct error *err)
{
    auto_close int fd =
        openat(restoring->data_fd, UNFINISHED, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);

    if (fd < 0 || fsync(fd) < 0)
        return error_set_errno(err, errno, "write to '%s'", restoring->config->data_dir);
    restoring->begun = true;
    return 0;
}

static int open_data(struct restoring *restoring, struct error *err)
{
    const char *data = restoring->config->data_dir;
    int r = path_make_dirs(data, 0711);

    restoring->data_fd = r < 0 ? -1 : open(data, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (restoring->data_fd < 0)
        return error_set_errno(err, r < 0 ? -r : errno, "make the data directory '%s'", data);
    restoring->lock_fd = openat(restoring->data_fd, "lock", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (restoring->lock_fd < 0 || flock(restoring->lock_fd, LOCK_EX | LOCK_NB) < 0)
        return error_set(err, ERROR_CONFLICT, "a server uses '%s': stop it, or name another --data",
                         data);
    if (faccessat(restoring->data_fd, UNFINISHED, F_OK, 0) == 0)
        remove_all(restoring);
    if (is_used(restoring->data_fd))
        return error_set(err, ERROR_EXISTS,
                         "'%s' has data already: a backup is restored into a data directory that "
                         "is empty or not there; name another with --data, or move this one away",
                         data);
    return mark_begun(restoring, err);
}

/* As large as it will need, if the host has that. */
static uint64_t pool_bytes(const struct restoring *restoring)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < restoring->parts.count; i++)
        if (restoring->parts.list[i].kind != BACKUP_VOLUMES)
            bytes += restoring->parts.list[i].bytes < ((uint64_t)1 << 50)
                         ? restoring->parts.list[i].bytes
                         : 0;
    return 2 * bytes + ((uint64_t)POOL_MIN_GB << 30);
}

static int open_host(struct restoring *restoring, struct error *err)
{
    if (mkdirat(restoring->data_fd, "layers", 0700) < 0)
        return error_set_errno(err, errno, "make '%s/layers'", restoring->config->data_dir);
    restoring->layers_fd = openat(restoring->data_fd, "layers", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (restoring->layers_fd < 0)
        return error_set_errno(err, errno, "open '%s/layers'", restoring->config->data_dir);
    if (trees_open(restoring->layers_fd, &restoring->trees, err) < 0)
        return -1;
    return disk_open(&(struct disk_config){.data_dir = restoring->config->data_dir,
                                           .initial_bytes = pool_bytes(restoring)},
                     &restoring->disk, err);
}

/* ---- parts ---- */

static const enum disk_kind disk_kinds[BACKUP_KIND_COUNT] = {
    [BACKUP_LAYERS] = DISK_LAYERS,
    [BACKUP_VOLUMES] = DISK_VOLUMES,
    [BACKUP_BOXES] = DISK_BOXES,
};

/* The pool's image needs blocks ahead of what is written to it. */
static void on_wrote(void *arg, uint64_t bytes)
{
    struct restoring *restoring = arg;
    struct error ignored;

    restoring->untended += bytes;
    if (restoring->untended < TEND_BYTES)
        return;
    restoring->untended = 0;
    (void)disk_tend(restoring->disk, &ignored);
}

static int make_directory(const struct restoring *restoring, const struct backup_part *part,
                          int *out_fd, struct error *err)
{
    int above = part->kind == BACKUP_INSTALLED ? restoring->layers_fd : restoring->data_fd;
    const char *name = part->kind == BACKUP_INSTALLED ? part->name
                       : part->kind == BACKUP_STORE   ? "store"
                                                      : "tls";

    if (mkdirat(above, name, 0700) < 0)
        return error_set_errno(err, errno, "make '%s'", name);
    *out_fd = openat(above, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return *out_fd < 0 ? error_set_errno(err, errno, "open '%s'", name) : 0;
}

static int begin_part(const struct restoring *restoring, const struct backup_part *part,
                      int *out_fd, struct error *err)
{
    if (backup_kind_in_pool(part->kind))
        return disk_refill(restoring->disk, disk_kinds[part->kind], part->name, out_fd, err);
    if (part->kind == BACKUP_TREES)
        return tree_begin(restoring->trees, part->name, 0, out_fd, err);
    return make_directory(restoring, part, out_fd, err);
}

static int end_part(const struct restoring *restoring, const struct backup_part *part,
                    struct error *err)
{
    struct tree_info info;

    if (backup_kind_in_pool(part->kind))
        return disk_refilled(restoring->disk, disk_kinds[part->kind], part->name, part->bytes, err);
    return part->kind == BACKUP_TREES ? tree_seal(restoring->trees, part->name, &info, err) : 0;
}

static bool lies_in(struct str path, const char *part)
{
    size_t len = strlen(part);

    return str_starts(path, str_of(part)) && (path.len == len || path.p[len] == '/');
}

/* *path is the first entry of the part, then the first of the next one; STR_NONE at the end. */
static int fill_part(struct restoring *restoring, const struct backup_part *part, const char *name,
                     int root_fd, struct str *path, struct error *err)
{
    bool plain = part->kind == BACKUP_STORE || part->kind == BACKUP_TLS;
    struct backup_fill *fill = backup_fill_new(
        restoring->unpack,
        &(struct backup_filling){.root_fd = root_fd,
                                 .skip = strlen(name),
                                 .plain = plain,
                                 .overlay = !plain && part->kind != BACKUP_VOLUMES,
                                 .plain_owner =
                                     part->kind == BACKUP_STORE ? restoring->config->server_uid : 0,
                                 .wrote = on_wrote,
                                 .arg = restoring});
    int r = 0, more = 1;

    while (r == 0 && more > 0 && lies_in(*path, name)) {
        restoring->entries++;
        r = restoring->config->stopped && restoring->config->stopped()
                ? error_set(err, ERROR_UNAVAILABLE, "it was interrupted")
                : backup_fill_entry(fill, *path, err);
        more = r < 0 ? -1 : backup_unpack_next(restoring->unpack, path, err);
    }
    if (more == 0)
        *path = STR_NONE;
    if (r == 0 && more >= 0)
        r = backup_fill_end(fill, err);
    backup_fill_free(fill);
    return more < 0 ? -1 : r;
}

static int restore_part(struct restoring *restoring, const struct backup_part *part,
                        struct str *path, struct error *err)
{
    char name[BACKUP_PATH_SIZE];
    auto_close int fd = -1;

    backup_part_path(part, name);
    if (!str_is(*path, name))
        return error_set(err, ERROR_INVALID, "the backup lists '%s' and does not have it", name);
    if (begin_part(restoring, part, &fd, err) < 0 ||
        fill_part(restoring, part, name, fd, path, err) < 0 || end_part(restoring, part, err) < 0)
        return error_prefix(err, "'%s'", name);
    return 0;
}

/* ---- all of it ---- */

static int read_list(struct restoring *restoring, struct error *err)
{
    auto_buf struct buf text = {0};
    struct str path;
    int r;

    buf_init(&text, BACKUP_LIST_MAX);
    restoring->unpack = backup_unpack_new(restoring->file);
    r = backup_unpack_next(restoring->unpack, &path, err);
    if (r < 0)
        return -1;
    if (r == 0 || !str_is(path, BACKUP_LIST))
        return error_set(err, ERROR_INVALID, "'%s' is no backup", restoring->config->path);
    if (backup_unpack_text(restoring->unpack, &text, err) < 0)
        return -1;
    return backup_list_read(buf_str(&text), store_schema_known(), &restoring->parts, err);
}

static int restore_parts(struct restoring *restoring, struct error *err)
{
    struct str path = STR_NONE;
    int more = backup_unpack_next(restoring->unpack, &path, err);

    if (more < 0)
        return -1;
    for (size_t i = 0; i < restoring->parts.count; i++)
        if (restore_part(restoring, &restoring->parts.list[i], &path, err) < 0)
            return -1;
    return path.p ? error_set(err, ERROR_INVALID, "the backup has '%.80s' and does not list it",
                              path.p)
                  : 0;
}

/* Also checks all of it. */
static int check_store(const struct restoring *restoring, struct error *err)
{
    uid_t owner = restoring->config->server_uid;
    char path[PATH_SIZE];
    int64_t version;

    (void)snprintf(path, sizeof(path), "%s/store/quicksand.db", restoring->config->data_dir);
    if (store_schema(path, &version, err) < 0)
        return -1;
    if (fchmodat(restoring->data_fd, "store", 0700, 0) < 0 ||
        fchownat(restoring->data_fd, "store", owner, owner, AT_SYMLINK_NOFOLLOW) < 0)
        return error_set_errno(err, errno, "give the store to the server");
    return 0;
}

static void close_host(struct restoring *restoring)
{
    if (restoring->trees)
        trees_close(restoring->trees);
    disk_close(restoring->disk);
    restoring->disk = NULL;
    restoring->trees = NULL;
    close_fd(&restoring->layers_fd);
}

static int finish(struct restoring *restoring, struct error *err)
{
    close_host(restoring);
    if (disk_unmount(&(struct disk_config){.data_dir = restoring->config->data_dir}, err) < 0 ||
        check_store(restoring, err) < 0)
        return -1;
    if (syncfs(restoring->data_fd) < 0 || unlinkat(restoring->data_fd, UNFINISHED, 0) < 0)
        return error_set_errno(err, errno, "finish '%s'", restoring->config->data_dir);
    return 0;
}

static int restore(struct restoring *restoring, struct error *err)
{
    if (backup_file_open(restoring->config->path, &restoring->file, err) < 0 ||
        read_list(restoring, err) < 0 || open_data(restoring, err) < 0 ||
        open_host(restoring, err) < 0 || restore_parts(restoring, err) < 0)
        return -1;
    return finish(restoring, err);
}

int backup_restore(const struct backup_config *config, struct backup_result *out, struct error *err)
{
    struct restoring restoring = {.config = config, .data_fd = -1, .layers_fd = -1, .lock_fd = -1};
    int r = restore(&restoring, err);

    *out = (struct backup_result){.entries = restoring.entries};
    backup_parts_count(&restoring.parts, out);
    out->bytes = restoring.file ? (uint64_t)backup_file_size(restoring.file) : 0;
    backup_unpack_free(restoring.unpack);
    backup_file_close(restoring.file);
    backup_parts_done(&restoring.parts);
    close_host(&restoring);
    if (r < 0 && restoring.begun)
        remove_all(&restoring);
    close_fd(&restoring.lock_fd);
    close_fd(&restoring.data_fd);
    return r;
}
