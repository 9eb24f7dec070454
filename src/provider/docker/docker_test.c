/* The docker provider against a daemon that answers as badly as it is told to; against real ones see
 * tests/functional/docker.test.mjs. */
#include "provider/docker/docker.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/encode.h"
#include "protocol/json/json_shape.h"
#include "provider/test/provider_test_far.h"

#define ID "0123456789abcdef"

static struct {
    const char *version;     /* "ApiVersion MinAPIVersion" in JSON */
    const char *status;      /* of the container */
    const char *stream;      /* how the stream of a process goes wrong */
    int no_freezer, missing; /* missing: 1 = until it is pulled, 2 = for ever */
    char mark[64];           /* of the process that was begun */
    struct str tar;          /* what the file comes in */
} fake = {.version = "\"ApiVersion\":\"1.41\",\"MinAPIVersion\":\"1.12\"", .status = "running"};

static char socket_path[64];
static const struct provider_ref ref = {.id = STR_INIT(ID)};

static const struct far_answer bad_answers[] = {
    {"500", 500, "{\"message\":\"on fire\"}\n"},
    {"429", 429, "{\"message\":\"slow down\"}\n", "Retry-After: 7\r\n"},
    {"space", 500, "{\"message\":\"write: no space left on device\"}\n"},
    {"garbage", 200, "\x01\x02{{"},
    {"bad id", 201, "{\"Id\":\"../images/x\"}"},
    {"half", FAR_HALF},
    {0},
};

static void frame(struct fetch_rig_exchange *ex, char stream, struct str data)
{
    char head[8] = {stream, 0, 0, 0, 0, 0, (char)(data.len >> 8), (char)data.len};

    fetch_rig_send(ex, str_n(head, sizeof(head)));
    fetch_rig_send(ex, data);
}

/* As a process of the begin script would look. */
static void answer_stream(struct fetch_rig_exchange *ex)
{
    auto_free char *line = xasprintf("%s 42\nE", fake.mark);
    const char *how = fake.stream ? fake.stream : "";

    ex->close = true;
    if (strcmp(how, "no http") == 0) {
        fetch_rig_send(ex, STR("SSH-2.0-x\r\n\r\n"));
        return;
    }
    if (strcmp(how, "long head") == 0) {
        fetch_rig_send(ex, STR("HTTP/1.1 101 UPGRADED\r\n"));
        for (int i = 0; i < 4096 && !fetch_rig_stopping(ex->rig); i++)
            fetch_rig_send(ex, STR("X-Y: zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz\r\n"));
        return;
    }
    if (strcmp(how, "refused") == 0) {
        fetch_rig_answer(ex, 409, NULL, STR("{\"message\":\"is paused\"}\n"));
        return;
    }
    fetch_rig_send(ex, STR("HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n"));
    if (strcmp(how, "reason") == 0) {
        frame(ex, 1, STR("OCI runtime exec failed: no shell\r\n"));
        return;
    }
    frame(ex, 1, STR("early")); /* overtakes the line */
    frame(ex, 2, str_of(line));
    if (strcmp(how, "garbage") == 0)
        fetch_rig_send(ex, STR("HTTP/1.1 400"));
    else if (strcmp(how, "huge frame") == 0)
        fetch_rig_send(ex, STR("\1\0\0\0\x7f\xff\xff\xff"));
    else if (strcmp(how, "cut") == 0)
        fetch_rig_send(ex, STR("\1\0\0\0\0\0\0\x09half"));
    else
        frame(ex, 1, STR("late"));
}

static void answer_stat(struct fetch_rig_exchange *ex, struct str target)
{
    const char *json = str_find_str(target, STR("link")) >= 0
                           ? "{\"mode\":134218239,\"linkTarget\":\"/link\",\"size\":0}"
                           : "{\"mode\":420,\"linkTarget\":\"\",\"size\":5}";
    char text[256] = "";
    auto_free char *header = NULL;

    if (fake.stream && strcmp(fake.stream, "bad stat") == 0)
        json = "no json";
    base64_encode(text, json, strlen(json));
    header = xasprintf("X-Docker-Container-Path-Stat: %s\r\n", text);
    if (str_find_str(target, STR("missing")) >= 0)
        fetch_rig_answer(ex, 404, NULL, STR_NONE);
    else
        fetch_rig_answer(ex, 200, header, strcmp(ex->method, "GET") == 0 ? fake.tar : STR_NONE);
    ex->close = true;
}

