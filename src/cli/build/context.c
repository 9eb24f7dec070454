#include "cli/build/context.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/path.h"
#include "cli/build/pack.h"
#include "protocol/json/json_shape.h"

enum { DEPTH_MAX = 128 };

/* ---- opening ---- */

static int read_ignore(struct context *context, int dir, const char *name, bool *found,
                       struct error *err)
{
    auto_buf struct buf text = {0};
    int rc;

    buf_init(&text, IGNORE_MAX + 1);
    rc = fd_read_file_at(dir, name, &text);
    *found = rc != -ENOENT;
    if (rc == -ENOENT)
        return 0;
    if (rc < 0)
        return error_set_errno(err, -rc, "'%s'", name);
    context->ignore_file = arena_printf(&context->arena, "%s", name);
    return ignore_parse(arena_str(&context->arena, buf_str(&text)), context->ignore_file,
                        &context->arena, &context->ignore, err);
}

int context_open(struct context *context, const char *path, const char *dockerfile,
                 struct error *err)
{
    auto_free char *own = xasprintf("%s.dockerignore", dockerfile);
    bool found;

    *context =
        (struct context){.path = path, .dockerfile = dockerfile, .dir = -1, .ignore_file = ""};
    context->dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (context->dir < 0)
        return error_set_errno(err, errno, "the context '%s'", path);
    if (read_ignore(context, AT_FDCWD, own, &found, err) < 0)
        return -1;
    return found ? 0 : read_ignore(context, context->dir, ".dockerignore", &found, err);
}

void context_done(struct context *context)
{
    close_fd(&context->dir);
    arena_done(&context->arena);
}

/* ---- gathering ---- */

struct gather {
    struct context *context;
    const struct dockerfile_files *files;
    struct ignore excludes; /* of the step */
    struct pack *out;
    size_t hits;        /* of the pattern that is looked for */
    bool was_ignored;   /* one of its hits was left out */
    size_t plain_files; /* sources that are one file each */
    struct error *err;
};

__attribute__((format(printf, 2, 3))) static int fault(struct gather *gather, const char *fmt, ...)
{
    char text[sizeof(gather->err->message)];
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    return error_set(gather->err, ERROR_INVALID, "%s:%d: %s", gather->context->dockerfile,
                     gather->files->line, text);
}

static struct pack_entry *add_entry(struct gather *gather, const char *name, const char *path,
                                    const struct stat *st)
{
    struct pack *out = gather->out;

    if (out->count == CONTEXT_ENTRIES_MAX) {
        (void)error_set(gather->err, ERROR_LIMIT, "more than %d files in '%s'", CONTEXT_ENTRIES_MAX,
                        gather->context->path);
        return NULL;
    }
    if (out->count == out->room) {
        out->room = out->room ? out->room * 2 : 64;
        out->entries = xrealloc(out->entries, out->room * sizeof(*out->entries));
    }
    out->entries[out->count] = (struct pack_entry){.name = xstrdup(name),
                                                   .path = path ? xstrdup(path) : NULL,
                                                   .mode = st->st_mode,
                                                   .size = st->st_size,
                                                   .mtime_s = st->st_mtim.tv_sec};
    return &out->entries[out->count++];
}

static int add_link(struct gather *gather, int dir, const char *base, const char *name,
                    const struct stat *st)
{
    struct pack_entry *entry = add_entry(gather, name, NULL, st);
    char target[PATH_MAX];
    ssize_t len = readlinkat(dir, base, target, sizeof(target));

    if (!entry)
        return -1;
    if (len < 0 || (size_t)len == sizeof(target))
        return fault(gather, "'%s' could not be read", name);
    entry->text = arena_str(&gather->context->arena, str_n(target, (size_t)len));
    return 0;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

struct names {
    char **items;
    size_t count;
};

static void names_done(struct names *names)
{
    for (size_t i = 0; i < names->count; i++)
        free(names->items[i]);
    free(names->items);
}

/* All of a directory but "." and "..", in order. */
static int list(int dir, struct names *out)
{
    DIR *stream = path_open_dir(dir, ".");
    const struct dirent *entry;

    *out = (struct names){0};
    if (!stream)
        return -1;
    while ((entry = readdir(stream))) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        if ((out->count & (out->count - 1)) == 0)
            out->items = xrealloc(out->items, (out->count ? out->count * 2 : 1) * sizeof(char *));
        out->items[out->count++] = xstrdup(entry->d_name);
    }
    (void)closedir(stream);
    if (out->count)
        qsort(out->items, out->count, sizeof(char *), by_name);
    return 0;
}

