#include "runtime/core/event.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "protocol/json/json_shape.h"
#include "runtime/core/event_internal.h"
#include "runtime/core/runtime_parts.h"
#include "runtime/core/test/core_env.h"
#include "store/runtime/store_runtime.h"

static void emit(struct core_env *env, const char *type, const char *sandbox, const char *session)
{
    runtime_event_add(env->runtime, &env->caller,
                      &(struct runtime_event){.type = str_of(type),
                                              .sandbox_id = str_of(sandbox),
                                              .session_id = str_of(session)});
}

static size_t list(struct core_env *env, struct runtime_event_filter filter, int64_t since,
                   size_t limit, struct arena *arena, struct runtime_event_text **out)
{
    struct runtime_event_texts texts = {0};

    OK(runtime_event_list(env->runtime, &env->caller, &filter, since, limit, arena, &texts, &err));
    *out = texts.items;
    return texts.count;
}

TEST(event_text_and_filters)
{
    auto_core struct core_env env;
    auto_arena struct arena arena = {0};
    struct runtime_event_text *found;
    auto_json json_t *data = json_pack("{s:s}", "why", "test"), *parsed = NULL;
    struct error err = {0};

    core_open(&env, NULL, NULL);
    runtime_event_add(env.runtime, &env.caller,
                      &(struct runtime_event){.type = STR("sandbox.created"),
                                              .sandbox_id = STR("s1"),
                                              .task_id = STR("task"),
                                              .data = data});
    emit(&env, "sandbox.paused", "s1", NULL);
    emit(&env, "session.created", "s2", "x1");
    CHECK_INT(list(&env, (struct runtime_event_filter){0}, 0, 10, &arena, &found), 3);
    CHECK(found[0].id < found[1].id && found[1].id < found[2].id);
    CHECK_INT(json_parse(found[0].json, &parsed, &err), 0);
    CHECK_INT(json_integer_value(json_object_get(parsed, "id")), found[0].id);
    CHECK_STR(json_get_str(parsed, "type"), "sandbox.created");
    CHECK_STR(json_get_str(parsed, "sandbox"), "s1");
    CHECK_STR(json_get_str(parsed, "task"), "task");
    CHECK_STR(json_get_str(parsed, "actor"), "key1");
    CHECK_STR(json_get_str(json_object_get(parsed, "data"), "why"), "test");
    CHECK(!json_object_get(parsed, "session"));
    CHECK_INT(list(&env, (struct runtime_event_filter){.sandbox_id = STR("s1")}, found[0].id, 10,
                   &arena, &found),
              1);
    CHECK_INT(
        list(&env, (struct runtime_event_filter){.type = STR("sandbox.")}, 0, 10, &arena, &found),
        2);
    CHECK_INT(
        list(&env, (struct runtime_event_filter){.type = STR("sandbox")}, 0, 10, &arena, &found),
        0);
    env.caller.team_id = STR("t2");
    CHECK_INT(list(&env, (struct runtime_event_filter){0}, 0, 10, &arena, &found), 0);
}

TEST(event_memory_then_store)
{
    auto_core struct core_env env;
    auto_arena struct arena arena = {0};
    struct runtime_event_texts newest;
    struct runtime_event_text *found;
    int64_t last = 0;
    size_t count, all = 0;

    core_open(&env, NULL, NULL);
    for (int i = 0; i < 5; i++)
        emit(&env, "a.old", "s1", NULL);
    core_restart(&env);
    for (int i = 0; i < 5; i++)
        emit(&env, "a.new", "s1", NULL);
    /* Pages of three across the border between store and memory. */
    while ((count = list(&env, (struct runtime_event_filter){0}, last, 3, &arena, &found)) > 0) {
        for (size_t i = 0; i < count; i++) {
            CHECK(found[i].id > last);
            last = found[i].id;
        }
        all += count;
    }
    CHECK_INT(all, 10);
    OK(runtime_event_last(env.runtime, &env.caller, &(struct runtime_event_filter){0}, 7, &arena,
                          &newest, &err));
    CHECK_INT(newest.count, 7);
    CHECK_STR(newest.items[0].type, "a.old");
    CHECK_STR(newest.items[2].type, "a.new");
    CHECK_INT(newest.items[6].id, last);
    OK(runtime_event_last(env.runtime, &env.caller,
                          &(struct runtime_event_filter){.type = STR("a.old")}, 1, &arena, &newest,
                          &err));
    CHECK_INT(newest.count, 1);
}