static void note_mark(const struct fetch_rig_exchange *ex)
{
    auto_json json_t *body = NULL;
    struct str mark;

    if (json_parse(buf_str(&ex->body), &body, &err) < 0)
        return;
    mark = str_of(json_string_value(json_array_get(json_object_get(body, "Cmd"), 4)));
    if (mark.len == 24)
        (void)str_copy(mark, fake.mark, sizeof(fake.mark));
}

static void answer_container(struct fetch_rig_exchange *ex, struct str target)
{
    auto_free char *text = xasprintf(
        "{\"Id\":\"" ID "\",\"State\":{\"Status\":\"%s\",\"StartedAt\":\"2026-01-02T03:04:05Z\"},"
        "\"Config\":{\"Image\":\"img\",\"Labels\":{\"dev.quicksand\":\"1\",\"k\":\"v\","
        "\"dev.quicksand.env\":\"A,B\"}},"
        "\"NetworkSettings\":{\"IPAddress\":\"\",\"Networks\":{\"n\":{\"IPAddress\":\"10.0.0.9\"}}}"
        "}",
        fake.status);

    if (str_ends(target, STR("/pause")) && fake.no_freezer) {
        fetch_rig_answer(ex, 500, NULL, STR("{\"message\":\"no freezer\"}"));
        return;
    }
    if (str_ends(target, STR("/pause")))
        fake.status = "paused";
    if (str_find_str(target, STR("/stop")) >= 0)
        fake.status = "exited";
    if (str_ends(target, STR("/unpause")) || str_ends(target, STR("/start")))
        fake.status = "running";
    fetch_rig_answer(ex, 200, NULL, str_of(text));
}

static void answer(struct fetch_rig_exchange *ex, void *arg)
{
    auto_free char *version = xasprintf("{%s}", fake.version);
    struct str target = str_n(ex->target, strlen(ex->target));

    (void)arg;
    far_note(ex, "%s", "");
    if (str_is(target, "/version"))
        fetch_rig_answer(ex, 200, NULL, str_of(version));
    else if (far_misbehaves(ex, bad_answers))
        return;
    else if (str_find_str(target, STR("/archive")) >= 0)
        answer_stat(ex, target);
    else if (str_ends(target, STR("/exec"))) {
        note_mark(ex);
        fetch_rig_answer(ex, 201, NULL, STR("{\"Id\":\"e1\"}"));
    } else if (str_ends(target, STR("/exec/e1/start")))
        answer_stream(ex);
    else if (str_ends(target, STR("/exec/e1/json")))
        fetch_rig_answer(ex, 200, NULL, STR("{\"Running\":false,\"ExitCode\":137}"));
    else if (str_ends(target, STR("/stats?stream=false")))
        fetch_rig_answer(
            ex, 200, NULL,
            STR("{\"cpu_stats\":{\"cpu_usage\":{\"total_usage\":3000},\"system_cpu_usage\":20000,"
                "\"online_cpus\":4},\"precpu_stats\":{\"cpu_usage\":{\"total_usage\":1000},"
                "\"system_cpu_usage\":10000},\"memory_stats\":{\"usage\":500,\"limit\":900,"
                "\"stats\":{\"inactive_file\":100}}}"));
    else if (str_find_str(target, STR("/containers/json")) >= 0)
        fetch_rig_answer(
            ex, 200, NULL,
            STR("[{\"Id\":\"stranger\",\"State\":\"running\",\"Created\":11,\"Labels\":{}},"
                "{\"Id\":\"old\",\"State\":\"exited\",\"Created\":5,\"Labels\":{\"k\":\"a:b=c\"}},"
                "{\"Id\":\"new\",\"State\":\"running\",\"Created\":9,\"Labels\":{\"k\":\"a:b=c\"}},"
                "{\"Id\":\"../x\",\"State\":\"running\",\"Created\":10}]"));
    else if (str_ends(target, STR("/containers/create")) && fake.missing)
        fetch_rig_answer(ex, 404, NULL, STR("{\"message\":\"No such image: img\"}"));
    else if (str_find_str(target, STR("/images/create")) >= 0) {
        fake.missing = fake.missing == 2 ? 2 : 0;
        fetch_rig_answer(ex, 200, NULL,
                         fake.missing ? STR("{\"status\":\"Pulling\"}\n{\"error\":\"denied\"}\n")
                                      : STR("{\"status\":\"Pulling\"}\n{\"status\":\"Done\"}\n"));
    } else if (str_ends(target, STR("/containers/create")))
        fetch_rig_answer(ex, 201, NULL, STR("{\"Id\":\"" ID "\"}"));
    else if (str_find_str(target, STR("/commit")) >= 0)
        fetch_rig_answer(ex, 201, NULL, STR("{\"Id\":\"sha256:1\"}"));
    else
        answer_container(ex, target);
}

