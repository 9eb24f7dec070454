/* Who may do what to a sandbox, by the state it is in: one table of rules. A caller that has to wait
 * for an owner waits for the state to settle and then looks again; the owner's own waits are bounded
 * (by the engine's and envd's time limits), so this ends. The limit here is only the last
 * resort, and says so. */
#include "base/clock.h"
#include "domain/sandbox/sandbox_internal.h"
#include "domain/sandbox/sandbox_table.h"

#define WAIT_MAX_US ((int64_t)150 * 1000000)

enum rule { NOT_THERE, TAKE, WAIT, IS_RUNNING, IS_PAUSED, IS_SEALING };

static enum rule rule_of(enum sandbox_state from, enum sandbox_state to)
{
    static const enum rule rules[SANDBOX_STATE_COUNT][SANDBOX_STATE_COUNT] = {
        [SANDBOX_PAUSING] = {[SANDBOX_RUNNING] = TAKE,
                             [SANDBOX_PAUSING] = WAIT,
                             [SANDBOX_PAUSED] = IS_PAUSED,
                             [SANDBOX_RESUMING] = WAIT,
                             [SANDBOX_SEALING] = WAIT},
        [SANDBOX_RESUMING] = {[SANDBOX_RUNNING] = IS_RUNNING,
                              [SANDBOX_PAUSING] = WAIT,
                              [SANDBOX_PAUSED] = TAKE,
                              [SANDBOX_RESUMING] = WAIT,
                              [SANDBOX_SEALING] = IS_RUNNING},
        [SANDBOX_SEALING] = {[SANDBOX_RUNNING] = TAKE,
                             [SANDBOX_PAUSING] = WAIT,
                             [SANDBOX_PAUSED] = IS_PAUSED,
                             [SANDBOX_RESUMING] = WAIT,
                             [SANDBOX_SEALING] = IS_SEALING},
        [SANDBOX_KILLING] = {[SANDBOX_RUNNING] = TAKE,
                             [SANDBOX_PAUSING] = WAIT,
                             [SANDBOX_PAUSED] = TAKE,
                             [SANDBOX_RESUMING] = WAIT,
                             [SANDBOX_SEALING] = WAIT},
    };

    return rules[to][from];
}

/* One whose time is up is as good as paused, or gone, also before that has begun. */
static enum rule rule_for(const struct sandboxes *all, const struct sandbox *sandbox,
                          enum sandbox_state to)
{
    if (table_awaits_end(all, sandbox) && (to == SANDBOX_RESUMING || to == SANDBOX_SEALING))
        return WAIT;
    return rule_of(sandbox->state, to);
}

static int refuse(enum rule rule, struct str id, enum sandbox_state to, struct error *err)
{
    switch (rule) {
    case IS_RUNNING:
        return error_set(err, ERROR_CONFLICT, "Sandbox %.*s is already running", STR_ARG(id));
    case IS_PAUSED:
        return error_set(err, ERROR_CONFLICT, "Sandbox %.*s is %spaused", STR_ARG(id),
                         to == SANDBOX_PAUSING ? "already " : "");
    case IS_SEALING:
        return error_set(err, ERROR_CONFLICT, "Sandbox %.*s is being snapshotted already",
                         STR_ARG(id));
    case NOT_THERE:
    case TAKE:
    case WAIT:
        break;
    }
    return sandbox_not_found(id, err);
}

/* A sandbox that is resumed counts again (its disk always did). */
static int check_room(struct sandboxes *all, const struct sandbox *sandbox,
                      const struct store_limits *limits, struct error *err)
{
    struct table_new wanted = {.team_id = str_of(sandbox->team_id),
                               .cpu_count = sandbox->cpu_count,
                               .mem_mb = sandbox->mem_mb,
                               .limits = limits};

    return table_check_room(all, &wanted, err);
}

static int take(struct sandboxes *all, struct sandbox *sandbox, const struct table_claim *claim,
                struct error *err)
{
    if (claim->to == SANDBOX_RESUMING && check_room(all, sandbox, claim->limits, err) < 0)
        return -1;
    sandbox->time_is_up = claim->reason == END_TIMEOUT;
    table_move(all, sandbox, claim->to);
    schedule_unset(all, sandbox);
    sandbox->ending = false;
    if (claim->to == SANDBOX_KILLING)
        sandbox->reason = claim->reason;
    return 0;
}

static int claim_locked(struct sandboxes *all, struct str team_id, struct str id,
                        const struct table_claim *claim, struct sandbox **out, struct error *err)
{
    int64_t asked_at_us = claim->asked_at_us ? claim->asked_at_us : clock_mono_us();
    int64_t until = clock_mono_us() + WAIT_MAX_US;

    for (;;) {
        struct sandbox *sandbox = table_find(all, team_id, id);
        enum rule rule = sandbox ? rule_for(all, sandbox, claim->to) : NOT_THERE;

        if (rule == TAKE) {
            if (take(all, sandbox, claim, err) < 0)
                return -1;
            *out = sandbox;
            return 0;
        }
        /* Another pause was faster, but this one was asked for before it ended. */
        if (rule == IS_PAUSED && claim->to == SANDBOX_PAUSING &&
            sandbox->paused_at_us > asked_at_us)
            return 0;
        if (rule != WAIT)
            return refuse(rule, id, claim->to, err);
        if (clock_mono_us() >= until)
            return error_set(err, ERROR_UNAVAILABLE, "Sandbox %.*s is busy", STR_ARG(id));
        (void)cond_wait_us(&all->moved, &all->lock, until - clock_mono_us());
    }
}

int table_claim(struct sandboxes *all, struct str team_id, struct str id,
                const struct table_claim *claim, struct sandbox **out, struct error *err)
{
    int result;

    *out = NULL;
    (void)pthread_mutex_lock(&all->lock);
    result = claim_locked(all, team_id, id, claim, out, err);
    (void)pthread_mutex_unlock(&all->lock);
    return result;
}
