/* A build from start to end: the stages that the result needs, side by side where they do not need each other, then
 * the end of the target. Whatever happens, no box, no pin and no file of it is left. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"
#include "domain/build/build_internal.h"
#include "domain/sandbox/sandbox_layers.h"

/* ---- which stages ---- */

static void need(struct build *build, size_t index);

static void need_named(struct build *build, struct str name, size_t before)
{
    ptrdiff_t at = name.len ? recipe_find_stage(&build->recipe, name, before) : -1;

    if (at >= 0)
        need(build, (size_t)at);
}

/* A name stands for a stage before the one that uses it, so this ends. */
static void need(struct build *build, size_t index)
{
    const struct recipe_stage *recipe = &build->recipe.stages[index];

    if (build->stages[index].needed)
        return;
    build->stages[index].needed = true;
    if (recipe->from == RECIPE_FROM_STAGE)
        need_named(build, recipe->from_name, index);
    for (size_t i = 0; i < recipe->step_count; i++) {
        need_named(build, recipe->steps[i].from_stage, index);
        for (size_t k = 0; k < recipe->steps[i].mount_count; k++)
            need_named(build, recipe->steps[i].mounts[k].from, index);
    }
}

static bool depends(const struct build *build, const struct stage *stage, size_t on)
{
    const struct recipe_stage *recipe = stage->recipe;
    ptrdiff_t wanted = (ptrdiff_t)on;

    if (recipe->from == RECIPE_FROM_STAGE &&
        recipe_find_stage(&build->recipe, recipe->from_name, stage->index) == wanted)
        return true;
    for (size_t i = 0; i < recipe->step_count; i++) {
        const struct recipe_step *step = &recipe->steps[i];

        if (step->from_stage.len &&
            recipe_find_stage(&build->recipe, step->from_stage, stage->index) == wanted)
            return true;
        for (size_t k = 0; k < step->mount_count; k++)
            if (step->mounts[k].from.len &&
                recipe_find_stage(&build->recipe, step->mounts[k].from, stage->index) == wanted)
                return true;
    }
    return false;
}

/* ---- running them ---- */

/* False when one of those it needs failed. */
static bool await_others(struct build *build, struct stage *stage)
{
    bool ok = true;

    (void)pthread_mutex_lock(&build->lock);
    for (size_t i = 0; i < stage->index; i++) {
        if (!depends(build, stage, i))
            continue;
        while (build->stages[i].state == STAGE_PENDING)
            (void)pthread_cond_wait(&build->changed, &build->lock);
        ok &= build->stages[i].state == STAGE_DONE;
    }
    (void)pthread_mutex_unlock(&build->lock);
    return ok;
}

static void work(void *arg)
{
    struct stage *stage = arg;
    struct build *build = stage->build;
    int r = await_others(build, stage) ? stage_run(stage) : -1;

    if (r < 0)
        atomic_store(&build->stopped, true);
    (void)pthread_mutex_lock(&build->lock);
    stage->state = r < 0 ? STAGE_FAILED : STAGE_DONE;
    (void)pthread_cond_broadcast(&build->changed);
    (void)pthread_mutex_unlock(&build->lock);
}

/* The last one runs in this thread; by then all it needs is under way. */
static void run_stages(struct build *build)
{
    struct stage *last = &build->stages[build->recipe.target];

    for (size_t i = 0; i < build->recipe.target; i++) {
        struct stage *stage = &build->stages[i];

        if (!stage->needed)
            continue;
        if (thread_start(&stage->thread, "stage", THREAD_STACK_DEFAULT, work, stage, NULL) < 0)
            work(stage);
    }
    work(last);
    for (size_t i = 0; i < build->recipe.target; i++)
        thread_join(&build->stages[i].thread);
}

static void make_stages(struct build *build)
{
    build->stages = xcalloc(build->recipe.stage_count, sizeof(*build->stages));
    for (size_t i = 0; i < build->recipe.stage_count; i++) {
        build->stages[i].build = build;
        build->stages[i].recipe = &build->recipe.stages[i];
        build->stages[i].index = i;
    }
    need(build, build->recipe.target);
}

/* ---- how it ended ---- */

static bool server_stops(struct builds *all)
{
    bool stops;

    (void)pthread_mutex_lock(&all->lock);
    stops = all->stopping;
    (void)pthread_mutex_unlock(&all->lock);
    return stops;
}

static void fail(struct build *build)
{
    struct str reason = STR("the build failed"), step = STR("");
    struct error err = {0};

    /* The first that failed by itself: others only stopped because of it. */
    for (size_t i = build->recipe.stage_count; i-- > 0;)
        if (build->stages[i].reason.len &&
            !str_is(build->stages[i].reason, "another stage failed")) {
            reason = build->stages[i].reason;
            step = build->stages[i].reason_step;
        }
    if (atomic_load(&build->cancelled)) {
        reason = server_stops(build->all) ? STR("the server was stopped")
                                          : STR("the build was cancelled");
        step = STR("");
    }
    log_line(&build->log, STORE_LEVEL_ERROR, step, "Build failed: %.*s", STR_ARG(reason));
    log_flush(&build->log);
    if (store_build_fail(build->all->config.store, build->row.id, reason, step, clock_wall_us(),
                         &err) < 0)
        log_error("build", "build=%.*s: %s", STR_ARG(build->row.id), err.message);
    log_info("build", "failed build=%.*s step=%.*s", STR_ARG(build->row.id), STR_ARG(step));
}

void build_whole(struct build *build)
{
    struct stage *target;
    int64_t began_us = clock_mono_us();

    build->deadline_us = began_us + build->all->config.timeout_s * 1000000;
    log_open(&build->log, build->all->config.store, build->row.id);
    make_stages(build);
    target = &build->stages[build->recipe.target];
    run_stages(build);
    if (target->state == STAGE_DONE && build_finish(build, target) == 0)
        log_info("build", "ready build=%.*s template=%.*s ms=%lld", STR_ARG(build->row.id),
                 STR_ARG(build->row.template_id), (long long)(clock_mono_us() - began_us) / 1000);
    else
        fail(build);
    for (size_t i = 0; i < build->recipe.stage_count; i++)
        stage_done(&build->stages[i]);
    free(build->stages);
    layers_collect_soon(build->all->config.sandboxes);
    log_close(&build->log);
}