/* ---- */

static void open_with(const char *more)
{
    auto_free char *text = NULL;
    auto_json json_t *options = NULL;
    struct provider_config config = {.name = "dk", .type = "docker", .api_url = ""};

    (void)snprintf(socket_path, sizeof(socket_path), "/tmp/docker-test-%d.sock", getpid());
    (void)unlink(socket_path);
    far_begin(socket_path, answer);
    text =
        xasprintf("{\"socket\":\"%s\",\"image\":\"img\",\"pull\":\"never\"%s}", socket_path, more);
    CHECK_INT(json_parse(str_of(text), &options, &err), 0);
    config.options = options;
    far_open(&config);
}

TEST(docker_frames_in_pieces)
{
    static const char bytes[] = "\1\0\0\0\0\0\0\3abc\2\0\0\0\0\0\0\0\2\0\0\0\0\0\0\2de";

    for (size_t step = 1; step < sizeof(bytes); step++) {
        struct docker_frame reader = {0};
        char text[2][16] = {"", ""};
        size_t n[2] = {0, 0};

        for (size_t at = 0; at < sizeof(bytes) - 1; at += step) {
            size_t len = sizeof(bytes) - 1 - at < step ? sizeof(bytes) - 1 - at : step;
            struct str in = {bytes + at, len}, out;
            enum docker_stream_kind kind;

            while (docker_frame_next(&reader, &in, &kind, &out) == 1) {
                int i = kind == DOCKER_STDERR;

                memcpy(text[i] + n[i], out.p, out.len);
                n[i] += out.len;
            }
            CHECK_INT(in.len, 0);
        }
        CHECK_STR(str_n(text[0], n[0]), "abc");
        CHECK_STR(str_n(text[1], n[1]), "de");
    }
}

TEST(docker_frames_garbage)
{
    static const struct str bad[] = {STR_INIT("HTTP/1.1"), STR_INIT("\4\0\0\0\0\0\0\1x"),
                                     STR_INIT("\1\0\1\0\0\0\0\1x"), STR_INIT("\1\0\0\0\1\0\0\1x")};

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct docker_frame reader = {0};
        struct str in = bad[i], out;
        enum docker_stream_kind kind;

        CHECK_INT(docker_frame_next(&reader, &in, &kind, &out), -1);
    }
}

TEST(docker_create_body)
{
    struct pair labels[] = {{STR("exo.sandbox.key"), STR("conv:1=2")}};
    struct pair env[] = {{STR("TOKEN"), STR("s p")}};
    struct provider_spec spec = {.labels = labels,
                                 .label_count = 1,
                                 .env = env,
                                 .env_count = 1,
                                 .egress = EGRESS_DENY_ALL,
                                 .cpu = 2,
                                 .mem_mb = 512};
    struct provider_sandbox machine;

    open_with("");
    CHECK_INT(provider_create(provider, &spec, &arena, &machine, &err), 0);
    CHECK_STR(machine.id, ID);
    saw("POST /v1.40/containers/create {\"Image\":\"img\",\"Entrypoint\":[],\"Cmd\":[\"/bin/sh\"");
    saw("\"Env\":[\"TOKEN=s p\"]");
    saw("\"dev.quicksand\":\"1\"");
    saw("\"exo.sandbox.key\":\"conv:1=2\"");
    saw("\"NetworkMode\":\"none\"");
    saw("\"NanoCpus\":2000000000");
    saw("\"Memory\":536870912,\"MemorySwap\":536870912");
    saw("\"PidsLimit\":4096");
    saw("\"CapDrop\":[\"NET_RAW\",\"MKNOD\",\"AUDIT_WRITE\"]");
    saw("\"SecurityOpt\":[\"no-new-privileges\"]");
    saw("POST /v1.40/containers/" ID "/start ");
    env[0].name = STR("A=B");
    CHECK_INT(provider_create(provider, &spec, &arena, &machine, &err), -1);
    CHECK_INT(err.code, ERROR_INVALID);
    far_end();
}

