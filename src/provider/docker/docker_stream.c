/* A process in a container: made by one request, started by another whose connection then carries
 * its bytes, and asked for its exit code by a third. */
#include "provider/docker/docker.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "protocol/json/json_shape.h"

enum { READ_SIZE = 64 * 1024, EXEC_MS = 60000 };

static json_t *argv_json(const char *const *argv)
{
    json_t *list = json_array();

    for (; *argv; argv++)
        (void)json_array_append_new(list, json_str(str_of(*argv)));
    return list;
}

static int create_exec(struct docker *docker, struct str container, const struct docker_exec *exec,
                       char *out_id, size_t size, struct error *err)
{
    auto_buf struct buf path;
    auto_json json_t *answer = NULL;
    auto_json json_t *body =
        json_pack("{s:b, s:b, s:b, s:b, s:o}", "AttachStdin", exec->stdin_open, "AttachStdout", 1,
                  "AttachStderr", 1, "Tty", exec->tty, "Cmd", argv_json(exec->argv));
    struct rest_request request = {.method = "POST", .body = body, .timeout_ms = EXEC_MS};
    struct str id;

    if (exec->env)
        (void)json_object_set(body, "Env", exec->env);
    if (exec->user && exec->user[0])
        (void)json_object_set_new(body, "User", json_str(str_of(exec->user)));
    docker_path(&path, container, "/exec");
    request.path = path.p;
    if (docker_call(docker, &request, &answer, err) < 0)
        return -1;
    id = json_get_str(answer, "Id");
    if (!rest_id_valid(id) || !str_copy(id, out_id, size))
        return error_set(err, ERROR_UNAVAILABLE, "%s: a process without an id", docker->who);
    return 0;
}

int docker_stream_open(struct docker *docker, struct str container, const struct docker_exec *exec,
                       struct docker_stream *out, struct error *err)
{
    auto_call struct http_call call = {.fd = -1};
    char path[192];
    auto_json json_t *body = json_pack("{s:b, s:b}", "Detach", 0, "Tty", exec->tty);

    *out = (struct docker_stream){.docker = docker, .fd = -1, .tty = exec->tty};
    buf_init(&out->in, READ_SIZE + DOCKER_CONN_MAX);
    if (create_exec(docker, container, exec, out->exec_id, sizeof(out->exec_id), err) < 0)
        return -1;
    (void)snprintf(path, sizeof(path), "/exec/%s/start", out->exec_id);
    if (docker_conn_request(docker, "POST", path, body, &call, err) < 0)
        return -1;
    if (call.status != 101 && call.status != 200)
        return docker_conn_refused(docker, "POST", &call, err);
    (void)buf_add_str(&out->in, buf_str(&call.body));
    out->fd = take_fd(&call.fd);
    return 0;
}

void docker_stream_close(struct docker_stream *stream)
{
    if (stream->docker)
        close_fd(&stream->fd);
    buf_done(&stream->in);
}

/* What is in the buffer already: 1, 0 or -1. */
static int take_piece(struct docker_stream *stream, enum docker_stream_kind *out_kind,
                      struct str *out, struct error *err)
{
    struct str in = str_skip(buf_str(&stream->in), stream->at);
    int got;

    if (in.len == 0)
        return 0;
    if (stream->tty) {
        *out_kind = DOCKER_STDOUT;
        *out = in;
        stream->at = stream->in.len;
        return 1;
    }
    got = docker_frame_next(&stream->frame, &in, out_kind, out);
    stream->at = stream->in.len - in.len;
    if (got < 0)
        return error_set(err, ERROR_UNAVAILABLE, "%s: garbage in a process's stream",
                         stream->docker->who);
    return got;
}

