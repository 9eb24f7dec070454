/* How many workers each lane has, and how many of them one team may hold: always several teams are needed to take all of
 * a lane whose requests wait for somebody else. */
#include "quicksand/server_lanes.h"

#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/thread.h"
#include "protocol/loop/workers.h"

enum {
    QUEUE_MAX = 4096,
    QUICK_WORKERS = 4,
    LIST_WORKERS = 4,
    CONTROL_TEAMS = 8,  /* that may each hold their share of the control lane at the same time */
    WAIT_WORKERS = 256, /* at most, for what waits for programs of templates */
    WAIT_TEAM = WAIT_WORKERS / 4,
    LONG_WORKERS = 256,
    LONG_TEAM = LONG_WORKERS / 8,
    WAKE_WORKERS = 256,
};

void server_lanes_open(struct server_lanes *lanes, int64_t threads)
{
    *lanes = (struct server_lanes){
        .quick = workers_new(QUICK_WORKERS, QUEUE_MAX),
        .list = workers_new(LIST_WORKERS, QUEUE_MAX),
        .control = workers_new_elastic((size_t)threads * CONTROL_TEAMS, QUEUE_MAX),
        .create = workers_new((size_t)threads, QUEUE_MAX),
        .wait = workers_new_elastic(WAIT_WORKERS, QUEUE_MAX),
        .slow = workers_new_elastic(LONG_WORKERS, QUEUE_MAX),
        .wake = workers_new_elastic(WAKE_WORKERS, QUEUE_MAX),
    };
}

/* So that one team cannot hold all. */
static size_t three_quarters(int64_t threads)
{
    return threads < 2 ? 1 : (size_t)threads * 3 / 4;
}

void server_lanes_assign(const struct server_lanes *lanes, int64_t threads, struct api_config *api)
{
    api->lanes[API_LANE_QUICK].workers = lanes->quick;
    api->lanes[API_LANE_QUICK].team_max = three_quarters(QUICK_WORKERS);
    api->lanes[API_LANE_LIST].workers = lanes->list;
    api->lanes[API_LANE_LIST].team_max = three_quarters(LIST_WORKERS);
    api->lanes[API_LANE_CONTROL].workers = lanes->control;
    api->lanes[API_LANE_CONTROL].team_max = (size_t)threads;
    api->lanes[API_LANE_CREATE].workers = lanes->create;
    api->lanes[API_LANE_CREATE].team_max = three_quarters(threads);
    api->lanes[API_LANE_WAIT].workers = lanes->wait;
    api->lanes[API_LANE_WAIT].team_max = WAIT_TEAM;
    api->lanes[API_LANE_LONG].workers = lanes->slow;
    api->lanes[API_LANE_LONG].team_max = LONG_TEAM;
}

void server_lanes_share(const struct server_lanes *lanes, int64_t threads, struct extra_host *out)
{
    out->lanes[EXTRA_LANE_CONTROL].workers = lanes->control;
    out->lanes[EXTRA_LANE_CONTROL].team_max = (size_t)threads;
    out->lanes[EXTRA_LANE_WAIT].workers = lanes->wait;
    out->lanes[EXTRA_LANE_WAIT].team_max = WAIT_TEAM;
}

void server_lanes_close(struct server_lanes *lanes)
{
    workers_free(lanes->quick);
    workers_free(lanes->list);
    workers_free(lanes->create);
    workers_free(lanes->wait);
    workers_free(lanes->control);
    workers_free(lanes->slow);
    workers_free(lanes->wake);
}

static void stop_watch(void *arg)
{
    int64_t limit_ms = (int64_t)(intptr_t)arg;
    struct timespec left = {.tv_sec = limit_ms / 1000, .tv_nsec = limit_ms % 1000 * 1000000};

    while (nanosleep(&left, &left) < 0)
        ;
    /* What was acknowledged is stored, what runs in sandboxes goes on, and the next start cleans up the rest, as after a
     * crash. */
    log_warn("server",
             "operations were still under way %lld ms after the signal; ending without them",
             (long long)limit_ms);
    _exit(0);
}

void server_stop_within(uint32_t limit_ms)
{
    (void)thread_start_detached("stop", THREAD_STACK_DEFAULT, stop_watch,
                                (void *)(intptr_t)limit_ms, NULL);
}
