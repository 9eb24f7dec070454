/* The queue of builds and the threads that work at it. A team has at most so many under way; those of others
 * overtake what has to wait for that. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/path.h"
#include "base/thread.h"
#include "domain/build/build_internal.h"

enum {
    DEFAULT_MAX = 4,
    DEFAULT_TEAM_MAX = 2,
    DEFAULT_QUEUE = 32,
    DEFAULT_CPU = 2,
    DEFAULT_MEM_MB = 1024,
    DEFAULT_DISK_MB = 10240,
    DEFAULT_TIMEOUT_S = 3600,
    DEFAULT_READY_S = 20,
    DEFAULT_CACHE_DAYS = 30,
    DEFAULT_CACHE_MB = 20480,
    DEFAULT_STALL_S = 30,
    KEEPER_MS = 60 * 1000,
    HISTORY_DAYS = 30,
    HISTORY_BATCH = 1000,
};
#define DAY_US (INT64_C(86400) * 1000000)

/* ---- builds ---- */

int build_check(const struct build *build, struct error *err)
{
    if (atomic_load(&build->cancelled))
        return error_set(err, ERROR_CONFLICT, "the build was cancelled");
    if (atomic_load(&build->stopped))
        return error_set(err, ERROR_CONFLICT, "another stage failed");
    if (clock_mono_us() > build->deadline_us)
        return error_set(err, ERROR_TIMEOUT, "the build took longer than %lld s",
                         (long long)build->all->config.timeout_s);
    return 0;
}

bool build_stopped(void *arg)
{
    struct error ignored;

    log_tick(&((struct build *)arg)->log);
    return build_check(arg, &ignored) < 0;
}

int build_grow(void *arg, int64_t bytes, struct error *err)
{
    return spool_add(&((struct build *)arg)->charge, bytes, err);
}

void build_free(struct build *build)
{
    spool_release(&build->charge);
    json_decref(build->tree);
    (void)pthread_mutex_destroy(&build->lock);
    (void)pthread_cond_destroy(&build->changed);
    arena_done(&build->arena);
    free(build);
}

/* With the lock held: how many of a team are in the list. */
static size_t count_of(struct list *head, struct str team_id)
{
    struct list *at;
    size_t count = 0;

    list_for_each (at, head)
        count += str_eq(container_of(at, struct build, link)->row.team_id, team_id);
    return count;
}

static struct build *take_next(struct builds *all)
{
    struct list *at;

    list_for_each (at, &all->queue) {
        struct build *build = container_of(at, struct build, link);

        if (count_of(&all->running, build->row.team_id) >= all->config.team_max)
            continue;
        list_remove(&build->link);
        list_push_back(&all->running, &build->link);
        return build;
    }
    return NULL;
}

static void work_at(struct builds *all, struct build *build)
{
    bool waited_for = build->run != NULL;

    if (waited_for) {
        build->deadline_us = clock_mono_us() + all->config.timeout_s * 1000 * 1000;
        build->run(build);
    } else {
        build_whole(build);
    }
    (void)pthread_mutex_lock(&all->lock);
    list_remove(&build->link);
    build->ended = true; /* who waits for it may free it from here on */
    (void)pthread_cond_broadcast(&all->changed);
    (void)pthread_mutex_unlock(&all->lock);
    periodic_soon(&all->keeper);
    if (!waited_for)
        build_free(build);
}

static void work(void *arg)
{
    struct builds *all = arg;
    struct build *build;

    (void)pthread_mutex_lock(&all->lock);
    while (!all->stopping) {
        build = take_next(all);
        if (!build) {
            (void)pthread_cond_wait(&all->changed, &all->lock);
            continue;
        }
        (void)pthread_mutex_unlock(&all->lock);
        work_at(all, build);
        (void)pthread_mutex_lock(&all->lock);
    }
    (void)pthread_mutex_unlock(&all->lock);
}

/* With the lock held. */
static struct build *find_build(struct builds *all, struct str build_id, bool *out_queued)
{
    struct list *lists[] = {&all->queue, &all->running};
    struct list *at;

    for (size_t i = 0; i < 2; i++)
        list_for_each (at, lists[i])
            if (str_eq(container_of(at, struct build, link)->row.id, build_id)) {
                *out_queued = i == 0;
                return container_of(at, struct build, link);
            }
    return NULL;
}

/* ---- starting and cancelling ---- */

static int read_build(struct build *build, struct str recipe, struct error *err)
{
    auto_free char *text = NULL;

    if (recipe_parse(recipe, &build->arena, &build->tree, &build->recipe, err) < 0)
        return -1;
    text = recipe_public_text(build->tree);
    return store_build_start(build->all->config.store, build->row.id, str_of(text), clock_wall_us(),
                             err);
}

