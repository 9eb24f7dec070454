/* COPY: an archive into the stage's box, where the program `unpack` puts it in place. The archive is what the client uploaded, what
 * another stage or image has at a path, or what a URL answers. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/encode.h"
#include "base/fd.h"
#include "domain/build/build_internal.h"

enum { ARGV_MAX = 32 + 2 * 64, URL_IDLE_MS = 60 * 1000, REDIRECTS = 5, URL_SIZE = 4096 };

/* ---- where from ---- */

/* Stdout of `unpack pack` in a box of those layers, into a file of ours, which the stage's box gets. */
static int pack_from(struct stage *stage, struct str layers, struct str path, const char *name,
                     struct error *err)
{
    const char *argv[] = {"/run/feed/unpack", "pack", "--", NULL, NULL};
    auto_close int fd = files_spool(stage->build->all, err);
    struct build_command command = {.argv = argv, .cwd = "/", .spool_fd = fd};
    struct build_box box = {0};
    char to[512], dir[400];
    int r;

    if (fd < 0 || build_box_prepare(&box, stage->build, err) < 0)
        return -1;
    argv[3] = arena_str(&stage->arena, path).p;
    r = build_box_open(&box, stage->build,
                       &(struct build_box_wants){.layers = layers, .feed = true}, err);
    if (r == 0)
        r = build_box_must(&box, &command, "read what is to be copied", err);
    build_box_close(&box);
    if (r < 0)
        return -1;
    build_box_feed_dir(&stage->box, dir, sizeof(dir));
    (void)snprintf(to, sizeof(to), "%s/%s", dir, name);
    return files_link_fd(fd, to, err);
}

int copy_from(struct stage *stage, struct str from_stage, struct str from_image, struct str path,
              const char *name, struct error *err)
{
    struct image_tree image;
    ptrdiff_t at;

    if (from_stage.len) {
        at = recipe_find_stage(&stage->build->recipe, from_stage, stage->index);
        return pack_from(stage, stage->build->stages[at].layers, path, name, err);
    }
    if (image_tree(stage,
                   &(struct build_image_source){.team_id = stage->build->row.team_id,
                                                .reference = from_image},
                   &image, err) < 0)
        return -1;
    return pack_from(stage, image.layers, path, name, err);
}

/* ---- URLs ---- */

static int read_body(struct stage *stage, struct fetch_stream *stream, int fd, struct error *err)
{
    auto_free char *piece = xcalloc(1, 64 * 1024);
    int64_t left = stage->build->all->config.disk_mb * 1024 * 1024;

    for (;;) {
        ssize_t n = fetch_read(stream, piece, 64 * 1024, TICK_MS, err);

        if (build_check(stage->build, err) < 0)
            return -1;
        if (n < 0 && err->code == ERROR_TIMEOUT)
            continue;
        if (n <= 0)
            return n < 0 ? -1 : 0;
        left -= n;
        if (left < 0)
            return error_set(err, ERROR_LIMIT, "the answer is longer than the build's disk");
        if (build_grow(stage->build, n, err) < 0)
            return -1;
        if (fd_write_full(fd, piece, (size_t)n) < 0)
            return error_set(err, ERROR_NO_SPACE, "no room for the answer");
    }
}

struct answer {
    struct arena *arena;
    const char *location; /* NULL = none */
};

static void on_header(void *arg, struct str name, struct str value)
{
    struct answer *answer = arg;

    if (str_eq_nocase(name, STR("Location")))
        answer->location = arena_str(answer->arena, value).p;
}

/* 1 = it is elsewhere, *url says where. */
static int fetch_once(struct stage *stage, const char **url, int fd, struct error *err)
{
    struct answer answer = {.arena = &stage->arena};
    char next[URL_SIZE];
    struct fetch_request request = {.method = "GET",
                                    .url = *url,
                                    .reach = FETCH_PUBLIC,
                                    .idle_ms = URL_IDLE_MS,
                                    .on_header = on_header,
                                    .header_arg = &answer};
    struct fetch_stream *stream;
    int status, r;

    if (!fetch_url_ok(*url))
        return error_set(err, ERROR_INVALID, "'%.100s' is no URL that can be fetched", *url);
    if (fetch_open(stage->build->all->fetch, &request, &stream, err) < 0)
        return -1;
    status = fetch_status(stream);
    if (status == 200)
        r = read_body(stage, stream, fd, err);
    else if (status >= 301 && status <= 308 && answer.location)
        r = fetch_url_follow(*url, answer.location, next, sizeof(next))
                ? 1
                : error_set(err, ERROR_INVALID, "'%.100s' is no URL that can be fetched",
                            answer.location);
    else
        r = error_set(err, ERROR_UNAVAILABLE, "'%.100s' answered %d", *url, status);
    fetch_close(stream);
    if (r > 0)
        *url = arena_str(&stage->arena, str_of(next)).p;
    return r;
}

/* Only public addresses, whoever named them. */
static int fetch_url(struct stage *stage, const struct recipe_step *step, int fd, struct error *err)
{
    const char *url = arena_str(&stage->arena, step->url).p;
    int r = 1;

    for (int i = 0; r > 0 && i < REDIRECTS; i++)
        r = fetch_once(stage, &url, fd, err);
    return r > 0 ? error_set(err, ERROR_UNAVAILABLE, "the URL leads on and on") : r;
}

/* By us: no program of the box is believed. */
static int check_sum(const struct recipe_step *step, int fd, struct error *err)
{
    char hex[KEY_SIZE];
    int64_t bytes;

    if (!step->checksum.len)
        return 0;
    if (files_hash(fd, hex, &bytes, err) < 0)
        return -1;
    return str_eq_nocase(str_skip(step->checksum, sizeof("sha256:") - 1), str_of(hex))
               ? 0
               : error_set(err, ERROR_INVALID, "what came from the URL has another checksum");
}