TEST(docker_runtime_of_containers)
{
    struct provider_sandbox machine;

    open_with(",\"runtime\":\"runsc\"");
    CHECK_INT(provider_create(provider, &(struct provider_spec){.egress = EGRESS_ALLOW_ALL}, &arena,
                              &machine, &err),
              0);
    saw("\"Runtime\":\"runsc\"");
    far_end();
}

TEST(docker_pulls_what_is_missing)
{
    struct provider_spec spec = {.egress = EGRESS_ALLOW_ALL,
                                 .image = STR("reg.example:5000/a/img")};
    int64_t deadline_us = clock_deadline(60, 0), before_us = deadline_us;
    struct provider_sandbox machine;

    open_with(",\"pause\":\"stop\"");
    spec.deadline_us = &deadline_us;
    fake.missing = 1;
    CHECK_INT(provider_create(provider, &spec, &arena, &machine, &err), -1); /* pull: never */
    CHECK_INT(err.code, ERROR_NOT_FOUND);
    CHECK_INT(deadline_us, before_us);
    docker_of(provider)->pull = true;
    CHECK_INT(provider_create(provider, &spec, &arena, &machine, &err), 0);
    CHECK(deadline_us > before_us); /* by the time of the pull */
    saw("POST /v1.40/images/create?fromImage=reg.example%3A5000%2Fa%2Fimg&tag=latest ");
    fake.missing = 2;
    CHECK_INT(provider_create(provider, &spec, &arena, &machine, &err), -1);
    CHECK_INT(err.code, ERROR_NOT_FOUND);
    deadline_us = clock_mono_us() - 1;
    CHECK_INT(provider_create(provider, &spec, &arena, &machine, &err), -1);
    CHECK_INT(err.code, ERROR_TIMEOUT);
    far_end();
}

TEST(docker_mounts_only_when_allowed)
{
    auto_json json_t *mounts = json_pack("[{s:s, s:s, s:b}]", "host_path", "/usr/../tmp",
                                         "guest_path", "/data", "read_only", 1);
    auto_json json_t *outside =
        json_pack("[{s:s, s:s}]", "host_path", "/tmp/../etc", "guest_path", "/data");
    struct provider_spec spec = {.egress = EGRESS_ALLOW_ALL, .mounts = mounts};
    struct provider_sandbox machine;

    open_with("");
    CHECK_INT(provider_create(provider, &spec, &arena, &machine, &err), -1);
    CHECK_INT(err.code, ERROR_UNSUPPORTED);
    CHECK_INT(fetch_rig_requests(rig), 0);
    far_end();

    open_with(",\"allow_mounts\":[\"/tmp\"]");
    CHECK(provider_caps(provider)->features & PROVIDER_MOUNTS);
    CHECK_INT(provider_create(provider, &spec, &arena, &machine, &err), 0);
    saw("\"Mounts\":[{\"Type\":\"bind\",\"Source\":\"/tmp\",\"Target\":\"/"
        "data\",\"ReadOnly\":true}]");
    spec.mounts = outside;
    CHECK_INT(provider_create(provider, &spec, &arena, &machine, &err), -1);
    CHECK_INT(err.code, ERROR_FORBIDDEN);
    far_end();
}

TEST(docker_version_is_negotiated)
{
    open_with("");
    fake.version = "\"ApiVersion\":\"1.52\",\"MinAPIVersion\":\"1.44\"";
    CHECK_INT(provider_check(provider, &err), 0);
    CHECK_INT(provider_kill(provider, &ref, &err), 0);
    saw("DELETE /v1.44/containers/" ID "?force=1&v=1 ");
    fake.version = "\"ApiVersion\":\"1.24\",\"MinAPIVersion\":\"1.12\"";
    CHECK_INT(provider_check(provider, &err), -1);
    CHECK_INT(err.code, ERROR_UNSUPPORTED);
    fake.version = "\"ApiVersion\":\"two\"";
    CHECK_INT(provider_check(provider, &err), -1);
    CHECK_INT(err.code, ERROR_UNAVAILABLE);
    far_end();
}

