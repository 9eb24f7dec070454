/* What the client writes and reads, against the tables made from the .proto files. */
#include "protocol/envd/envd_wire.h"

#include <signal.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/test.h"
#include "protocol/envd/test/envd_test_wire.h"
#include "protocol/json/json_shape.h"

#define START "/process.Process/Start"

static void check_request(const char *method, const struct buf *message, const char *want)
{
    auto_json json_t *json = envd_test_request(str_of(method), buf_str(message));
    auto_free char *text = json ? json_text(json) : xstrdup("no message");

    CHECK_STR(str_of(text), want);
}

TEST(envd_requests)
{
    const char *argv[] = {"/bin/cat", "-", "\xffx", NULL};
    const struct pair env[] = {{STR("A"), STR("b c")}, {STR("EMPTY"), STR("")}};
    struct envd_command command = {.argv = argv,
                                   .env = env,
                                   .env_count = 2,
                                   .cwd = "/w",
                                   .tag = "t",
                                   .pty = true,
                                   .cols = 300,
                                   .open_stdin = true};
    auto_buf struct buf out = {0};

    buf_init(&out, 4096);
    envd_put_start(&out, &command);
    check_request(START, &out,
                  "{\"process\":{\"cmd\":\"/bin/cat\",\"args\":[\"-\",\"\xef\xbf\xbdx\"],"
                  "\"envs\":{\"A\":\"b c\",\"EMPTY\":\"\"},\"cwd\":\"/w\"},\"pty\":{\"size\":"
                  "{\"cols\":300,\"rows\":24}},\"tag\":\"t\",\"stdin\":true}");
    argv[1] = NULL;
    buf_clear(&out);
    envd_put_start(&out, &(struct envd_command){.argv = argv});
    check_request(START, &out, "{\"process\":{\"cmd\":\"/bin/cat\"},\"stdin\":false}");
    buf_clear(&out);
    envd_put_process(&out, NULL, 70000);
    check_request("/process.Process/CloseStdin", &out, "{\"process\":{\"pid\":70000}}");
    buf_clear(&out);
    envd_put_process(&out, "a tag", 0);
    check_request("/process.Process/Connect", &out, "{\"process\":{\"tag\":\"a tag\"}}");
    buf_clear(&out);
    envd_put_input(&out, 7, false, STR("hello"));
    check_request("/process.Process/SendInput", &out,
                  "{\"process\":{\"pid\":7},\"input\":{\"stdin\":\"aGVsbG8=\"}}");
    buf_clear(&out);
    envd_put_input(&out, 7, true, STR("hello"));
    check_request("/process.Process/SendInput", &out,
                  "{\"process\":{\"pid\":7},\"input\":{\"pty\":\"aGVsbG8=\"}}");
    buf_clear(&out);
    envd_put_resize(&out, 7, 80, 24);
    check_request("/process.Process/Update", &out,
                  "{\"process\":{\"pid\":7},\"pty\":{\"size\":{\"cols\":80,\"rows\":24}}}");
    buf_clear(&out);
    envd_put_signal(&out, 7, SIGTERM);
    check_request("/process.Process/SendSignal", &out,
                  "{\"process\":{\"pid\":7},\"signal\":\"SIGNAL_SIGTERM\"}");
    buf_clear(&out);
    envd_put_path(&out, "/a", 0);
    check_request("/filesystem.Filesystem/Stat", &out, "{\"path\":\"/a\"}");
    buf_clear(&out);
    envd_put_path(&out, "/a", 1);
    check_request("/filesystem.Filesystem/ListDir", &out, "{\"path\":\"/a\",\"depth\":1}");
}

static struct envd_event event_of(struct buf *message, const char *json)
{
    struct envd_event event;
    struct error err = {0};

    buf_clear(message);
    envd_test_answer(message, START, json, false);
    CHECK_INT(envd_read_event(buf_str(message), &event, &err), 0);
    return event;
}

