/* RUN: a command in the stage's box, as the stage's user, in its directory, with its variables; and what is mounted for it. A cache
 * is a volume of the team, there for the whole stage; a secret is a file for this command only, which no layer has; what
 * is bound is copied in and removed again. */
#include <openssl/sha.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/encode.h"
#include "domain/build/build_internal.h"
#include "domain/sandbox/sandbox_room.h"
#include "domain/sandbox/sandbox_setup.h"
#include "domain/volume/volume.h"
#include "store/platform/store_event.h"

enum { ARGV_MAX = RECIPE_ARGS_MAX + 8 };

/* ---- the command ---- */

static void make_argv(struct stage *stage, const struct recipe_step *step, const char **argv)
{
    const struct recipe_words *shell =
        step->shell.count ? &step->shell : &stage->build->recipe.shell;
    size_t count = 0;

    for (size_t i = 0; i < step->exec.count; i++)
        argv[count++] = arena_str(&stage->arena, step->exec.items[i]).p;
    if (step->exec.count)
        return;
    for (size_t i = 0; i < shell->count; i++)
        argv[count++] = arena_str(&stage->arena, shell->items[i]).p;
    if (shell->count) {
        argv[count] = arena_str(&stage->arena, step->args.items[0]).p;
        return;
    }
    argv[count++] = "/bin/bash";
    argv[count++] = "-l";
    argv[count++] = "-c";
    argv[count] =
        setup_shell_text(stage_env(stage, STR("PATH")), step->args.items[0], &stage->arena).p;
}

/* The stage's variables and the step's own. */
static struct pair *make_env(struct stage *stage, const struct recipe_step *step, size_t *out_count)
{
    struct pair *env =
        arena_alloc(&stage->arena, (stage->env_count + step->env.count + 1) * sizeof(*env));

    memcpy(env, stage->env, stage->env_count * sizeof(*env));
    memcpy(env + stage->env_count, step->env.items, step->env.count * sizeof(*env));
    *out_count = stage->env_count + step->env.count;
    return env;
}

static struct str shown(const struct recipe_step *step)
{
    struct str text = step->exec.count ? step->text : step->args.items[0];

    return str_n(text.p, text.len < COMMAND_SHOWN ? text.len : COMMAND_SHOWN);
}

/* In the words that the SDKs' users know. */
static int start_failed(struct stage *stage, const struct recipe_step *step,
                        const struct error *err)
{
    const char *user = strstr(err->message, "invalid username: ");
    struct str text = shown(step);

    return stage_fail_text(
        stage, stage_step_name(stage, step), "failed to run command '%.*s': %s%s", STR_ARG(text),
        user ? "command failed: unauthenticated: " : "", user ? user : err->message);
}

/* Programs say it in the log, if they do. */
static const char *full_disk(const struct stage *stage)
{
    struct engine_space space;

    return space_of(stage->build->all->config.sandboxes, &space) && (space.held || space.full)
               ? "; the disk is full, which may be the reason: free space on the data directory's "
                 "file system"
               : "";
}

static int check_exit(struct stage *stage, const struct recipe_step *step,
                      const struct build_exit *end)
{
    struct str name = stage_step_name(stage, step), text = shown(step);

    if (end->out_of_memory)
        return stage_fail_text(stage, name,
                               "failed to run command '%.*s': exit status %d: it needs more memory "
                               "than the build has",
                               STR_ARG(text), end->code);
    if (end->code)
        return stage_fail_text(stage, name, "failed to run command '%.*s': exit status %d%s",
                               STR_ARG(text), end->code, full_disk(stage));
    return 0;
}

static int run_command(struct stage *stage, const struct recipe_step *step, struct build_exit *end,
                       struct error *err)
{
    const char **argv = arena_alloc(&stage->arena, ARGV_MAX * sizeof(*argv));
    struct str name = stage_step_name(stage, step);
    char out_prefix[96], err_prefix[96];
    struct log_stream out, error;
    struct build_command command = {.argv = argv,
                                    .user = stage->user.p,
                                    .cwd = stage->workdir.len ? stage->workdir.p : NULL,
                                    .spool_fd = -1,
                                    .out = &out,
                                    .err = &error};
    int r;

