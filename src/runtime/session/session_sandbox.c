/* The sandbox of a session, and the checkpoint it begins from: the one asked for, or that of the repository
 * when there is one. Asked for, it is this one or a failure; the repository's is a help, and must not be in
 * the way of a session on another provider or with another template, nor when it is gone. */
#include <stdio.h>

#include "base/log.h"
#include "protocol/json/json_shape.h"
#include "runtime/backend/profile.h"
#include "runtime/session/session_internal.h"
#include "store/runtime/store_runtime_sandbox.h"

/* The strings of rows only grow in the live session's arena; few of them ever change. */
static struct str kept(struct live_session *live, struct str text)
{
    return arena_str(&live->arena, text.p ? text : STR(""));
}

struct checkpoint {
    struct str name; /* STR_NONE = none */
    struct str snapshot_id;
    bool asked_for;
};

static void tell_skipped(struct live_session *live, const struct checkpoint *checkpoint,
                         const char *why)
{
    char message[sizeof(((struct error *)0)->message)];

    (void)snprintf(message, sizeof(message), "%s", why);
    runtime_mask(live->runtime, live->caller.team_id, message);
    session_tell(live, "checkpoint.skipped",
                 json_pack("{s:o,s:o,s:o}", "checkpoint", json_str(checkpoint->name), "snapshot_id",
                           json_str(checkpoint->snapshot_id), "message",
                           json_str(str_of(message))));
}

/* What the session asks for, itself or by its profile, is not what the checkpoint was made from. */
static bool other_template(struct live_session *live, struct str image)
{
    auto_arena struct arena arena = {0};
    struct profile profile;
    struct error ignored;
    bool other;

    if (profile_resolve(live->runtime, &live->caller, &live->overrides, &arena, &profile,
                        &ignored) < 0)
        return false; /* told by who makes the sandbox */
    other = profile.image.len && !str_eq(profile.image, image);
    profile_done(&profile);
    return other;
}

static int find_checkpoint(struct live_session *live, struct arena *arena, struct checkpoint *out,
                           struct error *err)
{
    struct runtime_snapshot snapshot;
    struct str alias;

    *out = (struct checkpoint){0};
    /* With a sandbox it is where it was. */
    if (str_is(live->row.checkpoint, SESSION_NO_CHECKPOINT) || live->row.sandbox_id.len)
        return 0;
    if (live->row.checkpoint.len) {
        *out = (struct checkpoint){.name = live->row.checkpoint, .asked_for = true};
        return 0;
    }
    session_alias(live->row.repo, live->row.branch, arena, &alias);
    if (alias.len == 0)
        return 0;
    if (runtime_snapshot_get(live->runtime, &live->caller, alias, arena, &snapshot, err) < 0)
        return err->code == ERROR_NOT_FOUND ? 0 : -1;
    *out = (struct checkpoint){.name = alias, .snapshot_id = snapshot.id};
    if (other_template(live, snapshot.image)) {
        tell_skipped(live, out, "it was made from another template than the session asks for");
        *out = (struct checkpoint){0};
    }
    return 0;
}

/* Of another kind or provider, not ready, gone here or there. */
static bool unusable(const struct error *err)
{
    return err->code == ERROR_UNSUPPORTED || err->code == ERROR_NOT_FOUND ||
           err->code == ERROR_CONFLICT;
}

static int ensure_from(struct live_session *live, struct runtime_ensure *request,
                       struct checkpoint *checkpoint, struct arena *arena,
                       struct runtime_sandbox *out, enum runtime_tier *out_tier, struct error *err)
{
    struct error why, ignored;
    int r;

    request->snapshot = checkpoint->name;
    r = runtime_sandbox_ensure(live->runtime, &live->caller, request, arena, out, out_tier, err);
    if (r == 0 || !checkpoint->name.p || checkpoint->asked_for || !unusable(err))
        return r;
    why = *err;
    request->snapshot = STR_NONE;
    if (runtime_sandbox_ensure(live->runtime, &live->caller, request, arena, out, out_tier, err) <
        0)
        return -1;
    tell_skipped(live, checkpoint, why.message);
    /* It is not where it was: others need not try. */
    if (why.code == ERROR_NOT_FOUND)
        (void)store_runtime_snapshot_state(live->runtime->config.store, checkpoint->snapshot_id,
                                           SNAPSHOT_ERROR, &ignored);
    checkpoint->name = STR_NONE;
    return 0;
}

void session_sandbox_runs_on(struct live_session *live, struct error *why)
{
    runtime_mask(live->runtime, live->caller.team_id, why->message);
    log_warn("session", "id=%.*s: its sandbox keeps running: %s", STR_ARG(live->row.id),
             why->message);
    session_tell(live, "session.sandbox.running",
                 json_pack("{s:s,s:o}", "sandbox_id", live->row.sandbox_id.p, "message",
                           json_str(str_of(why->message))));
}

void session_put_away_sandbox(struct live_session *live)
{
    struct error why = {0}, err = {0};

    if (!live->row.owns_sandbox || !live->row.sandbox_id.len ||
        runtime_sandbox_pause(live->runtime, &live->caller, live->row.sandbox_id, &why) == 0 ||
        why.code == ERROR_NOT_FOUND)
        return;
    if (why.code != ERROR_UNSUPPORTED || !live->made_sandbox) {
        session_sandbox_runs_on(live, &why);
        return;
    }
    if (runtime_sandbox_kill(live->runtime, &live->caller, live->row.sandbox_id, NULL, &err) < 0) {
        session_sandbox_runs_on(live, &err);
        return;
    }
    runtime_mask(live->runtime, live->caller.team_id, why.message);
    (void)pthread_mutex_lock(&live->lock);
    live->made_sandbox = false;
    live->row.workdir = STR(""); /* a message begins at the beginning */
    session_note_row(live);
    session_event(live, "session.sandbox.killed",
                  json_pack("{s:s,s:o}", "sandbox_id", live->row.sandbox_id.p, "message",
                            json_str(str_of(why.message))));
    session_unlock(live);
}

int session_ensure_sandbox(struct live_session *live, bool *out_restored, struct error *err)
{
    auto_arena struct arena arena = {0};
    struct checkpoint checkpoint;
    struct runtime_sandbox sandbox;
    enum runtime_tier tier;
    struct runtime_ensure request = {
        .overrides = live->overrides,
        .key = str_of(arena_printf(&arena, "session:%.*s", STR_ARG(live->row.id))),
        .agent_id = live->row.agent_id,
        .task_id = live->row.task_id,
    };

    *out_restored = false;
    if (!live->row.owns_sandbox)
        return 0;
    request.overrides.persistent = request.overrides.persistent_given = true;
    if (find_checkpoint(live, &arena, &checkpoint, err) < 0 ||
        ensure_from(live, &request, &checkpoint, &arena, &sandbox, &tier, err) < 0)
        return -1;
    *out_restored = checkpoint.name.len > 0 || tier != TIER_CREATED;
    (void)pthread_mutex_lock(&live->lock);
    live->made_sandbox |= tier == TIER_CREATED;
    live->row.sandbox_id = kept(live, sandbox.id);
    live->row.provider = kept(live, sandbox.provider);
    live->row.profile = kept(live, sandbox.profile);
    live->row.snapshot_id = kept(live, sandbox.snapshot_id);
    if (checkpoint.name.len)
        live->row.checkpoint = kept(live, checkpoint.name);
    session_note_row(live);
    session_unlock(live);
    return 0;
}
