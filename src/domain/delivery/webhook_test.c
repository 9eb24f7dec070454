/* Webhooks: what arrives, how it is signed, and that nothing gets lost. */
#include "domain/sandbox/test/sandbox_test_env.h"

#include <openssl/sha.h>
#include <poll.h>
#include <stdatomic.h>
#include <sys/socket.h>

#include "base/cleanup.h"
#include "base/encode.h"
#include "domain/delivery/webhook.h"
#include "protocol/fetch/test/fetch_rig.h"

enum { HANGS = -1 };

/* Who takes events. */
struct hook {
    struct fetch_rig *rig;
    atomic_int status; /* what it answers; 0 = closes, HANGS = nothing */
    atomic_int left;   /* clients that left while it hung */
    atomic_int count;  /* that it took */
    atomic_int tries;  /* also those that it did not */
    struct str answer; /* its body */
    char last[8192];   /* the head, a blank line and the body */
};

/* Until its client has left. */
static void hook_hang(struct hook *hook, struct fetch_rig_exchange *ex)
{
    struct pollfd wait = {.fd = ex->fd, .events = POLLIN};
    char byte;

    ex->close = true;
    while (!fetch_rig_stopping(ex->rig))
        if (poll(&wait, 1, 10) == 1 && recv(ex->fd, &byte, 1, MSG_PEEK) <= 0) {
            atomic_fetch_add(&hook->left, 1);
            return;
        }
}

static void hook_answer(struct fetch_rig_exchange *ex, void *arg)
{
    struct hook *hook = arg;
    int status = atomic_load(&hook->status);

    atomic_fetch_add(&hook->tries, 1);
    if (status == HANGS) {
        hook_hang(hook, ex);
        return;
    }
    if (status == 0) {
        ex->close = true;
        return;
    }
    if (status < 300) {
        (void)snprintf(hook->last, sizeof(hook->last), "%s\r\n%s", ex->head.p, ex->body.p);
        atomic_fetch_add(&hook->count, 1);
    }
    fetch_rig_answer(ex, status, NULL, hook->answer);
}

static void hook_open(struct hook *hook)
{
    *hook = (struct hook){0};
    atomic_init(&hook->status, 204);
    hook->rig = fetch_rig_new(NULL, hook_answer, hook);
}

static void add_webhook(struct env *env, const struct hook *hook, const char *events,
                        struct arena *arena, struct store_webhook *out)
{
    *out = (struct store_webhook){
        .team_id = TEAM,
        .name = STR("w"),
        .url = str_of(arena_printf(arena, "%s/hook?x=1", fetch_rig_url(hook->rig))),
        .secret = STR("very secret"),
        .events = str_of(events),
        .enabled = true};
    OK(webhook_put(env->webhooks, out, arena, &err));
}

static void open_with(struct env *env, bool private_ok)
{
    env_open(env, 0);
    env->webhooks_config.pause_ms = 50;
    env->webhooks_config.private_ok = private_ok;
    env_reopen(env);
}

static void header(const char *request, const char *name, char *out, size_t size)
{
    const char *at = strstr(request, name);

    CHECK(at != NULL);
    at += strlen(name) + 2;
    (void)snprintf(out, size, "%.*s", (int)strcspn(at, "\r"), at);
}

