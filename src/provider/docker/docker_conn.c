/* A connection of our own to the daemon: one request, and then the socket is the caller's. Attached
 * processes need it (the daemon takes the connection over for raw bytes), and so does the one answer
 * that is told in a header. */
#include "provider/docker/docker.h"

#include <string.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "protocol/http/http_dial.h"
#include "protocol/json/json_shape.h"

enum { CONNECT_MS = 10000, HEAD_MS = 60000, REFUSAL_MS = 2000 };

static int conn_open(struct docker *docker, struct error *err)
{
    int64_t deadline_ms = clock_mono_ms() + CONNECT_MS;
    int fd = docker->unix_path ? http_dial_unix(docker->unix_path, deadline_ms, err)
                               : http_dial_host(docker->host, docker->port, deadline_ms, err);

    if (fd < 0) {
        err->code = ERROR_UNAVAILABLE;
        return error_prefix(err, "no connection to %s",
                            docker->unix_path ? docker->unix_path : docker->host);
    }
    return fd;
}

int docker_conn_request(struct docker *docker, const char *method, const char *path,
                        const json_t *body, struct http_call *out, struct error *err)
{
    static const struct pair headers[] = {
        {{"Upgrade", 7}, {"tcp", 3}},
        {{"Content-Type", 12}, {"application/json", 16}},
    };
    auto_free char *text = body ? json_text(body) : NULL, *target = NULL;
    struct http_call_request request = {
        .method = method,
        .host = "docker",
        .headers = headers,
        .header_count = body ? 2 : 0,
        .body = str_of(text),
        .after = body ? HTTP_AFTER_UPGRADE : HTTP_AFTER_CLOSE,
    };
    char version[16];

    *out = (struct http_call){.fd = -1, .max = DOCKER_CONN_MAX};
    if (docker_version(docker, 0, version, err) < 0)
        return -1;
    request.target = target = xasprintf("/%s%s", version, path);
    out->fd = conn_open(docker, err);
    out->deadline_ms = clock_mono_ms() + HEAD_MS;
    if (out->fd < 0 || http_call_start(out, &request, err) < 0 || http_call_recv_head(out, err) < 0)
        return error_prefix(err, "%s", docker->who);
    return 0;
}

int docker_conn_refused(struct docker *docker, const char *method, struct http_call *call,
                        struct error *err)
{
    struct error ignored;

    call->deadline_ms = clock_mono_ms() + REFUSAL_MS;
    (void)http_call_recv_all(call, &ignored);
    return rest_refused(docker->who, method, call->status, -1, buf_str(&call->body), err);
}
