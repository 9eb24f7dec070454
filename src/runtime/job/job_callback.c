/* Telling about the end of jobs: POST with the job's own token, by the sender, until it is taken, for a
 * day. What is told is in the store since the job ended, so it survives a restart and the sandbox.
 * Taking a callback puts it off, so that no two processes send it at once. */
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "protocol/json/json_shape.h"
#include "protocol/sender/sender.h"
#include "runtime/core/event.h"
#include "runtime/job/job_internal.h"

enum {
    SEND_MS = 15000,
    TAKEN_US = 60 * 1000000,
    FIRST_PAUSE_US = 1000000,
    GIVE_UP_S = 24 * 3600,
    URL_MAX = 2048,
    TOKEN_MAX = 1024,
};

int job_callback_check(const struct runtime_callback *callback, struct error *err)
{
    struct str url = callback->url;

    if ((!str_starts(url, STR("http://")) && !str_starts(url, STR("https://"))) ||
        url.len > URL_MAX || memchr(url.p, '\0', url.len))
        return error_set(err, ERROR_INVALID,
                         "callback url must begin with http:// or https:// and have at most %d"
                         " bytes",
                         URL_MAX);
    for (size_t i = 0; i < callback->token.len; i++)
        if (callback->token.p[i] <= ' ' || callback->token.p[i] > '~')
            return error_set(err, ERROR_INVALID,
                             "callback token must be of printable characters without blanks");
    if (callback->token.len > TOKEN_MAX)
        return error_set(err, ERROR_INVALID, "callback token has more than %d bytes", TOKEN_MAX);
    return 0;
}

char *job_callback_body(const struct job_end *end, bool completed)
{
    auto_json json_t *response = json_object(), *body = NULL;

    if (end->has_exit_code)
        (void)json_object_set_new(response, "exitCode", json_integer(end->exit_code));
    (void)json_object_set_new(response, "logs", json_str(end->logs.p ? end->logs : STR("")));
    body =
        json_pack("{s:s, s:O}", "status", completed ? "completed" : "failed", "response", response);
    if (end->error)
        (void)json_object_set_new(body, "error", json_str(str_of(end->error)));
    return json_text(body);
}

static void tell(struct runtime *runtime, const struct store_runtime_callback *callback,
                 const char *type, const struct error *why)
{
    struct runtime_caller caller = {.team_id = callback->team_id, .actor = callback->actor};
    json_t *data = json_pack("{s:I}", "attempts", (json_int_t)callback->attempts);
    struct runtime_event event = {
        .type = str_of(type),
        .sandbox_id = callback->sandbox_id,
        .process_id = callback->job_id,
        .agent_id = callback->agent_id,
        .actor = callback->actor,
        .data = data,
    };

    if (why)
        (void)json_object_set_new(data, "message", json_str(str_of(why->message)));
    runtime_event_add(runtime, &caller, &event);
    json_decref(data);
}

static int next(void *arg, struct str busy, struct arena *arena, struct sender_item *out,
                int64_t *out_at_us, struct error *err)
{
    struct runtime *runtime = arg;
    struct store *store = runtime->config.store;
    struct store_runtime_callback *callback = arena_alloc(arena, sizeof(*callback));
    int64_t now_us = clock_wall_us();
    int taken;

    if (store_runtime_callback_next(store, busy, arena, callback, err) < 0)
        return err->code == ERROR_NOT_FOUND ? 0 : -1;
    *out_at_us = callback->next_at_us;
    if (callback->next_at_us > now_us)
        return 0;
    taken = store_runtime_callback_take(store, callback, now_us + TAKEN_US, err);
    if (taken <= 0)
        return taken;
    *out = (struct sender_item){
        .team_id = callback->team_id,
        .anywhere = !runtime_public_only(runtime, callback->team_id),
        .failures = callback->attempts - 1,
        .url = callback->url.p,
        .headers = {{STR("content-type"), STR("application/json")},
                    {STR("x-job-token"), callback->token}},
        .header_count = 2,
        .body = callback->body.p ? callback->body : STR("{}"),
        .row = callback,
    };
    return 1;
}

static int over(void *arg, const struct sender_item *item, const struct error *why,
                int64_t again_at_us)
{
    struct runtime *runtime = arg;
    const struct store_runtime_callback *callback = item->row;
    bool given_up = why && clock_wall_us() - callback->ended_at_us > (int64_t)GIVE_UP_S * 1000000;
    enum callback_state state = !why       ? CALLBACK_DELIVERED
                                : given_up ? CALLBACK_FAILED
                                           : CALLBACK_PENDING;
    struct error err;
    int r = store_runtime_callback_set(runtime->config.store, callback->job_id, state, again_at_us,
                                       &err);

    if (r < 0)
        log_error("runtime", "job=%.*s callback not recorded: %s", STR_ARG(callback->job_id),
                  err.message);
    if (!why)
        tell(runtime, callback, "job.delivered", NULL);
    /* The first failure and the last one; those between say nothing new. */
    else if (given_up || callback->attempts == 1)
        tell(runtime, callback, "job.delivery_failed", why);
    return r;
}

void job_callbacks_open(struct runtime *runtime)
{
    sender_add(runtime->config.sender, &(struct sender_kind){.name = "callback",
                                                             .first_pause_us = FIRST_PAUSE_US,
                                                             .timeout_ms = SEND_MS,
                                                             .reach = FETCH_ANYWHERE,
                                                             .next = next,
                                                             .over = over,
                                                             .arg = runtime});
}

void job_callbacks_close(struct runtime *runtime)
{
    sender_remove(runtime->config.sender, runtime);
}
