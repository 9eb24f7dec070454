/* What a copy of the store does not know. A copy that is put in the store's place lacks the sandboxes and layers made since, and
 * a new store lacks all of them, so the first start with either must not take them for leftovers.
 *
 * The mark is SQLite's user_version: 1 once a server has started with this store, 0 in every copy (driver_sqlite.c), in a
 * new store, and in one that a version without the mark wrote. The list of what is kept lies beside the store, so that it outlives
 * the next copy as well. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "store/core/query.h"
#include "store/core/store.h"
#include "store/driver/store_driver.h"

enum { PATH_SIZE = 512, LIST_MAX = 16 << 20 };

/* The store's directory; -1 for a store in memory or in another process, which has none. */
static int open_directory(const struct store *store)
{
    const char *where = store_where(store);
    size_t size = (size_t)(strrchr(where, '/') ? strrchr(where, '/') - where : 0);
    char path[PATH_SIZE];

    if (where[0] != '/' || size >= sizeof(path))
        return -1;
    (void)snprintf(path, sizeof(path), "%.*s/", (int)size, where);
    return open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

int store_is_strange(struct store *store, bool *out, struct error *err)
{
    auto_conn struct conn *conn = store_read(store);
    bool marked = true;

    if (store_where(store)[0] == '/' && store_marked(conn, &marked, err) < 0)
        return -1;
    *out = !marked;
    return 0;
}

int store_is_familiar(struct store *store, struct error *err)
{
    auto_conn struct conn *conn = store_write(store);

    return store_where(store)[0] == '/' ? store_mark(conn, err) : 0;
}

int store_aside_read(struct store *store, struct arena *arena, struct str *out, struct error *err)
{
    auto_close int dir = open_directory(store);
    auto_buf struct buf text = {0};
    int r = 0;

    *out = STR("");
    if (dir < 0)
        return 0;
    buf_init(&text, LIST_MAX);
    r = fd_read_file_at(dir, STORE_ASIDE, &text);
    if (r == -ENOENT)
        return 0;
    if (r < 0)
        return error_set_errno(err, -r, "read '" STORE_ASIDE "' beside the store");
    *out = arena_str(arena, buf_str(&text));
    return 0;
}

static int write_list(int dir, struct str list)
{
    auto_close int fd =
        openat(dir, STORE_ASIDE ".new", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    int r = fd < 0 ? -errno : fd_write_full(fd, list.p, list.len);

    if (r < 0)
        return r;
    if (fsync(fd) < 0 || renameat(dir, STORE_ASIDE ".new", dir, STORE_ASIDE) < 0)
        return -errno;
    return 0;
}

int store_aside_write(struct store *store, struct str list, struct error *err)
{
    auto_close int dir = open_directory(store);
    int r = 0;

    if (dir < 0)
        return 0;
    if (list.len)
        r = write_list(dir, list);
    else if (unlinkat(dir, STORE_ASIDE, 0) < 0 && errno != ENOENT)
        r = -errno;
    if (r == 0 && fsync(dir) < 0)
        r = -errno;
    return r < 0 ? error_set_errno(err, -r, "write '" STORE_ASIDE "' beside the store") : 0;
}