static int queue_build(struct builds *all, struct build *build, struct error *err)
{
    int r = 0;

    (void)pthread_mutex_lock(&all->lock);
    if (all->stopping)
        r = error_set(err, ERROR_UNAVAILABLE, "the server is stopping");
    else if (count_of(&all->queue, build->row.team_id) >= all->config.queue_max)
        r = error_set(err, ERROR_QUOTA, "%zu builds and exports of your team wait already",
                      all->config.queue_max);
    else
        list_push_back(&all->queue, &build->link);
    (void)pthread_cond_broadcast(&all->changed);
    (void)pthread_mutex_unlock(&all->lock);
    return r;
}

static bool is_queued(struct builds *all, const struct build *build)
{
    struct list *at;

    list_for_each (at, &all->queue)
        if (at == &build->link)
            return true;
    return false;
}

int builds_run(struct builds *all, struct build *build, const struct cancel *cancel,
               struct error *err)
{
    int r = queue_build(all, build, err);

    if (r < 0)
        return r;
    (void)pthread_mutex_lock(&all->lock);
    while (!build->ended) {
        if (all->stopping || cancel_asked(cancel)) {
            atomic_store(&build->cancelled, true);
            if (is_queued(all, build)) {
                list_remove(&build->link);
                r = error_set(err, ERROR_CONFLICT, "it was cancelled while it waited for its turn");
                break;
            }
        }
        (void)cond_wait_ms(&all->changed, &all->lock, CANCEL_LOOK_MS);
    }
    (void)pthread_mutex_unlock(&all->lock);
    return r;
}

int build_start(struct builds *all, struct str team_id, struct str template_id, struct str build_id,
                struct str recipe, struct error *err)
{
    struct build *build = xcalloc(1, sizeof(*build));
    struct error ignored;
    int r;

    build->all = all;
    spool_charge_open(&build->charge, all->config.spool, team_id);
    (void)pthread_mutex_init(&build->lock, NULL);
    cond_init(&build->changed);
    r = build_get(all, team_id, template_id, build_id, &build->arena, &build->row, err);
    if (r == 0)
        r = read_build(build, recipe, err);
    if (r < 0) {
        build_free(build);
        return -1;
    }
    r = queue_build(all, build, err);
    if (r < 0) {
        (void)store_build_fail(all->config.store, build->row.id, str_of(err->message), STR(""),
                               clock_wall_us(), &ignored);
        build_free(build);
    }
    return r;
}

/* Of one that no thread has: it ends here. False: there is none. */
static bool drop_queued(struct builds *all, struct str build_id)
{
    struct error ignored = {0};
    struct build *build;
    bool queued = false;

    (void)pthread_mutex_lock(&all->lock);
    build = find_build(all, build_id, &queued);
    if (build && queued)
        list_remove(&build->link);
    (void)pthread_mutex_unlock(&all->lock);
    if (!build || !queued)
        return false;
    build_free(build);
    (void)store_build_fail(all->config.store, build_id, STR("the build was cancelled"), STR(""),
                           clock_wall_us(), &ignored);
    return true;
}

int build_cancel(struct builds *all, struct str team_id, struct str template_id,
                 struct str build_id, struct error *err)
{
    auto_arena struct arena arena = {0};
    struct store_build row;
    struct build *build;
    bool queued;

    if (build_get(all, team_id, template_id, build_id, &arena, &row, err) < 0)
        return -1;
    if (row.state == STORE_BUILD_READY || row.state == STORE_BUILD_ERROR)
        return error_set(err, ERROR_CONFLICT, "the build has ended");
    if (drop_queued(all, build_id))
        return 0;
    (void)pthread_mutex_lock(&all->lock);
    while ((build = find_build(all, build_id, &queued))) {
        atomic_store(&build->cancelled, true);
        (void)pthread_cond_wait(&all->changed, &all->lock);
    }
    (void)pthread_mutex_unlock(&all->lock);
    /* One that waited for its recipe. Does nothing to one that has ended. */
    return store_build_fail(all->config.store, build_id, STR("the build was cancelled"), STR(""),
                            clock_wall_us(), err);
}

/* ---- what has no hurry ---- */

static void keep(void *arg)
{
    struct builds *all = arg;
    struct error ignored;
    size_t count;

    cache_prune(all);
    files_prune(all);
    (void)store_build_prune(all->config.store, clock_wall_us() - HISTORY_DAYS * DAY_US,
                            HISTORY_BATCH, &count, &ignored);
}

/* ---- open, close ---- */

