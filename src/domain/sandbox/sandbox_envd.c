/* Talking to envd inside a box, over its Unix socket. The socket listens before envd's
 * program runs, so a connection is possible at once and the first request simply waits. What comes
 * back is from inside the sandbox: bounded in size and time, and only its status is looked at. */
#include <errno.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "domain/sandbox/sandbox_internal.h"
#include "protocol/http/http_call.h"
#include "protocol/http/http_dial.h"

enum {
    ENVD_TIMEOUT_MS = 20 * 1000,
    CONNECT_TIMEOUT_MS = 5 * 1000,
    RESPONSE_MAX = 16 * 1024,
    JOURNAL_TIMEOUT_MS = 2000,
    JOURNAL_MAX = 256 * 1024,
    INIT_BODY_MAX = 512 * 1024, /* JSON may write a byte of the variables as six */
};

static int envd_connect(const char *run_dir, const char *id, uint32_t timeout_ms, struct error *err)
{
    char path[ENGINE_SOCKET_PATH_SIZE];
    int fd;

    if (engine_socket_path(run_dir, id, path) < 0)
        return error_set(err, ERROR_INTERNAL, "run folder '%s' has too long a name", run_dir);
    fd = http_dial_unix(path, clock_mono_ms() + timeout_ms, err);
    return fd < 0 ? error_prefix(err, "envd does not take connections") : fd;
}

static int envd_call(int fd, const char *method, const char *target, struct str body,
                     struct error *err)
{
    const struct http_header json_type = {STR("Content-Type"), STR("application/json")};
    const struct http_call_request request = {
        .method = method,
        .target = target,
        .headers = &json_type,
        .header_count = body.len ? 1 : 0,
        .body = body,
    };
    auto_buf struct buf response = {0};
    int status = 0;

    if (http_call_whole(fd, &request, ENVD_TIMEOUT_MS, RESPONSE_MAX, &status, &response, err) < 0)
        return error_prefix(err, "envd %s", target);
    if (status < 200 || status > 299)
        return error_set(err, ERROR_INTERNAL, "envd %s answered %d", target, status);
    return 0;
}

int envd_ready(const char *run_dir, const char *id, int *out_fd, struct error *err)
{
    auto_close int fd = envd_connect(run_dir, id, CONNECT_TIMEOUT_MS, err);

    if (fd < 0 || envd_call(fd, "GET", "/health", STR_NONE, err) < 0)
        return -1;
    *out_fd = take_fd(&fd);
    return 0;
}

int envd_journal(const char *run_dir, const char *id, struct str token, struct buf *out,
                 struct error *err)
{
    const struct http_header header = {STR("X-Access-Token"), token};
    auto_close int fd = envd_connect(run_dir, id, JOURNAL_TIMEOUT_MS, err);
    const struct http_call_request request = {
        .method = "GET",
        .target = "/journal",
        .headers = &header,
        .header_count = token.len ? 1 : 0,
    };
    int status = 0;

    buf_init(out, JOURNAL_MAX);
    if (fd < 0 ||
        http_call_whole(fd, &request, JOURNAL_TIMEOUT_MS, JOURNAL_MAX, &status, out, err) < 0)
        return -1;
    return status == 200 ? 0 : error_set(err, ERROR_UNAVAILABLE, "envd has no journal");
}

bool envd_ask(const char *run_dir, const char *id, const char *target)
{
    struct error ignored = {0};
    auto_close int fd = envd_connect(run_dir, id, CONNECT_TIMEOUT_MS, &ignored);

    return fd >= 0 && envd_call(fd, "GET", target, STR_NONE, &ignored) == 0;
}

int envd_init_body(const char *env, const char *access_token, struct str template_id,
                   int64_t life_s, int64_t disk_mb, struct buf *out, struct error *err)
{
    char now[CLOCK_TEXT_SIZE];

    clock_format(clock_wall_us(), now);
    buf_init(out, INIT_BODY_MAX);
    (void)buf_printf(out,
                     "{\"envVars\":%s,\"timestamp\":\"%s\",\"lifeSeconds\":%lld,\"diskMB\":%lld",
                     env, now, (long long)life_s, (long long)disk_mb);
    if (access_token[0])
        (void)buf_printf(out, ",\"accessToken\":\"%s\"", access_token);
    /* No working directory: that of a program is its user's home. */
    (void)buf_printf(out, ",\"templateID\":\"%.*s\",\"defaultUser\":\"user\"}",
                     STR_ARG(template_id));
    if (out->overflowed)
        return error_set(err, ERROR_INVALID, "envVars is too large");
    return 0;
}

int envd_init(const char *run_dir, const char *id, int kept_fd, struct str body, struct error *err)
{
    auto_close int fd = -1;
    auto_buf struct buf whole = {0};

    /* The body is made before a box is chosen; its id is put in front of the other members. */
    buf_init(&whole, body.len + 64);
    (void)buf_printf(&whole, "{\"sandboxID\":\"%s\",%.*s", id, STR_ARG(str_skip(body, 1)));
    body = buf_str(&whole);
    /* envd may have closed a connection that was idle for long. Telling it twice what it is
     * does no harm. */
    if (kept_fd >= 0) {
        if (envd_call(kept_fd, "POST", "/init", body, err) == 0)
            return 0;
        if (err->code == ERROR_TIMEOUT)
            return -1;
    }
    fd = envd_connect(run_dir, id, CONNECT_TIMEOUT_MS, err);
    if (fd < 0)
        return -1;
    return envd_call(fd, "POST", "/init", body, err);
}

/* Neither connecting nor sending waits for envd: the socket's backlog and buffer take both, and
 * nobody reads an answer. So this is cheap, and no sandbox can hold it up. */
int envd_lease(const char *run_dir, const char *id, int64_t seconds, int64_t revision,
               struct error *err)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    auto_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    char body[96], text[256];
    int len = snprintf(body, sizeof(body), "{\"seconds\":%lld,\"revision\":%lld}",
                       (long long)seconds, (long long)revision);

    len = snprintf(text, sizeof(text),
                   "POST /init/lease HTTP/1.1\r\nHost: envd\r\nContent-Type: application/json\r\n"
                   "Connection: close\r\nContent-Length: %d\r\n\r\n%s",
                   len, body);
    if (fd < 0 || engine_socket_path(run_dir, id, addr.sun_path) < 0 ||
        connect(fd, (const struct sockaddr *)&addr, sizeof(addr)) < 0 ||
        send(fd, text, (size_t)len, MSG_NOSIGNAL) != len)
        return error_set_errno(err, errno, "tell envd its time");
    return 0;
}