/* ---- putting it in place ---- */

/* What stands before the first part with a pattern in it: the client has resolved that. */
static struct str without_glob(struct str path)
{
    size_t end = path.len;

    for (size_t i = 0; i < path.len; i++)
        if (strchr("*?[{", path.p[i])) {
            end = i;
            break;
        }
    if (end == path.len)
        return path;
    while (end > 0 && path.p[end - 1] != '/')
        end--;
    return str_n(path.p, end);
}

static struct str clean_source(struct str path)
{
    while (str_starts(path, STR("./")) || str_starts(path, STR("/")))
        path = str_skip(path, path.p[0] == '/' ? 1 : 2);
    while (path.len && path.p[path.len - 1] == '/')
        path.len--;
    return str_is(path, ".") ? STR("") : path;
}

static struct str last_part(struct str path)
{
    struct str rest = path, part = path;

    rest = str_split(&rest, '?');
    while (rest.p)
        part = str_split(&rest, '/');
    return part;
}

struct placing {
    const char *argv[ARGV_MAX];
    size_t count;
};

static void say(struct placing *placing, const char *option, const char *value)
{
    if (placing->count + 3 > ARGV_MAX)
        return;
    placing->argv[placing->count++] = option;
    if (value)
        placing->argv[placing->count++] = value;
}

static int place(struct stage *stage, const struct recipe_step *step, const char *archive,
                 struct str source, struct error *err)
{
    struct str dest = stage_expand(stage, step, step->args.items[1]), to;
    struct placing placing = {0};
    struct build_command command = {.argv = placing.argv, .cwd = "/", .spool_fd = -1};
    struct str owner = stage->user;

    if (stage_path(stage, dest, &to, err) < 0)
        return -1;
    if (step->args.count > 2 && step->args.items[2].len)
        owner = stage_expand(stage, step, step->args.items[2]);
    else if (stage->build->recipe.docker)
        owner = STR("0:0");
    say(&placing, "/run/feed/unpack", "copy");
    say(&placing, "--from", archive);
    say(&placing, "--to", arena_str(&stage->arena, to).p);
    say(&placing, "--src", arena_str(&stage->arena, source).p);
    if (!str_is(owner, "keep"))
        say(&placing, "--owner", arena_str(&stage->arena, owner).p);
    if (step->args.count > 3 && step->args.items[3].len)
        say(&placing, "--mode", arena_str(&stage->arena, step->args.items[3]).p);
    if (str_ends(dest, STR("/")) || str_is(dest, ".") || str_ends(dest, STR("/.")))
        say(&placing, "--into-dir", NULL);
    if (step->extract)
        say(&placing, "--extract", NULL);
    for (size_t i = 0; i < step->excludes.count; i++)
        say(&placing, "--exclude", arena_str(&stage->arena, step->excludes.items[i]).p);
    return build_box_must(&stage->box, &command, "failed to copy files", err);
}

/* A file by itself: wrapped as an archive of one entry by the box's tar. */
static int place_url(struct stage *stage, const struct recipe_step *step, const char *name,
                     struct error *err)
{
    static const char script[] =
        "d=$(mktemp -d) && cp \"$1\" \"$d/$2\" && chmod 600 \"$d/$2\" && tar -C \"$d\" -cf "
        "\"/run/$3.tar\" \"$2\" && rm -rf \"$d\"";
    const char *argv[] = {"/bin/sh", "-c", script, "sh", NULL, NULL, name, NULL};
    struct build_command command = {.argv = argv, .cwd = "/", .spool_fd = -1};
    struct str file = last_part(step->url);
    char *fed = arena_printf(&stage->arena, "/run/feed/%s", name);

    if (!file.len)
        file = STR("download");
    argv[4] = fed;
    argv[5] = arena_str(&stage->arena, file).p;
    if (build_box_must(&stage->box, &command, "failed to copy files", err) < 0)
        return -1;
    return place(stage, step, arena_printf(&stage->arena, "/run/%s.tar", name), file, err);
}

static int copy_url(struct stage *stage, const struct recipe_step *step, const char *name,
                    struct error *err)
{
    auto_close int fd = files_spool(stage->build->all, err);
    char dir[400], to[512];

    if (fd < 0 || fetch_url(stage, step, fd, err) < 0 || check_sum(step, fd, err) < 0)
        return -1;
    build_box_feed_dir(&stage->box, dir, sizeof(dir));
    (void)snprintf(to, sizeof(to), "%s/%s", dir, name);
    if (files_link_fd(fd, to, err) < 0)
        return -1;
    return place_url(stage, step, name, err);
}

static int copy_files(struct stage *stage, const struct recipe_step *step, const char *name,
                      struct error *err)
{
    struct str source = stage_expand(stage, step, step->args.items[0]), body;
    char *path;

    if (step->files_hash.len) {
        if (files_path(stage->build->all, stage->build->row.team_id, step->files_hash,
                       &stage->arena, &body, &path, err) < 0 ||
            build_box_feed_link(&stage->box, path, name, err) < 0)
            return -1;
    } else if (copy_from(stage, step->from_stage, step->from_image, source, name, err) < 0) {
        return -1;
    }
    return place(stage, step, arena_printf(&stage->arena, "/run/feed/%s", name),
                 clean_source(without_glob(source)), err);
}

int step_copy(struct stage *stage, const struct recipe_step *step)
{
    char *name = arena_printf(&stage->arena, "copy-%zu", step->number);
    struct error err = {0};
    int r = step->url.len ? copy_url(stage, step, name, &err) : copy_files(stage, step, name, &err);

    return r < 0 ? stage_fail(stage, stage_step_name(stage, step), &err) : 0;
}
