/* Remove: one file, or a directory with everything in it, without following links. A missing one is
 * as good as removed.
 *
 * A tree can have any number of entries, and a file system may take its time for each, so all of it
 * happens on the worker thread. There is one, which several removals share in slices of time. What
 * cannot be removed is left out, and the first such failure is the answer at the end. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/list.h"
#include "envd/core/envd.h"
#include "envd/files/files.h"
#include "envd/files/guest_path.h"
#include "protocol/json/json_shape.h"
#include "protocol/rpc/connect.h"

enum {
    DEPTH_MAX = 512, /* each level holds a descriptor */
    PASSES_MAX = 3,
    SLICE_US = 50 * 1000,
};

/* One directory on the way down. */
struct level {
    struct level *up;
    DIR *dir;
    unsigned removed, passes;
    char name[]; /* in the one above; the whole path for the topmost */
};

/* Belongs to the worker while that runs; `ex`, `refs` to the loop always. Freed when the exchange is
 * over and the work done. */
struct removal {
    struct work work;
    struct envd *envd;
    struct http_exchange *ex; /* NULL: the client is gone */
    struct level *level;      /* the deepest; NULL when all is done */
    unsigned depth;
    int first; /* errno of the first failure, or 0 */
    unsigned refs;
    bool begun;
    char path[PATH_MAX];
};

static int fd_of(const struct level *level)
{
    return level ? dirfd(level->dir) : AT_FDCWD;
}

/* Not there, and not there because something above is no directory: nothing to remove. */
static void failed(struct removal *removal, int errnum)
{
    if (removal->first == 0 && errnum != ENOENT && errnum != ENOTDIR)
        removal->first = errnum;
}

/* why: what unlinking it has said. */
static void push_level(struct removal *removal, const char *name, int why)
{
    int fd = removal->depth < DEPTH_MAX ? openat(fd_of(removal->level), name,
                                                 O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
                                        : (errno = ELOOP, -1);
    size_t len = strlen(name);
    struct level *level;
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;

    if (!dir) {
        failed(removal, errno == ENOTDIR ? why : errno);
        close_fd(&fd);
        return;
    }
    level = xcalloc(1, sizeof(*level) + len + 1);
    memcpy(level->name, name, len);
    level->dir = dir;
    level->up = removal->level;
    removal->level = level;
    removal->depth++;
}

/* A file goes at once; a directory is entered. */
static void take(struct removal *removal, const char *name)
{
    if (unlinkat(fd_of(removal->level), name, 0) == 0) {
        if (removal->level)
            removal->level->removed++;
        return;
    }
    if (errno == EISDIR || errno == EPERM || errno == ENOTEMPTY)
        push_level(removal, name, errno);
    else
        failed(removal, errno);
}

static void pop_level(struct removal *removal)
{
    struct level *level = removal->level;

    removal->level = level->up;
    removal->depth--;
    (void)closedir(level->dir);
    free(level);
}

/* All names of the deepest directory have been seen. */
static void leave(struct removal *removal)
{
    struct level *level = removal->level;

    if (unlinkat(fd_of(level->up), level->name, AT_REMOVEDIR) != 0) {
        /* Names may be left out when a directory changes while it is read. */
        if (errno == ENOTEMPTY && level->removed > 0 && ++level->passes < PASSES_MAX) {
            level->removed = 0;
            rewinddir(level->dir);
            return;
        }
        failed(removal, errno);
    } else if (level->up) {
        level->up->removed++;
    }
    pop_level(removal);
}

static void step(struct removal *removal)
{
    struct dirent *entry = readdir(removal->level->dir);

    if (!entry)
        leave(removal);
    else if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
        take(removal, entry->d_name);
}

static int result(const struct removal *removal, struct error *err)
{
    if (removal->first == 0)
        return 0;
    return error_set_errno(err, removal->first, "error removing '%s'", removal->path);
}

/* ---- on the worker, one slice ---- */

static void run(struct work *work)
{
    struct removal *removal = container_of(work, struct removal, work);
    int64_t until = clock_mono_us() + SLICE_US;

    if (!removal->begun) {
        removal->begun = true;
        take(removal, removal->path);
    }
    while (removal->level && clock_mono_us() < until)
        step(removal);
}

/* ---- on the loop ---- */

static void unref(struct removal *removal)
{
    if (--removal->refs == 0)
        free(removal);
}

/* A client that goes away does not stop it: half a tree is of no use to anybody. */
static void on_done(struct http_exchange *ex, void *arg)
{
    struct removal *removal = arg;

    (void)ex;
    removal->ex = NULL;
    unref(removal);
}

static void on_slice(struct work *work)
{
    struct removal *removal = container_of(work, struct removal, work);
    struct error err = {0};

    if (removal->level) {
        /* Behind the others. There is room: it counts as one of ENVD_REMOVALS_MAX until its end. */
        if (workers_run(removal->envd->workers, work) != 0)
            abort();
        return;
    }
    removal->envd->removals--;
    if (removal->ex) {
        if (result(removal, &err) != 0)
            connect_reply_error(removal->ex, &err);
        else
            connect_reply(removal->ex, STR("{}"));
    }
    unref(removal);
}

int filesystem_remove(struct call *call, struct error *err)
{
    struct envd *envd = call->envd;
    struct removal *removal;
    struct user user;
    char path[PATH_MAX];

    if (call_path(call, "path", &user, path, err) != 0)
        return -1;
    if (envd->removals >= ENVD_REMOVALS_MAX)
        return error_set(err, ERROR_LIMIT, "more than %d removals at once", ENVD_REMOVALS_MAX);
    for (size_t len = strlen(path); len > 1 && path[len - 1] == '/'; len--)
        path[len - 1] = '\0';
    removal = xcalloc(1, sizeof(*removal));
    *removal = (struct removal){
        .work = {.run = run, .done = on_slice, .loop = envd->loop},
        .envd = envd,
        .ex = call->ex,
        .refs = 2,
    };
    memcpy(removal->path, path, strlen(path) + 1);
    envd->removals++;
    http_on_done(call->ex, on_done, removal);
    if (workers_run(envd->workers, &removal->work) != 0)
        abort();
    return 0;
}
