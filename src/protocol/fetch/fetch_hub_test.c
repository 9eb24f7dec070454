#include <pthread.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "protocol/fetch/fetch.h"
#include "protocol/fetch/test/fetch_rig.h"

enum { STREAMS = 1000 };

static atomic_bool go;

static void answer(struct fetch_rig_exchange *ex, void *arg)
{
    (void)arg;
    if (strcmp(ex->target, "/broken") == 0) {
        fetch_rig_send(ex, STR("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf"));
        ex->close = true;
        return;
    }
    fetch_rig_send(ex, STR("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"));
    fetch_rig_chunk(ex, STR("a"));
    while (!atomic_load(&go) && !fetch_rig_stopping(ex->rig))
        (void)usleep(20000);
    fetch_rig_chunk(ex, STR("b"));
    fetch_rig_chunk(ex, STR(""));
}

struct seen {
    _Atomic(struct fetch_hub_stream *) stream;
    atomic_int heads, bytes, ends;
    atomic_int code; /* of the end; -1 = none yet */
    bool close_inside;
};

static void on_head(void *arg, int status)
{
    struct seen *seen = arg;

    CHECK_INT(status, 200);
    atomic_fetch_add(&seen->heads, 1);
}

static void on_data(void *arg, struct str data)
{
    struct seen *seen = arg;

    atomic_fetch_add(&seen->bytes, (int)data.len);
    /* The opener may not have been told yet. */
    while (seen->close_inside && !atomic_load(&seen->stream))
        (void)usleep(100);
    if (seen->close_inside)
        fetch_hub_close(seen->stream);
}

static void on_end(void *arg, const struct error *why)
{
    struct seen *seen = arg;

    atomic_store(&seen->code, why ? (int)why->code : 0);
    atomic_fetch_add(&seen->ends, 1);
}

static const struct fetch_hub_events events = {on_head, on_data, on_end};

static void wait_for(atomic_int *value, int want)
{
    WAIT_FOR(atomic_load(value) >= want);
    CHECK_INT(atomic_load(value), want);
}

static struct fetch_hub_stream *begin(struct fetch_hub *hub, const char *base, const char *path,
                                      uint32_t idle_ms, struct seen *seen)
{
    char url[128];

    (void)snprintf(url, sizeof(url), "%s%s", base, path);
    atomic_store(&seen->code, -1);
    return fetch_hub_open(hub,
                          &(struct fetch_request){.method = "GET", .url = url, .idle_ms = idle_ms},
                          &events, seen);
}

TEST_TIMEOUT(hub_thousand, 60)
{
    struct rlimit limit = {.rlim_cur = 8192, .rlim_max = 8192};
    struct fetch_rig *rig;
    struct fetch_hub *hub = fetch_hub_new();
    struct seen *seen = xcalloc(STREAMS, sizeof(*seen));

    if (setrlimit(RLIMIT_NOFILE, &limit) < 0)
        test_lacks("too few descriptors");
    rig = fetch_rig_new(NULL, answer, NULL);
    for (int i = 0; i < STREAMS; i++)
        seen[i].stream = begin(hub, fetch_rig_url(rig), "/", 0, &seen[i]);
    for (int i = 0; i < STREAMS; i++)
        wait_for(&seen[i].bytes, 1);
    for (int i = 0; i < STREAMS / 2; i++)
        fetch_hub_close(seen[i].stream);
    atomic_store(&go, true);
    for (int i = STREAMS / 2; i < STREAMS; i++) {
        wait_for(&seen[i].ends, 1);
        CHECK_INT(seen[i].code, 0);
        CHECK_INT(seen[i].bytes, 2);
        fetch_hub_close(seen[i].stream);
    }
    for (int i = 0; i < STREAMS / 2; i++)
        CHECK_INT(seen[i].ends, 0);
    fetch_hub_free(hub);
    fetch_rig_free(rig);
    free(seen);
}

TEST(hub_ends)
{
    struct fetch_rig *rig = fetch_rig_new(NULL, answer, NULL);
    struct fetch_hub *hub = fetch_hub_new();
    struct seen broken = {0}, idle = {0}, absent = {0}, bad = {0}, inside = {.close_inside = true};

    broken.stream = begin(hub, fetch_rig_url(rig), "/broken", 0, &broken);
    idle.stream = begin(hub, fetch_rig_url(rig), "/", 200, &idle);
    absent.stream = begin(hub, "http://127.0.0.1:1", "/", 0, &absent);
    bad.stream = begin(hub, "gopher://127.0.0.1", "/", 0, &bad);
    wait_for(&broken.ends, 1);
    CHECK_INT(broken.code, ERROR_UNAVAILABLE);
    CHECK_INT(broken.bytes, 4);
    wait_for(&idle.ends, 1);
    CHECK_INT(idle.code, ERROR_TIMEOUT);
    wait_for(&absent.ends, 1);
    CHECK_INT(absent.code, ERROR_UNAVAILABLE);
    CHECK_INT(absent.heads, 0);
    wait_for(&bad.ends, 1);
    CHECK_INT(bad.code, ERROR_INVALID);
    fetch_hub_close(broken.stream);
    fetch_hub_close(idle.stream);
    fetch_hub_close(absent.stream);
    fetch_hub_close(bad.stream);
    inside.stream = begin(hub, fetch_rig_url(rig), "/", 0, &inside);
    wait_for(&inside.bytes, 1);
    /* What is open is closed with the hub. */
    (void)begin(hub, fetch_rig_url(rig), "/", 0, &idle);
    fetch_hub_free(hub);
    CHECK_INT(inside.ends, 0);
    fetch_rig_free(rig);
}

TEST(hub_public_only)
{
    struct fetch_rig *rig = fetch_rig_new(NULL, answer, NULL);
    struct fetch_hub *hub = fetch_hub_new();
    struct seen seen = {.code = -1};
    struct fetch_request request = {
        .method = "GET", .url = fetch_rig_url(rig), .reach = FETCH_PUBLIC};

    seen.stream = fetch_hub_open(hub, &request, &events, &seen);
    WAIT_FOR(atomic_load(&seen.code) >= 0);
    CHECK_INT(seen.code, ERROR_FORBIDDEN);
    CHECK_INT(fetch_rig_requests(rig), 0);
    fetch_hub_close(seen.stream);
    fetch_hub_free(hub);
    fetch_rig_free(rig);
}
