/* Telling about the end of jobs: POST with the job's own token, again and again until it is taken,
 * for a day. What is told is in the store since the job ended, so it survives a restart and the
 * sandbox. Taking a callback puts it off, so that no two threads (or processes) send it at once. */
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "protocol/fetch/fetch.h"
#include "protocol/json/json_shape.h"
#include "runtime/core/event.h"
#include "runtime/job/job_internal.h"

enum {
    SEND_MS = 15000,
    TAKEN_US = 60 * 1000000,
    BACKOFF_MIN_S = 1,
    BACKOFF_MAX_S = 3600,
    GIVE_UP_S = 24 * 3600,
    IDLE_MS = 30000,
    BUSY_MS = 500, /* what is due is a busy team's */
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

/* 0 = taken. */
static int send_it(struct runtime *runtime, const struct store_runtime_callback *callback,
                   struct arena *arena, struct error *err)
{
    const struct http_header headers[] = {
        {STR("content-type"), STR("application/json")},
        {STR("x-job-token"), callback->token},
    };
    struct fetch_request request = {
        .method = "POST",
        .url = arena_str(arena, callback->url).p,
        .headers = headers,
        .header_count = 2,
        .body = callback->body.p ? callback->body : STR("{}"),
        .connect_ms = SEND_MS,
        .timeout_ms = SEND_MS,
        .reach = fetch_reach(runtime_public_only(runtime, callback->team_id)),
    };
    auto_response struct fetch_response response = {0};

    if (fetch_call(runtime->config.fetch, &request, &response, err) < 0)
        return -1;
    if (response.status < 200 || response.status > 299)
        return error_set(err, ERROR_UNAVAILABLE, "the receiver answered %d", response.status);
    return 0;
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

static int64_t next_time(const struct store_runtime_callback *callback, int64_t now_us)
{
    int64_t wait_s = BACKOFF_MIN_S;

    for (int64_t i = 1; i < callback->attempts && wait_s < BACKOFF_MAX_S; i++)
        wait_s *= 2;
    return now_us + (wait_s < BACKOFF_MAX_S ? wait_s : BACKOFF_MAX_S) * 1000000;
}

static void deliver(struct runtime *runtime, const struct store_runtime_callback *callback,
                    struct arena *arena)
{
    struct store *store = runtime->config.store;
    struct error why = {0}, err;
    bool taken = send_it(runtime, callback, arena, &why) == 0;
    int64_t now_us = clock_wall_us();
    bool given_up = !taken && now_us - callback->ended_at_us > (int64_t)GIVE_UP_S * 1000000;
    const char *state = taken ? "delivered" : given_up ? "failed" : "pending";

    if (store_runtime_callback_set(store, callback->job_id, state, next_time(callback, now_us),
                                   &err) < 0)
        log_error("runtime", "job=%.*s callback not recorded: %s", STR_ARG(callback->job_id),
                  err.message);
    if (taken)
        tell(runtime, callback, "job.delivered", NULL);
    /* The first failure and the last one; those between say nothing new. */
    else if (given_up || callback->attempts == 1)
        tell(runtime, callback, "job.delivery_failed", &why);
}

/* With the lock held: teams that have as many under way as they may. */
static void find_busy(const struct jobs *jobs, struct store_callback_turn *turn)
{
    size_t found = 0;

    for (size_t i = 0; i < JOB_DELIVERERS && found < STORE_CALLBACK_BUSY; i++) {
        size_t count = 0;

        for (size_t k = 0; k <= i; k++)
            count += jobs->sending[i][0] && strcmp(jobs->sending[k], jobs->sending[i]) == 0;
        if (count == JOB_DELIVERERS_TEAM)
            turn->busy[found++] = str_of(jobs->sending[i]);
    }
}

/* 1 = one was due. */
static int deliver_next(struct runtime *runtime)
{
    auto_arena struct arena arena = {0};
    struct jobs *jobs = runtime->jobs;
    struct store_runtime_callback callback;
    int64_t now_us = clock_wall_us();
    struct store_callback_turn turn = {.now_us = now_us, .later_us = now_us + TAKEN_US};
    char *slot = NULL;
    struct error err;
    int r;

    (void)pthread_mutex_lock(&jobs->lock);
    find_busy(jobs, &turn);
    r = store_runtime_callback_take(runtime->config.store, &turn, &arena, &callback, &err);
    for (size_t i = 0; r == 0 && i < JOB_DELIVERERS && !slot; i++)
        if (!jobs->sending[i][0])
            slot = jobs->sending[i];
    if (slot)
        (void)str_copy(callback.team_id, slot, sizeof(jobs->sending[0]));
    (void)pthread_mutex_unlock(&jobs->lock);
    if (r < 0) {
        if (err.code != ERROR_NOT_FOUND)
            log_error("runtime", "callbacks of jobs: %s", err.message);
        return 0;
    }
    deliver(runtime, &callback, &arena);
    (void)pthread_mutex_lock(&jobs->lock);
    if (slot)
        slot[0] = '\0';
    (void)pthread_mutex_unlock(&jobs->lock);
    return 1;
}

static int64_t wait_for_next(struct runtime *runtime)
{
    int64_t next_us = 0, wait_ms;
    struct error err;

    if (store_runtime_callback_next(runtime->config.store, &next_us, &err) < 0 || !next_us)
        return IDLE_MS;
    wait_ms = (next_us - clock_wall_us()) / 1000 + 1;
    return wait_ms < BUSY_MS ? BUSY_MS : wait_ms > IDLE_MS ? IDLE_MS : wait_ms;
}

static void *deliverer(void *arg)
{
    struct runtime *runtime = arg;
    struct jobs *jobs = runtime->jobs;

    for (;;) {
        uint64_t due;
        int64_t until_ms, left_ms;
        bool closing;

        (void)pthread_mutex_lock(&jobs->lock);
        due = jobs->due;
        closing = jobs->closing;
        (void)pthread_mutex_unlock(&jobs->lock);
        if (closing)
            return NULL;
        if (deliver_next(runtime))
            continue;
        until_ms = clock_mono_ms() + wait_for_next(runtime);
        (void)pthread_mutex_lock(&jobs->lock);
        while (!jobs->closing && jobs->due == due && (left_ms = until_ms - clock_mono_ms()) > 0)
            job_wait_changed(jobs, left_ms);
        (void)pthread_mutex_unlock(&jobs->lock);
    }
}

int job_callbacks_open(struct runtime *runtime, struct error *err)
{
    struct jobs *jobs = runtime->jobs;

    for (; jobs->deliverer_count < JOB_DELIVERERS; jobs->deliverer_count++)
        if (pthread_create(&jobs->deliverers[jobs->deliverer_count], NULL, deliverer, runtime) != 0)
            return error_set(err, ERROR_INTERNAL, "no thread for the callbacks of jobs");
    return 0;
}

void job_callbacks_close(struct runtime *runtime)
{
    for (size_t i = 0; i < runtime->jobs->deliverer_count; i++)
        (void)pthread_join(runtime->jobs->deliverers[i], NULL);
    runtime->jobs->deliverer_count = 0;
}
