/* The sender with a kind in memory: what is taken, what comes again and when, who waits for whom. */
#include "protocol/sender/sender.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/clock.h"
#include "protocol/fetch/test/fetch_rig.h"

enum { ENTRIES = 8, PAUSE_US = 20000 };

struct entry {
    const char *team, *receiver, *path;
    int64_t failures, at_us, again_us; /* again_us: the pause it was given last */
    bool stranger, sent, taken;
    struct error why;
};

struct queue {
    struct sender *sender;
    struct fetch_rig *rig;
    pthread_mutex_t lock; /* guards the entries */
    struct entry entries[ENTRIES];
    size_t count;
    uint32_t timeout_ms;
    atomic_int status, under_way, most; /* requests at the receiver */
    atomic_bool store_fails;
    atomic_int asked;
};

static void receive(struct fetch_rig_exchange *ex, void *arg)
{
    struct queue *queue = arg;
    int now = atomic_fetch_add(&queue->under_way, 1) + 1, status = atomic_load(&queue->status);
    char body[16384] = {0};

    if (now > atomic_load(&queue->most))
        atomic_store(&queue->most, now);
    if (strcmp(ex->target, "/hangs") == 0)
        while (!fetch_rig_stopping(queue->rig))
            (void)usleep(1000); /* what it is about: no answer */
    (void)atomic_fetch_sub(&queue->under_way, 1);
    if (status)
        fetch_rig_answer(ex, status, NULL,
                         strcmp(ex->target, "/long") == 0 ? str_n(body, sizeof(body)) : STR("ok"));
    else
        ex->close = true;
}

static bool is_busy(struct str busy, const char *name)
{
    char word[80];

    (void)snprintf(word, sizeof(word), ",%s,", name ? name : "-");
    return str_find_str(busy, str_of(word)) >= 0;
}

static int next(void *arg, struct str busy, struct arena *arena, struct sender_item *out,
                int64_t *out_at_us, struct error *err)
{
    struct queue *queue = arg;
    int64_t now_us = clock_wall_us();
    struct entry *found = NULL;

    atomic_fetch_add(&queue->asked, 1);
    if (atomic_load(&queue->store_fails))
        return error_set(err, ERROR_INTERNAL, "no store");
    (void)pthread_mutex_lock(&queue->lock);
    for (size_t i = 0; i < queue->count; i++) {
        struct entry *entry = &queue->entries[i];

        if (!entry->sent && !is_busy(busy, entry->team) && !is_busy(busy, entry->receiver) &&
            (!found || entry->at_us < found->at_us))
            found = entry;
    }
    *out_at_us = found ? found->at_us : 0;
    if (!found || found->at_us > now_us) {
        (void)pthread_mutex_unlock(&queue->lock);
        return 0;
    }
    found->sent = true;
    *out = (struct sender_item){
        .team_id = str_of(found->team),
        .receiver = str_of(found->receiver),
        .anywhere = !found->stranger,
        .failures = found->failures,
        .url = arena_printf(arena, "%s%s", fetch_rig_url(queue->rig), found->path),
        .body = STR("{}"),
        .row = found,
    };
    (void)pthread_mutex_unlock(&queue->lock);
    return 1;
}

static int over(void *arg, const struct sender_item *item, const struct error *why,
                int64_t again_at_us)
{
    struct queue *queue = arg;
    struct entry *entry = item->row;

    (void)pthread_mutex_lock(&queue->lock);
    entry->sent = entry->taken = !why;
    if (why) {
        entry->failures++;
        entry->at_us = again_at_us;
        entry->again_us = again_at_us - clock_wall_us();
        entry->why = *why;
    }
    (void)pthread_mutex_unlock(&queue->lock);
    return 0;
}

static void add(struct queue *queue, const struct entry *entry)
{
    (void)pthread_mutex_lock(&queue->lock);
    queue->entries[queue->count++] = *entry;
    (void)pthread_mutex_unlock(&queue->lock);
    sender_kick(queue->sender);
}

static void queue_open(struct queue *queue, int status, uint32_t timeout_ms)
{
    *queue = (struct queue){.timeout_ms = timeout_ms};
    (void)pthread_mutex_init(&queue->lock, NULL);
    atomic_store(&queue->status, status);
    queue->rig = fetch_rig_new(NULL, receive, queue);
    OK(sender_open(&queue->sender, &err));
    sender_add(queue->sender, &(struct sender_kind){.name = "test",
                                                    .first_pause_us = PAUSE_US,
                                                    .timeout_ms = timeout_ms,
                                                    .reach = FETCH_DIRECT,
                                                    .next = next,
                                                    .over = over,
                                                    .arg = queue});
}

static void queue_close(struct queue *queue)
{
    sender_remove(queue->sender, queue);
    sender_close(queue->sender);
    fetch_rig_free(queue->rig);
    (void)pthread_mutex_destroy(&queue->lock);
}
#define auto_queue __attribute__((cleanup(queue_close)))

static struct entry at(struct queue *queue, size_t i)
{
    struct entry entry;

    (void)pthread_mutex_lock(&queue->lock);
    entry = queue->entries[i];
    (void)pthread_mutex_unlock(&queue->lock);
    return entry;
}