TEST(docker_find)
{
    struct pair label = {STR("k"), STR("a:b=c")};
    struct provider_sandbox *found;
    size_t count;

    open_with("");
    CHECK_INT(provider_find(provider, &(struct provider_query){.labels = &label, .label_count = 1},
                            &arena, &found, &count, &err),
              0);
    saw("GET /v1.40/containers/json?all=1&filters=%7B%22label%22%3A%5B%22dev.quicksand%3D1%22%2C%22"
        "k%3Da%3Ab%3Dc%22%5D%7D ");
    CHECK_INT(count, 2);
    CHECK_STR(found[0].id, "new");
    CHECK_INT(found[1].state, PROVIDER_PAUSED);
    far_end();
}

TEST(docker_usage)
{
    struct provider_usage usage;

    open_with("");
    CHECK_INT(provider_usage(provider, &ref, &usage, &err), 0);
    saw("/stats?stream=false ");
    CHECK_INT((int64_t)usage.cpu_percent, 20); /* a fifth of four processors */
    CHECK_INT(usage.cpu_count, 4);
    CHECK_INT(usage.mem_used, 400);
    CHECK_INT(usage.mem_total, 900);
    CHECK_INT(usage.disk_used, -1);
    far_end();
}

TEST(docker_pause_freezes_or_stops)
{
    struct provider_sandbox machine;

    open_with("");
    CHECK_INT(provider_pause(provider, &ref, &err), 0);
    CHECK_STR(str_of(fake.status), "paused");
    CHECK_INT(provider_connect(provider, &ref, 0, &arena, &machine, &err), 0);
    saw("/unpause ");
    fake.no_freezer = 1;
    CHECK_INT(provider_pause(provider, &ref, &err), 0);
    CHECK_STR(str_of(fake.status), "exited");
    CHECK_INT(provider_connect(provider, &ref, 0, &arena, &machine, &err), 0);
    CHECK_INT(machine.state, PROVIDER_RUNNING);
    CHECK_INT(machine.label_count, 1);
    saw_not("DELETE");
    far_end();
}

TEST(docker_snapshot_empties_labels_and_variables)
{
    struct provider_address address;
    struct str snapshot;

    open_with("");
    CHECK_INT(provider_snapshot(provider, &ref, "s-1", &arena, &snapshot, &err), 0);
    CHECK_STR(snapshot, "quicksand-snap:s-1");
    saw("POST /v1.40/commit?container=" ID
        "&repo=quicksand-snap&tag=s-1&pause=1&changes=ENV%20A%3D&"
        "changes=ENV%20B%3D&changes=LABEL%20");
    saw("changes=LABEL%20k%3D%22%22");
    CHECK_INT(provider_snapshot_delete(provider, STR_NONE, STR("debian:12"), &err), -1);
    CHECK_INT(err.code, ERROR_INVALID);
    CHECK_INT(provider_address(provider, &ref, 80, &arena, &address, &err), 0);
    CHECK_STR(address.url, "http://10.0.0.9:80");
    far_end();
}

static int run(const char *how, struct buf *out, struct buf *errors, struct provider_event *event)
{
    static const char *const argv[] = {"true", NULL};
    struct provider_command command = {.argv = argv};
    struct provider_process *process;
    int got;

    fake.stream = how;
    if (provider_start(provider, &ref, &command, &process, &err) < 0)
        return -1;
    while ((got = provider_process_next(process, 5000, event, &err)) == 1 &&
           event->kind != PROVIDER_EXITED)
        (void)buf_add_str(event->kind == PROVIDER_STDERR ? errors : out, event->data);
    provider_process_free(process);
    return got == 1 ? 0 : -1;
}

