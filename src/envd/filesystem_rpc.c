/* filesystem.Filesystem, the calls that answer at once. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/arena.h"
#include "base/cleanup.h"
#include "base/path.h"
#include "envd/entry.h"
#include "envd/envd.h"
#include "envd/guest_path.h"
#include "envd/guest_stat.h"
#include "envd/upload_file.h"
#include "rpc/connect.h"
#include "json/json_shape.h"

enum {
    ANSWER_MAX = 32 * 1024 * 1024,
    DEPTH_MAX = 1024,
};

/* The user, and the request's member resolved for that user. */
static int resolve(const struct call *call, const char *member, struct user *user,
                   char out[PATH_MAX], struct error *err)
{
    if (call_user(call, user, err) != 0)
        return -1;
    return guest_path_resolve(json_get_str(call->request, member), user,
                              call->envd->settings.default_workdir, out, err);
}

/* {"entry": ...} */
static int reply_entry(const struct call *call, const char *path, struct error *err)
{
    struct user_names names;
    auto_buf struct buf answer;
    int r;

    buf_init(&answer, ANSWER_MAX);
    buf_add_str(&answer, STR("{\"entry\":"));
    user_names_load(&names);
    r = entry_add(&answer, path, str_of(path), &names, err);
    user_names_done(&names);
    if (r != 0)
        return -1;
    buf_add_char(&answer, '}');
    connect_reply(call->ex, buf_str(&answer));
    return 0;
}

int filesystem_stat(struct call *call, struct error *err)
{
    char path[PATH_MAX];
    struct user user;

    if (resolve(call, "path", &user, path, err) != 0)
        return -1;
    return reply_entry(call, path, err);
}

int filesystem_make_dir(struct call *call, struct error *err)
{
    char path[PATH_MAX];
    struct guest_stat st;
    struct user user;
    int r;

    if (resolve(call, "path", &user, path, err) != 0)
        return -1;
    r = guest_stat(path, true, &st);
    if (r == 0 && S_ISDIR(st.mode))
        return error_set(err, ERROR_EXISTS, "directory already exists: %s", path);
    if (r == 0)
        return error_set(err, ERROR_INVALID, "path already exists but it is not a directory: %s",
                         path);
    if (guest_path_make_dirs(path, &user, err) != 0)
        return -1;
    return reply_entry(call, path, err);
}

int filesystem_move(struct call *call, struct error *err)
{
    char source[PATH_MAX], destination[PATH_MAX], parent[PATH_MAX];
    struct user user;

    if (resolve(call, "source", &user, source, err) != 0 ||
        resolve(call, "destination", &user, destination, err) != 0)
        return -1;
    guest_path_dir(destination, parent);
    if (guest_path_make_dirs(parent, &user, err) != 0)
        return -1;
    if (rename(source, destination) != 0) {
        if (errno == ENOENT)
            return error_set(err, ERROR_NOT_FOUND, "source file not found: '%s' does not exist",
                             source);
        return error_set_errno(err, errno, "error renaming '%s'", source);
    }
    return reply_entry(call, destination, err);
}

int filesystem_remove(struct call *call, struct error *err)
{
    char path[PATH_MAX];
    struct guest_stat st;
    struct user user;
    int r;

    if (resolve(call, "path", &user, path, err) != 0)
        return -1;
    for (size_t len = strlen(path); len > 1 && path[len - 1] == '/'; len--)
        path[len - 1] = '\0';
    r = guest_stat(path, false, &st);
    if (r != -ENOENT && r != -ENOTDIR && (r = path_remove_tree(AT_FDCWD, path)) != 0)
        return error_set_errno(err, -r, "error removing '%s'", path);
    connect_reply(call->ex, STR("{}"));
    return 0;
}

/* ---- ListDir ---- */

/* path and shown grow and shrink together as the walk goes down and up. */
struct walk {
    char path[PATH_MAX];
    char shown[PATH_MAX];
    struct user_names names;
    struct buf out;
    int64_t depth;
    bool any;
};

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Names in a directory, sorted; all memory is the arena's. */
static int read_names(const char *path, struct arena *arena, char ***out, size_t *out_count,
                      struct error *err)
{
    char **names = NULL;
    size_t count = 0, cap = 0;
    DIR *dir = opendir(path);
    struct dirent *entry;