static void set_defaults(struct builds_config *config)
{
#define DEFAULT(member, value) \
    if (!config->member)       \
    config->member = (value)
    DEFAULT(max, DEFAULT_MAX);
    DEFAULT(team_max, DEFAULT_TEAM_MAX);
    DEFAULT(queue_max, DEFAULT_QUEUE);
    DEFAULT(cpu_count, DEFAULT_CPU);
    DEFAULT(mem_mb, DEFAULT_MEM_MB);
    DEFAULT(disk_mb, DEFAULT_DISK_MB);
    DEFAULT(timeout_s, DEFAULT_TIMEOUT_S);
    DEFAULT(ready_s, DEFAULT_READY_S);
    DEFAULT(cache_days, DEFAULT_CACHE_DAYS);
    DEFAULT(cache_mb, DEFAULT_CACHE_MB);
    DEFAULT(packages.stall_s, DEFAULT_STALL_S);
#undef DEFAULT
    if (config->max > BUILD_THREADS_MAX)
        config->max = BUILD_THREADS_MAX;
}

static int start_threads(struct builds *all, struct error *err)
{
    all->keeper = (struct periodic){.name = "builds",
                                    .period_us = KEEPER_MS * INT64_C(1000),
                                    .may_block = true,
                                    .run = keep,
                                    .arg = all};
    if (periodic_add(&all->keeper, 0, err) < 0)
        return -1;
    for (size_t i = 0; i < all->config.max; i++)
        if (thread_start(&all->threads[i], "build", THREAD_STACK_DEFAULT, work, all, err) < 0)
            return -1;
    return 0;
}

static int recover(struct builds *all, struct error *err)
{
    int64_t now_us = clock_wall_us();
    size_t count = 0;

    if (files_open(all, err) < 0 ||
        store_build_recover(all->config.store, STR("the server restarted"), now_us - DAY_US, now_us,
                            &count, err) < 0)
        return -1;
    if (count)
        log_info("build", "%zu builds ended with the last server", count);
    return 0;
}

int builds_open(const struct builds_config *config, struct builds **out, struct error *err)
{
    struct builds *all = xcalloc(1, sizeof(*all));

    all->config = *config;
    all->config.data = xstrdup(config->data);
    all->config.unpack = config->unpack && config->unpack[0] ? xstrdup(config->unpack) : NULL;
    all->config.packages.mirror = xstrdup(config->packages.mirror ? config->packages.mirror : "");
    all->config.packages.security =
        xstrdup(config->packages.security ? config->packages.security : "");
    all->config.packages.keyring =
        xstrdup(config->packages.keyring ? config->packages.keyring : "");
    set_defaults(&all->config);
    all->uploads = xasprintf("%s/store/uploads", config->data);
    all->spool_dir = xasprintf("%s/store", config->data);
    all->feeds = xasprintf("%s/feeds", config->data);
    all->fetch = fetch_new();
    (void)pthread_mutex_init(&all->lock, NULL);
    cond_init(&all->changed);
    cond_init(&all->turned);
    list_init(&all->turns);
    list_init(&all->queue);
    list_init(&all->running);
    if (recover(all, err) < 0 || start_threads(all, err) < 0) {
        builds_close(all);
        return error_prefix(err, "builds");
    }
    *out = all;
    return 0;
}

static void stop_all(struct builds *all)
{
    struct list *at;

    (void)pthread_mutex_lock(&all->lock);
    all->stopping = true;
    list_for_each (at, &all->running)
        atomic_store(&container_of(at, struct build, link)->cancelled, true);
    (void)pthread_cond_broadcast(&all->changed);
    (void)pthread_cond_broadcast(&all->turned);
    (void)pthread_mutex_unlock(&all->lock);
}

void builds_close(struct builds *all)
{
    struct list *at;

    if (!all)
        return;
    stop_all(all);
    for (size_t i = 0; i < BUILD_THREADS_MAX; i++)
        thread_join(&all->threads[i]);
    periodic_remove(&all->keeper);
    while ((at = list_pop_front(&all->queue)))
        build_free(container_of(at, struct build, link));
    fetch_free(all->fetch);
    (void)pthread_mutex_destroy(&all->lock);
    (void)pthread_cond_destroy(&all->changed);
    (void)pthread_cond_destroy(&all->turned);
    free((void *)(uintptr_t)all->config.data);
    free((void *)(uintptr_t)all->config.unpack);
    free((void *)(uintptr_t)all->config.packages.mirror);
    free((void *)(uintptr_t)all->config.packages.security);
    free((void *)(uintptr_t)all->config.packages.keyring);
    free(all->uploads);
    free(all->spool_dir);
    free(all->feeds);
    free(all);
}
