/* Copies of the store's file, for an operator whose disk damaged it. The newest is STORE.backup, older
 * ones are STORE.backup.1 and .2. A copy gets its name when it is complete and on disk. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "store/core/query.h"
#include "store/core/store.h"
#include "store/driver/store_driver.h"

enum { PATH_SIZE = 512, KEPT = 3 };

static int64_t age_us(const char *path)
{
    struct stat st;

    if (stat(path, &st) < 0)
        return INT64_MAX;
    return clock_wall_us() - ((int64_t)st.st_mtim.tv_sec * 1000000 + st.st_mtim.tv_nsec / 1000);
}

static void name_of(const char *where, int nth, char out[PATH_SIZE])
{
    if (nth == 0)
        (void)snprintf(out, PATH_SIZE, "%s" STORE_BACKUP, where);
    else
        (void)snprintf(out, PATH_SIZE, "%s" STORE_BACKUP ".%d", where, nth);
}

static int to_disk(const char *path, struct error *err)
{
    auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0 || fchmod(fd, 0600) < 0 || fsync(fd) < 0)
        return error_set_errno(err, errno, "flush '%s'", path);
    return 0;
}

static int put_in_place(const char *where, const char *fresh, struct error *err)
{
    char from[PATH_SIZE], to[PATH_SIZE];

    for (int nth = KEPT - 1; nth > 0; nth--) {
        name_of(where, nth - 1, from);
        name_of(where, nth, to);
        if (rename(from, to) < 0 && errno != ENOENT)
            return error_set_errno(err, errno, "keep '%s'", from);
    }
    name_of(where, 0, to);
    return rename(fresh, to) < 0 ? error_set_errno(err, errno, "make '%s'", to) : 0;
}

int store_backup(struct store *store, int64_t min_age_us, struct error *err)
{
    const char *where = store_where(store);
    char newest[PATH_SIZE], fresh[PATH_SIZE];
    int64_t age;

    name_of(where, 0, newest);
    if (where[0] != '/' || strlen(where) + 32 > PATH_SIZE)
        return 0; /* in memory */
    age = age_us(newest);
    if (age >= 0 && age < min_age_us) /* one from the future: the clock was set */
        return 0;
    (void)snprintf(fresh, sizeof(fresh), "%s" STORE_BACKUP ".new", where);
    (void)unlink(fresh);
    if (store_copy(store, fresh, err) < 0 || to_disk(fresh, err) < 0 ||
        put_in_place(where, fresh, err) < 0) {
        (void)unlink(fresh);
        return error_prefix(err, "copy the store");
    }
    return 0;
}