    if (!dir)
        return error_set_errno(err, errno, "error reading directory %s", path);
    while ((entry = readdir(dir))) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
            str_starts(str_of(entry->d_name), STR(UPLOAD_TEMP_PREFIX)))
            continue;
        if (count == cap) {
            char **grown = arena_alloc(arena, (cap ? cap * 2 : 64) * sizeof(*grown));

            if (count)
                memcpy(grown, names, count * sizeof(*names));
            names = grown;
            cap = cap ? cap * 2 : 64;
        }
        names[count++] = (char *)(uintptr_t)arena_str(arena, str_of(entry->d_name)).p;
    }
    (void)closedir(dir);
    if (count)
        qsort(names, count, sizeof(*names), compare_names);
    *out = names;
    *out_count = count;
    return 0;
}

static bool push(char path[PATH_MAX], const char *name)
{
    size_t len = strlen(path), more = strlen(name);

    if (len > 0 && path[len - 1] == '/')
        len--;
    if (len + 1 + more >= PATH_MAX)
        return false;
    path[len] = '/';
    memcpy(path + len + 1, name, more + 1);
    return true;
}

static int walk(struct walk *walk, int64_t level, struct error *err);

static int walk_one(struct walk *w, const char *name, int64_t level, struct error *err)
{
    struct guest_stat st;

    if (!push(w->path, name) || !push(w->shown, name))
        return error_set(err, ERROR_INVALID, "a path is too long in '%s'", w->shown);
    if (w->any)
        buf_add_char(&w->out, ',');
    if (entry_add(&w->out, w->path, str_of(w->shown), &w->names, err) != 0) {
        if (err->code != ERROR_NOT_FOUND)
            return -1;
        if (w->any) /* it went away meanwhile: no comma either */
            w->out.p[--w->out.len] = '\0';
        return 0;
    }
    w->any = true;
    if (level < w->depth && guest_stat(w->path, false, &st) == 0 && S_ISDIR(st.mode))
        return walk(w, level + 1, err);
    return 0;
}

static int walk(struct walk *walk, int64_t level, struct error *err)
{
    size_t path_len = strlen(walk->path), shown_len = strlen(walk->shown);
    size_t count = 0;
    auto_arena struct arena arena = {0};
    char **names = NULL;

    if (read_names(walk->path, &arena, &names, &count, err) != 0)
        return -1;
    for (size_t i = 0; i < count; i++) {
        if (walk_one(walk, names[i], level, err) != 0)
            return -1;
        walk->path[path_len] = walk->shown[shown_len] = '\0';
    }
    return 0;
}

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

static const struct json_field list_fields[] = {
    JSON_FIELD(struct list_request, depth, "depth", 0),
    JSON_END,
};

int filesystem_list_dir(struct call *call, struct error *err)
{
    struct list_request request = {.depth = 1};
    auto_free struct walk *w = xcalloc(1, sizeof(*w));
    struct user user;
    int r;

    if (json_read(list_fields, call->request, &request, err) != 0 ||
        resolve(call, "path", &user, w->shown, err) != 0 ||
        check_directory(w->shown, w->path, err) != 0)
        return -1;
    if (request.depth < 0)
        return error_set(err, ERROR_INVALID, "'depth' is negative");
    w->depth = request.depth == 0 ? 1 : request.depth < DEPTH_MAX ? request.depth : DEPTH_MAX;
    buf_init(&w->out, ANSWER_MAX);
    user_names_load(&w->names);
    buf_add_str(&w->out, STR("{\"entries\":["));
    r = walk(w, 1, err);
    if (r == 0) {
        buf_add_str(&w->out, STR("]}"));
        connect_reply(call->ex, buf_str(&w->out));
    }
    user_names_done(&w->names);
    buf_done(&w->out);
    return r;
}
