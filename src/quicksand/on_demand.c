/* How it works: who comes first starts the build, as somebody of the team would with `quicksand template build NAME`. Whoever comes
 * while it runs waits for the same one: which that is says the store, so a build is also found by a create that comes after
 * others gave up, and one that a person has started is as good. */
#include "quicksand/on_demand.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/cond.h"
#include "base/log.h"
#include "cli/build/shipped.h"
#include "domain/build/build.h"
#include "domain/sandbox/sandbox.h"
#include "domain/template/template.h"
#include "protocol/json/json_shape.h"

enum { LOOK_MS = 200 };

struct on_demand {
    struct on_demand_config config;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t changed;
    bool starting; /* somebody looks for a build under way, and starts one when there is none */
    bool ending;
};

struct wanted {
    struct str team_id;
    const char *name;
};

void on_demand_hurry(struct on_demand *demand)
{
    (void)pthread_mutex_lock(&demand->lock);
    demand->ending = true;
    (void)pthread_cond_broadcast(&demand->changed);
    (void)pthread_mutex_unlock(&demand->lock);
}

void on_demand_close(struct on_demand *demand)
{
    (void)pthread_mutex_destroy(&demand->lock);
    (void)pthread_cond_destroy(&demand->changed);
    free(demand);
}

/* ---- starting one ---- */

static int add_files(struct on_demand *demand, struct str team_id, struct shipped_parts *parts,
                     struct error *err)
{
    for (size_t i = 0; i < parts->recipe.file_count; i++) {
        const struct pack *pack = &parts->packs[i];
        auto_close int fd = -1;
        bool present = false;

        if (build_file_find(demand->config.builds, team_id, str_of(pack->hash), &present, err) < 0)
            return -1;
        if (present)
            continue;
        fd = open(demand->config.store_dir, O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);
        if (fd < 0)
            return error_set_errno(err, errno, "a file in '%s'", demand->config.store_dir);
        if (pack_write(&parts->context, pack, fd, err) < 0 ||
            build_file_add(demand->config.builds, team_id, str_of(pack->hash), fd, -1, err) < 0)
            return -1;
    }
    return 0;
}

static int start(struct on_demand *demand, const struct wanted *wanted, struct arena *arena,
                 struct str *out_build_id, struct error *err)
{
    const struct shipped_recipe *shipped = shipped_find(wanted->name);
    struct shipped_parts parts;
    struct build_made made = {0};
    auto_free char *recipe = NULL;
    int rc = -1;

    if (!shipped)
        return error_set(err, ERROR_INTERNAL, "there is no recipe '%s'", wanted->name);
    if (shipped_open(shipped, &parts, err) == 0 &&
        add_files(demand, wanted->team_id, &parts, err) == 0) {
        struct build_wanted build = {.team_id = wanted->team_id,
                                     .name = str_of(wanted->name),
                                     .cpu_count = parts.settings.cpu_count,
                                     .mem_mb = parts.settings.memory_mb,
                                     .disk_mb = parts.settings.disk_mb};

        recipe = json_text(parts.recipe.json);
        rc = build_new(demand->config.builds, &build, arena, &made, err);
    }
    if (rc == 0)
        rc = build_start(demand->config.builds, wanted->team_id, made.template_id, made.build_id,
                         str_of(recipe), err);
    shipped_close(&parts);
    if (rc < 0)
        return -1;
    log_info("on-demand", "building template=%s team=%.*s build=%.*s", wanted->name,
             STR_ARG(wanted->team_id), STR_ARG(made.build_id));
    *out_build_id = made.build_id;
    return 0;
}

/* The newest build of that name, when it runs and will be its default. */
static bool is_under_way(struct on_demand *demand, const struct wanted *wanted, struct arena *arena,
                         struct str *out_build_id)
{
    struct template_view view = {0};
    struct store_build *builds;
    struct error ignored = {0};
    size_t count = 0;

    if (template_view(demand->config.store, wanted->team_id, str_of(wanted->name), arena, &view,
                      &ignored) < 0 ||
        template_builds(demand->config.store,
                        &(struct store_build_query){.template_id = view.row.id, .limit = 1}, arena,
                        &builds, &count, &ignored) < 0 ||
        !count || builds[0].state != STORE_BUILD_BUILDING ||
        !template_tags_have(builds[0].tags, STR("default")))
        return false;
    *out_build_id = builds[0].id;
    return true;
}

