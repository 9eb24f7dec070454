/* The second line of defence for time limits. The server ends a sandbox at its time; when there is no
 * server (nor a warden that would start one), envd ends itself, and with it every process of the
 * sandbox, some time after that. The server says how long, at /init and with every change.
 *
 * What is counted is time in which envd ran. A sandbox that was frozen, for days perhaps, is told
 * its new time only after it goes on, so a gap counts as one step of the timer, which is at most half of
 * what is left. */
#include <fcntl.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "envd/core/envd.h"
#include "protocol/json/json_shape.h"
#include "protocol/loop/loop.h"

enum { STEP_MS = 30 * 1000, STEP_MIN_MS = 500, BODY_MAX = 256 };
/* Until the first word from the server: a box made ahead may wait for long, but not for ever. */
#define FIRST_MS   ((int64_t)31 * 24 * 3600 * 1000)
#define LIFE_MAX_S ((int64_t)32 * 24 * 3600)

static void on_step(uv_timer_t *timer);

static void plan(struct lease *lease)
{
    lease->planned_ms = lease->left_ms / 2;
    if (lease->planned_ms > STEP_MS)
        lease->planned_ms = STEP_MS;
    if (lease->planned_ms < STEP_MIN_MS)
        lease->planned_ms = STEP_MIN_MS;
    uv_update_time(lease->timer.loop);
    lease->since_ms = uv_now(lease->timer.loop);
    (void)uv_timer_start(&lease->timer, on_step, (uint64_t)lease->planned_ms, 0);
}

/* Process 1 takes all others with it. */
static _Noreturn void end(void)
{
    auto_close int root = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    log_warn("envd", "the time is up and nobody ended the sandbox");
    if (root >= 0)
        (void)syncfs(root);
    _exit(0);
}

static void on_step(uv_timer_t *timer)
{
    struct lease *lease = timer->data;
    int64_t passed = (int64_t)(uv_now(timer->loop) - lease->since_ms);

    lease->left_ms -= passed < lease->planned_ms ? passed : lease->planned_ms;
    if (lease->left_ms <= 0)
        end();
    plan(lease);
}

void lease_start(struct envd *envd)
{
    struct lease *lease = &envd->lease;

    (void)uv_timer_init(loop_uv(envd->loop), &lease->timer);
    lease->timer.data = lease;
    lease->left_ms = FIRST_MS;
    if (getpid() == 1) /* not one that a test started */
        plan(lease);
}

void lease_set(struct envd *envd, int64_t seconds, int64_t revision)
{
    struct lease *lease = &envd->lease;

    if (seconds <= 0 || seconds > LIFE_MAX_S || revision < lease->revision)
        return;
    lease->revision = revision;
    lease->left_ms = seconds * 1000;
    if (getpid() == 1)
        plan(lease);
}

struct lease_request {
    int64_t seconds, revision;
};

static const struct json_field fields[] = {
    JSON_FIELD(struct lease_request, seconds, "seconds", 0),
    JSON_FIELD(struct lease_request, revision, "revision", 0),
    JSON_END,
};

static void on_body(struct http_exchange *ex, struct str body, void *arg)
{
    struct lease_request request = {0};
    auto_json json_t *tree = NULL;
    struct error err = {0};

    if (json_parse_as(fields, body, &request, &tree, &err) != 0) {
        envd_reply_failure(ex, &err);
        return;
    }
    lease_set(arg, request.seconds, request.revision);
    http_reply(ex, 204, NULL, 0, STR(""));
}

void lease_handle(struct envd_door *door, struct http_exchange *ex)
{
    if (door->control)
        http_read_all(ex, BODY_MAX, on_body, door->envd);
    else
        envd_reply_error(ex, 404, "not found");
}
