/* Making a sandbox, in the order of the steps:
 *
 *   plan      what is asked for is checked and written down; nothing is done yet (but a build of the template, on demand)
 *   box       a warm one is taken from the pool, or a blank one and made what is asked for, or one is started
 *   settle    what its template wants to run is started, and ready (in a warm one it runs already)
 *   init      its envd is told what it is, and answers; of a warm one beside the step box
 *   row       the store knows it: from here on a crash loses nothing
 *   route     the proxy knows it
 *   RUNNING   everybody may see it
 *
 * Before the row there is nothing in the store on purpose: a box without a row is a leftover, so a
 * crash in between needs no undo. Any failure goes through sandbox_teardown(). A warm box that fails
 * is not the client's fault: it is thrown away, and a fresh one is started once. */
#include <inttypes.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "domain/sandbox/sandbox_check.h"
#include "domain/sandbox/sandbox_envd.h"
#include "domain/sandbox/sandbox_history.h"
#include "domain/sandbox/sandbox_internal.h"
#include "domain/sandbox/sandbox_life.h"
#include "domain/sandbox/sandbox_network.h"
#include "domain/sandbox/sandbox_plan.h"
#include "domain/sandbox/sandbox_room.h"
#include "domain/sandbox/sandbox_stats.h"
#include "domain/sandbox/sandbox_table.h"
#include "domain/sandbox/sandbox_view.h"
#include "protocol/json/json_shape.h"

struct joined {
    struct sandboxes *all;
    struct sandbox_joint *joint;
    const struct store_sandbox *row;
};

static int run_joint(void *arg, struct conn *conn, struct error *err)
{
    const struct joined *joined = arg;
    struct sandbox_view view;

    view_from_row(joined->all, joined->row, &view);
    joined->joint->refused = joined->joint->run(joined->joint->arg, &view, conn, err) < 0;
    return joined->joint->refused ? -1 : 0;
}

static int add_row(struct sandboxes *all, const struct plan *plan, const char *id,
                   struct arena *arena, struct store_sandbox *out, struct error *err)
{
    int64_t now = now_us(all);
    struct store_event event = history_created();
    struct str *tags;
    size_t tag_count = tags_of(plan->pairs, plan->pair_count, arena, &tags);
    struct joined joined = {all, plan->joint, out};
    struct store_also also = {run_joint, &joined};
    int result;

    *out = (struct store_sandbox){
        .id = arena_str(arena, str_of(id)),
        .team_id = arena_str(arena, plan->team_id),
        .template_id = plan->template.id,
        .alias = plan->template.alias.len ? plan->template.alias : plan->template.name,
        .life = {.state = SANDBOX_RUNNING,
                 .end_at_us = end_within_life(all, now, now + plan->timeout_s * 1000000),
                 .running_since_us = now,
                 .memory = true,
                 .auto_pause = plan->auto_pause},
        .started_at_us = now,
        .timeout_s = plan->timeout_s,
        .cpu_count = plan->template.cpu_count,
        .mem_mb = plan->template.mem_mb,
        .disk_mb = plan->template.disk_mb,
        .metadata = arena_str(arena, str_of(plan->metadata)),
        .env = str_of(plan->env),
        .setup = plan->setup.text,
        .access_token = arena_str(arena, str_of(plan->access_token)),
        .traffic_token = arena_str(arena, str_of(plan->traffic_token)),
        .ingress = arena_str(arena, str_of(plan->ingress)),
        .internet = plan->internet,
        .internet_given = plan->internet_given,
        .network = arena_str(arena, plan->network),
        .secure = plan->secure,
        .auto_pause_memory = !plan->auto_pause_disk,
        .auto_resume = plan->auto_resume,
        .layers = plan->template.layers,
        .volumes = arena_str(arena, plan->volumes),
        .tags = tags,
        .tag_count = tag_count,
        .event = &event,
        .idempotency_key = plan->idempotency_key,
        .idempotency_hash = plan->idempotency_hash,
        .also = plan->joint ? &also : NULL,
    };
    result = store_sandbox_insert(all->store, out, err);
    out->event = NULL;
    out->also = NULL;
    if (plan->joint)
        plan->joint->committed = result == 0;
    return result;
}

/* Starts a box, or makes a blank one or a warm one what is asked for. */
static int start_box(struct sandboxes *all, const struct box_spec *spec,
                     const struct warm_box *warm, struct box_info *out, struct error *err)
{
    if (!warm)
        return all->engine->ops->start(all->engine, spec, out, err);
    if (warm->blank)
        return all->engine->ops->claim(all->engine, spec, out, err);
    /* Warm boxes have internet and the limits of the last sandbox of their kind. */
    if (!box_limits_equal(&warm->limits, &spec->limits) &&
        all->engine->ops->limit(all->engine, spec->id, &spec->limits, err) < 0)
        return -1;
    return spec->network.mode == NETWORK_OPEN && !spec->network.team &&
                   !box_network_has_rules(&spec->network)
               ? 0
               : all->engine->ops->network(all->engine, spec->id, &spec->network, err);
}