/* One at a time, so that those who come together start one build. */
static int find_or_start(struct on_demand *demand, const struct wanted *wanted, struct arena *arena,
                         struct str *out_build_id, struct error *err)
{
    struct store_template ready;
    struct error ignored = {0};
    int rc = 0;

    (void)pthread_mutex_lock(&demand->lock);
    while (demand->starting)
        (void)pthread_cond_wait(&demand->changed, &demand->lock);
    demand->starting = true;
    (void)pthread_mutex_unlock(&demand->lock);

    /* Meanwhile it may be there. */
    if (template_find(demand->config.store, wanted->team_id, str_of(wanted->name), arena, &ready,
                      &ignored) == 0)
        *out_build_id = STR_NONE;
    else if (!is_under_way(demand, wanted, arena, out_build_id))
        rc = start(demand, wanted, arena, out_build_id, err);

    (void)pthread_mutex_lock(&demand->lock);
    demand->starting = false;
    (void)pthread_cond_broadcast(&demand->changed);
    (void)pthread_mutex_unlock(&demand->lock);
    return rc;
}

/* ---- waiting for it ---- */

/* False: nobody waits any more. */
static bool rest(struct on_demand *demand, const struct wanted *wanted, int64_t until_us,
                 struct error *err)
{
    int64_t look_us = clock_mono_us() + LOOK_MS * INT64_C(1000);
    bool ending;

    (void)pthread_mutex_lock(&demand->lock);
    while (!demand->ending && cond_wait_until(&demand->changed, &demand->lock,
                                              look_us < until_us ? look_us : until_us))
        ;
    ending = demand->ending;
    (void)pthread_mutex_unlock(&demand->lock);
    if (ending)
        (void)error_set(err, ERROR_UNAVAILABLE,
                        "the server ends while template '%s' is being built: create the sandbox "
                        "again when it is back",
                        wanted->name);
    else if (clock_mono_us() >= until_us)
        (void)error_set(err, ERROR_UNAVAILABLE,
                        "template '%s' is being built, which takes longer than %lld s: create the "
                        "sandbox again in a while (quicksand template logs %s says how far it is)",
                        wanted->name, (long long)demand->config.wait_s, wanted->name);
    else
        return true;
    return false;
}

/* 1: it is ready; 0: it is not over. */
static int look(struct on_demand *demand, const struct wanted *wanted, struct str build_id,
                struct error *err)
{
    auto_arena struct arena arena = {0};
    struct store_build build;

    if (build_get(demand->config.builds, wanted->team_id, STR_NONE, build_id, &arena, &build, err) <
        0)
        return -1;
    if (build.state != STORE_BUILD_ERROR)
        return build.state == STORE_BUILD_READY;
    return error_set(
        err, ERROR_UNAVAILABLE,
        "template '%s' could not be built: %.*s%s%.*s (quicksand template logs %s says "
        "more, the next create tries again)",
        wanted->name, (int)(build.reason.len < 300 ? build.reason.len : 300),
        build.reason.p ? build.reason.p : "", build.reason_step.len ? ", at step " : "",
        STR_ARG(build.reason_step), wanted->name);
}

static int build(void *arg, struct str team_id, const char *name, struct error *err)
{
    struct on_demand *demand = arg;
    const struct wanted wanted = {team_id, name};
    int64_t until_us = clock_mono_us() + demand->config.wait_s * 1000000;
    auto_arena struct arena arena = {0};
    struct str build_id;
    int over;

    if (find_or_start(demand, &wanted, &arena, &build_id, err) < 0)
        return error_prefix(err, "template '%s' is not built yet, and no build began", name);
    if (!build_id.len)
        return 0;
    while ((over = look(demand, &wanted, build_id, err)) == 0)
        if (!rest(demand, &wanted, until_us, err))
            return -1;
    return over < 0 ? -1 : 0;
}

struct on_demand *on_demand_open(const struct on_demand_config *config)
{
    struct on_demand *demand = xcalloc(1, sizeof(*demand));

    demand->config = *config;
    (void)pthread_mutex_init(&demand->lock, NULL);
    cond_init(&demand->changed);
    if (config->wait_s)
        sandboxes_set_builder(config->sandboxes,
                              &(struct sandbox_builder){.arg = demand, .build = build});
    return demand;
}