TEST(what_is_not_taken_comes_again_later_and_later)
{
    auto_queue struct queue queue;

    queue_open(&queue, 500, 60000);
    add(&queue, &(struct entry){.team = "t", .path = "/"});
    WAIT_FOR(at(&queue, 0).failures >= 3);
    CHECK(strstr(at(&queue, 0).why.message, "answered 500"));
    CHECK(at(&queue, 0).again_us > 3 * PAUSE_US && at(&queue, 0).again_us <= 64 * PAUSE_US);
    atomic_store(&queue.status, 0); /* closes without an answer */
    WAIT_FOR(!strstr(at(&queue, 0).why.message, "answered 500"));
    atomic_store(&queue.status, 204);
    WAIT_FOR(at(&queue, 0).taken);
}

TEST(an_hour_is_the_longest_pause)
{
    auto_queue struct queue queue;

    queue_open(&queue, 503, 60000);
    add(&queue, &(struct entry){.team = "t", .path = "/", .failures = 1000});
    WAIT_FOR(at(&queue, 0).failures == 1001);
    CHECK(at(&queue, 0).again_us > INT64_C(3590) * 1000000 &&
          at(&queue, 0).again_us <= INT64_C(3600) * 1000000);
}

TEST(only_the_status_counts)
{
    auto_queue struct queue queue;

    queue_open(&queue, 200, 60000);
    add(&queue, &(struct entry){.team = "t", .path = "/long"});
    WAIT_FOR(at(&queue, 0).taken);
    CHECK_INT(at(&queue, 0).failures, 0);
}

TEST(a_receiver_is_told_one_thing_at_a_time)
{
    auto_queue struct queue queue;

    queue_open(&queue, 200, 60000);
    add(&queue, &(struct entry){.team = "t", .receiver = "r", .path = "/hangs"});
    add(&queue, &(struct entry){.team = "t", .receiver = "r", .path = "/", .at_us = 1});
    add(&queue, &(struct entry){.team = "t", .receiver = "other", .path = "/", .at_us = 2});
    WAIT_FOR(at(&queue, 2).taken);
    CHECK(!at(&queue, 1).sent);
}

TEST(a_team_whose_receivers_hang_leaves_places_to_others)
{
    auto_queue struct queue queue;

    queue_open(&queue, 200, 60000);
    for (int i = 0; i < 5; i++)
        add(&queue, &(struct entry){.team = "slow", .path = "/hangs"});
    add(&queue, &(struct entry){.team = "quick", .path = "/", .at_us = 1});
    WAIT_FOR(at(&queue, 5).taken);
    WAIT_FOR(atomic_load(&queue.under_way) == SENDER_TEAM_MAX);
    CHECK(atomic_load(&queue.most) <= SENDER_TEAM_MAX + 1);
    CHECK(at(&queue, 1).sent && !at(&queue, SENDER_TEAM_MAX).sent);
}

TEST(a_receiver_that_hangs_is_given_up)
{
    auto_queue struct queue queue;

    queue_open(&queue, 200, 50);
    add(&queue, &(struct entry){.team = "t", .path = "/hangs"});
    WAIT_FOR(at(&queue, 0).failures >= 1);
    CHECK_INT(at(&queue, 0).why.code, ERROR_TIMEOUT);
}

TEST(strangers_reach_public_addresses_only)
{
    auto_queue struct queue queue;

    queue_open(&queue, 200, 60000);
    add(&queue, &(struct entry){.team = "t", .path = "/", .stranger = true});
    WAIT_FOR(at(&queue, 0).failures >= 1);
    CHECK_INT(at(&queue, 0).why.code, ERROR_FORBIDDEN);
    CHECK_INT(fetch_rig_requests(queue.rig), 0);
}

/* A kind that goes while a receiver hangs waits a moment, not for the receiver. */
TEST(a_kind_leaves)
{
    auto_queue struct queue queue;

    queue_open(&queue, 200, 600000);
    add(&queue, &(struct entry){.team = "t", .path = "/hangs"});
    WAIT_FOR(atomic_load(&queue.under_way) == 1);
    sender_remove(queue.sender, &queue);
    CHECK(at(&queue, 0).sent && !at(&queue, 0).taken);
    sender_remove(queue.sender, &queue);
    add(&queue, &(struct entry){.team = "u", .path = "/"});
    CHECK_INT(fetch_rig_requests(queue.rig), 1);
}

TEST(a_store_that_fails_is_not_asked_all_the_time)
{
    auto_queue struct queue queue;
    int before;

    queue_open(&queue, 200, 60000);
    atomic_store(&queue.store_fails, true);
    before = atomic_load(&queue.asked);
    sender_kick(queue.sender);
    WAIT_FOR(atomic_load(&queue.asked) > before);
    before = atomic_load(&queue.asked);
    for (int i = 0; i < 1000; i++)
        sender_kick(queue.sender);
    CHECK(atomic_load(&queue.asked) - before < 500);
    add(&queue, &(struct entry){.team = "t", .path = "/"});
    atomic_store(&queue.store_fails, false);
    WAIT_FOR(at(&queue, 0).taken);
}