TEST(docker_streams)
{
    static const struct {
        const char *how;
        enum error_code code;
    } bad[] = {
        {"no http", ERROR_UNAVAILABLE}, {"long head", ERROR_UNAVAILABLE},
        {"refused", ERROR_CONFLICT},    {"reason", ERROR_UNAVAILABLE},
        {"garbage", ERROR_UNAVAILABLE}, {"huge frame", ERROR_UNAVAILABLE},
    };
    struct provider_event event;
    auto_buf struct buf out, errors;

    buf_init(&out, 4096);
    buf_init(&errors, 4096);
    open_with("");
    CHECK_INT(run(NULL, &out, &errors, &event), 0);
    CHECK_STR(buf_str(&out), "earlylate");
    CHECK_STR(buf_str(&errors), "E");
    CHECK_INT(event.exit_code, 137);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        CHECK_INT(run(bad[i].how, &out, &errors, &event), -1);
        if (err.code != bad[i].code)
            test_fail(__FILE__, __LINE__, "%s: %s %s", bad[i].how, error_code_name(err.code),
                      err.message);
    }
    CHECK_INT(run("reason", &out, &errors, &event), -1);
    CHECK(strstr(err.message, "no shell"));
    /* Ended within a frame: the daemon says that the process is over, so it is. */
    buf_clear(&out);
    CHECK_INT(run("cut", &out, &errors, &event), 0);
    CHECK_STR(buf_str(&out), "earlyhalf");
    far_end();
}

static int no_bytes(void *arg, struct str data)
{
    (void)arg;
    (void)data;
    return 0;
}

TEST(docker_stat_is_hostile)
{
    open_with("");
    CHECK_INT(provider_read(provider, &ref, "/missing", no_bytes, NULL, &err), -1);
    CHECK_INT(err.code, ERROR_NOT_FOUND);
    CHECK_INT(provider_read(provider, &ref, "/link", no_bytes, NULL, &err), -1); /* to itself */
    CHECK_INT(err.code, ERROR_INVALID);
    CHECK_INT(provider_read(provider, &ref, "/x", no_bytes, NULL, &err), -1); /* no tar follows */
    CHECK_INT(err.code, ERROR_UNAVAILABLE);
    fake.stream = "bad stat";
    CHECK_INT(provider_read(provider, &ref, "/x", no_bytes, NULL, &err), -1);
    CHECK_INT(err.code, ERROR_UNAVAILABLE);
    CHECK_INT(provider_remove(provider, &ref, "//", &err), -1);
    CHECK_INT(err.code, ERROR_INVALID);
    far_end();
}

enum { TAR_BLOCK = 512 };

struct tar_head {
    char name[100], mode[8], uid[8], gid[8], size[12], mtime[12], sum[8], type, link[100], magic[8],
        rest[247];
};

/* One entry with as much content as is given, whatever its head says, and the end of a tar. */
static void make_tar(struct buf *out, char type, const char *size, const char *content)
{
    struct tar_head head = {.name = "../../../etc/passwd",
                            .mode = "0000644",
                            .uid = "0000000",
                            .gid = "0000000",
                            .mtime = "00000000000",
                            .type = type,
                            .link = "/etc/shadow",
                            .magic = {'u', 's', 't', 'a', 'r', 0, '0', '0'}};
    static const char zeros[3 * TAR_BLOCK];
    size_t len = strlen(content);
    unsigned sum = 0;

    static_assert(sizeof(head) == TAR_BLOCK, "a block");
    memcpy(head.size, size, strlen(size) < 12 ? strlen(size) : 12);
    memset(head.sum, ' ', sizeof(head.sum));
    for (size_t i = 0; i < sizeof(head); i++)
        sum += ((const unsigned char *)&head)[i];
    (void)snprintf(head.sum, sizeof(head.sum), "%06o", sum);
    buf_clear(out);
    CHECK(buf_add(out, &head, sizeof(head)) && buf_add(out, content, len));
    CHECK(buf_add(out, zeros, (TAR_BLOCK - len % TAR_BLOCK) % TAR_BLOCK + 2 * TAR_BLOCK));
}

static int count_bytes(void *arg, struct str data)
{
    *(size_t *)arg += data.len;
    return 0;
}