/* 1: bytes or the end; 0: nothing came. */
static int fill(struct docker_stream *stream, int wake_fd, uint32_t timeout_ms, struct error *err)
{
    struct pollfd pfds[2] = {{.fd = stream->fd, .events = POLLIN},
                             {.fd = wake_fd, .events = POLLIN}};
    int64_t deadline = clock_mono_ms() + timeout_ms;
    char *p;
    ssize_t n;

    for (;;) {
        int64_t left = deadline - clock_mono_ms();
        int got = poll(pfds, 2, left > 0 ? (int)left : 0);

        if (got == 0 || (got > 0 && pfds[1].revents))
            return 0;
        if (got < 0 && errno != EINTR)
            return error_set_errno(err, errno, "poll");
        if (got < 0)
            continue;
        buf_clear(&stream->in);
        stream->at = 0;
        p = buf_reserve(&stream->in, READ_SIZE);
        if (!p)
            return error_set(err, ERROR_INTERNAL, "%s: no room", stream->docker->who);
        n = recv(stream->fd, p, READ_SIZE, 0);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            continue;
        if (n < 0)
            return error_set(err, ERROR_UNAVAILABLE, "%s: a process's stream broke: %s",
                             stream->docker->who, strerror(errno));
        buf_grew(&stream->in, (size_t)n);
        stream->ended = n == 0;
        return 1;
    }
}

int docker_stream_read(struct docker_stream *stream, int wake_fd, uint32_t timeout_ms,
                       enum docker_stream_kind *out_kind, struct str *out, struct error *err)
{
    for (;;) {
        int got = take_piece(stream, out_kind, out, err);

        if (got != 0)
            return got;
        if (stream->ended)
            return 0;
        got = fill(stream, wake_fd, timeout_ms, err);
        if (got <= 0)
            return got;
    }
}

void docker_stream_unread(struct docker_stream *stream, size_t n)
{
    if (n == 0)
        return;
    stream->at -= n;
    if (!stream->tty) {
        stream->frame.left += (uint32_t)n;
        stream->frame.have = sizeof(stream->frame.header);
    }
}

int docker_stream_exit(struct docker_stream *stream, int *out_code, struct error *err)
{
    char path[192];
    auto_json json_t *answer = NULL;
    struct rest_request request = {.method = "GET", .path = path, .timeout_ms = EXEC_MS};
    const json_t *code;

    (void)snprintf(path, sizeof(path), "/exec/%s/json", stream->exec_id);
    if (docker_call(stream->docker, &request, &answer, err) < 0)
        return -1;
    if (json_is_true(json_object_get(answer, "Running")))
        return 0;
    code = json_object_get(answer, "ExitCode");
    if (!json_is_integer(code))
        return 0;
    *out_code = (int)(json_integer_value(code) & 0xff);
    return 1;
}

int docker_stream_wait(struct docker_stream *stream, uint32_t timeout_ms, int *out_code,
                       struct error *err)
{
    int64_t deadline = clock_mono_ms() + timeout_ms;
    int pause_ms = 2;

    for (;;) {
        int got = docker_stream_exit(stream, out_code, err);

        if (got != 0)
            return got < 0 ? -1 : 0;
        if (clock_mono_ms() >= deadline)
            return error_set(err, ERROR_TIMEOUT,
                             "%s: a process's stream has ended but the process has not",
                             stream->docker->who);
        (void)poll(NULL, 0, pause_ms);
        pause_ms = pause_ms < 200 ? pause_ms * 2 : 250;
    }
}

static int collect(struct docker_stream *stream, int64_t deadline_ms, struct buf *out,
                   struct buf *errors, struct error *err)
{
    while (!stream->ended) {
        int64_t left = deadline_ms - clock_mono_ms();
        enum docker_stream_kind kind;
        struct str piece;
        struct buf *to;
        int got;

        if (left <= 0)
            return error_set(err, ERROR_TIMEOUT, "%s: a command took too long",
                             stream->docker->who);
        got = docker_stream_read(stream, -1, (uint32_t)left, &kind, &piece, err);
        if (got < 0)
            return -1;
        if (got == 0)
            continue;
        to = kind == DOCKER_STDOUT ? out : errors;
        if (to && !buf_add_str(to, piece))
            return error_set(err, ERROR_LIMIT, "%s: a command printed more than %zu bytes",
                             stream->docker->who, to->max);
    }
    return 0;
}

int docker_run(struct docker *docker, struct str container, const struct docker_exec *exec,
               uint32_t timeout_ms, struct buf *out, struct buf *errors, int *out_code,
               struct error *err)
{
    int64_t deadline = clock_mono_ms() + timeout_ms;
    struct docker_stream stream;
    int result = docker_stream_open(docker, container, exec, &stream, err);

    if (result == 0)
        result = collect(&stream, deadline, out, errors, err);
    if (result == 0)
        result = docker_stream_wait(&stream, 10000, out_code, err);
    docker_stream_close(&stream);
    return result;
}
