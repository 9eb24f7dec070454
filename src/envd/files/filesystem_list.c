/* ListDir: a walk over a directory, or several levels of it, in lexical order, each directory before
 * what is in it.
 *
 * A directory can have any number of entries, so the walk goes in slices: a small one is answered
 * at once, a large one over several turns of the loop. What one answer may hold is bounded. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/arena.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "envd/core/envd.h"
#include "envd/files/entry.h"
#include "envd/files/files.h"
#include "envd/files/guest_stat.h"
#include "envd/files/upload_file.h"
#include "protocol/json/json_out.h"
#include "protocol/json/json_shape.h"
#include "protocol/rpc/connect.h"

enum {
    ANSWER_MAX = 64 * 1024 * 1024,
    ENTRIES_MAX = 200 * 1000,
    DEPTH_MAX = 1024,
    TURN_US = 5000,  /* then others get theirs */
    TURN_STEPS = 32, /* names read or entries added between two looks at the clock */
};

/* One directory on the way down. */
struct level {
    struct level *up;
    DIR *dir; /* names are being read; NULL afterwards */
    struct arena arena;
    char **names;
    size_t count, cap, at;
    size_t path_len, shown_len; /* of the directory itself */
};

/* path and shown grow and shrink together. Freed when the exchange is over and the handle closed. */
struct listing {
    struct http_exchange *ex;
    struct level *level; /* the deepest; NULL when all is done */
    int64_t depth, max_depth;
    size_t entries;
    struct user_names names;
    struct buf out;
    uv_idle_t turn;
    unsigned refs;
    char path[PATH_MAX];
    char shown[PATH_MAX];
};

static void pop_level(struct listing *listing)
{
    struct level *level = listing->level;

    listing->level = level->up;
    listing->depth--;
    if (level->dir)
        (void)closedir(level->dir);
    arena_done(&level->arena);
    free(level);
}

static void free_listing(struct listing *listing)
{
    while (listing->level)
        pop_level(listing);
    user_names_done(&listing->names);
    buf_done(&listing->out);
    free(listing);
}

