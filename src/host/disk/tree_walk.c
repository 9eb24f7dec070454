/* Looks at everything in a tree, in any order, directories around what is in them. The tree may be hostile: it is
 * not recursion, no link is followed, other file systems are not entered, depth and number are bounded. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "host/disk/tree_internal.h"

struct level {
    DIR *dir;
    struct stat st;
    uint64_t note;
};

struct state {
    const struct tree_walk *walk;
    struct level *levels;
    size_t depth, depth_max;
    uint64_t entries, entries_max;
};

static struct tree_entry entry_in(const struct state *state, const char *name)
{
    const struct level *top = state->depth ? &state->levels[state->depth - 1] : NULL;

    return (struct tree_entry){
        .dir_fd = top ? dirfd(top->dir) : -1, .above = top ? top->note : 0, .name = name, .fd = -1};
}

/* Takes the descriptor. */
static int push(struct state *state, struct tree_entry *entry, int fd_consume, struct error *err)
{
    auto_close int fd = fd_consume;
    struct level *level = &state->levels[state->depth];
    DIR *dir;

    if (state->depth == state->depth_max)
        return error_set(err, ERROR_INVALID, "directories are more than %zu deep",
                         state->depth_max);
    if (fstat(fd, &entry->st) < 0 || !(dir = fdopendir(fd)))
        return error_set_errno(err, errno, "open a directory");
    (void)take_fd(&fd);
    entry->fd = dirfd(dir);
    *level = (struct level){.dir = dir, .st = entry->st};
    if (state->walk->enter(state->walk->arg, entry, &level->note, err) < 0) {
        (void)closedir(dir);
        return -1;
    }
    state->depth++;
    return 0;
}

static int pop(struct state *state, struct error *err)
{
    struct level *level = &state->levels[--state->depth];
    struct tree_entry entry = entry_in(state, NULL);
    int r;

    entry.fd = dirfd(level->dir);
    entry.st = level->st;
    r = state->walk->leave ? state->walk->leave(state->walk->arg, &entry, level->note, err) : 0;
    (void)closedir(level->dir);
    return r;
}

static bool vanished(const struct state *state, int errnum)
{
    return state->walk->moving && (errnum == ENOENT || errnum == ENOTDIR || errnum == ELOOP);
}

static int enter_dir(struct state *state, struct tree_entry *entry, struct error *err)
{
    int fd = openat(entry->dir_fd, entry->name,
                    O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NOATIME | O_CLOEXEC);

    if (fd < 0)
        return vanished(state, errno) ? 0 : error_set_errno(err, errno, "open a directory");
    return push(state, entry, fd, err);
}

static int look_at(struct state *state, const char *name, struct error *err)
{
    struct tree_entry entry = entry_in(state, name);

    if (fstatat(entry.dir_fd, name, &entry.st, AT_SYMLINK_NOFOLLOW) < 0)
        return vanished(state, errno) ? 0 : error_set_errno(err, errno, "look at a file");
    if (entry.st.st_dev != state->levels[0].st.st_dev)
        return error_set(err, ERROR_INVALID, "another file system is mounted in it");
    if (++state->entries > state->entries_max)
        return error_set(err, ERROR_LIMIT, "more than %" PRIu64 " files", state->entries_max);
    if (S_ISDIR(entry.st.st_mode))
        return enter_dir(state, &entry, err);
    return state->walk->leaf(state->walk->arg, &entry, err);
}

static bool is_dots(const char *name)
{
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

static int step(struct state *state, struct error *err)
{
    struct dirent *entry;

    if (state->walk->trees && trees_stopped(state->walk->trees))
        return error_set(err, ERROR_UNAVAILABLE, "the server is stopping");
    errno = 0;
    entry = readdir(state->levels[state->depth - 1].dir);
    if (!entry && errno)
        return error_set_errno(err, errno, "read a directory");
    if (!entry)
        return pop(state, err);
    return is_dots(entry->d_name) ? 0 : look_at(state, entry->d_name, err);
}

static void drop_all(struct state *state)
{
    while (state->depth) {
        struct level *level = &state->levels[--state->depth];

        if (state->walk->drop)
            state->walk->drop(state->walk->arg, level->note);
        (void)closedir(level->dir);
    }
}

int tree_walk(const struct tree_walk *walk, int root_fd, struct error *err)
{
    uint64_t entries_max = walk->entries_max ? walk->entries_max : TREE_ENTRIES_MAX;
    size_t depth_max = entries_max < TREE_DEPTH_MAX ? entries_max + 1 : TREE_DEPTH_MAX;
    auto_free struct level *levels = xcalloc(depth_max, sizeof(*levels));
    struct state state = {
        .walk = walk, .levels = levels, .depth_max = depth_max, .entries_max = entries_max};
    struct tree_entry root = entry_in(&state, NULL);
    int fd = openat(root_fd, ".", O_RDONLY | O_DIRECTORY | O_NOATIME | O_CLOEXEC), r;

    if (fd < 0)
        return error_set_errno(err, errno, "open the tree");
    r = push(&state, &root, fd, err);
    while (r == 0 && state.depth)
        r = step(&state, err);
    drop_all(&state);
    return r;
}
