/* Forks: sandboxes that start with the files of another. For several, its files are sealed once, as
 * one more layer; the children share it until they write. They are made by a few threads at a time; each child
 * succeeds or fails for itself. */
#include <stdlib.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "base/thread.h"
#include "domain/sandbox/sandbox_check.h"
#include "domain/sandbox/sandbox_internal.h"
#include "domain/sandbox/sandbox_layers.h"
#include "domain/sandbox/sandbox_life.h"
#include "domain/sandbox/sandbox_plan.h"
#include "domain/sandbox/sandbox_table.h"
#include "domain/sandbox/sandbox_view.h"

enum { THREADS_MAX = 8 };

struct forks {
    struct sandboxes *all;
    const struct store_sandbox *row;
    struct str layers;
    const struct sandbox_fork *request;
    struct fork_result *results;
    atomic_size_t next;
    pthread_mutex_t lock; /* guards the arena */
    struct arena *arena;
};

/* number: from 1. */
static int make_one(struct forks *forks, size_t number, struct fork_result *result)
{
    auto_plan struct plan plan = {0};
    auto_arena struct arena arena = {0};
    struct sandbox_view view;

    if (plan_from_row(forks->all, forks->row, forks->layers, forks->request,
                      forks->request->count > 1 ? number : 0, &plan, &result->err) < 0 ||
        plan_run(forks->all, &plan, &arena, &view, &result->err) < 0)
        return -1;
    (void)pthread_mutex_lock(&forks->lock);
    view_copy(&view, forks->arena, &result->view);
    (void)pthread_mutex_unlock(&forks->lock);
    return 0;
}

static void make_some(void *arg)
{
    struct forks *forks = arg;
    size_t i;

    while ((i = atomic_fetch_add(&forks->next, 1)) < forks->request->count)
        forks->results[i].ok = make_one(forks, i + 1, &forks->results[i]) == 0;
}

static void run_child(struct sandboxes *all, const struct store_sandbox *row,
                      const struct sandbox_fork *request, struct arena *arena,
                      struct fork_result *out)
{
    auto_plan struct plan plan = {0};

    if (plan_from_row(all, row, row->layers, request, 0, &plan, &out->err) < 0)
        return;
    (void)str_copy(row->id, plan.spec.source, sizeof(plan.spec.source));
    out->ok = plan_run(all, &plan, arena, &out->view, &out->err) == 0;
}

/* Its source stands still for other calls until the child runs, which must not wait for programs. */
static bool starts_programs(const struct store_sandbox *row)
{
    auto_arena struct arena arena = {0};
    struct setup setup;

    setup_read(row->setup, &arena, &setup);
    return setup_key(&setup).len > 0;
}

enum { FORK_BY_LAYER = 1 };

/* A single child is a copy of its source, made as its box starts: no layer has to come and go. FORK_BY_LAYER when it
 * is to be made as several are. */
static int fork_one(struct sandboxes *all, struct str team_id, struct str id,
                    const struct sandbox_fork *request, struct arena *arena,
                    struct fork_result *out, struct error *err)
{
    struct table_claim claim = {.to = SANDBOX_SEALING};
    struct store_sandbox row;
    struct error ignored = {0};
    struct sandbox *sandbox;
    int result;

    if (table_claim(all, team_id, id, &claim, &sandbox, err) < 0)
        return -1;
    result = store_sandbox_get(all->store, str_of(sandbox->id), arena, &row, err);
    if (result == 0 && starts_programs(&row))
        result = FORK_BY_LAYER;
    if (result == 0)
        run_child(all, &row, request, arena, out);
    if (!table_sealed(all, sandbox))
        (void)sandbox_teardown(all, sandbox, &ignored);
    return result;
}

int sandbox_fork(struct sandboxes *all, struct str team_id, struct str id,
                 const struct sandbox_fork *request, struct arena *arena,
                 struct fork_result **out_results, struct error *err)
{
    struct forks forks = {.all = all, .request = request, .arena = arena};
    struct sealed sealed;
    int result = FORK_BY_LAYER;

    if (request->count < 1 || request->count > SANDBOX_FORKS_MAX)
        return error_set(err, ERROR_INVALID, "'count' must be from 1 to %d", SANDBOX_FORKS_MAX);
    if (request->timeout_s < 1)
        return error_set(err, ERROR_INVALID, "Timeout must be greater than 0");
    if (check_timeout_max(all, request->timeout_s, err) < 0 ||
        sandbox_metadata_check(request->metadata, request->metadata_count, err) < 0)
        return -1;
    *out_results = arena_alloc(arena, request->count * sizeof(**out_results));
    if (request->count == 1)
        result = fork_one(all, team_id, id, request, arena, *out_results, err);
    if (result != FORK_BY_LAYER)
        return result;
    if (layers_seal(all, team_id, id, arena, &sealed, err) < 0)
        return -1;
    forks.row = &sealed.row;
    forks.layers = sealed.layers;
    forks.results = *out_results;
    (void)pthread_mutex_init(&forks.lock, NULL);
    thread_crew("fork", request->count < THREADS_MAX ? request->count : THREADS_MAX, make_some,
                &forks);
    (void)pthread_mutex_destroy(&forks.lock);
    layers_unpin(all, &sealed.pin);
    layers_collect_soon(all); /* in case that none succeeded */
    return 0;
}
