/* Sandboxes of other providers, which tell nobody when they end: every health_interval_s each provider
 * that has some is asked for a list, once, and the rows it contradicts are looked at one by one. So what
 * died, was paused or killed elsewhere holds neither quota nor costs for longer. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/map.h"
#include "runtime/sandbox/sandbox_parts.h"

enum {
    ROWS_MAX = 10000,
    LOOKS_MAX = 64, /* one by one, of a provider in a round */
    YOUNG_S = 5,    /* lists may be behind */
    ROUND_S = 20,   /* for one provider */
};

/* What a list says of its machines. */
static int list_machines(struct runtime *runtime, struct backend *backend, int64_t deadline_us,
                         struct arena *arena, struct map *out)
{
    const struct pair wanted = {STR("quicksand.instance"), runtime_instance_name(runtime)};
    const struct provider_query query = {STR_NONE, &wanted, 1, deadline_us};
    struct provider *provider = backend_provider(backend);
    struct provider_sandbox *machines = NULL;
    struct error err = {0};
    size_t count = 0;

    if (provider_find(provider, &query, arena, &machines, &count, &err) < 0) {
        log_debug("runtime", "provider=%s not asked for its sandboxes: %s", backend_name(backend),
                  err.message);
        return -1;
    }
    for (size_t i = 0; i < count; i++)
        (void)map_put(out, machines[i].id, &machines[i]);
    return 0;
}

static bool contradicts(const struct store_runtime_sandbox *row, struct map *machines)
{
    const struct provider_sandbox *machine = map_get(machines, row->external_id);

    if (!machine || machine->state == PROVIDER_ENDED)
        return true;
    return row->state == SANDBOX_RUNNING ? machine->state == PROVIDER_PAUSED
                                         : machine->state == PROVIDER_RUNNING;
}

/* Rows of one provider, all of them with a machine. */
static void reconcile(struct runtime *runtime, struct backend *backend,
                      const struct store_runtime_sandbox *rows, size_t count)
{
    int64_t deadline_us = clock_deadline(ROUND_S, 0);
    int64_t old_us = clock_wall_us() - (int64_t)YOUNG_S * 1000000;
    auto_arena struct arena arena = {0};
    size_t looks = 0;
    struct map machines;

    map_init(&machines);
    if (list_machines(runtime, backend, deadline_us, &arena, &machines) == 0)
        for (size_t i = 0; i < count && looks < LOOKS_MAX; i++) {
            struct runtime_caller caller = {
                .team_id = rows[i].team_id, .actor = STR("provider"), .deadline_us = deadline_us};
            struct runtime_sandbox ignored;
            struct error err = {0};

            if (rows[i].state_at_us > old_us || !contradicts(&rows[i], &machines))
                continue;
            looks++;
            if (runtime_sandbox_get(runtime, &caller, rows[i].id, true, &arena, &ignored, &err) < 0)
                log_info("runtime", "sandbox=%.*s not looked at: %s", STR_ARG(rows[i].id),
                         err.message);
        }
    map_done(&machines);
}

static bool has_machine(const struct store_runtime_sandbox *row)
{
    return row->external_id.p && (row->state == SANDBOX_RUNNING || row->state == SANDBOX_PAUSED);
}

static int by_provider(const void *a, const void *b)
{
    const struct store_runtime_sandbox *one = a, *other = b;

    return str_cmp(one->provider, other->provider);
}

void runtime_reconcile(struct runtime *runtime)
{
    auto_arena struct arena arena = {0};
    struct store_runtime_sandbox_query wanted = {.limit = ROWS_MAX};
    struct store_runtime_sandbox *rows = NULL;
    size_t count = 0, kept = 0, end;
    struct error err = {0};

    if (store_runtime_sandbox_list(runtime->config.store, &wanted, &arena, &rows, &count, &err) <
        0) {
        log_error("runtime", "sandboxes not looked at: %s", err.message);
        return;
    }
    for (size_t i = 0; i < count; i++)
        if (has_machine(&rows[i]))
            rows[kept++] = rows[i];
    qsort(rows, kept, sizeof(*rows), by_provider);
    for (size_t i = 0; i < kept; i = end) {
        struct runtime_caller caller = {.team_id = rows[i].team_id, .actor = STR("provider")};
        struct backend *backend = NULL;

        for (end = i; end < kept && str_eq(rows[end].provider, rows[i].provider); end++)
            ;
        if (runtime_row_backend(runtime, &caller, &rows[i], &backend, &err) < 0 ||
            backend_embedded(runtime, backend) ||
            !(provider_caps(backend_provider(backend))->features & PROVIDER_FIND))
            continue;
        reconcile(runtime, backend, &rows[i], end - i);
    }
}