    if (step->args.count > 1 && step->args.items[1].len)
        command.user = arena_str(&stage->arena, step->args.items[1]).p;
    make_argv(stage, step, argv);
    command.env = make_env(stage, step, &command.env_count);
    (void)snprintf(out_prefix, sizeof(out_prefix), "[builder %zu/%zu] [stdout]: ", step->number,
                   stage->build->recipe.step_count);
    (void)snprintf(err_prefix, sizeof(err_prefix), "[builder %zu/%zu] [stderr]: ", step->number,
                   stage->build->recipe.step_count);
    log_stream_open(&out, &stage->build->log, name, STORE_LEVEL_INFO, out_prefix);
    log_stream_open(&error, &stage->build->log, name, STORE_LEVEL_INFO, err_prefix);
    r = build_box_run(&stage->box, &command, end, err);
    log_stream_close(&out);
    log_stream_close(&error);
    return r;
}

/* ---- mounts ---- */

static struct str secret_of(const struct recipe *recipe, struct str id)
{
    for (size_t i = 0; i < recipe->secrets.count; i++)
        if (str_eq(recipe->secrets.items[i].name, id))
            return recipe->secrets.items[i].value;
    return STR_NONE;
}

static const char *secret_path(struct stage *stage, const struct recipe_mount *mount)
{
    return mount->target.len ? arena_str(&stage->arena, mount->target).p
                             : arena_printf(&stage->arena, "/run/secrets/%.*s", STR_ARG(mount->id));
}

static int put_secret(struct stage *stage, const struct recipe_mount *mount, struct error *err)
{
    static const char script[] = "mkdir -p \"$(dirname \"$1\")\" && umask 077 && cat >\"$1\" && "
                                 "chown \"$2\" \"$1\"";
    const char *argv[] = {"/bin/sh",     "-c", script, "sh", secret_path(stage, mount),
                          stage->user.p, NULL};
    struct build_command command = {.argv = argv, .cwd = "/", .spool_fd = -1};

    command.input = secret_of(&stage->build->recipe, mount->id);
    if (!command.input.p)
        return mount->required ? error_set(err, ERROR_INVALID, "the secret '%.*s' was not given",
                                           STR_ARG(mount->id))
                               : 0;
    return build_box_must(&stage->box, &command, "write a secret", err);
}

static int put_bound(struct stage *stage, const struct recipe_mount *mount, size_t number,
                     struct error *err)
{
    static const char script[] =
        "[ ! -e \"$1\" ] || rmdir \"$1\" 2>/dev/null || { echo \"$1: "
        "there is something already\" >&2; exit 1; }\n"
        "exec /run/feed/unpack copy --from \"$2\" --to \"$1\" --src \"$3\"";
    struct str source = mount->source.len ? mount->source : STR("/"), target;
    const char *argv[] = {"/bin/sh", "-c", script, "sh", NULL, NULL, NULL, NULL};
    struct build_command command = {.argv = argv, .cwd = "/", .spool_fd = -1};
    char *name = arena_printf(&stage->arena, "bind-%s-%zu", stage->key, number);
    struct str body;
    char *path;

    /* Of the client's own files: they were uploaded like those of a COPY, and id is their hash. */
    if (!mount->from.len) {
        if (files_path(stage->build->all, stage->build->row.team_id, mount->id, &stage->arena,
                       &body, &path, err) < 0 ||
            build_box_feed_link(&stage->box, path, name, err) < 0)
            return error_prefix(err, "bind");
    } else {
        bool is_stage = recipe_find_stage(&stage->build->recipe, mount->from, stage->index) >= 0;

        if (copy_from(stage, is_stage ? mount->from : STR_NONE, is_stage ? STR_NONE : mount->from,
                      source, name, err) < 0)
            return error_prefix(err, "bind");
    }
    if (stage_path(stage, mount->target, &target, err) < 0)
        return -1;
    while (source.len && source.p[0] == '/')
        source = str_skip(source, 1);
    argv[4] = arena_str(&stage->arena, target).p;
    argv[5] = arena_printf(&stage->arena, "/run/feed/%s", name);
    argv[6] = arena_str(&stage->arena, source).p;
    return build_box_must(&stage->box, &command, "bind", err);
}

static int put_mounts(struct stage *stage, const struct recipe_step *step, struct error *err)
{
    for (size_t i = 0; i < step->mount_count; i++) {
        const struct recipe_mount *mount = &step->mounts[i];

        if ((mount->kind == RECIPE_MOUNT_SECRET && put_secret(stage, mount, err) < 0) ||
            (mount->kind == RECIPE_MOUNT_BIND && put_bound(stage, mount, i, err) < 0))
            return -1;
    }
    return 0;
}