static int make_box(struct sandboxes *all, const struct plan *plan, const char *id,
                    const struct warm_box *warm, struct error *err)
{
    struct box_spec spec = plan->spec;
    struct box_info info = {0};
    bool has_address = warm && !warm->blank;

    (void)str_copy(str_of(id), spec.id, sizeof(spec.id));
    spec.network.team = network_team(all, plan->team_id);
    if (peer_networks_join(all->peers, plan->team_id, str_of(id), &plan->peers, &spec.network.group,
                           err) < 0)
        return -1;
    if (has_address)
        egress_begin(all, plan->team_id, id, warm->address, &spec.network, plan->network);
    if (start_box(all, &spec, warm, &info, err) < 0)
        return space_explain(err);
    if (!has_address)
        egress_begin(all, plan->team_id, id, info.address, &spec.network, plan->network);
    return egress_end(all, plan->team_id, id, &spec.network, plan->network, err);
}

static bool must_settle(const struct plan *plan, const struct warm_box *warm)
{
    return !(warm && warm->settled) && setup_wanted(&plan->setup, &plan->spec);
}

/* Other creates are not held up by one that waits for the programs of its template. */
static int settle(struct sandboxes *all, const struct plan *plan, const char *id,
                  const struct warm_box *warm, enum setup_port *out_port, struct error *err)
{
    const struct setup_how how = {.disk_mb = plan->template.disk_mb,
                                  .stop = &all->ending,
                                  .spec = &plan->spec,
                                  .out_port = out_port};
    int result;

    *out_port = warm ? warm->port : SETUP_PORT_FINE;
    if (!must_settle(plan, warm))
        return 0;
    atomic_fetch_sub(&all->creates, 1);
    result = setup_run(all, id, &plan->setup, &how, err);
    atomic_fetch_add(&all->creates, 1);
    return result;
}

/* A box that lacks nothing but its policy and limits gets those while its envd reads what it is: nothing runs inside because of that, and
 * nobody reaches it before both are done. */
static int make_and_tell(struct sandboxes *all, const struct plan *plan, const char *id,
                         const struct warm_box *warm, enum setup_port *out_port, struct error *err)
{
    auto_envd_init struct envd_init init = {0};
    bool at_once = warm && !warm->blank && !must_settle(plan, warm);
    int kept_fd = warm ? warm->envd_fd : -1;

    if (at_once)
        envd_init_begin(&init, id, kept_fd, buf_str(&plan->init_body));
    if (make_box(all, plan, id, warm, err) < 0 || settle(all, plan, id, warm, out_port, err) < 0)
        return -1;
    if (!at_once)
        envd_init_begin(&init, id, kept_fd, buf_str(&plan->init_body));
    return envd_init_end(&init, all->engine, id, err);
}

struct made {
    struct store_sandbox row;
    struct str warning; /* or STR_NONE */
};

/* All steps for a box of one id. On failure nothing is left (or is being removed). */
static int make(struct sandboxes *all, const struct plan *plan, struct sandbox *sandbox,
                const struct warm_box *warm, struct arena *arena, struct made *out,
                struct error *err)
{
    struct error ignored = {0};
    struct store_sandbox *row = &out->row;
    uint64_t seen = secret_seen(all);
    enum setup_port port = SETUP_PORT_FINE;

    if (make_and_tell(all, plan, sandbox->id, warm, &port, err) < 0 ||
        add_row(all, plan, sandbox->id, arena, row, err) < 0)
        goto fail;
    secret_tell_again(all, plan->team_id, sandbox->id, plan->network, seen);
    sandbox->auto_pause = row->life.auto_pause;
    sandbox->auto_pause_disk = !row->auto_pause_memory;
    route_publish(all, sandbox->id, row, true);
    out->warning = setup_port_warning(&plan->setup, port, arena);
    if (port == SETUP_PORT_SILENT)
        history_silent(all, row->id, &plan->setup);
    if (table_run(all, sandbox, row->life.end_at_us, row->revision))
        return 0;
    (void)error_set(err, ERROR_INTERNAL, "the sandbox ended while it was made");
fail:
    table_fail(all, sandbox, END_CREATE_FAILED);
    (void)sandbox_teardown(all, sandbox, &ignored);
    return -1;
}

static int add_to_table(struct sandboxes *all, const struct plan *plan, const char *id,
                        struct sandbox **out, struct error *err)
{
    struct table_new wanted = {.id = id,
                               .team_id = plan->team_id,
                               .cpu_count = plan->template.cpu_count,
                               .mem_mb = plan->template.mem_mb,
                               .disk_mb = plan->template.disk_mb,
                               .kept_mb = plan->kept_mb,
                               .limits = &plan->limits};

    return table_add(all, &wanted, out, err);
}

/* What it starts failed, or who joined refused it: another box would do no better. */
static bool is_not_of_the_box(const struct plan *plan, const struct warm_box *box,
                              const struct error *err)
{
    return (must_settle(plan, box) && err->code == ERROR_INVALID) ||
           (plan->joint && (plan->joint->refused || plan->joint->committed));
}

