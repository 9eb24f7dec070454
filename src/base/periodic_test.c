#include "base/periodic.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/cond.h"
#include "base/test.h"

#define SECOND_US INT64_C(1000000)
#define HOUR_US   (3600 * SECOND_US)

/* A job that notes its turns, and waits in one while the gate is closed. */
struct noted {
    struct periodic job;
    atomic_int turns, inside;
    atomic_bool closed;
    int64_t last_us;
    int64_t next_us; /* asked for from inside a turn, after so long; 0: not */
};

static void turn(void *arg)
{
    struct noted *noted = arg;

    noted->last_us = clock_mono_us();
    atomic_fetch_add(&noted->inside, 1);
    while (atomic_load(&noted->closed))
        (void)usleep(1000);
    atomic_fetch_sub(&noted->inside, 1);
    if (noted->next_us)
        periodic_at(&noted->job, clock_mono_us() + noted->next_us);
    atomic_fetch_add(&noted->turns, 1);
}

static void add(struct noted *noted, const char *name, int64_t period_us, bool may_block)
{
    struct error err;

    noted->job = (struct periodic){
        .name = name, .period_us = period_us, .may_block = may_block, .run = turn, .arg = noted};
    CHECK_INT(periodic_add(&noted->job, period_us ? period_us : PERIODIC_ON_WISH, &err), 0);
}

static void pass(int64_t us)
{
    clock_test_pass(us);
    periodic_test_wake();
}

static struct periodic_state state_of(const char *name)
{
    struct periodic_state states[16];
    size_t count = periodic_states(states, 16);

    for (size_t i = 0; i < count; i++)
        if (strcmp(states[i].name, name) == 0)
            return states[i];
    return (struct periodic_state){0};
}

static size_t thread_count(void)
{
    FILE *status = fopen("/proc/self/status", "re");
    char line[128];
    size_t count = 0;

    while (status && fgets(line, sizeof(line), status))
        if (strncmp(line, "Threads:", 8) == 0)
            count = strtoul(line + 8, NULL, 10);
    if (status)
        (void)fclose(status);
    return count;
}

TEST(periodic_turns_come_at_their_times)
{
    struct noted hourly = {0}, daily = {0};

    add(&hourly, "hourly", HOUR_US, false);
    add(&daily, "daily", 24 * HOUR_US, false);
    for (int i = 1; i <= 24; i++) {
        CHECK_INT(atomic_load(&hourly.turns), i - 1);
        CHECK_INT(atomic_load(&daily.turns), 0);
        pass(HOUR_US);
        WAIT_FOR(state_of("hourly").turns == (uint64_t)i);
    }
    WAIT_FOR(state_of("daily").turns == 1);
    periodic_remove(&hourly.job);
    periodic_remove(&daily.job);
}

/* Each turn takes a third of the period. */
TEST(periodic_turns_do_not_drift)
{
    struct noted noted = {0};
    int64_t first_us = 0;

    add(&noted, "job", 3 * HOUR_US, false);
    pass(HOUR_US);
    for (int i = 1; i <= 50; i++) {
        atomic_store(&noted.closed, true);
        pass(2 * HOUR_US);
        WAIT_FOR(atomic_load(&noted.inside) == 1);
        first_us = first_us ? first_us : noted.last_us;
        pass(HOUR_US);
        atomic_store(&noted.closed, false);
        WAIT_FOR(state_of("job").turns == (uint64_t)i);
        /* Only the time that really passed is added to the hours. */
        CHECK(noted.last_us - first_us - (i - 1) * 3 * HOUR_US < 60 * SECOND_US);
    }
    CHECK(state_of("job").took_us >= HOUR_US);
    periodic_remove(&noted.job);
}

TEST(periodic_makes_up_for_missed_times_with_one_turn)
{
    struct noted noted = {0};

    add(&noted, "job", HOUR_US, false);
    pass(10 * HOUR_US + HOUR_US / 2);
    WAIT_FOR(state_of("job").turns == 1);
    CHECK(state_of("job").late_us >= 9 * HOUR_US);
    (void)usleep(20000); /* no second turn within this time */
    CHECK_INT(atomic_load(&noted.turns), 1);
    pass(HOUR_US / 2); /* the grid did not move */
    WAIT_FOR(state_of("job").turns == 2);
    CHECK(state_of("job").late_us < HOUR_US / 2);
    /* Also when times pass during a turn. */
    atomic_store(&noted.closed, true);
    pass(HOUR_US);
    WAIT_FOR(atomic_load(&noted.inside) == 1);
    pass(5 * HOUR_US);
    atomic_store(&noted.closed, false);
    WAIT_FOR(state_of("job").turns == 4);
    (void)usleep(20000); /* no further turn within this time */
    CHECK_INT(atomic_load(&noted.turns), 4);
    periodic_remove(&noted.job);
}