/* Long events: 60 of 200 KiB. restart: they are read from the store. */
static void check_long_events(bool restart)
{
    enum { EVENTS = 60, BYTES = 200 << 10, MOST = 9 << 20 };
    auto_core struct core_env env;
    auto_arena struct arena arena = {0};
    auto_free char *text = xmalloc(BYTES + 1);
    struct runtime_event_texts page = {.more = true};
    const struct runtime_event_filter any = {0};
    size_t all = 0, pages = 0;
    int64_t last = 0;

    memset(text, 'x', BYTES);
    text[BYTES] = '\0';
    core_open(&env, NULL, NULL);
    for (int i = 0; i < EVENTS; i++) {
        auto_json json_t *data = json_pack("{s:s}", "text", text);

        runtime_event_add(env.runtime, &env.caller,
                          &(struct runtime_event){.type = STR("a.long"), .data = data});
    }
    if (restart)
        core_restart(&env);
    for (; page.more; pages++) {
        size_t bytes = 0;

        OK(runtime_event_list(env.runtime, &env.caller, &any, last, RUNTIME_EVENTS_MAX, &arena,
                              &page, &err));
        for (size_t i = 0; i < page.count; i++) {
            CHECK(page.items[i].id > last);
            last = page.items[i].id;
            bytes += page.items[i].json.len;
        }
        CHECK(bytes < MOST);
        all += page.count;
    }
    CHECK_INT(all, EVENTS);
    CHECK(pages > 1);
    OK(runtime_event_last(env.runtime, &env.caller, &any, RUNTIME_EVENTS_MAX, &arena, &page, &err));
    CHECK(page.count > 0 && page.count < EVENTS && page.more);
    CHECK_INT(page.items[page.count - 1].id, last);
}

TEST(a_page_of_long_events_is_bounded_by_its_bytes)
{
    check_long_events(false);
    check_long_events(true);
}

static void count_wake(void *arg)
{
    (*(atomic_int *)arg)++;
}

struct together {
    struct core_env *env;
    struct event_watch *watch;
    pthread_t other;
    bool fails;
};

static void *emit_other(void *arg)
{
    emit(arg, "b.other", "s2", NULL);
    return NULL;
}

static size_t read_all(struct together *together, int64_t since, struct arena *arena,
                       struct runtime_event_text **out)
{
    bool missed;

    return event_watch_read(together->watch, since, 10, arena, out, &missed);
}

static size_t in_memory(struct runtime_events *events)
{
    size_t count;

    (void)pthread_mutex_lock(&events->lock);
    count = events->count;
    (void)pthread_mutex_unlock(&events->lock);
    return count;
}

/* Somebody else's event comes meanwhile: it has its number, and is not seen yet. */
static int store_together(void *arg, const struct store_runtime_event *rows, size_t count,
                          struct error *err)
{
    struct together *together = arg;
    auto_arena struct arena arena = {0};
    struct runtime_event_text *found;
    size_t before = in_memory(together->env->runtime->events);

    CHECK(pthread_create(&together->other, NULL, emit_other, together->env) == 0);
    WAIT_FOR(in_memory(together->env->runtime->events) == before + 1);
    CHECK_INT(read_all(together, rows[0].id - 1, &arena, &found), 0);
    CHECK_INT(
        list(together->env, (struct runtime_event_filter){0}, rows[0].id - 1, 10, &arena, &found),
        0);
    if (together->fails)
        return error_set(err, ERROR_CONFLICT, "as it was asked to");
    return store_runtime_event_insert(together->env->runtime->config.store, rows, count, err);
}

TEST(events_with_their_change_are_told_in_order)
{
    auto_core struct core_env env;
    auto_arena struct arena arena = {0};
    const struct runtime_event events[] = {{.type = STR("a.first"), .sandbox_id = STR("s1")},
                                           {.type = STR("a.second"), .sandbox_id = STR("s1")}};
    struct together together = {.env = &env};
    struct runtime_event_text *found;
    atomic_int woken = 0;
    struct error err;

    core_open(&env, NULL, NULL);
    together.watch = event_watch_new(env.runtime, &env.caller, &(struct runtime_event_filter){0},
                                     count_wake, &woken);
    CHECK_INT(runtime_event_add_with(env.runtime, &env.caller, events, 2, store_together, &together,
                                     &err),
              0);
    CHECK(pthread_join(together.other, NULL) == 0);
    CHECK_INT(woken, 1);
    CHECK_INT(read_all(&together, 0, &arena, &found), 3);
    CHECK_STR(found[0].type, "a.first");
    CHECK_STR(found[1].type, "a.second");
    CHECK_STR(found[2].type, "b.other");
    CHECK(found[0].id < found[1].id && found[1].id < found[2].id);
    together.fails = true;
    CHECK_INT(runtime_event_add_with(env.runtime, &env.caller, events, 2, store_together, &together,
                                     &err),
              -1);
    CHECK(pthread_join(together.other, NULL) == 0);
    CHECK_INT(read_all(&together, found[2].id, &arena, &found), 1);
    CHECK_STR(found[0].type, "b.other");
    event_watch_free(together.watch);
    core_restart(&env);
    CHECK_INT(list(&env, (struct runtime_event_filter){0}, 0, 10, &arena, &found), 4);
}

