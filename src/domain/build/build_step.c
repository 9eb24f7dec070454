/* The kinds of steps. What a step says about files is done in the stage's box; what it says about the environment, the user and the
 * directory is kept with the stage, and with the template at the end. */
#include <string.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "domain/build/build_internal.h"
#include "protocol/json/json_shape.h"

bool step_has_files(const struct recipe_step *step)
{
    return step->kind != RECIPE_ENV;
}

/* ---- WORKDIR ---- */

/* Missing directories are made, for the user; those that are there stay as they are. */
static const char make_workdir[] = "target=$1 owner=$2 new=\n"
                                   "check=$target\n"
                                   "while [ ! -d \"$check\" ]; do\n"
                                   "    new=$check\n"
                                   "    check=$(dirname \"$check\")\n"
                                   "done\n"
                                   "if [ -n \"$new\" ]; then\n"
                                   "    mkdir -p \"$target\" || exit 1\n"
                                   "    [ -z \"$owner\" ] || chown -R \"$owner\" \"$new\" "
                                   "2>/dev/null || chown -R \"${owner%:}\" \"$new\"\n"
                                   "fi\n"
                                   "cd \"$target\" && pwd\n";

static struct str note_of(const char *name, struct str value, struct arena *arena)
{
    auto_json json_t *note = json_object();
    auto_free char *text = NULL;

    (void)json_object_set_new(note, name, json_str(value));
    text = json_text(note);
    return arena_str(arena, str_of(text));
}

static int do_workdir(struct stage *stage, const struct recipe_step *step, struct error *err)
{
    struct str path = stage_expand(stage, step, step->args.items[0]), target;
    const char *argv[] = {"/bin/sh", "-c", make_workdir, "sh", NULL, NULL, NULL};
    auto_buf struct buf text = {0};
    struct build_command command = {.argv = argv, .cwd = "/", .spool_fd = -1, .text = &text};

    /* Without a directory before it a relative one is beneath the root, as the SDKs' users know it. */
    if (path.len && path.p[0] != '/' && !stage->workdir.len)
        path = str_of(arena_printf(&stage->arena, "/%.*s", STR_ARG(path)));
    if (stage_path(stage, path, &target, err) < 0)
        return -1;
    argv[4] = arena_str(&stage->arena, target).p;
    /* "name:" is with the user's own group. */
    argv[5] = stage->build->recipe.docker && str_find(stage->user, ':') < 0
                  ? arena_printf(&stage->arena, "%.*s:", STR_ARG(stage->user))
                  : stage->user.p;
    buf_init(&text, 16 * 1024);
    if (build_box_must(&stage->box, &command, "failed to create workdir", err) < 0)
        return -1;
    stage->note = note_of("workdir", str_trim(buf_str(&text)), &stage->arena);
    return 0;
}

/* ---- USER ---- */

/* A user that is missing is made, unless the rules are those of Dockerfiles; a number there gets a name, since that is what
 * envd knows users by. */
static const char make_user[] =
    "name=${1%%:*} sudo=$2 docker=$3\n"
    "if ! id -u \"$name\" >/dev/null 2>&1; then\n"
    "    case $docker$name in\n"
    "    yes*[!0-9]*) echo \"invalid username: '$name'\" >&2; exit 1 ;;\n"
    "    yes*) useradd --no-create-home --home-dir / --uid \"$name\" \"uid$name\" || exit 1 ;;\n"
    "    *) useradd --create-home --shell /bin/bash \"$name\" || exit 1 ;;\n"
    "    esac\n"
    "fi\n"
    "if [ \"$sudo\" = true ]; then\n"
    "    for group in sudo wheel; do\n"
    "        if grep -q \"^$group:\" /etc/group; then usermod -aG \"$group\" \"$name\"; break; fi\n"
    "    done\n"
    "    passwd -d \"$name\" >/dev/null || exit 1\n"
    "    line=\"$name ALL=(ALL:ALL) NOPASSWD: ALL\"\n"
    "    grep -qxF \"$line\" /etc/sudoers 2>/dev/null || echo \"$line\" >>/etc/sudoers\n"
    "fi\n"
    "id -un \"$name\"\n";

static int do_user(struct stage *stage, const struct recipe_step *step, struct error *err)
{
    struct str name = stage_expand(stage, step, step->args.items[0]);
    const char *argv[] = {"/bin/sh", "-c", make_user, "sh", NULL, "", "", NULL};
    auto_buf struct buf text = {0};
    struct build_command command = {.argv = argv, .cwd = "/", .spool_fd = -1, .text = &text};

    argv[4] = arena_str(&stage->arena, name).p;
    if (step->args.count > 1)
        argv[5] = arena_str(&stage->arena, step->args.items[1]).p;
    if (stage->build->recipe.docker)
        argv[6] = "yes";
    buf_init(&text, 4096);
    if (build_box_must(&stage->box, &command, "failed to set the user", err) < 0)
        return -1;
    stage->note = note_of("user", str_trim(buf_str(&text)), &stage->arena);
    return 0;
}

/* ---- all of them ---- */

int step_do(struct stage *stage, const struct recipe_step *step)
{
    struct error err = {0};
    int r = 0;

    switch (step->kind) {
    case RECIPE_RUN:
        return step_run(stage, step);
    case RECIPE_COPY:
        return step_copy(stage, step);
    case RECIPE_WORKDIR:
        r = do_workdir(stage, step, &err);
        break;
    case RECIPE_USER:
        r = do_user(stage, step, &err);
        break;
    case RECIPE_ENV:
        break;
    }
    return r < 0 ? stage_fail(stage, stage_step_name(stage, step), &err) : 0;
}

static void apply_env(struct stage *stage, const struct recipe_step *step)
{
    struct str values[RECIPE_ARGS_MAX];

    /* All of one step see what held before it. */
    for (size_t i = 0; i + 1 < step->args.count; i += 2)
        values[i] = stage_expand(stage, step, step->args.items[i + 1]);
    for (size_t i = 0; i + 1 < step->args.count; i += 2)
        stage_set_env(stage, step->args.items[i], values[i]);
}

static int apply_note(struct stage *stage, const char *name, struct str *out, struct error *err)
{
    auto_json json_t *note = NULL;
    struct str value;

    if (json_parse(stage->note, &note, err) < 0)
        return -1;
    value = json_get_str(note, name);
    if (!value.len)
        return error_set(err, ERROR_INTERNAL, "the step did not tell its %s", name);
    *out = arena_str(&stage->arena, value);
    return 0;
}

int step_apply(struct stage *stage, const struct recipe_step *step, struct error *err)
{
    if (step->kind == RECIPE_ENV)
        apply_env(stage, step);
    if (step->kind == RECIPE_WORKDIR)
        return apply_note(stage, "workdir", &stage->workdir, err);
    if (step->kind == RECIPE_USER)
        return apply_note(stage, "user", &stage->user, err);
    return 0;
}
