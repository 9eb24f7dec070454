#include "envd/test/live_rig.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "base/cleanup.h"
#include "base/encode.h"
#include "base/fd.h"
#include "base/path.h"
#include "base/test.h"
#include "protocol/json/json_shape.h"
#include "protocol/rpc/connect.h"

enum { ANSWER_MAX = 64 * 1024 * 1024 };

static void address_of(const struct live *live, struct sockaddr_un *out)
{
    *out = (struct sockaddr_un){.sun_family = AF_UNIX};
    CHECK(str_copy(str_of(live->socket), out->sun_path, sizeof(out->sun_path)));
}

static void run_envd(const char *program, int listen_fd)
{
    char *argv[] = {(char *)(uintptr_t) "envd", (char *)(uintptr_t) "--listen-fd",
                    (char *)(uintptr_t) "3", NULL};
    char *envp[] = {NULL};

    /* A failed test must not leave it behind. */
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (listen_fd == 3)
        (void)fcntl(3, F_SETFD, 0);
    else if (dup2(listen_fd, 3) < 0)
        _exit(126);
    if (chdir("/") != 0)
        _exit(126);
    (void)execve(program, argv, envp);
    _exit(127);
}

void live_start(struct live *live)
{
    const char *program = getenv("ENVD");
    struct sockaddr_un address;
    auto_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (!program)
        test_lacks("ENVD does not name envd's binary");
    test_needs_root();
    (void)snprintf(live->dir, sizeof(live->dir), "/tmp/envd-live-XXXXXX");
    CHECK(mkdtemp(live->dir));
    (void)snprintf(live->socket, sizeof(live->socket), "%s/.socket", live->dir);
    address_of(live, &address);
    CHECK_INT(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    CHECK_INT(listen(fd, 16), 0);
    live->pid = fork();
    CHECK(live->pid >= 0);
    if (live->pid == 0)
        run_envd(program, fd);
}

void live_own_mounts(void)
{
    if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0)
        test_lacks("cannot have mounts of its own");
}

void live_stop(struct live *live)
{
    int status;

    /* It must still be there: nothing a test does may end it. */
    CHECK_INT(waitpid(live->pid, &status, WNOHANG), 0);
    CHECK_INT(kill(live->pid, SIGKILL), 0);
    CHECK_INT(waitpid(live->pid, &status, 0), live->pid);
    CHECK_INT(path_remove_tree(AT_FDCWD, live->dir), 0);
}

