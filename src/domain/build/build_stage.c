/* A stage: what it begins from, then its steps one after the other in one box. As long as nothing had to be run, steps are
 * taken from the cache and there is no box; it is started from the layers of the last cached step. After each step that
 * may have changed files the box's writable layer is sealed. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "domain/build/build_internal.h"
#include "domain/sandbox/sandbox_layers.h"
#include "domain/sandbox/sandbox_plan.h"
#include "domain/sandbox/sandbox_room.h"

/* ---- what holds ---- */

int stage_fail_text(struct stage *stage, struct str step, const char *fmt, ...)
{
    char text[2048];
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    stage->reason = arena_str(&stage->arena, str_of(text));
    stage->reason_step = arena_str(&stage->arena, step);
    return -1;
}

int stage_fail(struct stage *stage, struct str step, const struct error *err)
{
    return stage_fail_text(stage, step, "%s", err->message);
}

int stage_set_layers(struct stage *stage, struct str layers, struct error *err)
{
    struct sandboxes *sandboxes = stage->build->all->config.sandboxes;
    struct box_spec spec = {0};

    if (spec_set_layers(layers, &spec, err) < 0)
        return -1;
    layers_pin(sandboxes, &spec);
    if (stage->is_pinned)
        layers_unpin(sandboxes, &stage->pinned);
    stage->pinned = spec;
    stage->is_pinned = true;
    stage->layers = arena_str(&stage->arena, layers);
    return 0;
}

void stage_keep(struct stage *stage, const struct box_spec *pin)
{
    stage->kept = xrealloc(stage->kept, (stage->kept_count + 1) * sizeof(*stage->kept));
    stage->kept[stage->kept_count++] = *pin;
}

struct str stage_env(const struct stage *stage, struct str name)
{
    for (size_t i = 0; i < stage->env_count; i++)
        if (str_eq(stage->env[i].name, name))
            return stage->env[i].value;
    return STR_NONE;
}

void stage_set_env(struct stage *stage, struct str name, struct str value)
{
    struct pair pair = {arena_str(&stage->arena, name), arena_str(&stage->arena, value)};

    for (size_t i = 0; i < stage->env_count; i++)
        if (str_eq(stage->env[i].name, name)) {
            stage->env[i] = pair;
            return;
        }
    if (stage->env_count == stage->env_cap) {
        stage->env_cap = stage->env_cap ? stage->env_cap * 2 : 16;
        stage->env = xrealloc(stage->env, stage->env_cap * sizeof(*stage->env));
    }
    stage->env[stage->env_count++] = pair;
}

/* What every program finds in its environment, when nobody said otherwise. */
static struct str lookup(void *arg, struct str name)
{
    struct stage *stage = arg;
    struct str value = stage_env(stage, name);