/* The directory at listing->path. One that is gone again is not there; the topmost must be. */
static int push_level(struct listing *listing, struct error *err)
{
    struct level *level;
    DIR *dir = NULL;
    int fd = open(listing->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    if (fd < 0 && listing->depth > 0 && (errno == ENOENT || errno == ENOTDIR || errno == ELOOP))
        return 0;
    if (fd >= 0)
        dir = fdopendir(fd);
    if (!dir) {
        error_set_errno(err, errno, "error reading directory %s", listing->shown);
        close_fd(&fd);
        return -1;
    }
    level = xcalloc(1, sizeof(*level));
    level->up = listing->level;
    level->dir = dir;
    level->path_len = strlen(listing->path);
    level->shown_len = strlen(listing->shown);
    listing->level = level;
    listing->depth++;
    return 0;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void add_name(struct level *level, const char *name)
{
    if (level->count == level->cap) {
        size_t cap = level->cap ? level->cap * 2 : 64;
        char **grown = arena_alloc(&level->arena, cap * sizeof(*grown));

        if (level->count)
            memcpy(grown, level->names, level->count * sizeof(*grown));
        level->names = grown;
        level->cap = cap;
    }
    level->names[level->count++] = (char *)(uintptr_t)arena_str(&level->arena, str_of(name)).p;
}

static int too_many(struct error *err)
{
    return error_set(err, ERROR_LIMIT, "more than %d entries to list", ENTRIES_MAX);
}

/* One name. */
static int read_step(struct listing *listing, struct error *err)
{
    struct level *level = listing->level;
    struct dirent *entry = readdir(level->dir);

    if (!entry) {
        (void)closedir(level->dir);
        level->dir = NULL;
        if (level->count)
            qsort(level->names, level->count, sizeof(*level->names), compare_names);
        return 0;
    }
    if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
        str_starts(str_of(entry->d_name), STR(UPLOAD_TEMP_PREFIX)))
        return 0;
    if (listing->entries + level->count >= ENTRIES_MAX)
        return too_many(err);
    add_name(level, entry->d_name);
    return 0;
}

static bool append(char path[PATH_MAX], size_t len, const char *name)
{
    size_t more = strlen(name);

    if (len > 0 && path[len - 1] == '/')
        len--;
    if (len + 1 + more >= PATH_MAX)
        return false;
    path[len] = '/';
    memcpy(path + len + 1, name, more + 1);
    return true;
}

/* One entry. */
static int entry_step(struct listing *listing, struct error *err)
{
    struct level *level = listing->level;
    const char *name = level->names[level->at++];
    struct buf *out = &listing->out;
    size_t before = out->len;
    bool is_dir;

    if (!append(listing->path, level->path_len, name) ||
        !append(listing->shown, level->shown_len, name))
        return error_set(err, ERROR_INVALID, "a path is too long in '%s'", listing->shown);
    if (entry_add(out, listing->path, str_of(listing->shown), &listing->names, &is_dir, err) != 0) {
        if (err->code != ERROR_NOT_FOUND)
            return -1;
        out->len = before; /* it went away meanwhile */
        return 0;
    }
    if (++listing->entries > ENTRIES_MAX)
        return too_many(err);
    return is_dir && listing->depth < listing->max_depth ? push_level(listing, err) : 0;
}

static int step(struct listing *listing, struct error *err)
{
    struct level *level = listing->level;

    if (level->dir)
        return read_step(listing, err);
    if (level->at < level->count)
        return entry_step(listing, err);
    pop_level(listing);
    return 0;
}

/* 1: there is more to do. */
static int work(struct listing *listing, struct error *err)
{
    int64_t until = clock_mono_us() + TURN_US;

    do {
        for (int i = 0; i < TURN_STEPS && listing->level; i++)
            if (step(listing, err) != 0)
                return -1;
    } while (listing->level && clock_mono_us() < until);
    return listing->level ? 1 : 0;
}

static void answer(struct listing *listing, int result, const struct error *err)
{
    if (result < 0) {
        connect_reply_error(listing->ex, err);
        return;
    }
    json_out_close(&listing->out, "]}");
    connect_reply(listing->ex, buf_str(&listing->out));
}

/* ---- over several turns ---- */

static void unref(struct listing *listing)
{
    if (--listing->refs == 0)
        free_listing(listing);
}

static void on_turn_closed(uv_handle_t *handle)
{
    unref(handle->data);
}

static void on_done(struct http_exchange *ex, void *arg)
{
    struct listing *listing = arg;

    (void)ex;
    uv_close((uv_handle_t *)&listing->turn, on_turn_closed);
    unref(listing);
}

static void on_turn(uv_idle_t *turn)
{
    struct listing *listing = turn->data;
    struct error err = {0};
    int r;

    r = work(listing, &err);
    if (r > 0)
        return;
    (void)uv_idle_stop(turn);
    answer(listing, r, &err);
}

static void go_on_later(struct listing *listing)
{
    listing->refs = 2;
    (void)uv_idle_init(loop_uv(http_loop(listing->ex)), &listing->turn);
    listing->turn.data = listing;
    http_on_done(listing->ex, on_done, listing);
    (void)uv_idle_start(&listing->turn, on_turn);
}

/* ---- the request ---- */

static int check_directory(const char *requested, char resolved[PATH_MAX], struct error *err)
{
    struct guest_stat st;

    if (!realpath(requested, resolved)) {
        if (errno == ENOENT || errno == ENOTDIR)
            return error_set(err, ERROR_NOT_FOUND, "path not found: '%s' does not exist",
                             requested);
        if (errno == ELOOP)
            return error_set(err, ERROR_CONFLICT, "cyclic symlink or too long a chain at '%s'",
                             requested);
        return error_set_errno(err, errno, "error resolving '%s'", requested);
    }
    if (guest_stat(resolved, true, &st) != 0)
        return error_set(err, ERROR_NOT_FOUND, "directory not found: %s", requested);
    if (!S_ISDIR(st.mode))
        return error_set(err, ERROR_INVALID, "path is not a directory: %s", requested);
    return 0;
}

struct list_request {
    int64_t depth;
};

static const struct json_field fields[] = {
    JSON_FIELD(struct list_request, depth, "depth", 0),
    JSON_END,
};

static int prepare(struct listing *listing, const struct call *call, struct error *err)
{
    struct list_request request = {.depth = 1};
    struct user user;

    if (json_read(fields, call->request, &request, err) != 0 ||
        call_path(call, "path", &user, listing->shown, err) != 0 ||
        check_directory(listing->shown, listing->path, err) != 0)
        return -1;
    if (request.depth < 0)
        return error_set(err, ERROR_INVALID, "'depth' is negative");
    listing->max_depth = request.depth == 0          ? 1
                         : request.depth < DEPTH_MAX ? request.depth
                                                     : DEPTH_MAX;
    return push_level(listing, err);
}

int filesystem_list_dir(struct call *call, struct error *err)
{
    struct listing *listing = xcalloc(1, sizeof(*listing));
    int r;

    listing->ex = call->ex;
    buf_init(&listing->out, ANSWER_MAX);
    json_out_open(&listing->out, NULL, '{');
    json_out_open(&listing->out, "entries", '[');
    user_names_load(&listing->names);
    r = prepare(listing, call, err);
    if (r == 0)
        r = work(listing, err);
    if (r > 0) {
        go_on_later(listing);
        return 0;
    }
    if (r == 0)
        answer(listing, 0, NULL);
    free_listing(listing);
    return r;
}