/* 1 = made, 0 = go on without, -1 = failed for good. */
static int try_warm(struct sandboxes *all, const struct plan *plan, struct arena *arena,
                    struct made *out, struct error *err)
{
    struct warm_box *box = plan->is_unique ? NULL : warm_take(all, &plan->spec, &plan->setup);
    struct sandbox *sandbox;
    int made;

    if (!box)
        box = warm_take_blank(all, &plan->spec);
    if (!box)
        return 0;
    if (add_to_table(all, plan, box->id, &sandbox, err) < 0) {
        if (err->code == ERROR_EXISTS) { /* it died, and is torn down already */
            warm_box_free(box);
            return 0;
        }
        warm_put_back(all, &plan->spec, setup_key(&plan->setup), box);
        return -1;
    }
    made = make(all, plan, sandbox, box, arena, out, err);
    if (made < 0 && is_not_of_the_box(plan, box, err)) {
        warm_box_free(box);
        return -1;
    }
    if (made < 0)
        log_warn("sandbox", "warm box id=%s: %s, starting another", box->id, err->message);
    warm_box_free(box);
    return made == 0;
}

static int make_any(struct sandboxes *all, const struct plan *plan, struct arena *arena,
                    struct made *out, struct error *err)
{
    int64_t from = clock_mono_us();
    int warm = try_warm(all, plan, arena, out, err);
    struct sandbox *sandbox;
    char id[ID_SIZE];

    if (warm < 0)
        return -1;
    if (!warm) {
        id_make(id);
        if (add_to_table(all, plan, id, &sandbox, err) < 0 ||
            make(all, plan, sandbox, NULL, arena, out, err) < 0)
            return -1;
    }
    log_info("sandbox", "created id=%.*s template=%.*s warm=%d us=%" PRId64, STR_ARG(out->row.id),
             STR_ARG(out->row.template_id), warm, clock_mono_us() - from);
    return 0;
}

int plan_run(struct sandboxes *all, const struct plan *plan, struct arena *arena,
             struct sandbox_view *out, struct error *err)
{
    int64_t from = clock_mono_us();
    struct made made = {0};
    int result;

    if (table_rate(all, plan->team_id, &plan->limits, err) < 0)
        return error_prefix(err, "create sandbox");
    if (peer_networks_check(all->peers, plan->team_id, &plan->peers, err) < 0 ||
        space_check(all, err) < 0) {
        stats_add(all, STAT_CREATE_FAILED);
        return error_prefix(err, "create sandbox");
    }
    atomic_fetch_add(&all->creates, 1);
    result = make_any(all, plan, arena, &made, err);
    atomic_fetch_sub(&all->creates, 1);
    warm_kick(all);
    if (result < 0) {
        stats_add(all, STAT_CREATE_FAILED);
        return error_prefix(err, "create sandbox");
    }
    stats_create(all, &made.row, clock_mono_us() - from);
    view_from_row(all, &made.row, out);
    out->warning = made.warning;
    return 0;
}

/* A recipe that comes with quicksand is built first, where the operator wants that. 1: the caller has no time for it. */
static int plan_create(struct sandboxes *all, const struct sandbox_new *request,
                       struct arena *arena, struct plan *plan, struct error *err)
{
    const char *name;

    if (plan_from_request(all, request, arena, plan, err) == 0)
        return 0;
    name = plan->not_built;
    if (!name || !all->builder.build)
        return -1;
    if (request->waits)
        return 1;
    plan_done(plan);
    *plan = (struct plan){0};
    if (all->builder.build(all->builder.arg, request->team_id, name, err) < 0)
        return -1;
    return plan_from_request(all, request, arena, plan, err);
}

int create_new(struct sandboxes *all, const struct sandbox_new *request, struct str hash,
               struct arena *arena, struct sandbox_view *out, struct error *err)
{
    auto_plan struct plan plan = {0};
    int planned = plan_create(all, request, arena, &plan, err);

    if (planned < 0)
        return -1;
    if (planned > 0) {
        *request->waits = true;
        return 0;
    }
    if (request->waits && setup_wanted(&plan.setup, &plan.spec) &&
        (plan.is_unique || !warm_has(all, &plan.spec, &plan.setup))) {
        *request->waits = true;
        return 0;
    }
    plan.idempotency_key = request->idempotency_key;
    plan.idempotency_hash = hash;
    plan.joint = request->joint;
    return plan_run(all, &plan, arena, out, err);
}

int sandbox_create(struct sandboxes *all, const struct sandbox_new *request, struct arena *arena,
                   struct sandbox_view *out, struct error *err)
{
    if (sandbox_new_check(request, all->max_timeout_s, err) < 0)
        return -1;
    if (request->idempotency_key.len)
        return create_once(all, request, arena, out, err);
    return create_new(all, request, STR_NONE, arena, out, err);
}