TEST(event_ring_forgets)
{
    auto_core struct core_env env;
    auto_arena struct arena arena = {0};
    struct runtime_event_text *found;
    struct event_watch *watch;
    atomic_int woken = 0;
    bool missed;
    int64_t first;

    core_open(&env, NULL, NULL);
    watch = event_watch_new(env.runtime, &env.caller, &(struct runtime_event_filter){0}, count_wake,
                            &woken);
    for (int i = 0; i < RING_EVENTS + 100; i++)
        emit(&env, "a.b", "s1", NULL);
    CHECK_INT(woken, 1); /* not again before it has read */
    CHECK_INT(event_watch_read(watch, 1, 10, &arena, &found, &missed), 10);
    CHECK(missed);
    CHECK_INT(list(&env, (struct runtime_event_filter){0}, 0, 200, &arena, &found), 200);
    for (size_t i = 1; i < 200; i++)
        CHECK(found[i].id > found[i - 1].id);
    first = found[150].id;
    CHECK_INT(event_watch_read(watch, first, 1000, &arena, &found, &missed), 1000);
    CHECK(!missed);
    event_watch_free(watch);
}

TEST(event_transient_is_only_passed_on)
{
    auto_core struct core_env env;
    auto_arena struct arena arena = {0};
    struct runtime_event_text *found;
    struct event_watch *mine, *other;
    atomic_int woken = 0, other_woken = 0;
    bool missed;

    core_open(&env, NULL, NULL);
    mine = event_watch_new(env.runtime, &env.caller,
                           &(struct runtime_event_filter){.process_id = STR("p1")}, count_wake,
                           &woken);
    other = event_watch_new(env.runtime, &(struct runtime_caller){.team_id = STR("t2")},
                            &(struct runtime_event_filter){0}, count_wake, &other_woken);
    runtime_event_pass(
        env.runtime, &env.caller,
        &(struct runtime_event){.type = STR("process.output"), .process_id = STR("p1")});
    runtime_event_pass(
        env.runtime, &env.caller,
        &(struct runtime_event){.type = STR("process.output"), .process_id = STR("p2")});
    CHECK_INT(woken, 1);
    CHECK_INT(other_woken, 0);
    CHECK_INT(event_watch_read(mine, 0, 10, &arena, &found, &missed), 1);
    CHECK(!missed);
    CHECK_INT(event_watch_read(mine, found[0].id, 10, &arena, &found, &missed), 0);
    CHECK_INT(list(&env, (struct runtime_event_filter){0}, 0, 10, &arena, &found), 0);
    event_watch_free(mine);
    event_watch_free(other);
}

/* A reader that goes on from what it was given must not skip or repeat, whatever else happens. */
TEST(event_watch_cursor)
{
    auto_core struct core_env env;
    auto_arena struct arena arena = {0};
    struct runtime_event_text *found;
    struct event_watch *watch;
    atomic_int woken = 0;
    int64_t since = 0;
    size_t count, all = 0;
    bool missed;

    core_open(&env, NULL, NULL);
    watch = event_watch_new(env.runtime, &env.caller,
                            &(struct runtime_event_filter){.session_id = STR("x1")}, count_wake,
                            &woken);
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < 10; i++) {
            emit(&env, "a.b", "s", "x2");
            emit(&env, "a.b", "s", "x1");
        }
        while ((count = event_watch_read(watch, since, 3, &arena, &found, &missed)) > 0) {
            all += count;
            since = found[count - 1].id;
        }
    }
    CHECK_INT(all, 200);
    CHECK_INT(event_watch_read(watch, 0, 1000, &arena, &found, &missed), 200); /* from the start */
    event_watch_free(watch);
}

