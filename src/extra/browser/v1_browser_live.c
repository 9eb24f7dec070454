/* The browser of a sandbox, live: a WebSocket that is joined to the browser's own, whose protocol has pictures of its
 * pages as they change and what hands do to them. Who has it steers the browser, so it is not for viewers.
 *
 * Only for sandboxes of this host's engine: the id that another provider gives is its own word, and could be that of
 * another team's sandbox here. */
#include "base/alloc.h"
#include "base/cleanup.h"
#include "edge/api_runtime/v1_types.h"
#include "extra/browser/browser_extra.h"
#include "protocol/json/json_shape.h"
#include "runtime/command/command.h"
#include "runtime/sandbox/sandbox.h"
#include "store/platform/store_sandbox.h"

enum { BROWSER_PORT = 9222, PATH_MAX_LEN = 200, FIND_MS = 10000 };

/* Lives until the connection has ended. */
struct live {
    struct v1 *v1;
    struct arena arena;
    struct str team_id;
    struct call_join join;
};

static void live_free(struct live *live)
{
    v1_share_stream_end(live->v1, live->team_id);
    arena_done(&live->arena);
    free(live);
}

static void on_ended(void *arg)
{
    live_free(arg);
}

static void forget(void *taken)
{
    live_free(taken);
}

static void take_over(struct v1_call *call)
{
    struct live *live = call->taken;

    http_on_done(call->ex, NULL, NULL);
    call->status = 101;
    live->v1->config.join(live->v1->config.join_arg, call->loop, call->ex, &live->join);
}

/* Is it a sandbox of this host, and of that team? */
static int check_here(struct v1_call *call, const struct runtime_sandbox *sandbox,
                      struct error *err)
{
    struct store_sandbox row = {0};
    struct error ignored;

    if (call->v1->config.join && sandbox->external_id.len &&
        store_sandbox_get(call->v1->config.store, sandbox->external_id, &call->arena, &row,
                          &ignored) == 0 &&
        str_eq(row.team_id, call->caller.team_id))
        return 0;
    return error_set(err, ERROR_CONFLICT,
                     "only a browser on this host is seen live; take pictures of others");
}

static bool valid_path(struct str path)
{
    if (!str_starts(path, STR("/devtools/browser/")) || path.len > PATH_MAX_LEN)
        return false;
    for (size_t i = 0; i < path.len; i++)
        if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-/_", path.p[i]))
            return false;
    return true;
}

/* The path of the browser's WebSocket, which is another after each of its starts. */
static int find_path(struct v1_call *call, struct str id, struct str *out, struct error *err)
{
    auto_json json_t *argv =
        json_pack("[s, s, s]", "/bin/sh", "-c", "exec sed -n 2p ~/.browser/address");
    struct runtime_command command = {
        .argv = argv, .timeout_ms = FIND_MS, .output_limit = 2 * PATH_MAX_LEN, .own = true};
    struct runtime_result result = {0};

    if (runtime_exec(call->v1->config.runtime, &call->caller, id, &command, &result, err) < 0)
        return -1;
    *out = arena_str(&call->arena, str_trim(buf_str(&result.out)));
    runtime_result_done(&result);
    if (!valid_path(*out))
        return error_set(err, ERROR_CONFLICT,
                         "this sandbox has no browser that runs: it needs the template 'browser', "
                         "which 'quicksand template build browser' makes");
    return 0;
}

int v1_browser_live(struct v1_call *call, struct error *err)
{
    struct runtime_sandbox sandbox = {0};
    struct str path = STR_NONE;
    struct live *live;

    if (runtime_sandbox_get(call->v1->config.runtime, &call->caller, call->params[0], false,
                            &call->arena, &sandbox, err) < 0 ||
        check_here(call, &sandbox, err) < 0 || find_path(call, sandbox.id, &path, err) < 0 ||
        v1_share_stream(call->v1, call->caller.team_id, err) < 0)
        return -1;
    live = xcalloc(1, sizeof(*live));
    live->v1 = call->v1;
    live->team_id = arena_str(&live->arena, call->caller.team_id);
    live->join = (struct call_join){.sandbox_id = arena_str(&live->arena, sandbox.external_id),
                                    .path = arena_str(&live->arena, path),
                                    .port = BROWSER_PORT,
                                    .ended = on_ended,
                                    .arg = live};
    call->taken = live;
    call->take_over = take_over;
    call->forget = forget;
    return 0;
}
