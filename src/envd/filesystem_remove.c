/* Remove: one file, or a directory with everything in it, without following links. A missing one is
 * as good as removed.
 *
 * A tree can have any number of entries, so it is taken down in slices, over several turns of the
 * loop when it is large. What cannot be removed is left out, and the first such failure is the
 * answer at the end. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "envd/envd.h"
#include "envd/guest_path.h"
#include "rpc/connect.h"
#include "json/json_shape.h"

enum {
    DEPTH_MAX = 512, /* each level holds a descriptor */
    PASSES_MAX = 3,
    SLICE = 1000,
};

/* One directory on the way down. */
struct level {
    struct level *up;
    DIR *dir;
    unsigned removed, passes;
    char name[]; /* in the one above; the whole path for the topmost */
};

/* Freed when the exchange is over and the handle closed. */
struct removal {
    struct http_exchange *ex; /* NULL: the client is gone */
    struct level *level;      /* the deepest; NULL when all is done */
    unsigned depth;
    int first; /* errno of the first failure, or 0 */
    uv_idle_t turn;
    unsigned refs;
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

/* ---- over several turns ---- */

static void unref(struct removal *removal)
{
    if (--removal->refs > 0)
        return;
    while (removal->level)
        pop_level(removal);
    free(removal);
}

static void on_turn_closed(uv_handle_t *handle)
{
    unref(handle->data);
}

/* A client that goes away does not stop it: half a tree is of no use to anybody. */
static void on_done(struct http_exchange *ex, void *arg)
{
    struct removal *removal = arg;

    (void)ex;
    removal->ex = NULL;
    unref(removal);
}

static void on_turn(uv_idle_t *turn)
{
    struct removal *removal = turn->data;
    struct error err = {0};

    for (int i = 0; i < SLICE && removal->level; i++)
        step(removal);
    if (removal->level)
        return;
    uv_close((uv_handle_t *)turn, on_turn_closed);
    if (!removal->ex)
        return;
    if (result(removal, &err) != 0)
        connect_reply_error(removal->ex, &err);
    else
        connect_reply(removal->ex, STR("{}"));
}

static int begin(struct removal *removal, struct error *err)
{
    int r;

    take(removal, removal->path);
    if (removal->level) {
        removal->refs++;
        (void)uv_idle_init(loop_uv(http_loop(removal->ex)), &removal->turn);
        removal->turn.data = removal;
        http_on_done(removal->ex, on_done, removal);
        (void)uv_idle_start(&removal->turn, on_turn);
        return 0;
    }
    r = result(removal, err);
    if (r == 0)
        connect_reply(removal->ex, STR("{}"));
    unref(removal);
    return r;
}

int filesystem_remove(struct call *call, struct error *err)
{
    struct removal *removal;
    struct user user;
    char path[PATH_MAX];

    if (call_path(call, "path", &user, path, err) != 0)
        return -1;
    for (size_t len = strlen(path); len > 1 && path[len - 1] == '/'; len--)
        path[len - 1] = '\0';
    removal = xcalloc(1, sizeof(*removal));
    removal->ex = call->ex;
    removal->refs = 1;
    memcpy(removal->path, path, strlen(path) + 1);
    return begin(removal, err);
}
