/* Makes a backup. In this order:
 *
 *   1. Layers, volumes and boxes get snapshots, while everything goes on.
 *   2. The store is held: nobody can write to it. What is new or was used since 1 gets another snapshot.
 *   3. The store is copied, and let go.
 *   4. All that is read and written to the file, in however long.
 *
 * So writers wait for a few snapshots and one copy, not for the backup. Trees are on a file system without snapshots; nobody
 * changes them, but one may be deleted meanwhile. */
#include "backup/backup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "backup/backup_pack.h"
#include "backup/backup_parts.h"
#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/map.h"
#include "base/path.h"
#include "host/disk/disk.h"
#include "host/disk/tree.h"
#include "store/core/store_export.h"

#define WORK ".backup"

enum { PATH_SIZE = 512 };

struct making {
    const struct backup_config *config;
    int data_fd, layers_fd, lock_fd, work_fd;
    bool alone; /* no server uses the data directory */
    struct disk *disk;
    struct trees *trees;
    struct store_export *store;
    struct backup_parts parts;
    struct map by_path; /* number of the part plus 1 */
    size_t snapshots;
    int64_t schema;
};

static const struct {
    enum backup_kind kind;
    enum disk_kind disk;
    enum store_export_kind store;
} pool[] = {
    {BACKUP_LAYERS, DISK_LAYERS, STORE_EXPORT_LAYERS},
    {BACKUP_VOLUMES, DISK_VOLUMES, STORE_EXPORT_VOLUMES},
    {BACKUP_BOXES, DISK_BOXES, STORE_EXPORT_BOXES},
};

static void drop_snapshot(struct making *making, struct backup_part *part)
{
    if (part->as[0])
        disk_keep_drop(making->disk, part->as);
    part->as[0] = '\0';
}

static void making_done(struct making *making)
{
    for (size_t i = 0; i < making->parts.count; i++)
        drop_snapshot(making, &making->parts.list[i]);
    backup_parts_done(&making->parts);
    map_done(&making->by_path);
    store_export_close(making->store);
    if (making->trees)
        trees_close(making->trees);
    if (making->disk) {
        struct error ignored;

        disk_close(making->disk);
        if (making->alone) /* refused when a sandbox uses it: then it was mounted before */
            (void)disk_unmount(&(struct disk_config){.data_dir = making->config->data_dir},
                               &ignored);
    }
    if (making->work_fd >= 0)
        (void)path_remove_tree(making->data_fd, WORK);
    close_fd(&making->work_fd);
    close_fd(&making->layers_fd);
    close_fd(&making->lock_fd);
    close_fd(&making->data_fd);
}

/* ---- opening ---- */