TEST(periodic_slow_jobs_do_not_delay_prompt_ones)
{
    struct noted slow[PERIODIC_BLOCKING_THREADS + 1] = {0}, prompt = {0};

    for (size_t i = 0; i <= PERIODIC_BLOCKING_THREADS; i++) {
        atomic_store(&slow[i].closed, true);
        add(&slow[i], "slow", HOUR_US, true);
    }
    add(&prompt, "prompt", HOUR_US, false);
    pass(HOUR_US);
    WAIT_FOR(atomic_load(&prompt.turns) == 1);
    pass(HOUR_US);
    WAIT_FOR(atomic_load(&prompt.turns) == 2);
    /* All threads for slow ones are taken; the one job that is left has its turn when another ends. */
    WAIT_FOR(atomic_load(&slow[0].inside) + atomic_load(&slow[1].inside) +
                 atomic_load(&slow[2].inside) + atomic_load(&slow[3].inside) ==
             PERIODIC_BLOCKING_THREADS);
    CHECK_INT(atomic_load(&slow[0].turns), 0);
    for (size_t i = 0; i <= PERIODIC_BLOCKING_THREADS; i++)
        atomic_store(&slow[i].closed, false);
    for (size_t i = 0; i <= PERIODIC_BLOCKING_THREADS; i++)
        WAIT_FOR(atomic_load(&slow[i].turns) >= 1);
    for (size_t i = 0; i <= PERIODIC_BLOCKING_THREADS; i++)
        periodic_remove(&slow[i].job);
    periodic_remove(&prompt.job);
}

TEST(periodic_wish_makes_a_turn_earlier_and_keeps_the_period)
{
    struct noted noted = {0};

    add(&noted, "job", HOUR_US, true);
    periodic_soon(&noted.job);
    WAIT_FOR(state_of("job").turns == 1);
    periodic_at(&noted.job, clock_mono_us() + 600 * SECOND_US);
    periodic_at(&noted.job, clock_mono_us() + 900 * SECOND_US); /* the earliest wish counts */
    pass(600 * SECOND_US);
    WAIT_FOR(state_of("job").turns == 2);
    pass(2999 * SECOND_US); /* 3599 s in all */
    (void)usleep(20000);    /* no turn within this time */
    CHECK_INT(atomic_load(&noted.turns), 2);
    pass(SECOND_US);
    WAIT_FOR(state_of("job").turns == 3);
    periodic_remove(&noted.job);
    periodic_soon(&noted.job); /* no effect any more */
    CHECK_INT(atomic_load(&noted.turns), 3);
}

TEST(periodic_wish_during_a_turn_is_for_another_turn)
{
    struct noted noted = {0};

    add(&noted, "job", 0, true);
    atomic_store(&noted.closed, true);
    periodic_soon(&noted.job);
    WAIT_FOR(atomic_load(&noted.inside) == 1);
    periodic_soon(&noted.job);
    atomic_store(&noted.closed, false);
    WAIT_FOR(state_of("job").turns == 2);
    noted.next_us = 5 * SECOND_US; /* a job may ask for its next turn itself */
    periodic_soon(&noted.job);
    WAIT_FOR(state_of("job").turns == 3);
    pass(5 * SECOND_US);
    WAIT_FOR(state_of("job").turns == 4);
    periodic_remove(&noted.job);
}

static void *remove_it(void *arg)
{
    struct noted *noted = arg;

    periodic_remove(&noted->job);
    atomic_store(&noted->inside, 100);
    return NULL;
}

TEST(periodic_remove_waits_for_the_turn_and_not_for_the_period)
{
    struct noted noted = {0}, other = {0};
    int64_t began_us = clock_mono_us();
    pthread_t remover;

    add(&noted, "job", HOUR_US, true);
    add(&other, "other", HOUR_US, false);
    atomic_store(&noted.closed, true);
    periodic_soon(&noted.job);
    WAIT_FOR(atomic_load(&noted.inside) == 1);
    CHECK_INT(pthread_create(&remover, NULL, remove_it, &noted), 0);
    (void)usleep(20000); /* it does not return within this time */
    CHECK_INT(atomic_load(&noted.inside), 1);
    atomic_store(&noted.closed, false);
    CHECK_INT(pthread_join(remover, NULL), 0);
    CHECK_INT(atomic_load(&noted.turns), 1);
    periodic_remove(&other.job);
    periodic_remove(&other.job); /* once more: no effect */
    CHECK(clock_mono_us() - began_us < 60 * SECOND_US);
}

TEST(periodic_threads_come_and_go_with_the_jobs)
{
    size_t before = 0;

    for (int round = 0; round < 20; round++) {
        struct noted jobs[8] = {0};
        size_t after;

        for (size_t i = 0; i < 8; i++)
            add(&jobs[i], "job", SECOND_US / 1000, i % 2);
        WAIT_FOR(atomic_load(&jobs[0].turns) > 0 && atomic_load(&jobs[1].turns) > 0);
        after = thread_count() - 1 - PERIODIC_BLOCKING_THREADS;
        before =
            before ? before : after; /* a sanitizer has a thread of its own since the first round */
        CHECK_INT(after, before);
        for (size_t i = 0; i < 8; i++)
            periodic_remove(&jobs[i].job);
        WAIT_FOR(thread_count() == before); /* the kernel may still count one that was joined */
    }
}