TEST(event_secrets_are_masked)
{
    auto_core struct core_env env;
    auto_arena struct arena arena = {0};
    auto_json json_t *data = json_pack("{s:s, s:s}", "url", "https://me:tok3n@h/x", "text",
                                       "key dtn_verysecret\"quoted and "
                                       "ghp_0123456789abcdefghijABCDEFGHIJ012345.");
    struct runtime_event_text *found;

    core_open(&env, NULL, NULL);
    runtime_secret_add(env.runtime, STR_NONE, STR("dtn_verysecret\"quoted"));
    runtime_event_add(env.runtime, &env.caller,
                      &(struct runtime_event){.type = STR("a.b"), .data = data});
    CHECK_INT(list(&env, (struct runtime_event_filter){0}, 0, 10, &arena, &found), 1);
    CHECK(strstr(found[0].json.p, "\"url\":\"https://***@h/x\"") != NULL);
    CHECK(strstr(found[0].json.p, "\"text\":\"key *** and ***.\"") != NULL);
}

/* A token is whatever its team says it is: also a word of everybody's events. */
TEST(event_secrets_of_a_team_are_only_its_own)
{
    static const char *const tokens[] = {"\"sandbox\":", ",\"type\":", "sandbox.created",
                                         ":true,\"", "12345678"};
    auto_core struct core_env env;
    auto_arena struct arena arena = {0};
    auto_json json_t *data = json_pack("{s:b, s:i, s:s}", "job", 1, "ms", 12345678, "text",
                                       "operator-key 12345678 sandbox.created");
    struct runtime_caller other = {.team_id = STR("t2"), .actor = STR("key2")};
    struct runtime_event event = {
        .type = STR("sandbox.created"), .sandbox_id = STR("sbx_1"), .data = data};
    struct runtime_event_text *found;
    char name[32];

    core_open(&env, NULL, NULL);
    runtime_secret_add(env.runtime, STR_NONE, STR("operator-key"));
    for (size_t i = 0; i < sizeof(tokens) / sizeof(tokens[0]); i++)
        runtime_secret_add(env.runtime, other.team_id, str_of(tokens[i]));
    runtime_event_add(env.runtime, &env.caller, &event);
    runtime_event_add(env.runtime, &other, &event);
    CHECK_INT(list(&env, (struct runtime_event_filter){0}, 0, 10, &arena, &found), 1);
    CHECK(strstr(found[0].json.p, "\"type\":\"sandbox.created\",\"sandbox\":\"sbx_1\""));
    CHECK(strstr(found[0].json.p, "\"text\":\"*** 12345678 sandbox.created\""));
    /* Its own are without them, and still JSON. */
    env.caller.team_id = other.team_id;
    CHECK_INT(list(&env, (struct runtime_event_filter){0}, 0, 10, &arena, &found), 1);
    CHECK(strstr(found[0].json.p, "\"type\":\"***\",\"sandbox\":\"sbx_1\""));
    CHECK(strstr(found[0].json.p, "\"ms\":12345678"));
    CHECK(strstr(found[0].json.p, "\"text\":\"*** *** ***\""));
    /* However many a team names, the operator's stay known. */
    for (int i = 0; i < 5000; i++) {
        (void)snprintf(name, sizeof(name), "token-%d", i);
        runtime_secret_add(env.runtime, other.team_id, str_of(name));
    }
    runtime_event_add(env.runtime, &other, &event);
    CHECK_INT(list(&env, (struct runtime_event_filter){0}, found[0].id, 10, &arena, &found), 1);
    CHECK(strstr(found[0].json.p, "\"text\":\"*** "));
}

TEST(mask)
{
    auto_core struct core_env env;
    static const struct {
        const char *in, *out;
    } cases[] = {
        {"nothing here", "nothing here"},
        {"e2b_0123456789abcdef0123456789abcdef01234567", "***"},
        {"kind e2b_ref", "kind e2b_ref"},
        {"x github_pat_11AAAAAAA0_abcdefghijklmnop y", "x *** y"},
        {"git clone https://x-access-token:abc@github.com/o/r",
         "git clone https://***@github.com/o/r"},
        {"ssh://git@github.com/o/r", "ssh://git@github.com/o/r"},
        {"see http://h/p?q=a@b", "see http://h/p?q=a@b"},
        {"the-secret!the-secret!", "***!***!"},
        {"", ""},
    };

    core_open(&env, NULL, NULL);
    runtime_secret_add(env.runtime, STR_NONE, STR("the-secret"));
    runtime_secret_add(env.runtime, STR_NONE, STR("ab")); /* too short to be one */
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[200];

        (void)snprintf(text, sizeof(text), "%s", cases[i].in);
        runtime_mask(env.runtime, STR("t1"), text);
        CHECK_STR(str_of(text), cases[i].out);
    }
}

