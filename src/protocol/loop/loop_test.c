#include <errno.h>
#include <stdatomic.h>

#include "base/alloc.h"
#include "base/test.h"
#include "protocol/loop/loop.h"
#include "protocol/loop/share.h"
#include "protocol/loop/workers.h"

enum { POSTERS = 4, PER_POSTER = 2000 };

struct counted_errand {
    struct loop_errand errand;
    int poster, number;
};

static struct loop *test_loop;
static int seen[POSTERS], total;

static void on_counted(struct loop_errand *errand)
{
    struct counted_errand *counted = (struct counted_errand *)errand;

    CHECK_INT(counted->number, seen[counted->poster]);
    seen[counted->poster]++;
    if (++total == POSTERS * PER_POSTER)
        loop_stop(test_loop);
    loop_free_later(test_loop, counted);
}

static void post_many(void *arg)
{
    int poster = *(int *)arg;

    for (int i = 0; i < PER_POSTER; i++) {
        struct counted_errand *counted = xcalloc(1, sizeof(*counted));

        counted->errand.fn = on_counted;
        counted->poster = poster;
        counted->number = i;
        loop_post(test_loop, &counted->errand);
    }
}

TEST(loop_posts_keep_order)
{
    uv_thread_t threads[POSTERS];
    int posters[POSTERS];

    test_loop = loop_new();
    for (int i = 0; i < POSTERS; i++) {
        posters[i] = i;
        CHECK_INT(uv_thread_create(&threads[i], post_many, &posters[i]), 0);
    }
    loop_run(test_loop);
    for (int i = 0; i < POSTERS; i++)
        CHECK_INT(uv_thread_join(&threads[i]), 0);
    CHECK_INT(total, POSTERS * PER_POSTER);
    loop_free(test_loop);
}

TEST(loop_stop_before_run)
{
    test_loop = loop_new();
    loop_stop(test_loop);
    loop_run(test_loop);
    loop_free(test_loop);
}

static int nested_calls;

static void on_nested(struct loop_errand *errand)
{
    nested_calls++;
    if (nested_calls == 1)
        loop_post(test_loop, errand); /* must not run inside this call */
    else
        loop_stop(test_loop);
    CHECK(nested_calls <= 2);
}

TEST(loop_errand_may_post_itself_again)
{
    struct loop_errand errand = {.fn = on_nested};

    test_loop = loop_new();
    loop_post(test_loop, &errand);
    CHECK_INT(nested_calls, 0);
    loop_run(test_loop);
    CHECK_INT(nested_calls, 2);
    loop_free(test_loop);
}

static void on_late(struct loop_errand *errand)
{
    (void)errand;
    nested_calls++;
}

TEST(loop_free_runs_what_was_posted)
{
    struct loop_errand errand = {.fn = on_late};

    test_loop = loop_new();
    loop_post(test_loop, &errand);
    loop_free(test_loop);
    CHECK_INT(nested_calls, 1);
}

struct counted_work {
    struct work work;
    int ran;
};

static atomic_int runs;
static int dones;

static void on_run(struct work *work)
{
    ((struct counted_work *)work)->ran++;
    atomic_fetch_add(&runs, 1);
}

static void on_work_done(struct work *work)
{
    CHECK_INT(((struct counted_work *)work)->ran, 1);
    if (++dones == 100)
        loop_stop(test_loop);
}

TEST(workers_run_and_complete)
{
    struct counted_work works[100] = {0};
    struct workers *workers = workers_new(3, 100);

    test_loop = loop_new();
    for (int i = 0; i < 100; i++) {
        works[i].work = (struct work){.run = on_run, .done = on_work_done, .loop = test_loop};
        CHECK_INT(workers_run(workers, &works[i].work), 0);
    }
    loop_run(test_loop);
    CHECK_INT(atomic_load(&runs), 100);
    CHECK_INT(dones, 100);
    workers_free(workers);
    loop_free(test_loop);
}

static uv_sem_t gate;

static void on_blocked_run(struct work *work)
{
    (void)work;
    uv_sem_wait(&gate);
    atomic_fetch_add(&runs, 1);
}

TEST(workers_queue_is_bounded_and_finished)
{
    struct counted_work works[8] = {0};
    struct workers *workers = workers_new(1, 2);
    int accepted = 0, result = 0;

    CHECK_INT(uv_sem_init(&gate, 0), 0);
    for (int i = 0; i < 8; i++) {
        works[i].work = (struct work){.run = on_blocked_run};
        result = workers_run(workers, &works[i].work);
        if (result < 0)
            break;
        accepted++;
    }
    CHECK_INT(result, -EAGAIN);
    CHECK(accepted == 2 || accepted == 3); /* one may run already */
    for (int i = 0; i < accepted; i++)
        uv_sem_post(&gate);
    workers_free(workers);
    CHECK_INT(atomic_load(&runs), accepted);
}

enum { MEETING = 20 };

static uv_barrier_t meeting;

static void on_meeting_run(struct work *work)
{
    (void)work;
    (void)uv_barrier_wait(&meeting);
    atomic_fetch_add(&runs, 1);
}

TEST(elastic_workers_start_a_thread_for_each_waiting_errand)
{
    struct counted_work works[MEETING] = {0};
    struct workers *workers = workers_new_elastic(MEETING, MEETING);

    CHECK_INT(workers_threads(workers), 0);
    CHECK_INT(uv_barrier_init(&meeting, MEETING), 0);
    for (int i = 0; i < MEETING; i++) {
        works[i].work = (struct work){.run = on_meeting_run};
        CHECK_INT(workers_run(workers, &works[i].work), 0);
    }
    workers_free(workers);
    CHECK_INT(atomic_load(&runs), MEETING);
}