static char *joined(const char *folder, const char *name)
{
    return folder[0] ? xasprintf("%s/%s", folder, name) : xstrdup(name);
}

static int walk(struct gather *gather, int dir, const char *path, const char *name, int depth);

/* A directory inside: its own entry, then what is in it. One that is left out is there for what is wanted in it. */
static int walk_inside(struct gather *gather, int parent, const char *base, const char *path,
                       const char *name, const struct stat *st, bool ignored, int depth)
{
    auto_close int dir = openat(parent, base, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    size_t before = gather->out->count;

    if (dir < 0)
        return fault(gather, "'%s' could not be read", path);
    if (depth >= DEPTH_MAX)
        return fault(gather, "'%s' is too deep", path);
    if (!add_entry(gather, name, NULL, st) || walk(gather, dir, path, name, depth + 1) < 0)
        return -1;
    if (ignored && gather->out->count == before + 1)
        free(gather->out->entries[--gather->out->count].name);
    return 0;
}

static bool is_left_out(const struct gather *gather, const char *path, const char *name)
{
    return ignore_matches(&gather->context->ignore, str_of(path)) ||
           ignore_matches(&gather->excludes, str_of(name));
}

static int walk_one(struct gather *gather, int dir, const char *base, const char *path,
                    const char *name, int depth)
{
    bool ignored = is_left_out(gather, path, name);
    struct stat st;

    if (ignored && !gather->context->ignore.has_exceptions && !gather->excludes.has_exceptions)
        return 0;
    if (fstatat(dir, base, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return fault(gather, "'%s' could not be read", path);
    if (S_ISDIR(st.st_mode))
        return walk_inside(gather, dir, base, path, name, &st, ignored, depth);
    if (ignored || S_ISSOCK(st.st_mode))
        return 0;
    if (S_ISLNK(st.st_mode))
        return add_link(gather, dir, base, name, &st);
    if (!S_ISREG(st.st_mode))
        return fault(gather, "'%s' is neither a file nor a directory nor a link", path);
    return add_entry(gather, name, path, &st) ? 0 : -1;
}

/* What is in the directory, named beneath `name`. */
static int walk(struct gather *gather, int dir, const char *path, const char *name, int depth)
{
    struct names names;
    int rc = 0;

    if (list(dir, &names) < 0)
        return fault(gather, "'%s' could not be read", path);
    for (size_t i = 0; rc == 0 && i < names.count; i++) {
        auto_free char *inner = joined(path, names.items[i]),
                       *in_archive = joined(name, names.items[i]);

        rc = walk_one(gather, dir, names.items[i], inner, in_archive, depth);
    }
    names_done(&names);
    return rc;
}

/* A source that is there, by its path in the context ("" = all of it). A link is what it leads to. */
static int take_source(struct gather *gather, const char *path)
{
    struct context *context = gather->context;
    const char *base = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    auto_close int fd = path_open_in_root(context->dir, path[0] ? path : ".", O_RDONLY, 0);
    struct pack_entry *entry;
    struct stat st;

    gather->hits++;
    /* A link that leads nowhere is itself. */
    if (fd < 0 && fstatat(context->dir, path, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(st.st_mode))
        return add_link(gather, context->dir, path, base, &st);
    if (fd < 0 || fstat(fd, &st) < 0)
        return fault(gather, "'%s' could not be read", path);
    if (S_ISDIR(st.st_mode))
        return walk(gather, fd, path, "", 0);
    if (is_left_out(gather, path, base)) {
        gather->hits--;
        gather->was_ignored = true;
        return 0;
    }
    if (!S_ISREG(st.st_mode))
        return fault(gather, "'%s' is neither a file nor a directory", path);
    entry = add_entry(gather, base, path, &st);
    if (!entry)
        return -1;
    entry->unpack = gather->files->unpack && pack_is_archive(fd);
    gather->out->keeps_owners = gather->out->keeps_owners || entry->unpack;
    gather->plain_files += !entry->unpack;
    return 0;
}

static int find_matches(struct gather *gather, int dir, const char *path, struct str rest);

/* One name of a directory that the pattern's next part matches. */
static int go_into(struct gather *gather, int dir, const char *path, const char *name,
                   struct str rest)
{
    auto_free char *inner = joined(path, name);
    auto_close int fd = -1;

    if (!rest.p)
        return take_source(gather, inner);
    fd = path_open_in_root(gather->context->dir, inner, O_RDONLY | O_DIRECTORY, 0);
    (void)dir;
    return fd < 0 ? 0 : find_matches(gather, fd, inner, rest);
}

static int find_matches(struct gather *gather, int dir, const char *path, struct str rest)
{
    struct str part = str_split(&rest, '/');
    struct names names;
    int rc = 0;

    if (list(dir, &names) < 0)
        return fault(gather, "'%s' could not be read", path);
    for (size_t i = 0; rc == 0 && i < names.count; i++)
        if (pattern_match(part, str_of(names.items[i]), false))
            rc = go_into(gather, dir, path, names.items[i], rest);
    names_done(&names);
    return rc;
}

static int gather_source(struct gather *gather, struct str source)
{
    auto_free char *text = str_dup(str_is(source, ".") ? STR("") : source);
    auto_close int fd = -1;

    gather->hits = 0;
    gather->was_ignored = false;
    if (!pattern_is_plain(source))
        return find_matches(gather, gather->context->dir, "", source);
    fd = path_open_in_root(gather->context->dir, text[0] ? text : ".", O_PATH, 0);
    if (fd >= 0 && take_source(gather, text) < 0)
        return -1;
    if (gather->hits)
        return 0;
    return gather->was_ignored ? fault(gather, "'%s' is left out by the file .dockerignore", text)
                               : fault(gather, "'%s' is not in the context", text);
}

static int gather_own(struct gather *gather)
{
    for (size_t i = 0; i < gather->files->own_count; i++) {
        const struct dockerfile_file *file = &gather->files->own[i];
        auto_free char *name = str_dup(file->name);
        struct stat st = {.st_mode = S_IFREG | 0644, .st_size = (off_t)file->content.len};
        struct pack_entry *entry = add_entry(gather, name, NULL, &st);

        if (!entry)
            return -1;
        entry->text = file->content;
        gather->plain_files++;
    }
    return 0;
}

static int read_excludes(struct gather *gather)
{
    const struct words *words = &gather->files->excludes;
    auto_buf struct buf lines = {0};

    buf_init(&lines, IGNORE_MAX);
    for (size_t i = 0; i < words->count; i++)
        (void)buf_printf(&lines, "%.*s\n", STR_ARG(words->items[i]));
    return ignore_parse(arena_str(&gather->context->arena, buf_str(&lines)), "--exclude",
                        &gather->context->arena, &gather->excludes, gather->err);
}

/* One file becomes the destination, or goes into it; of anything else the content does. */
static int choose_src(struct gather *gather)
{
    struct pack *out = gather->out;
    bool wants_file = gather->plain_files == 1 && out->count == 1;

    out->src = STR(".");
    if (wants_file && !gather->files->to_dir)
        out->src = str_of(out->entries[0].name);
    else if (gather->plain_files > 1 && !gather->files->to_dir)
        return fault(gather, "several files need a destination that ends in '/'");
    return 0;
}

int pack_gather(struct context *context, const struct dockerfile_files *files, struct pack *out,
                struct error *err)
{
    struct gather gather = {.context = context, .files = files, .out = out, .err = err};
    bool wanted = files->sources.count > 0;
    size_t found = 0;

    *out = (struct pack){0};
    if (read_excludes(&gather) < 0)
        return -1;
    for (size_t i = 0; i < files->sources.count; i++) {
        if (gather_source(&gather, files->sources.items[i]) < 0)
            return -1;
        found += gather.hits;
    }
    if (gather_own(&gather) < 0)
        return -1;
    /* A directory that is to be there, and nothing in it. */
    if (!wanted && !files->own_count &&
        !add_entry(&gather, ".", NULL, &(struct stat){.st_mode = S_IFDIR | 0755}))
        return -1;
    if (wanted && !found && !files->own_count)
        return fault(&gather, "no file of the context matches");
    if (choose_src(&gather) < 0)
        return -1;
    return pack_hash(context, out, err);
}

void pack_name(const struct dockerfile_files *files, const struct pack *pack)
{
    json_t *args = json_object_get(files->step, "args");

    if (files->is_mount) {
        (void)json_object_set_new(files->step, "id", json_string(pack->hash));
        (void)json_object_set_new(files->step, "source", json_str(pack->src));
        return;
    }
    (void)json_object_set_new(files->step, "filesHash", json_string(pack->hash));
    (void)json_array_set_new(args, 0, json_str(pack->src));
    if (pack->keeps_owners && str_is(str_of(json_string_value(json_array_get(args, 2))), "0:0"))
        (void)json_array_set_new(args, 2, json_string("keep"));
}

void pack_done(struct pack *pack)
{
    for (size_t i = 0; i < pack->count; i++) {
        free(pack->entries[i].name);
        free(pack->entries[i].path);
    }
    free(pack->entries);
    *pack = (struct pack){0};
}