/* Whoever is root in the container, or runs the daemon, chooses what comes: nothing of it is unpacked. */
TEST(docker_archives_are_hostile)
{
    static const struct {
        char type;
        const char *size, *content;
        enum error_code code;
        size_t bytes;
    } cases[] = {
        {'0', "00000000003", "abc", ERROR_NONE, 3},        /* its name goes nowhere */
        {'2', "00000000000", "", ERROR_INVALID, 0},        /* a link */
        {'1', "00000000000", "", ERROR_INVALID, 0},        /* another name of a file */
        {'3', "00000000000", "", ERROR_INVALID, 0},        /* a device */
        {'5', "00000000000", "", ERROR_INVALID, 0},        /* a directory */
        {'6', "00000000000", "", ERROR_INVALID, 0},        /* a pipe */
        {'0', "00000100000", "abc", ERROR_UNAVAILABLE, 0}, /* less than it says */
        {'0', "\377\377\377\377\377\377\377\377\377\377\377\377", "abc", ERROR_UNAVAILABLE, 0},
        {'x', "77777777777", "30 path=x", ERROR_UNAVAILABLE, 0}, /* names of 8 GB */
        {'L', "77777777777", "x", ERROR_UNAVAILABLE, 0},
    };
    auto_buf struct buf tar = {0};

    buf_init(&tar, 8 * TAR_BLOCK);
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        size_t bytes = 0;
        int r;

        make_tar(&tar, cases[i].type, cases[i].size, cases[i].content);
        fake.tar = buf_str(&tar);
        open_with("");
        err = (struct error){0};
        r = provider_read(provider, &ref, "/x", count_bytes, &bytes, &err);
        if ((r == 0) != (cases[i].code == ERROR_NONE) || err.code != cases[i].code)
            test_fail(__FILE__, __LINE__, "case %zu: %d, %s", i, (int)err.code, err.message);
        if (r == 0)
            CHECK_INT(bytes, cases[i].bytes);
        far_end();
    }
    fake.tar = STR_NONE;
}

TEST(docker_misbehaviour)
{
    static const struct {
        const char *mode;
        enum error_code code;
    } cases[] = {
        {"500", ERROR_UNAVAILABLE},     {"429", ERROR_QUOTA},          {"space", ERROR_NO_SPACE},
        {"garbage", ERROR_UNAVAILABLE}, {"bad id", ERROR_UNAVAILABLE}, {"half", ERROR_UNAVAILABLE},
    };
    struct provider_spec spec = {.egress = EGRESS_ALLOW_ALL};
    struct provider_ref evil = {.id = STR("../../images/x")};
    struct provider_sandbox machine;

    open_with("");
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        misbehaviour = cases[i].mode;
        CHECK_INT(provider_create(provider, &spec, &arena, &machine, &err), -1);
        if (err.code != cases[i].code)
            test_fail(__FILE__, __LINE__, "%s: %s %s", cases[i].mode, error_code_name(err.code),
                      err.message);
    }
    misbehaviour = NULL;
    CHECK_INT(provider_get(provider, &evil, &arena, &machine, &err), -1);
    CHECK_INT(err.code, ERROR_NOT_FOUND);
    CHECK_INT(provider_kill(provider, &evil, &err), 0);
    saw_not("images/x");
    fetch_rig_free(rig);
    rig = NULL;
    (void)unlink(socket_path);
    CHECK_INT(provider_get(provider, &ref, &arena, &machine, &err), -1);
    CHECK_INT(err.code, ERROR_UNAVAILABLE);
    far_end();
}

TEST(docker_settings)
{
    static const struct {
        const char *url, *options;
        bool good;
    } cases[] = {
        {"", "{}", true},
        {"unix:///run/d.sock", "{}", true},
        {"tcp://127.0.0.1:2375", "{}", true},
        {"tcp://127.0.0.1", "{}", false},
        {"https://h:2376", "{}", false},
        {"unix://relative", "{}", false},
        {"", "{\"pause\":\"freeze\",\"pull\":\"missing\"}", true},
        {"", "{\"pause\":\"sleep\"}", false},
        {"", "{\"pids_limit\":1}", false},
        {"", "{\"cap_drop\":[1]}", false},
        {"", "{\"allow_mounts\":\"yes\"}", false},
        {"", "{\"no_new_privileges\":0}", false},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        auto_json json_t *options = json_loads(cases[i].options, 0, NULL);
        struct provider_config config = {
            .name = "x", .type = "docker", .api_url = cases[i].url, .options = options};

        if ((provider_new(&config, &provider, &err) == 0) != cases[i].good)
            test_fail(__FILE__, __LINE__, "%s %s", cases[i].url, cases[i].options);
        provider_free(provider);
        provider = NULL;
    }
}
