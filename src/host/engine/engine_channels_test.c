#include "host/engine/engine_channels.h"

#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/test.h"
#include "host/engine/engine_wire.h"

enum { COUNT = 4 };

struct rig {
    struct engine_channels *channels;
    int far[COUNT]; /* the warden's ends */
    struct engine_channel held[COUNT];
};

static void rig_open(struct rig *rig)
{
    int near[COUNT];

    for (int i = 0; i < COUNT; i++) {
        int pair[2];

        CHECK_INT(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
        near[i] = pair[0];
        rig->far[i] = pair[1];
    }
    rig->channels = engine_channels_new(near, COUNT);
}

static void rig_close(struct rig *rig)
{
    engine_channels_free(rig->channels);
    for (int i = 0; i < COUNT; i++)
        (void)close(rig->far[i]);
}

static int take(struct rig *rig, int index, enum engine_call kind)
{
    struct error err = {0};
    int r = engine_channel_take(rig->channels, kind, 20, &rig->held[index], &err);

    if (r < 0)
        CHECK_INT(err.code, ERROR_UNAVAILABLE);
    return r;
}

TEST(a_wait_for_a_channel_has_a_limit)
{
    int64_t began = clock_mono_ms();
    struct engine_channel none;
    struct error err = {0};
    struct rig rig;

    rig_open(&rig);
    for (int i = 0; i < COUNT; i++)
        CHECK_INT(take(&rig, i, ENGINE_CALL_QUICK), 0);
    CHECK_INT(engine_channel_take(rig.channels, ENGINE_CALL_QUICK, 100, &none, &err), -1);
    CHECK(clock_mono_ms() - began >= 100);
    CHECK_INT(err.code, ERROR_UNAVAILABLE);
    for (int i = 0; i < COUNT; i++)
        engine_channel_give(rig.channels, &rig.held[i], true);
    rig_close(&rig);
}

TEST(calls_that_hang_leave_channels_for_others)
{
    struct engine_channel other;
    struct error err = {0};
    struct rig rig;

    rig_open(&rig);
    CHECK_INT(take(&rig, 0, ENGINE_CALL_LINGERING), 0);
    CHECK_INT(take(&rig, 1, ENGINE_CALL_LINGERING), 0);
    CHECK_INT(take(&rig, 2, ENGINE_CALL_LINGERING), -1);
    CHECK_INT(take(&rig, 2, ENGINE_CALL_QUICK), 0);
    CHECK_INT(take(&rig, 3, ENGINE_CALL_QUICK), 0);
    CHECK_INT(engine_channel_take(rig.channels, ENGINE_CALL_QUICK, 0, &other, &err), -1);
    engine_channel_give(rig.channels, &rig.held[0], true);
    CHECK_INT(take(&rig, 0, ENGINE_CALL_LINGERING), 0);
    for (int i = 0; i < COUNT; i++)
        engine_channel_give(rig.channels, &rig.held[i], true);
    rig_close(&rig);
}

TEST(long_calls_leave_channels_for_those_that_hang)
{
    enum { MANY = 8 };
    struct engine_channel held[MANY], other;
    int near[MANY], far[MANY];
    struct engine_channels *channels;
    struct error err = {0};

    for (int i = 0; i < MANY; i++) {
        int pair[2];

        CHECK_INT(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
        near[i] = pair[0];
        far[i] = pair[1];
    }
    channels = engine_channels_new(near, MANY);
    for (int i = 0; i < 2; i++)
        CHECK_INT(engine_channel_take(channels, ENGINE_CALL_LONG, 20, &held[i], &err), 0);
    CHECK_INT(engine_channel_take(channels, ENGINE_CALL_LONG, 20, &other, &err), -1);
    for (int i = 2; i < MANY - 2; i++)
        CHECK_INT(engine_channel_take(channels, ENGINE_CALL_LINGERING, 20, &held[i], &err), 0);
    CHECK_INT(engine_channel_take(channels, ENGINE_CALL_LINGERING, 20, &other, &err), -1);
    CHECK_INT(engine_channel_take(channels, ENGINE_CALL_QUICK, 20, &held[6], &err), 0);
    CHECK_INT(engine_channel_take(channels, ENGINE_CALL_QUICK, 20, &held[7], &err), 0);
    for (int i = 0; i < MANY; i++)
        engine_channel_give(channels, &held[i], true);
    engine_channels_free(channels);
    for (int i = 0; i < MANY; i++)
        (void)close(far[i]);
}

TEST(a_channel_whose_reply_is_late_is_used_again_after_it)
{
    static struct engine_reply late;
    struct engine_channel again;
    struct error err = {0};
    struct rig rig;

    rig_open(&rig);
    for (int i = 0; i < COUNT; i++)
        CHECK_INT(take(&rig, i, ENGINE_CALL_QUICK), 0);
    engine_channel_give(rig.channels, &rig.held[0], false);
    CHECK_INT(engine_channel_take(rig.channels, ENGINE_CALL_QUICK, 20, &again, &err), -1);
    late.serial = rig.held[0].serial;
    for (int i = 0; i < COUNT; i++) /* which end is whose does not matter */
        CHECK_INT(fd_send(rig.far[i], &late, sizeof(late), NULL, 0) < 0, 0);
    CHECK_INT(engine_channel_take(rig.channels, ENGINE_CALL_QUICK, 1000, &again, &err), 0);
    CHECK_INT(again.fd, rig.held[0].fd);
    CHECK(again.serial > rig.held[3].serial);
    engine_channel_give(rig.channels, &again, true);
    for (int i = 1; i < COUNT; i++)
        engine_channel_give(rig.channels, &rig.held[i], true);
    rig_close(&rig);
}

static void *give_later(void *arg)
{
    struct rig *rig = arg;

    engine_channel_give(rig->channels, &rig->held[0], true);
    return NULL;
}

TEST(a_channel_given_back_wakes_who_waits)
{
    struct engine_channel next;
    struct error err = {0};
    pthread_t thread;
    struct rig rig;

    rig_open(&rig);
    for (int i = 0; i < COUNT; i++)
        CHECK_INT(take(&rig, i, ENGINE_CALL_QUICK), 0);
    CHECK_INT(pthread_create(&thread, NULL, give_later, &rig), 0);
    CHECK_INT(engine_channel_take(rig.channels, ENGINE_CALL_LINGERING, 60000, &next, &err), 0);
    CHECK_INT(next.fd, rig.held[0].fd);
    CHECK_INT(pthread_join(thread, NULL), 0);
    rig_close(&rig);
}
