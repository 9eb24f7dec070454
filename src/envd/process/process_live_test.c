/* Streams of programs through the built envd: several watchers, replay, silence. */
#include <poll.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/test.h"
#include "envd/process/process_ring.h"
#include "envd/test/live_rig.h"

#define PROCESS "/process.Process/"
#define BASH(script, more) \
    "{\"process\":{\"cmd\":\"/bin/bash\",\"args\":[\"-c\",\"" script "\"],\"cwd\":\"/\"}" more "}"
#define TAGGED(tag) "{\"process\":{\"tag\":\"" tag "\"}}"

/* Writes a line to the program's stdin, which answers. */
static void say(const struct live *live)
{
    struct buf body = {0};

    CHECK_INT(live_rpc(live, PROCESS "SendInput",
                       "{\"process\":{\"tag\":\"t\"},\"input\":{\"stdin\":\"Z28K\"}}", &body),
              200);
    buf_done(&body);
}

static void read_until(struct live_stream *stream, const char *text)
{
    while (!stream->out.p || !strstr(stream->out.p, text))
        CHECK(live_stream_next(stream));
}

TEST(process_several_watchers_and_replay)
{
    struct live live;
    struct live_stream first, second, third;

    live_start(&live);
    live_stream_open(
        &first, &live, PROCESS "Start",
        BASH("echo one; echo err >&2; read x; echo two; read x; echo three", ",\"tag\":\"t\""),
        NULL);
    read_until(&first, "one\n");
    while (first.err.len == 0)
        CHECK(live_stream_next(&first));
    /* Without asking, only what comes from now on. */
    live_stream_open(&second, &live, PROCESS "Connect", TAGGED("t"), NULL);
    live_stream_started(&second);
    live_stream_open(&third, &live, PROCESS "Connect", TAGGED("t"), "X-Quicksand-Replay: 1\r\n");
    live_stream_started(&third);
    CHECK_INT(third.started_pid, first.started_pid);
    say(&live);
    read_until(&first, "two\n");
    live_stream_close(&first); /* the starter leaves; the program goes on */
    say(&live);
    live_stream_finish(&second);
    live_stream_finish(&third);
    CHECK_STR(buf_str(&second.out), "two\nthree\n");
    CHECK_STR(buf_str(&second.err), "");
    CHECK_STR(buf_str(&third.out), "one\ntwo\nthree\n");
    CHECK_STR(buf_str(&third.err), "err\n");
    live_stream_close(&second);
    live_stream_close(&third);
    /* Late: the end, with its output for whoever asks. */
    live_stream_open(&second, &live, PROCESS "Connect", TAGGED("t"), NULL);
    live_stream_finish(&second);
    CHECK_STR(buf_str(&second.out), "");
    CHECK(strstr(second.end, "exit status 0"));
    live_stream_close(&second);
    live_stream_open(&second, &live, PROCESS "Connect", TAGGED("t"),
                     "X-Quicksand-Replay: from=10\r\n");
    live_stream_finish(&second);
    CHECK_STR(buf_str(&second.out), "o\nthree\n");
    CHECK(strstr(second.end, "exit status 0"));
    live_stream_close(&second);
    live_stop(&live);
}

TEST(process_replay_of_much)
{
    struct live live;
    struct live_stream stream;

    live_start(&live);
    live_stream_open(&stream, &live, PROCESS "Start", BASH("seq 1 200000", ",\"tag\":\"t\""), NULL);
    live_stream_finish(&stream);
    CHECK_INT(stream.out.len, 1288895);
    live_stream_close(&stream);
    live_stream_open(&stream, &live, PROCESS "Connect", TAGGED("t"), "X-Quicksand-Replay: 1\r\n");
    live_stream_finish(&stream);
    CHECK(stream.out.len >= PROCESS_RING_MAX / 2 && stream.out.len <= 2 * PROCESS_RING_MAX);
    CHECK(str_ends(buf_str(&stream.out), STR("199999\n200000\n")));
    live_stream_close(&stream);
    live_stream_open(&stream, &live, PROCESS "Connect", TAGGED("t"),
                     "X-Quicksand-Replay: from=1288888\r\n");
    live_stream_finish(&stream);
    CHECK_STR(buf_str(&stream.out), "200000\n");
    live_stream_close(&stream);
    live_stream_open(&stream, &live, PROCESS "Connect", TAGGED("t"),
                     "X-Quicksand-Replay: from=5\r\n");
    live_stream_finish(&stream);
    CHECK(strstr(stream.last, "resource_exhausted") && strstr(stream.last, "bytes 5 to "));
    live_stream_close(&stream);
    live_stream_open(&stream, &live, PROCESS "Connect", TAGGED("t"), "X-Quicksand-Replay: yes\r\n");
    live_stream_finish(&stream);
    CHECK(strstr(stream.last, "invalid_argument"));
    live_stream_close(&stream);
    live_stop(&live);
}

/* The deadline of a Connect ends that stream only; silence is filled with keepalives. */
TEST(process_keepalive_and_deadlines)
{
    struct live live;
    struct live_stream starter, stream;
    struct buf body = {0};
    int keepalives = 0;

    live_start(&live);
    live_stream_open(&starter, &live, PROCESS "Start", BASH("sleep 100", ",\"tag\":\"t\""),
                     "Keepalive-Ping-Interval: 1\r\n");
    live_stream_open(&stream, &live, PROCESS "Connect", TAGGED("t"),
                     "Connect-Timeout-Ms: 1200\r\n");
    live_stream_finish(&stream);
    CHECK(strstr(stream.last, "deadline_exceeded"));
    CHECK_STR(str_of(stream.end), "");
    live_stream_close(&stream);
    live_stream_started(&starter);
    while (keepalives == 0) {
        CHECK(live_stream_next(&starter));
        keepalives += strstr(starter.message.p, "keepalive") != NULL;
    }
    CHECK_INT(live_rpc(&live, PROCESS "List", "{}", &body), 200);
    CHECK(strstr(body.p, "\"tag\":\"t\""));
    live_stream_close(&starter);
    buf_done(&body);
    live_stop(&live);
}

/* Output that is not text is passed on byte for byte; of a terminal as well. */
TEST(process_output_is_exact)
{
    struct live live;
    struct live_stream stream;

    live_start(&live);
    live_run(&stream, &live,
             BASH("printf '\\\\xff\\\\x00\\\\xc3\\\\x28\\\\n'; printf err >&2; "
                  "printf tail",
                  ""),
             NULL);
    CHECK(str_eq(buf_str(&stream.out), STR("\xff\0\xc3\x28\ntail")));
    CHECK_STR(buf_str(&stream.err), "err");
    live_stream_close(&stream);
    live_stop(&live);
}

/* One client does not read: the program waits for it, others and other programs do not stop. */
TEST(process_slow_watcher)
{
    struct live live;
    struct live_stream slow, other;
    int64_t begin = clock_mono_ms();

    live_start(&live);
    live_stream_open(&slow, &live, PROCESS "Start",
                     BASH("head -c 30000000 /dev/zero", ",\"tag\":\"t\""), NULL);
    live_stream_started(&slow);
    live_run(&other, &live, BASH("echo fine", ""), NULL);
    CHECK_STR(buf_str(&other.out), "fine\n");
    live_stream_close(&other);
    CHECK(clock_mono_ms() - begin < 5000);
    live_stream_finish(&slow);
    CHECK_INT(slow.out.len, 30000000);
    live_stream_close(&slow);
    live_stop(&live);
}