TEST(signed_events_arrive)
{
    auto_env struct env env;
    auto_arena struct arena arena = {0};
    struct store_webhook webhook;
    struct hook hook;
    unsigned char digest[SHA256_DIGEST_LENGTH];
    char id[ID_SIZE], wanted[64], text[256];
    char *last = hook.last, both[8300];

    hook_open(&hook);
    open_with(&env, true);
    add_webhook(&env, &hook, ",created,killed,", &arena, &webhook);
    OK(env_create(&env, id, &err));
    WAIT_FOR(atomic_load(&hook.count) == 1);
    OK(sandbox_pause(env.all, TEAM, str_of(id), &(struct sandbox_pause){0}, &err));
    OK(sandbox_kill(env.all, TEAM, str_of(id), &err));
    WAIT_FOR(atomic_load(&hook.count) == 2); /* not the pause */
    CHECK(strstr(last, "POST /hook?x=1 HTTP/1.1") == last);
    CHECK(strstr(last, "\"type\":\"sandbox.lifecycle.killed\""));
    CHECK(strstr(last, "\"version\":\"v2\"") && strstr(last, "\"execution_time\":"));
    header(last, "e2b-webhook-id", text, sizeof(text));
    CHECK_STR(webhook.id, text);
    (void)snprintf(both, sizeof(both), "very secret%s", strstr(last, "\r\n\r\n") + 4);
    (void)SHA256((const unsigned char *)both, strlen(both), digest);
    memset(wanted, 0, sizeof(wanted));
    base64_encode(wanted, digest, sizeof(digest));
    wanted[43] = '\0';
    CHECK(strstr(strstr(last, "\r\ne2b-signature: "), wanted) != NULL);
    header(last, "x-quicksand-signature", text, sizeof(text));
    CHECK(strlen(text) == 7 + 64 && strncmp(text, "sha256=", 7) == 0);
    OK(webhook_delete(env.webhooks, TEAM, webhook.id, &err));
    FAILS(webhook_delete(env.webhooks, TEAM, webhook.id, &err), ERROR_NOT_FOUND);
    fetch_rig_free(hook.rig);
}

TEST(how_deliveries_went_and_one_tried_by_hand)
{
    auto_env struct env env;
    auto_arena struct arena arena = {0};
    struct webhook_deliveries told;
    struct store_webhook webhook;
    struct error why = {0};
    struct hook hook;
    bool delivered = false;
    char id[ID_SIZE];

    hook_open(&hook);
    open_with(&env, true);
    add_webhook(&env, &hook, ",created,", &arena, &webhook);
    OK(webhook_test(env.webhooks, TEAM, webhook.id, NULL, &arena, &delivered, &why, &err));
    CHECK(delivered);
    CHECK(strstr(hook.last, "\"type\":\"webhook.test\"") &&
          strstr(hook.last, "\r\ne2b-signature: "));
    atomic_store(&hook.status, 503);
    OK(webhook_test(env.webhooks, TEAM, webhook.id, NULL, &arena, &delivered, &why, &err));
    CHECK(!delivered);
    CHECK_STR(str_of(why.message), "the receiver answered 503");
    FAILS(webhook_test(env.webhooks, TEAM, STR("other"), NULL, &arena, &delivered, &why, &err),
          ERROR_NOT_FOUND);
    OK(env_create(&env, id, &err));
    WAIT_FOR(atomic_load(&hook.tries) >= 4); /* the event twice */
    OK(webhook_deliveries(env.webhooks, TEAM, webhook.id, &arena, &told, &err));
    CHECK_INT(told.waiting, 1);
    CHECK(told.next_at_us > 0 && told.count >= 3);
    CHECK_STR(str_of(told.attempts[0].type), "sandbox.lifecycle.created");
    CHECK_STR(str_of(told.attempts[0].sandbox_id), id);
    CHECK_STR(str_of(told.attempts[told.count - 1].type), WEBHOOK_TEST_TYPE);
    CHECK(told.attempts[told.count - 1].delivered && !told.attempts[told.count - 2].delivered);
    atomic_store(&hook.status, 204);
    WAIT_FOR(webhook_deliveries(env.webhooks, TEAM, webhook.id, &arena, &told, &why) == 0 &&
             told.waiting == 0);
    FAILS(webhook_deliveries(env.webhooks, STR("other"), webhook.id, &arena, &told, &err),
          ERROR_NOT_FOUND);
    fetch_rig_free(hook.rig);
}

static bool was_tried(void *arg)
{
    struct hook *hook = arg;

    return atomic_load(&hook->tries) > 0;
}

TEST(one_tried_by_hand_and_cancelled_closes_its_connection)
{
    auto_env struct env env;
    auto_arena struct arena arena = {0};
    struct store_webhook webhook;
    struct error why = {0};
    struct hook hook;
    bool delivered = false;
    int64_t began_ms;

    hook_open(&hook);
    open_with(&env, true);
    add_webhook(&env, &hook, ",created,", &arena, &webhook);
    atomic_store(&hook.status, HANGS);
    began_ms = clock_mono_ms();
    FAILS(webhook_test(env.webhooks, TEAM, webhook.id, &(struct cancel){was_tried, &hook}, &arena,
                       &delivered, &why, &err),
          ERROR_CONFLICT);
    WAIT_FOR(atomic_load(&hook.left) == 1);
    /* By itself the sender waits 10 s for an answer. */
    CHECK(clock_mono_ms() - began_ms < 5000);
    fetch_rig_free(hook.rig);
}