TEST(envd_events)
{
    auto_buf struct buf message = {0};
    struct envd_event event;

    buf_init(&message, 4096);
    event = event_of(&message, "{\"event\":{\"start\":{\"pid\":77}}}");
    CHECK(event.kind == ENVD_STARTED && event.pid == 77);
    event = event_of(&message, "{\"event\":{\"data\":{\"stdout\":\"AP8=\"}}}");
    CHECK(event.kind == ENVD_STDOUT && event.data.len == 2 && event.data.p[1] == '\xff');
    event = event_of(&message, "{\"event\":{\"data\":{\"stderr\":\"aGVsbG8=\"}}}");
    CHECK(event.kind == ENVD_STDERR);
    CHECK_STR(event.data, "hello");
    event = event_of(&message, "{\"event\":{\"data\":{\"pty\":\"aGVsbG8=\"}}}");
    CHECK(event.kind == ENVD_STDOUT && event.data.len == 5);
    CHECK(event_of(&message, "{\"event\":{\"data\":{\"stdout\":\"\"}}}").kind == ENVD_NOTHING);
    CHECK(event_of(&message, "{\"event\":{\"keepalive\":{}}}").kind == ENVD_NOTHING);
    CHECK(event_of(&message, "{}").kind == ENVD_NOTHING);
    event = event_of(&message, "{\"event\":{\"end\":{\"exitCode\":-1,\"status\":\"signal: killed\","
                               "\"error\":\"signal: killed: out of memory\"}}}");
    CHECK(event.kind == ENVD_EXITED && event.exit_code == 137 && event.out_of_memory);
    CHECK_STR(event.status, "signal: killed");
    event = event_of(&message, "{\"event\":{\"end\":{\"exitCode\":9,\"exited\":true}}}");
    CHECK(event.kind == ENVD_EXITED && event.exit_code == 9 && !event.out_of_memory);
    CHECK_STR(event.status, "");
    CHECK_INT(envd_exit_code(STR("signal: segmentation fault (core dumped)"), 0), 139);
    CHECK_INT(envd_exit_code(STR("signal: signal 35"), 0), 163);
    CHECK_INT(envd_exit_code(STR("signal: of a kind that nobody knows"), 0), 255);
}

/* Bytes that are not such messages, and values that nothing inside may have. */
TEST(envd_hostile_events)
{
    static const struct str messages[] = {
        STR_INIT("\xff\xff\xff"),                             /* no tag */
        STR_INIT("\x0a\x05\x12\x03"),                         /* longer than the message */
        STR_INIT("\x0a\x04\x12\x02\x0a\x05"),                 /* output longer than its event */
        STR_INIT("\x0a\x02\x0a\x00"),                         /* a start without a pid */
        STR_INIT("\x0a\x04\x0a\x02\x08\x00"),                 /* with 0 */
        STR_INIT("\x0a\x08\x0a\x06\x08\xff\xff\xff\xff\x0f"), /* with -1 */
        STR_INIT("\x0a\x05\x1a\x03\x1a\x01\xff"),             /* a status that is not text */
        STR_INIT("\x0a\x05\x1a\x03\x1a\x01\x00"),             /* with a NUL */
    };
    struct envd_event event;

    for (size_t i = 0; i < sizeof(messages) / sizeof(messages[0]); i++) {
        struct error err = {0};

        CHECK_INT(envd_read_event(messages[i], &event, &err), -1);
        CHECK_INT(err.code, ERROR_UNAVAILABLE);
    }
}

TEST(envd_files)
{
    auto_arena struct arena arena = {0};
    auto_buf struct buf message = {0};
    struct envd_file *files, file;
    struct error err = {0};
    size_t count;

    buf_init(&message, 4096);
    envd_test_answer(
        &message, "/filesystem.Filesystem/ListDir",
        "{\"entries\":[{\"name\":\"d\",\"type\":\"FILE_TYPE_DIRECTORY\",\"path\":"
        "\"/w/d\",\"mode\":493},{\"name\":\"f\",\"type\":\"FILE_TYPE_FILE\",\"path\":"
        "\"/w/f\",\"size\":\"5000000000\",\"modifiedTime\":\"2026-01-02T03:04:05.5Z\"}]}",
        false);
    CHECK_INT(envd_read_list(buf_str(&message), &arena, &files, &count, &err), 0);
    CHECK_INT(count, 2);
    CHECK_STR(files[0].path, "/w/d");
    CHECK(files[0].directory && files[0].mode == 0755 && files[0].size == 0);
    CHECK_STR(files[1].name, "f");
    CHECK(!files[1].directory && files[1].size == INT64_C(5000000000));
    CHECK_INT(files[1].modified_at_us, INT64_C(1767323045500000));
    CHECK_INT(envd_read_list(STR(""), &arena, &files, &count, &err), 0);
    CHECK_INT(count, 0);
    CHECK_INT(envd_read_list(STR("\x0a\x03\x0a\x01\xff"), &arena, &files, &count, &err), -1);
    CHECK_INT(envd_read_list(STR("\x0a\x03\x0a"), &arena, &files, &count, &err), -1);
    buf_clear(&message);
    envd_test_answer(&message, "/filesystem.Filesystem/MakeDir",
                     "{\"entry\":{\"name\":\"n\",\"path\":\"/w/n\"}}", false);
    CHECK_INT(envd_read_file(buf_str(&message), &arena, &file, &err), 0);
    CHECK_STR(file.path, "/w/n");
    /* A time beyond all years counts as none. */
    CHECK_INT(envd_read_file(STR("\x0a\x0c\x4a\x0a\x08\xff\xff\xff\xff\xff\xff\xff\xff\x7f"),
                             &arena, &file, &err),
              0);
    CHECK_INT(file.modified_at_us, 0);
    /* Its length is one too many. */
    CHECK_INT(envd_read_file(STR("\x0a\x0c\x4a\x0b\x08\xff\xff\xff\xff\xff\xff\xff\xff\x7f"),
                             &arena, &file, &err),
              -1);
}
