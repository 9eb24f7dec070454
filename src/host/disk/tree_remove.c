/* Removing trees. A name goes at once, by a rename; what it held goes bit by bit, so that nobody waits for a million
 * files. A hostile tree may be deeper than a stack: what lies too deep is moved up first. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/path.h"
#include "host/disk/tree_internal.h"

enum { DEEP = 32 };

/* A name of something to remove that is not taken. */
static int set_aside(struct trees *trees, int dir_fd, const char *name)
{
    char old[TREE_NAME_SIZE];
    int r;

    do {
        (void)pthread_mutex_lock(&trees->lock);
        (void)snprintf(old, sizeof(old), TREE_OLD "%" PRIu64, ++trees->last_old);
        (void)pthread_mutex_unlock(&trees->lock);
        r = renameat2(dir_fd, name, trees->layers_fd, old, RENAME_NOREPLACE) < 0 ? -errno : 0;
    } while (r == -EEXIST);
    if (r == 0)
        __atomic_store_n(&trees->has_old, true, __ATOMIC_RELEASE);
    return r;
}

int tree_set_aside(struct trees *trees, const char *entry, struct error *err)
{
    int r = set_aside(trees, trees->layers_fd, entry);

    return r < 0 && r != -ENOENT ? error_set_errno(err, -r, "remove layer '%s'", entry) : 0;
}

struct removal {
    struct trees *trees;
    int64_t until_us;
    bool late;
};

static void remove_dir(struct removal *removal, int dir_fd, const char *name, int depth);

static void remove_entry(struct removal *removal, int dir_fd, const char *name, int depth)
{
    if (unlinkat(dir_fd, name, 0) == 0 || (errno != EISDIR && errno != EPERM))
        return;
    if (unlinkat(dir_fd, name, AT_REMOVEDIR) == 0)
        return;
    if (depth == DEEP)
        (void)set_aside(removal->trees, dir_fd, name);
    else
        remove_dir(removal, dir_fd, name, depth + 1);
}

static void remove_dir(struct removal *removal, int dir_fd, const char *name, int depth)
{
    DIR *dir = path_open_dir(dir_fd, name);
    struct dirent *entry;

    if (!dir)
        return;
    while (!removal->late && (entry = readdir(dir))) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        remove_entry(removal, dirfd(dir), entry->d_name, depth);
        removal->late = clock_mono_us() >= removal->until_us || trees_stopped(removal->trees);
    }
    (void)closedir(dir);
    (void)unlinkat(dir_fd, name, AT_REMOVEDIR);
}

static bool begins_with(const char *name, const char *prefix)
{
    return strncmp(name, prefix, strlen(prefix)) == 0;
}

void tree_find_old(struct trees *trees)
{
    DIR *dir = path_open_dir(trees->layers_fd, ".");
    struct dirent *entry;
    struct error err;

    while (dir && (entry = readdir(dir))) {
        if ((begins_with(entry->d_name, TREE_NEW) || begins_with(entry->d_name, TREE_LINKS)) &&
            tree_set_aside(trees, entry->d_name, &err) < 0)
            log_warn("warden", "%s; ignoring", err.message);
        if (begins_with(entry->d_name, TREE_OLD))
            __atomic_store_n(&trees->has_old, true, __ATOMIC_RELEASE);
    }
    if (dir)
        (void)closedir(dir);
}

bool tree_remove_old(struct trees *trees, int budget_ms)
{
    struct removal removal = {.trees = trees,
                              .until_us = clock_mono_us() + budget_ms * INT64_C(1000)};
    struct dirent *entry;
    bool found = false;
    DIR *dir;

    if (!__atomic_exchange_n(&trees->has_old, false, __ATOMIC_ACQ_REL))
        return false;
    dir = path_open_dir(trees->layers_fd, ".");
    while (dir && !removal.late && (entry = readdir(dir))) {
        if (!begins_with(entry->d_name, TREE_OLD))
            continue;
        found = true;
        remove_dir(&removal, trees->layers_fd, entry->d_name, 0);
    }
    if (dir)
        (void)closedir(dir);
    if (removal.late)
        __atomic_store_n(&trees->has_old, true, __ATOMIC_RELEASE);
    return found && removal.late;
}