TEST(nothing_gets_lost)
{
    auto_env struct env env;
    auto_arena struct arena arena = {0};
    struct store_webhook webhook;
    struct hook hook;
    char id[ID_SIZE];

    hook_open(&hook);
    open_with(&env, true);
    add_webhook(&env, &hook, ",created,", &arena, &webhook);
    atomic_store(&hook.status, 500);
    for (int i = 0; i < 20; i++)
        OK(env_create(&env, id, &err));
    WAIT_FOR(atomic_load(&hook.tries) >= 3);
    CHECK_INT(atomic_load(&hook.count), 0);
    atomic_store(&hook.status, 0);
    env_reopen(&env); /* also over a restart */
    atomic_store(&hook.tries, 0);
    WAIT_FOR(atomic_load(&hook.tries) >= 2);
    atomic_store(&hook.status, 200);
    WAIT_FOR(atomic_load(&hook.count) == 20);
    (void)usleep(100000); /* none comes twice */
    CHECK_INT(atomic_load(&hook.count), 20);
    fetch_rig_free(hook.rig);
}

TEST(private_addresses_are_not_for_everybody)
{
    auto_env struct env env;
    auto_arena struct arena arena = {0};
    struct store_webhook webhook;
    struct hook hook;
    char id[ID_SIZE];

    hook_open(&hook);
    open_with(&env, false);
    add_webhook(&env, &hook, ",created,", &arena, &webhook);
    OK(env_create(&env, id, &err));
    (void)usleep(300000); /* six times the pause between two tries */
    CHECK_INT(atomic_load(&hook.count), 0);
    fetch_rig_free(hook.rig);
}

/* Only the status counts: neither what comes with it nor what does not end. */
TEST(long_answers_are_answers)
{
    auto_env struct env env;
    auto_arena struct arena arena = {0};
    struct store_webhook webhook;
    struct hook hook;
    char id[ID_SIZE];

    hook_open(&hook);
    hook.answer = str_n(arena_alloc(&arena, 1 << 20), 1 << 20);
    atomic_store(&hook.status, 200);
    open_with(&env, true);
    add_webhook(&env, &hook, ",created,", &arena, &webhook);
    OK(env_create(&env, id, &err));
    OK(env_create(&env, id, &err));
    WAIT_FOR(atomic_load(&hook.count) == 2);
    (void)usleep(100000); /* none comes twice */
    CHECK_INT(atomic_load(&hook.count), 2);
    fetch_rig_free(hook.rig);
}

TEST(statistics)
{
    auto_env struct env env;
    auto_arena struct arena arena = {0};
    struct sandboxes_stats stats;
    struct sandbox_view view;
    char id[ID_SIZE], other[ID_SIZE];

    env_open(&env, 0);
    OK(env_create(&env, id, &err));
    OK(env_create(&env, other, &err));
    OK(sandbox_pause(env.all, TEAM, str_of(id), &(struct sandbox_pause){0}, &err));
    sandboxes_stats(env.all, &stats);
    CHECK_INT(stats.states[SANDBOX_RUNNING], 1);
    CHECK_INT(stats.states[SANDBOX_PAUSED], 1);
    OK(sandbox_resume(env.all, TEAM, str_of(id), &(struct sandbox_resume){.timeout_s = 60}, &arena,
                      &view, &err));
    OK(sandbox_kill(env.all, TEAM, str_of(id), &err));
    sandboxes_stats(env.all, &stats);
    CHECK_INT(stats.created, 2);
    CHECK(stats.paused == 1 && stats.resumed_memory == 1 && stats.ended == 1);
    CHECK_INT(stats.create_us[0] + stats.create_us[1] + stats.create_us[2] + stats.create_us[3] +
                  stats.create_us[4] + stats.create_us[5] + stats.create_us[6] +
                  stats.create_us[7] + stats.create_us[8],
              2);
}
