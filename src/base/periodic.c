/* Each thread looks for the job of its kind that is due first and sleeps until then. There are some tens of jobs: a
 * list is searched as fast as a heap. */
#include "base/periodic.h"

#include "base/clock.h"
#include "base/cond.h"
#include "base/thread.h"

enum { PROMPT_THREADS = 1 };

struct crew {
    struct thread threads[PERIODIC_BLOCKING_THREADS];
    size_t max, count, jobs;
};

static struct {
    pthread_mutex_t lock; /* guards the rest */
    pthread_once_t once;
    pthread_cond_t
        changed; /* a job came, went or is due earlier; a turn ended; the threads end or have ended */
    struct list jobs;
    struct crew crews[2]; /* [may_block] */
    bool ending;
} service = {.lock = PTHREAD_MUTEX_INITIALIZER, .once = PTHREAD_ONCE_INIT};

static void service_init(void)
{
    cond_init(&service.changed);
    list_init(&service.jobs);
    service.crews[false].max = PROMPT_THREADS;
    service.crews[true].max = PERIODIC_BLOCKING_THREADS;
}

/* With the lock, as all that follows up to periodic_add(). */
static struct periodic *first_due(bool may_block)
{
    struct periodic *first = NULL;
    struct list *pos;

    list_for_each (pos, &service.jobs) {
        struct periodic *job = container_of(pos, struct periodic, link);

        if (job->may_block == may_block && job->added && !job->running &&
            (!first || job->due_us < first->due_us))
            first = job;
    }
    return first;
}

/* The next time on the grid after the turn began is due, unless somebody asked for an earlier one. */
static void set_next(struct periodic *job)
{
    if (job->period_us && job->grid_us <= job->began_us)
        job->grid_us += ((job->began_us - job->grid_us) / job->period_us + 1) * job->period_us;
    if (job->period_us && job->grid_us < job->due_us)
        job->due_us = job->grid_us;
}

/* The lock is released meanwhile. */
static void take_turn(struct periodic *job)
{
    job->running = true;
    job->began_us = clock_mono_us();
    job->late_us = job->began_us - job->due_us;
    job->due_us = INT64_MAX;
    (void)pthread_mutex_unlock(&service.lock);
    job->run(job->arg);
    (void)pthread_mutex_lock(&service.lock);
    job->running = false;
    job->turns++;
    job->took_us = clock_mono_us() - job->began_us;
    set_next(job);
    (void)pthread_cond_broadcast(&service.changed);
}

static void serve(void *arg)
{
    struct crew *crew = arg;
    bool may_block = crew == &service.crews[true];

    (void)pthread_mutex_lock(&service.lock);
    while (!service.ending) {
        struct periodic *job = first_due(may_block);

        if (job && job->due_us <= clock_mono_us())
            take_turn(job);
        else
            (void)cond_wait_until(&service.changed, &service.lock, job ? job->due_us : INT64_MAX);
    }
    (void)pthread_mutex_unlock(&service.lock);
}

static int crew_grow(struct crew *crew, struct error *err)
{
    if (crew->count >= crew->jobs || crew->count == crew->max)
        return 0;
    if (thread_start(&crew->threads[crew->count], crew->max == 1 ? "periodic" : "periodic-slow",
                     THREAD_STACK_DEFAULT, serve, crew, err) == 0)
        crew->count++;
    return crew->count ? 0 : -1;
}

int periodic_add(struct periodic *job, int64_t first_us, struct error *err)
{
    struct crew *crew = &service.crews[job->may_block];
    int r;

    (void)pthread_once(&service.once, service_init);
    (void)pthread_mutex_lock(&service.lock);
    while (service.ending)
        (void)pthread_cond_wait(&service.changed, &service.lock);
    crew->jobs++;
    r = crew_grow(crew, err);
    if (r == 0) {
        job->grid_us = job->due_us =
            first_us == PERIODIC_ON_WISH ? INT64_MAX : clock_mono_us() + first_us;
        job->running = false;
        job->added = true;
        list_push_back(&service.jobs, &job->link);
        (void)pthread_cond_broadcast(&service.changed);
    } else {
        crew->jobs--;
    }
    (void)pthread_mutex_unlock(&service.lock);
    return r;
}

void periodic_at(struct periodic *job, int64_t due_us)
{
    (void)pthread_mutex_lock(&service.lock);
    if (job->added && due_us < job->due_us) {
        job->due_us = due_us;
        (void)pthread_cond_broadcast(&service.changed);
    }
    (void)pthread_mutex_unlock(&service.lock);
}

void periodic_soon(struct periodic *job)
{
    periodic_at(job, clock_mono_us());
}

/* With the lock, which is released meanwhile. No job is left, so no turn can ask for the service. */
static void end_threads(void)
{
    service.ending = true;
    (void)pthread_cond_broadcast(&service.changed);
    (void)pthread_mutex_unlock(&service.lock);
    for (size_t i = 0; i < 2; i++)
        for (size_t j = 0; j < service.crews[i].count; j++)
            thread_join(&service.crews[i].threads[j]);
    (void)pthread_mutex_lock(&service.lock);
    service.crews[false].count = service.crews[true].count = 0;
    service.ending = false;
    (void)pthread_cond_broadcast(&service.changed);
}

void periodic_remove(struct periodic *job)
{
    (void)pthread_mutex_lock(&service.lock);
    if (job->added) {
        job->added = false;
        while (job->running)
            (void)pthread_cond_wait(&service.changed, &service.lock);
        list_remove(&job->link);
        service.crews[job->may_block].jobs--;
        if (list_empty(&service.jobs))
            end_threads();
    }
    (void)pthread_mutex_unlock(&service.lock);
}

size_t periodic_states(struct periodic_state *out, size_t max)
{
    struct list *pos;
    size_t count = 0;

    (void)pthread_once(&service.once, service_init);
    (void)pthread_mutex_lock(&service.lock);
    list_for_each (pos, &service.jobs) {
        const struct periodic *job = container_of(pos, struct periodic, link);

        if (count == max)
            break;
        out[count++] = (struct periodic_state){.name = job->name,
                                               .running = job->running,
                                               .turns = job->turns,
                                               .began_us = job->began_us,
                                               .took_us = job->took_us,
                                               .late_us = job->late_us};
    }
    (void)pthread_mutex_unlock(&service.lock);
    return count;
}

void periodic_test_wake(void)
{
    (void)pthread_once(&service.once, service_init);
    (void)pthread_mutex_lock(&service.lock);
    (void)pthread_cond_broadcast(&service.changed);
    (void)pthread_mutex_unlock(&service.lock);
}

void periodic_test_turn(struct periodic *job)
{
    uint64_t wanted;

    (void)pthread_mutex_lock(&service.lock);
    wanted = job->turns + (job->running ? 2 : 1);
    while (job->added && job->turns < wanted) {
        if (!job->running)
            job->due_us = clock_mono_us();
        (void)pthread_cond_broadcast(&service.changed);
        (void)pthread_cond_wait(&service.changed, &service.lock);
    }
    (void)pthread_mutex_unlock(&service.lock);
}