TEST(event_huge_data)
{
    auto_core struct core_env env;
    auto_arena struct arena arena = {0};
    struct runtime_event_text *found;
    auto_json json_t *data = json_object();
    char *text = calloc(1, 1 << 20);

    core_open(&env, NULL, NULL);
    memset(text, 'x', (1 << 20) - 1);
    (void)json_object_set_new(data, "text", json_string(text));
    free(text);
    runtime_event_add(env.runtime, &env.caller,
                      &(struct runtime_event){.type = STR("a.b"), .data = data});
    CHECK_INT(list(&env, (struct runtime_event_filter){0}, 0, 10, &arena, &found), 1);
    CHECK(strstr(found[0].json.p, "\"truncated\":true") != NULL);
}

/* ---- threads and times ---- */

enum { THREADS = 4, EACH = 500 };

static void *add_many(void *arg)
{
    struct core_env *env = arg;

    for (int i = 0; i < EACH; i++)
        emit(env, "a.b", "s1", "x1");
    return NULL;
}

TEST(event_threads)
{
    auto_core struct core_env env;
    auto_arena struct arena arena = {0};
    struct runtime_event_text *found;
    pthread_t threads[THREADS];
    int64_t last = 0, rows = 0;
    size_t count, all = 0;

    core_open(&env, NULL, NULL);
    for (int i = 0; i < THREADS; i++)
        CHECK_INT(pthread_create(&threads[i], NULL, add_many, &env), 0);
    for (int i = 0; i < THREADS; i++)
        (void)pthread_join(threads[i], NULL);
    while ((count = list(&env, (struct runtime_event_filter){0}, last, 1000, &arena, &found)) > 0) {
        all += count;
        last = found[count - 1].id;
    }
    CHECK_INT(all, THREADS * EACH);
    OK(store_runtime_event_last(env.store, &last, &rows, &err));
    CHECK_INT(rows, THREADS * EACH);
}

enum { WATCHERS = 1000 };

TEST_TIMEOUT(event_times, 60)
{
    auto_core struct core_env env;
    struct event_watch *watches[WATCHERS];
    atomic_int woken = 0;
    char id[32];
    int64_t began, took;

    core_open(&env, NULL, NULL);
    began = clock_mono_us();
    for (int i = 0; i < 2000; i++)
        emit(&env, "sandbox.created", "s1", NULL);
    took = clock_mono_us() - began;
    printf("     an event: %.1f us\n", (double)took / 2000);
    for (int i = 0; i < WATCHERS; i++) {
        (void)snprintf(id, sizeof(id), "ses_%d", i);
        watches[i] = event_watch_new(env.runtime, &env.caller,
                                     &(struct runtime_event_filter){.session_id = str_of(id)},
                                     count_wake, &woken);
    }
    began = clock_mono_us();
    for (int i = 0; i < WATCHERS; i++) {
        (void)snprintf(id, sizeof(id), "ses_%d", i);
        runtime_event_pass(
            env.runtime, &env.caller,
            &(struct runtime_event){.type = STR("agent.message"), .session_id = str_of(id)});
    }
    took = clock_mono_us() - began;
    CHECK_INT(woken, WATCHERS);
    printf("     an event for one of %d watchers: %.1f us\n", WATCHERS, (double)took / WATCHERS);
    for (int i = 0; i < WATCHERS; i++)
        event_watch_free(watches[i]);
    woken = 0;
    for (int i = 0; i < WATCHERS; i++)
        watches[i] = event_watch_new(env.runtime, &env.caller, &(struct runtime_event_filter){0},
                                     count_wake, &woken);
    began = clock_mono_us();
    runtime_event_pass(env.runtime, &env.caller,
                       &(struct runtime_event){.type = STR("agent.message")});
    took = clock_mono_us() - began;
    CHECK_INT(woken, WATCHERS);
    printf("     an event for all of %d watchers: %" PRId64 " us\n", WATCHERS, took);
    for (int i = 0; i < WATCHERS; i++)
        event_watch_free(watches[i]);
}