TEST(elastic_workers_keep_an_idle_thread_for_the_next_errand)
{
    struct workers *workers = workers_new_elastic(8, 8);

    for (int i = 0; i < 50; i++) {
        struct counted_work work = {.work = {.run = on_run}};

        CHECK_INT(workers_run(workers, &work.work), 0);
        WAIT_FOR(atomic_load(&runs) > i && workers_idle(workers) == 1);
    }
    CHECK_INT(workers_threads(workers), 1);
    workers_free(workers);
}

TEST(elastic_workers_are_bounded)
{
    struct counted_work works[8] = {0};
    struct workers *workers = workers_new_elastic(2, 3);
    int accepted = 0;

    CHECK_INT(uv_sem_init(&gate, 0), 0);
    for (int i = 0; i < 8; i++) {
        works[i].work = (struct work){.run = on_blocked_run};
        if (workers_run(workers, &works[i].work) < 0)
            break;
        accepted++;
        WAIT_FOR(i >= 2 || workers_waiting(workers) == 0); /* the threads take theirs */
    }
    CHECK_INT(accepted, 5);
    CHECK_INT(workers_threads(workers), 2);
    CHECK_INT(workers_free_within(workers, 50), -ETIMEDOUT);
    for (int i = 0; i < accepted; i++)
        uv_sem_post(&gate);
    CHECK_INT(workers_free_within(workers, 5000), 0);
    CHECK_INT(atomic_load(&runs), accepted);
}

TEST(elastic_workers_end_when_idle)
{
    struct counted_work works[3] = {0};
    struct workers *workers = workers_new_elastic(4, 4);

    for (int i = 0; i < 3; i++) {
        works[i].work = (struct work){.run = on_run};
        CHECK_INT(workers_run(workers, &works[i].work), 0);
    }
    uv_sleep(10000); /* this is how long they wait for work */
    WAIT_FOR(workers_threads(workers) == 0);
    CHECK_INT(workers_run(workers, &works[0].work), 0); /* a slot is used again */
    CHECK_INT(workers_threads(workers), 1);
    workers_free(workers);
    CHECK_INT(atomic_load(&runs), 4);
}

TEST(an_owner_leaves_room_for_others)
{
    struct shares *shares = shares_new(&(struct shares_config){.each_max = 2, .all_max = 3});

    for (int round = 0; round < 2; round++) {
        CHECK_INT(shares_take(shares, STR("a"), 1), SHARE_TAKEN);
        CHECK_INT(shares_take(shares, STR("a"), 2), SHARE_OWN_FULL);
        CHECK_INT(shares_take(shares, STR("a"), SIZE_MAX), SHARE_OWN_FULL);
        CHECK_INT(shares_take(shares, STR("a"), 1), SHARE_TAKEN);
        CHECK_INT(shares_take(shares, STR("a"), 1), SHARE_OWN_FULL);
        CHECK_INT(shares_take(shares, STR("b"), 1), SHARE_TAKEN);
        CHECK_INT(shares_take(shares, STR("b"), 1), SHARE_ALL_FULL);
        shares_give(shares, STR("a"), 1);
        CHECK_INT(shares_take(shares, STR("b"), 1), SHARE_TAKEN);
        CHECK_INT(shares_held(shares), 3);
        shares_give(shares, STR("a"), 1);
        shares_give(shares, STR("b"), 2);
        CHECK_INT(shares_held(shares), 0);
    }
    shares_free(shares);
}

static int called;

static void on_seat_called(struct loop_errand *errand)
{
    (void)errand;
    if (++called == 2)
        loop_stop(test_loop);
}

TEST(a_line_moves_as_parts_are_given_back)
{
    struct shares *shares = shares_new(&(struct shares_config){.each_max = 1, .waiting_max = 2});
    struct share_seat seats[4];

    test_loop = loop_new();
    for (int i = 0; i < 4; i++)
        seats[i] = (struct share_seat){
            .loop = test_loop, .owner = STR("a"), .errand = {.fn = on_seat_called}};
    CHECK_INT(shares_take(shares, STR("a"), 1), SHARE_TAKEN);
    CHECK_INT(shares_wait(shares, &seats[0]), 0);
    CHECK_INT(shares_wait(shares, &seats[1]), 0);
    CHECK_INT(shares_wait(shares, &seats[2]), -1);
    CHECK(shares_leave(shares, &seats[0])); /* its client went */
    CHECK_INT(shares_wait(shares, &seats[2]), 0);
    shares_give(shares, STR("a"), 1);
    CHECK_INT(shares_take(shares, STR("a"), 1), SHARE_OWN_FULL); /* it is the first one's */
    CHECK(!shares_leave(shares, &seats[1]));                     /* called already */
    shares_called(shares, &seats[1]);
    shares_give(shares, STR("a"), 1); /* to the next */
    shares_called(shares, &seats[2]);
    CHECK_INT(shares_held(shares), 1);
    loop_run(test_loop);
    CHECK_INT(called, 2);
    shares_give(shares, STR("a"), 1);
    CHECK_INT(shares_held(shares), 0);
    shares_free(shares);
    loop_free(test_loop);
}