    if (value.p)
        return value;
    if (str_is(name, "PATH"))
        return STR("/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
    if (str_is(name, "HOME"))
        return str_is(stage->user, "root")
                   ? STR("/root")
                   : str_of(arena_printf(&stage->arena, "/home/%.*s", STR_ARG(stage->user)));
    return str_is(name, "USER") || str_is(name, "LOGNAME") ? stage->user : STR_NONE;
}

struct str stage_expand(struct stage *stage, const struct recipe_step *step, struct str text)
{
    return step->literal ? text : recipe_expand(text, lookup, stage, &stage->arena);
}

struct str stage_step_name(struct stage *stage, const struct recipe_step *step)
{
    return str_of(arena_printf(&stage->arena, "%zu", step->number));
}

/* ---- its box ---- */

static bool wants_feed(const struct recipe_stage *recipe)
{
    for (size_t i = 0; i < recipe->step_count; i++) {
        if (recipe->steps[i].kind == RECIPE_COPY)
            return true;
        for (size_t k = 0; k < recipe->steps[i].mount_count; k++)
            if (recipe->steps[i].mounts[k].kind == RECIPE_MOUNT_BIND)
                return true;
    }
    return false;
}

/* A team that keeps all it may makes no more. */
static int check_room(const struct stage *stage, struct error *err)
{
    struct sandboxes *sandboxes = stage->build->all->config.sandboxes;

    if (room_take(sandboxes, stage->build->row.team_id, 1, err) < 0)
        return -1;
    room_taken(sandboxes);
    return 0;
}

int stage_box(struct stage *stage, struct error *err)
{
    struct box_volume volumes[BOX_VOLUMES_MAX];
    struct build_box_wants wants = {.layers = stage->layers,
                                    .internet = true,
                                    .feed = wants_feed(stage->recipe),
                                    .volumes = volumes};

    if (stage->box.runs)
        return 0;
    if (check_room(stage, err) < 0 || run_volumes(stage, volumes, &wants.volume_count, err) < 0 ||
        (wants.feed && build_box_prepare(&stage->box, stage->build, err) < 0))
        return -1;
    if (build_box_open(&stage->box, stage->build, &wants, err) == 0)
        return 0;
    build_box_close(&stage->box);
    return error_prefix(err, "start a box for the build");
}

/* Asked of the box: whoever made the user said where his home is. */
static int find_home(struct stage *stage, struct error *err)
{
    const char *const argv[] = {"/bin/sh", "-c", "pwd", NULL};
    auto_buf struct buf text = {0};
    struct build_command command = {
        .argv = argv, .user = stage->user.p, .spool_fd = -1, .text = &text};

    if (stage->home.len && str_eq(stage->home_user, stage->user))
        return 0;
    buf_init(&text, 4096);
    if (build_box_must(&stage->box, &command, "find the user's home", err) < 0)
        return -1;
    stage->home = arena_str(&stage->arena, str_trim(buf_str(&text)));
    stage->home_user = stage->user;
    return 0;
}

int stage_path(struct stage *stage, struct str path, struct str *out, struct error *err)
{
    struct str from = stage->workdir;

    if (path.len && path.p[0] == '/') {
        *out = path;
        return 0;
    }
    if (!from.len) {
        if (find_home(stage, err) < 0)
            return -1;
        from = stage->home;
    }
    while (str_starts(path, STR("./")))
        path = str_skip(path, 2);
    if (str_is(path, "."))
        path = STR("");
    *out = str_of(arena_printf(&stage->arena, "%.*s%s%.*s", STR_ARG(from),
                               str_ends(from, STR("/")) ? "" : "/", STR_ARG(path)));
    return 0;
}

/* ---- its steps ---- */

int stage_take_cached(struct stage *stage, const char *key, struct error *err)
{
    struct store_cached cached;
    struct box_spec pin;
    bool found = false;
    int r;

    if (cache_find(stage->build, key, &stage->arena, &cached, &pin, &found, err) < 0)
        return -1;
    if (!found)
        return 0;
    r = stage_set_layers(stage, cached.layers, err);
    stage->note = cached.note;
    layers_unpin(stage->build->all->config.sandboxes, &pin);
    return r < 0 ? -1 : 1;
}

static int run_and_seal(struct stage *stage, const struct recipe_step *step, const char *key)
{
    struct str name = stage_step_name(stage, step);
    struct error err = {0};
    int64_t bytes = 0;

    stage->note = STR_NONE;
    if (step_has_files(step)) {
        if (stage_box(stage, &err) < 0)
            return stage_fail(stage, name, &err);
        if (step_do(stage, step) < 0)
            return -1;
        if (stage_seal(stage, &bytes, &err) < 0)
            return stage_fail(stage, name, &err);
    }
    if (cache_put(stage->build, key, stage->layers, stage->note, bytes, &err) < 0)
        return stage_fail(stage, name, &err);
    return 0;
}

static int one_step(struct stage *stage, const struct recipe_step *step)
{
    struct build *build = stage->build;
    struct str name = stage_step_name(stage, step);
    int64_t began_us = clock_mono_us();
    struct error err = {0};
    char key[KEY_SIZE];
    int found = 0;

    if (build_check(build, &err) < 0 || key_of_step(stage, step, key, &err) < 0)
        return stage_fail(stage, name, &err);
    /* What a URL answers may be another thing each time. */
    stage->ran |= step->force || build->recipe.force || (step->url.len && !step->checksum.len);
    if (!stage->ran)
        found = stage_take_cached(stage, key, &err);
    if (found < 0)
        return stage_fail(stage, name, &err);
    log_line(&build->log, STORE_LEVEL_INFO, name, "%s[builder %zu/%zu] %.*s",
             found ? "CACHED " : "", step->number, build->recipe.step_count, STR_ARG(step->text));
    if (!found) {
        stage->ran = true;
        if (run_and_seal(stage, step, key) < 0)
            return -1;
    }
    memcpy(stage->key, key, sizeof(key));
    if (step_apply(stage, step, &err) < 0)
        return stage_fail(stage, name, &err);
    if (!found && step_has_files(step))
        log_line(&build->log, STORE_LEVEL_DEBUG, name, "[builder %zu/%zu] done in %.2f s",
                 step->number, build->recipe.step_count,
                 (double)(clock_mono_us() - began_us) / 1e6);
    return 0;
}

int stage_run(struct stage *stage)
{
    int r = stage_begin(stage);

    for (size_t i = 0; r == 0 && i < stage->recipe->step_count; i++)
        r = one_step(stage, &stage->recipe->steps[i]);
    build_box_close(&stage->box);
    return r;
}

void stage_done(struct stage *stage)
{
    if (stage->box.build)
        build_box_close(&stage->box);
    if (stage->is_pinned)
        layers_unpin(stage->build->all->config.sandboxes, &stage->pinned);
    for (size_t i = 0; i < stage->kept_count; i++)
        layers_unpin(stage->build->all->config.sandboxes, &stage->kept[i]);
    free(stage->kept);
    free(stage->env);
    arena_done(&stage->arena);
}