static int open_work(struct making *making, struct error *err)
{
    auto_close int fd = -1;

    if (mkdirat(making->data_fd, WORK, 0700) < 0 && errno != EEXIST)
        return error_set_errno(err, errno, "make '%s/" WORK "'", making->config->data_dir);
    fd = openat(making->data_fd, WORK, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return error_set_errno(err, errno, "open '%s/" WORK "'", making->config->data_dir);
    if (flock(fd, LOCK_EX | LOCK_NB) < 0)
        return error_set(err, ERROR_CONFLICT, "another backup of '%s' is being made",
                         making->config->data_dir);
    (void)unlinkat(fd, "quicksand.db", 0);
    making->work_fd = take_fd(&fd);
    return 0;
}

static int open_data(struct making *making, struct error *err)
{
    const char *data = making->config->data_dir;

    making->data_fd = open(data, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (making->data_fd < 0)
        return error_set_errno(err, errno, "open the data directory '%s'", data);
    if (faccessat(making->data_fd, "instance", F_OK, 0) < 0)
        return error_set(err, ERROR_NOT_FOUND,
                         "no server was ever started with the data directory '%s'; name the "
                         "right one with --data",
                         data);
    making->lock_fd = openat(making->data_fd, "lock", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (making->lock_fd < 0)
        return error_set_errno(err, errno, "open '%s/lock'", data);
    making->alone = flock(making->lock_fd, LOCK_EX | LOCK_NB) == 0;
    making->layers_fd = openat(making->data_fd, "layers", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (making->layers_fd < 0)
        return error_set_errno(err, errno, "open '%s/layers'", data);
    return open_work(making, err);
}

static int open_all(struct making *making, struct error *err)
{
    char path[PATH_SIZE];

    if (open_data(making, err) < 0)
        return -1;
    (void)snprintf(path, sizeof(path), "%s/store/quicksand.db", making->config->data_dir);
    if (store_schema(path, &making->schema, err) < 0 ||
        store_export_open(path, &making->store, err) < 0 ||
        trees_open(making->layers_fd, &making->trees, err) < 0)
        return -1;
    return disk_open(
        &(struct disk_config){.data_dir = making->config->data_dir, .beside = !making->alone},
        &making->disk, err);
}

/* ---- snapshots ---- */

static struct backup_part *part_of(struct making *making, enum backup_kind kind, struct str name)
{
    struct backup_part key = {.kind = kind}, *part;
    char path[BACKUP_PATH_SIZE];
    uintptr_t at;

    (void)str_copy(name, key.name, sizeof(key.name));
    backup_part_path(&key, path);
    at = (uintptr_t)map_get(&making->by_path, str_of(path));
    if (at)
        return &making->parts.list[at - 1];
    part = backup_parts_add(&making->parts, kind, name);
    (void)map_put(&making->by_path, str_of(path), (void *)making->parts.count);
    return part;
}

/* What the pool does not have gets no snapshot: a tree, or a sandbox that is being ended. */
static int keep_one(struct making *making, size_t nth, const struct store_export_name *wanted,
                    unsigned round, struct error *err)
{
    struct backup_part *part = part_of(making, pool[nth].kind, wanted->name);
    const char *mark = part->mark;

    part->round = round;
    if (part->as[0] && mark && str_is(wanted->mark, mark))
        return 0;
    drop_snapshot(making, part);
    free(part->mark);
    part->mark = str_dup(wanted->mark);
    (void)snprintf(part->as, sizeof(part->as), "backup-%zu", ++making->snapshots);
    if (disk_keep(making->disk, pool[nth].disk, part->name, part->as, err) == 0)
        return disk_kept_bytes(making->disk, pool[nth].disk, part->name, &part->bytes, err) < 0 &&
                       err->code != ERROR_NOT_FOUND
                   ? -1
                   : 0;
    part->as[0] = '\0';
    return err->code == ERROR_NOT_FOUND ? 0 : -1;
}

static int keep_all(struct making *making, unsigned round, struct error *err)
{
    auto_arena struct arena arena = {0};

    for (size_t nth = 0; nth < sizeof(pool) / sizeof(*pool); nth++) {
        struct store_export_names names;

        if (store_export_list(making->store, pool[nth].store, &arena, &names, err) < 0)
            return -1;
        for (size_t i = 0; i < names.count; i++) {
            if (making->config->stopped && making->config->stopped())
                return error_set(err, ERROR_UNAVAILABLE, "it was interrupted");
            if (keep_one(making, nth, &names.list[i], round, err) < 0)
                return -1;
        }
    }
    return 0;
}

static int keep(struct making *making, struct error *err)
{
    char path[PATH_SIZE];
    int r;

    (void)snprintf(path, sizeof(path), "%s/" WORK "/quicksand.db", making->config->data_dir);
    if (keep_all(making, 1, err) < 0 || store_export_hold(making->store, err) < 0)
        return -1;
    r = keep_all(making, 2, err) < 0 ? -1 : store_export_copy(making->store, path, err);
    store_export_release(making->store);
    return r;
}

/* ---- what is in it ---- */

/* Those that lie in the store's own directory, and are needed to read what is encrypted in it. */
static int copy_keys(const struct making *making, struct error *err)
{
    static const char *const files[] = {"secret.key", "egress-ca.pem"};

    for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++) {
        auto_buf struct buf text = {0};
        char path[64];
        int r;

        buf_init(&text, 1 << 20);
        (void)snprintf(path, sizeof(path), "store/%s", files[i]);
        r = fd_read_file_at(making->data_fd, path, &text);
        if (r == 0)
            r = fd_make_file_at(making->work_fd, files[i], buf_str(&text));
        if (r < 0 && r != -ENOENT)
            return error_set_errno(err, -r, "copy '%s'", path);
    }
    return 0;
}

static bool is_directory(int dir_fd, const char *name)
{
    struct stat st;

    return fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode);
}

/* A layer that has no stamp was not made by a server. */
static int add_installed(struct making *making, struct backup_parts *out, struct error *err)
{
    DIR *dir = fdopendir(fcntl(making->layers_fd, F_DUPFD_CLOEXEC, 0));
    struct tree_info info;
    struct dirent *at;

    if (!dir)
        return error_set_errno(err, errno, "list layers");
    rewinddir(dir);
    while ((at = readdir(dir)))
        if (at->d_name[0] != '.' && strlen(at->d_name) < BACKUP_NAME_SIZE &&
            is_directory(making->layers_fd, at->d_name) &&
            tree_stat(making->trees, at->d_name, &info, err) < 0)
            (void)backup_parts_add(out, BACKUP_INSTALLED, str_of(at->d_name));
    (void)closedir(dir);
    return 0;
}

static int add_layer(struct making *making, const struct backup_part *part,
                     struct backup_parts *out, struct error *err)
{
    if (part->as[0] || part->round < 2)
        return 0;
    if (!is_directory(making->layers_fd, part->name))
        return error_set(err, ERROR_INTERNAL,
                         "the files of layer '%s', which a template or snapshot needs, are gone: "
                         "delete what has it, then try again",
                         part->name);
    (void)backup_parts_add(out, BACKUP_TREES, str_of(part->name));
    return 0;
}

/* Parts in the order of their kinds, without those that went between the two rounds or never had files. */
static int list_parts(struct making *making, struct backup_parts *out, struct error *err)
{
    (void)backup_parts_add(out, BACKUP_STORE, STR("main"));
    if (is_directory(making->data_fd, "tls"))
        (void)backup_parts_add(out, BACKUP_TLS, STR("main"));
    if (add_installed(making, out, err) < 0)
        return -1;
    for (size_t i = 0; i < making->parts.count; i++)
        if (making->parts.list[i].kind == BACKUP_LAYERS &&
            add_layer(making, &making->parts.list[i], out, err) < 0)
            return -1;
    for (size_t nth = 0; nth < sizeof(pool) / sizeof(*pool); nth++)
        for (size_t i = 0; i < making->parts.count; i++) {
            const struct backup_part *part = &making->parts.list[i];
            struct backup_part *added;

            if (part->kind != pool[nth].kind || !part->as[0] || part->round < 2)
                continue;
            added = backup_parts_add(out, part->kind, str_of(part->name));
            added->bytes = part->bytes;
            memcpy(added->as, part->as, sizeof(added->as));
        }
    return 0;
}

/* ---- writing ---- */

static int open_part(const struct making *making, const struct backup_part *part, int *out_fd,
                     struct error *err)
{
    bool layer = part->kind == BACKUP_TREES || part->kind == BACKUP_INSTALLED;

    if (backup_kind_in_pool(part->kind))
        return disk_keep_open(making->disk, pool[part->kind - BACKUP_LAYERS].disk, part->as, out_fd,
                              err);
    *out_fd = openat(layer                        ? making->layers_fd
                     : part->kind == BACKUP_STORE ? making->work_fd
                                                  : making->data_fd,
                     layer                        ? part->name
                     : part->kind == BACKUP_STORE ? "."
                                                  : "tls",
                     O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return *out_fd < 0 ? error_set_errno(err, errno, "open '%s'", part->name) : 0;
}

static bool is_still_there(const struct making *making, const struct backup_part *part, int fd)
{
    struct stat had, now;

    return part->kind != BACKUP_TREES ||
           (fstat(fd, &had) == 0 &&
            fstatat(making->layers_fd, part->name, &now, AT_SYMLINK_NOFOLLOW) == 0 &&
            had.st_ino == now.st_ino);
}

static int write_part(const struct making *making, struct backup_pack *pack,
                      const struct backup_part *part, struct error *err)
{
    char path[BACKUP_PATH_SIZE];
    auto_close int fd = -1;
    int r;

    backup_part_path(part, path);
    if (open_part(making, part, &fd, err) < 0)
        return -1;
    r = backup_pack_tree(pack, path, fd, err);
    if (!is_still_there(making, part, fd))
        return error_set(err, ERROR_CONFLICT,
                         "a template was deleted while the backup was made: try again");
    return r;
}

static int write_parts(const struct making *making, const struct backup_parts *parts,
                       struct backup_pack *pack, struct error *err)
{
    auto_buf struct buf list = {0};

    buf_init(&list, BACKUP_LIST_MAX);
    backup_list_write(parts, making->schema, &list);
    if (parts->count > BACKUP_PARTS_MAX || list.overflowed)
        return error_set(err, ERROR_LIMIT, "there are more than %d layers, volumes and sandboxes",
                         BACKUP_PARTS_MAX);
    if (backup_pack_text(pack, BACKUP_LIST, buf_str(&list), err) < 0)
        return -1;
    for (size_t i = 0; i < parts->count; i++)
        if (write_part(making, pack, &parts->list[i], err) < 0)
            return -1;
    return backup_pack_end(pack, err);
}

static int write_file(const struct making *making, const struct backup_parts *parts,
                      struct backup_result *out, struct error *err)
{
    struct backup_file *file = NULL;
    struct backup_pack *pack = NULL;
    int r;

    if (backup_file_create(making->config->path, &file, err) < 0)
        return -1;
    pack = backup_pack_new(file, making->config->stopped);
    r = write_parts(making, parts, pack, err);
    if (r == 0)
        r = backup_file_finish(file, err);
    backup_parts_count(parts, out);
    out->entries = backup_pack_entries(pack);
    out->bytes = (uint64_t)backup_file_size(file);
    backup_pack_free(pack);
    backup_file_close(file);
    return r;
}

int backup_make(const struct backup_config *config, struct backup_result *out, struct error *err)
{
    struct making making = {
        .config = config, .data_fd = -1, .layers_fd = -1, .lock_fd = -1, .work_fd = -1};
    struct backup_parts parts = {0};
    int r;

    *out = (struct backup_result){0};
    map_init(&making.by_path);
    r = open_all(&making, err);
    if (r == 0)
        r = keep(&making, err);
    if (r == 0)
        r = copy_keys(&making, err);
    if (r == 0)
        r = list_parts(&making, &parts, err);
    if (r == 0)
        r = write_file(&making, &parts, out, err);
    backup_parts_done(&parts);
    making_done(&making);
    return r;
}