/* HTTP/1.0, so that answers end with the connection and need no framing. */
static int send_request(const struct live *live, const char *head, struct str body)
{
    struct sockaddr_un address;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    address_of(live, &address);
    CHECK_INT(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    CHECK_INT(fd_write_full(fd, head, strlen(head)), 0);
    CHECK_INT(fd_write_full(fd, body.p, body.len), 0);
    return fd;
}

static int request(const struct live *live, const char *method, const char *target,
                   const char *headers, struct str body)
{
    char head[2048];

    CHECK(snprintf(head, sizeof(head),
                   "%s %s HTTP/1.0\r\nHost: envd\r\nContent-Length: %zu\r\n%s\r\n", method, target,
                   body.len, headers ? headers : "") < (int)sizeof(head));
    return send_request(live, head, body);
}

static bool read_more(int fd, struct buf *out)
{
    ssize_t n = read(fd, buf_reserve(out, 65536), 65536);

    CHECK(n >= 0);
    buf_grew(out, (size_t)n);
    return n > 0;
}

static char last_head[8192];

const char *live_header(const char *name)
{
    static char value[1024];
    struct str rest = str_of(last_head);

    while (rest.p) {
        struct str line = str_split(&rest, '\n');

        if (str_eq_nocase(str_split(&line, ':'), str_of(name))) {
            CHECK(str_copy(str_trim(line), value, sizeof(value)));
            return value;
        }
    }
    return NULL;
}

/* Drops the head from bytes; returns the status or -1 when it is not complete. */
static int take_head(struct buf *bytes)
{
    ptrdiff_t end = str_find_str(buf_str(bytes), STR("\r\n\r\n"));
    struct str line = buf_str(bytes);
    int64_t status;

    if (end < 0)
        return -1;
    (void)str_split(&line, ' ');
    CHECK(str_to_i64(str_split(&line, ' '), &status));
    CHECK(str_copy(str_n(bytes->p, (size_t)end), last_head, sizeof(last_head)));
    buf_drop(bytes, (size_t)end + 4);
    return (int)status;
}

char *live_in(const struct live *live, const char *name)
{
    static char paths[4][256];
    static int next;
    char *path = paths[next++ % 4];

    (void)snprintf(path, sizeof(paths[0]), "%s/%s", live->dir, name);
    return path;
}

int live_call(const struct live *live, const char *method, const char *target, const char *headers,
              struct str body, struct buf *out)
{
    auto_close int fd = request(live, method, target, headers, body);
    int status;

    buf_done(out);
    buf_init(out, ANSWER_MAX);
    while (read_more(fd, out))
        continue;
    status = take_head(out);
    CHECK(status > 0);
    return status;
}

int live_rpc(const struct live *live, const char *name, const char *json, struct buf *out)
{
    return live_call(live, "POST", name, "Content-Type: application/json\r\n", str_of(json), out);
}

void live_stream_open(struct live_stream *stream, const struct live *live, const char *name,
                      const char *json, const char *headers)
{
    auto_buf struct buf body = {0};
    char all[1024];
    int status;

    *stream = (struct live_stream){0};
    buf_init(&stream->bytes, ANSWER_MAX);
    buf_init(&stream->message, ANSWER_MAX);
    buf_init(&stream->out, ANSWER_MAX);
    buf_init(&stream->err, ANSWER_MAX);
    buf_init(&body, ANSWER_MAX);
    connect_add(&body, 0, str_of(json));
    (void)snprintf(all, sizeof(all), "Content-Type: application/connect+json\r\n%s",
                   headers ? headers : "");
    stream->fd = request(live, "POST", name, all, buf_str(&body));
    while ((status = take_head(&stream->bytes)) < 0)
        CHECK(read_more(stream->fd, &stream->bytes));
    CHECK_INT(status, 200);
}

static void take_event(struct live_stream *stream, struct str message)
{
    auto_json json_t *json = NULL;
    const json_t *event, *data;
    struct error err = {0};

    CHECK_INT(json_parse(message, &json, &err), 0);
    event = json_object_get(json, "event");
    if ((data = json_object_get(event, "start")))
        stream->started_pid = (int)json_integer_value(json_object_get(data, "pid"));
    if ((data = json_object_get(event, "data"))) {
        struct str out = json_get_str(data, "stdout");

        if (!out.p)
            out = json_get_str(data, "pty");
        if (out.p)
            CHECK(base64_decode(out, &stream->out));
        if (json_get_str(data, "stderr").p)
            CHECK(base64_decode(json_get_str(data, "stderr"), &stream->err));
    }
    if ((data = json_object_get(event, "end"))) {
        auto_free char *text = json_text(data);

        CHECK(str_copy(str_of(text), stream->end, sizeof(stream->end)));
    }
}

bool live_stream_next(struct live_stream *stream)
{
    const unsigned char *p;
    size_t len;

    for (;;) {
        p = (const unsigned char *)stream->bytes.p;
        len = stream->bytes.len < 5 ? SIZE_MAX
                                    : (size_t)p[1] << 24 | (size_t)p[2] << 16 | p[3] << 8 | p[4];
        if (len != SIZE_MAX && stream->bytes.len >= 5 + len)
            break;
        if (!read_more(stream->fd, &stream->bytes)) {
            CHECK_INT(stream->bytes.len, 0);
            return false;
        }
    }
    if (p[0] == CONNECT_END) {
        stream->ended = true;
        CHECK(str_copy(str_n(p + 5, len), stream->last, sizeof(stream->last)));
    } else {
        CHECK(!stream->ended);
        buf_clear(&stream->message);
        buf_add(&stream->message, p + 5, len);
        take_event(stream, str_n(p + 5, len));
    }
    buf_drop(&stream->bytes, 5 + len);
    return true;
}

void live_stream_started(struct live_stream *stream)
{
    while (stream->started_pid == 0)
        CHECK(live_stream_next(stream));
}

void live_stream_finish(struct live_stream *stream)
{
    while (live_stream_next(stream))
        continue;
    CHECK(stream->ended);
}

void live_stream_close(struct live_stream *stream)
{
    close_fd(&stream->fd);
    buf_done(&stream->bytes);
    buf_done(&stream->message);
    buf_done(&stream->out);
    buf_done(&stream->err);
}

void live_run(struct live_stream *stream, const struct live *live, const char *json,
              const char *headers)
{
    live_stream_open(stream, live, "/process.Process/Start", json, headers);
    live_stream_finish(stream);
}