static int remove_mounts(struct stage *stage, const struct recipe_step *step, struct error *err)
{
    for (size_t i = 0; i < step->mount_count; i++) {
        const struct recipe_mount *mount = &step->mounts[i];
        const char *argv[] = {"/bin/rm", "-rf", "--", NULL, NULL};
        struct build_command command = {.argv = argv, .cwd = "/", .spool_fd = -1};
        struct str target;

        if (mount->kind == RECIPE_MOUNT_CACHE)
            continue;
        if (mount->kind == RECIPE_MOUNT_SECRET) {
            argv[3] = secret_path(stage, mount);
        } else {
            if (stage_path(stage, mount->target, &target, err) < 0)
                return -1;
            argv[3] = arena_str(&stage->arena, target).p;
        }
        if (build_box_must(&stage->box, &command, "remove what was mounted", err) < 0)
            return -1;
    }
    return 0;
}

int step_run(struct stage *stage, const struct recipe_step *step)
{
    struct str name = stage_step_name(stage, step);
    struct build_exit end;
    struct error err = {0};

    if (put_mounts(stage, step, &err) < 0)
        return stage_fail(stage, name, &err);
    if (run_command(stage, step, &end, &err) < 0)
        return start_failed(stage, step, &err);
    if (check_exit(stage, step, &end) < 0)
        return -1;
    if (build_box_calm(&stage->box, &err) < 0 || remove_mounts(stage, step, &err) < 0)
        return stage_fail(stage, name, &err);
    return 0;
}

/* ---- caches ---- */

/* The team's volume for a cache of this id, which is made when there is none. */
static int cache_volume(struct stage *stage, struct str id, struct store_volume *out,
                        struct error *err)
{
    struct volumes *volumes = stage->build->all->config.volumes;
    unsigned char sum[SHA256_DIGEST_LENGTH];
    char hex[2 * SHA256_DIGEST_LENGTH + 1], *name;
    struct error why = {0};

    (void)SHA256((const unsigned char *)id.p, id.len, sum);
    hex_encode(hex, sum, 12);
    name = arena_printf(&stage->arena, "build-cache-%s", hex);
    if (volume_get(volumes, stage->build->row.team_id, str_of(name), &stage->arena, out, &why) == 0)
        return 0;
    if (volume_create(volumes, stage->build->row.team_id, str_of(name), &stage->arena, out, err) ==
        0)
        return 0;
    /* Another stage may have been faster. */
    return volume_get(volumes, stage->build->row.team_id, str_of(name), &stage->arena, out, &why);
}

static int add_volume(struct stage *stage, const struct recipe_mount *mount, struct box_volume *out,
                      size_t *count, struct error *err)
{
    struct store_volume volume;
    struct str path = mount->target;

    while (path.len > 1 && path.p[path.len - 1] == '/')
        path.len--;
    for (size_t i = 0; i < *count; i++)
        if (str_is(path, out[i].path))
            return 0;
    if (*count == BOX_VOLUMES_MAX)
        return error_set(err, ERROR_INVALID, "a stage has at most %d caches", BOX_VOLUMES_MAX);
    if (path.len < 2 || path.p[0] != '/' || path.len >= VOLUME_PATH_SIZE)
        return error_set(err, ERROR_INVALID, "the target of a cache must be an absolute path");
    if (cache_volume(stage, mount->id.len ? mount->id : path, &volume, err) < 0)
        return error_prefix(err, "cache '%.*s'", STR_ARG(path));
    (void)str_copy(volume.id, out[*count].name, LAYER_NAME_SIZE);
    (void)str_copy(path, out[(*count)++].path, VOLUME_PATH_SIZE);
    return 0;
}

int run_volumes(struct stage *stage, struct box_volume *out, size_t *out_count, struct error *err)
{
    *out_count = 0;
    for (size_t i = 0; i < stage->recipe->step_count; i++) {
        const struct recipe_step *step = &stage->recipe->steps[i];

        for (size_t k = 0; k < step->mount_count; k++)
            if (step->mounts[k].kind == RECIPE_MOUNT_CACHE &&
                add_volume(stage, &step->mounts[k], out, out_count, err) < 0)
                return -1;
    }
    return 0;
}
