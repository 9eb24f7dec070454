/* A sandbox of the embedded engine and its row here, in one transaction of the store that both are in: the engine calls
 * claim_running() when the sandbox runs, with the transaction that makes its own row. There are both or none, and the events
 * are shown once it is committed. A provider that does not call it has the row written after its answer. */
#include "base/clock.h"
#include "protocol/json/json_shape.h"
#include "runtime/core/event.h"
#include "runtime/sandbox/sandbox_ensure.h"

enum { CREATED_EVENTS = 2 };

int64_t ensure_since_ms(int64_t begin_us)
{
    return (clock_mono_us() - begin_us + 999) / 1000;
}

json_t *ensure_started_data(const struct store_runtime_sandbox *row)
{
    json_t *data = json_pack("{s:o, s:o}", "external_id", json_str(row->external_id), "provider",
                             json_str(row->provider));

    if (row->snapshot_id.p)
        (void)json_object_set_new(data, "snapshot_id", json_str(row->snapshot_id));
    return data;
}

struct created {
    json_t *data[CREATED_EVENTS];
    struct runtime_event events[CREATED_EVENTS];
};

static void created_done(struct created *created)
{
    for (size_t i = 0; i < CREATED_EVENTS; i++)
        json_decref(created->data[i]);
}

#define auto_created __attribute__((cleanup(created_done)))

static struct created created_of(const struct ensure *ensure, int64_t create_ms)
{
    const struct store_runtime_sandbox *row = &ensure->row;
    struct created created = {
        .data = {json_pack("{s:o, s:o, s:I}", "provider", json_str(row->provider), "image",
                           json_str(row->image), "create_ms", (json_int_t)create_ms),
                 ensure_started_data(row)}};

    created.events[0] =
        runtime_row_event_of(ensure->caller, row, "sandbox.created", created.data[0]);
    created.events[1] =
        runtime_row_event_of(ensure->caller, row, "sandbox.started", created.data[1]);
    return created;
}

void ensure_tell_created(const struct ensure *ensure, int64_t create_ms)
{
    auto_created struct created created = created_of(ensure, create_ms);

    runtime_event_add_all(ensure->runtime, ensure->caller, created.events, CREATED_EVENTS);
}

struct claiming {
    struct ensure *ensure;
    int64_t begin_us;
    struct runtime_events_held *held;
    int outcome; /* 0, AGAIN or -1 */
    struct error why;
};

/* One sandbox, one id, on both APIs. */
static void use_running(struct claiming *claiming, const struct provider_sandbox *machine)
{
    struct ensure *ensure = claiming->ensure;
    struct store_runtime_sandbox *row = &ensure->row;

    ensure_use_machine(row, machine);
    row->snapshot_id = ensure->has_snapshot ? ensure->snapshot.id : STR_NONE;
    row->id = row->external_id;
    row->create_ms = ensure_since_ms(claiming->begin_us);
    row->state = SANDBOX_RUNNING;
    row->running_since_us = row->last_used_at_us = row->state_at_us = clock_wall_us();
}

/* conn: in whose transaction; NULL = in one of its own. A create that is tried again comes here again. */
static int claim_running(void *arg, const struct provider_sandbox *machine, struct conn *conn,
                         struct error *err)
{
    struct claiming *claiming = arg;
    struct ensure *ensure = claiming->ensure;
    struct store_runtime_claim claim = {.row = &ensure->row, .event_count = CREATED_EVENTS};
    auto_created struct created created = {0};
    int r;

    runtime_event_settle(ensure->runtime, claiming->held, false);
    use_running(claiming, machine);
    created = created_of(ensure, ensure->row.create_ms);
    claiming->held = runtime_event_hold(ensure->runtime, ensure->caller, created.events,
                                        CREATED_EVENTS, &claim.events);
    r = conn ? store_runtime_claim_in(conn, &claim, err)
             : store_runtime_claim(ensure->runtime->config.store, &claim, err);
    claiming->outcome = r == 0                                                ? 0
                        : err->code == ERROR_EXISTS && ensure->request->key.p ? AGAIN
                                                                              : -1;
    claiming->why = *err;
    return r;
}

/* Its row could not be written, although all else went well. */
static int unclaimed(struct claiming *claiming, struct error *err)
{
    struct ensure *ensure = claiming->ensure;
    struct error ignored;

    (void)machine_kill(ensure->runtime, ensure->profile.backend, &ensure->row,
                       ensure->caller->deadline_us, &ignored);
    *err = claiming->why;
    return claiming->outcome;
}

/* No sandbox: its row was refused, it could not be made, or it ended right after it was. */
static int not_made(struct claiming *claiming, bool stored, struct error *err)
{
    struct ensure *ensure = claiming->ensure;

    if (claiming->outcome != 0) {
        *err = claiming->why;
        return claiming->outcome;
    }
    if (stored)
        ensure_note_failed(ensure, &ensure->row, SANDBOX_ENDED, err);
    else
        runtime_row_failed(ensure->runtime, ensure->caller, &ensure->row, err);
    return -1;
}

int ensure_create_joint(struct ensure *ensure, struct error *err)
{
    struct claiming claiming = {.ensure = ensure, .begin_us = clock_mono_us()};
    struct provider_joint joint = {.run = claim_running, .arg = &claiming};
    struct store_runtime_sandbox *row = &ensure->row;
    struct provider_sandbox machine = {0};
    struct runtime_hold *hold; /* the name in its labels: who follows the engine leaves it alone */
    bool stored;
    int r;

    ensure_fill_row(ensure);
    hold = runtime_hold(ensure->runtime, row->team_id, row->id);
    r = ensure_create_machine(ensure, row, &joint, &machine, err);
    stored = joint.done || (r == 0 && claim_running(&claiming, &machine, NULL, &claiming.why) == 0);
    runtime_event_settle(ensure->runtime, claiming.held, stored);
    runtime_hold_end(ensure->runtime, hold);
    if (r < 0)
        return not_made(&claiming, stored, err);
    if (!stored)
        return unclaimed(&claiming, err);
    runtime_live_extended(ensure->runtime, row->id,
                          runtime_row_ttl(ensure->runtime, ensure->profile.backend, row));
    return 0;
}
