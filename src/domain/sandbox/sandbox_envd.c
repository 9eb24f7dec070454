/* Talking to envd inside a box, over a connection that the engine makes. Its socket listens before envd's
 * program runs, so a connection is possible at once and the first request simply waits. What comes
 * back is from inside the sandbox: bounded in size and time, and only its status is looked at. */
#include <errno.h>
#include <poll.h>
#include <sys/socket.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "domain/network/egress_authority.h"
#include "domain/sandbox/sandbox_envd.h"
#include "domain/sandbox/sandbox_internal.h"
#include "protocol/json/json_out.h"

enum {
    ENVD_TIMEOUT_MS = 20 * 1000,
    CONNECT_TIMEOUT_MS = 5 * 1000,
    RETRY_MS = 5,
    RESPONSE_MAX = 16 * 1024,
    JOURNAL_TIMEOUT_MS = 2000,
    JOURNAL_MAX = 256 * 1024,
    INIT_BODY_MAX = 512 * 1024, /* JSON may write a byte of the variables as six */
};

int envd_connect(struct engine *engine, const char *id, uint32_t timeout_ms, struct error *err)
{
    int64_t deadline_ms = clock_mono_ms() + timeout_ms;
    int fd;

    /* It has too many to take: there is nothing to poll for. */
    while ((fd = engine->ops->connect_envd(engine, id)) == -EAGAIN &&
           clock_mono_ms() + RETRY_MS < deadline_ms)
        (void)poll(NULL, 0, RETRY_MS);
    if (fd >= 0)
        return fd;
    (void)error_set_errno(err, -fd, "envd does not take connections");
    err->code = fd == -EAGAIN ? ERROR_TIMEOUT : ERROR_UNAVAILABLE;
    return -1;
}

static int find_envd(void *arg, const char *id, char *out, size_t size)
{
    struct engine *engine = arg;

    return engine->ops->find_envd(engine, id, out, size);
}

struct fetch *envd_fetch_new(struct engine *engine)
{
    struct fetch *fetch = fetch_new();

    fetch_set_gate(fetch, &(const struct fetch_gate){.find = find_envd, .arg = engine});
    return fetch;
}

struct envd_address sandboxes_envd(const struct sandboxes *all, const char *who, const char *id,
                                   struct str token)
{
    return (struct envd_address){
        .fetch = all->fetch, .who = who, .base = "http://envd", .unix_path = id, .token = token};
}

static int start_call(struct http_call *call, const char *method, const char *target,
                      struct str body, struct error *err)
{
    const struct pair json_type = {STR("Content-Type"), STR("application/json")};
    const struct http_call_request request = {
        .method = method,
        .target = target,
        .headers = &json_type,
        .header_count = body.len ? 1 : 0,
        .body = body,
    };

    return http_call_start(call, &request, err) < 0 ? error_prefix(err, "envd %s", target) : 0;
}

static int end_call(struct http_call *call, const char *target, struct error *err)
{
    if (http_call_recv_all(call, err) < 0)
        return error_prefix(err, "envd %s", target);
    if (call->status < 200 || call->status > 299)
        return error_set(err, ERROR_INTERNAL, "envd %s answered %d", target, call->status);
    return 0;
}

static struct http_call call_on(int fd)
{
    return (struct http_call){
        .fd = fd, .deadline_ms = clock_mono_ms() + ENVD_TIMEOUT_MS, .max = RESPONSE_MAX};
}

static void leave_connection(struct http_call *call)
{
    call->fd = -1;
    http_call_done(call);
}

/* The connection stays the caller's. */
static int control_call(int fd, const char *method, const char *target, struct str body,
                        struct error *err)
{
    struct http_call call = call_on(fd);
    int r = start_call(&call, method, target, body, err);

    if (r == 0)
        r = end_call(&call, target, err);
    leave_connection(&call);
    return r;
}

int envd_ready(struct engine *engine, const char *id, int *out_fd, struct error *err)
{
    auto_close int fd = envd_connect(engine, id, CONNECT_TIMEOUT_MS, err);

    if (fd < 0 || control_call(fd, "GET", "/health", STR_NONE, err) < 0)
        return -1;
    *out_fd = take_fd(&fd);
    return 0;
}

int envd_journal(struct engine *engine, const char *id, struct str token, struct buf *out,
                 struct error *err)
{
    const struct pair header = {STR("X-Access-Token"), token};
    auto_close int fd = envd_connect(engine, id, JOURNAL_TIMEOUT_MS, err);
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

bool envd_ask(struct engine *engine, const char *id, const char *target)
{
    struct error ignored = {0};
    auto_close int fd = envd_connect(engine, id, CONNECT_TIMEOUT_MS, &ignored);

    return fd >= 0 && control_call(fd, "GET", target, STR_NONE, &ignored) == 0;
}

static void add_authority(struct buf *out, const struct egress_authority *authority)
{
    if (!authority)
        return;
    json_out_str(out, "caBundle", buf_str(&authority->certificate));
    json_out_str(out, "caHash", str_of(authority->hash));
}

int envd_trust(struct engine *engine, const char *id, const struct egress_authority *authority,
               struct error *err)
{
    auto_buf struct buf body = {0};
    int fd;

    buf_init(&body, INIT_BODY_MAX);
    json_out_open(&body, NULL, '{');
    json_out_null(&body, "timestamp");
    add_authority(&body, authority);
    json_out_close(&body, "}");
    fd = envd_connect(engine, id, CONNECT_TIMEOUT_MS, err);
    if (fd < 0)
        return -1;
    return control_call(fd, "POST", "/init/authority", buf_str(&body), err);
}

int envd_init_body(const struct envd_facts *facts, struct buf *out, struct error *err)
{
    const struct setup *setup = facts->setup;
    char now[CLOCK_TEXT_SIZE];

    clock_format(clock_wall_us(), now);
    buf_init(out, INIT_BODY_MAX);
    json_out_open(out, NULL, '{');
    json_out_raw(out, "envVars", str_of(facts->env));
    json_out_str(out, "timestamp", str_of(now));
    json_out_int(out, "lifeSeconds", facts->life_s);
    json_out_int(out, "diskMB", facts->disk_mb);
    if (facts->access_token[0])
        json_out_str(out, "accessToken", str_of(facts->access_token));
    json_out_str(out, "templateID", facts->template_id);
    json_out_str(out, "defaultUser", setup->user.len ? setup->user : STR("user"));
    /* Without one, that of a program is its user's home. */
    if (setup->workdir.len)
        json_out_str(out, "defaultWorkdir", setup->workdir);
    add_authority(out, facts->authority);
    json_out_close(out, "}");
    if (out->overflowed)
        return error_set(err, ERROR_INVALID, "envVars is too large");
    return 0;
}

void envd_init_begin(struct envd_init *init, const char *id, int kept_fd, struct str body)
{
    /* The body is made before a box is chosen; its id is put in front of the other members. */
    buf_init(&init->body, body.len + 64);
    json_out_open(&init->body, NULL, '{');
    json_out_str(&init->body, "sandboxID", str_of(id));
    json_out_members(&init->body, body);
    json_out_close(&init->body, "}");
    if (kept_fd < 0)
        return;
    init->call = call_on(kept_fd);
    init->kept = true;
    init->failed = start_call(&init->call, "POST", "/init", buf_str(&init->body), &init->why) < 0;
}

int envd_init_end(struct envd_init *init, struct engine *engine, const char *id, struct error *err)
{
    auto_close int fd = -1;

    /* envd may have closed a connection that was idle for long. Telling it twice what it is
     * does no harm. */
    if (init->kept) {
        *err = init->why;
        init->call.deadline_ms = clock_mono_ms() + ENVD_TIMEOUT_MS;
        if (!init->failed && end_call(&init->call, "/init", err) == 0)
            return 0;
        if (err->code == ERROR_TIMEOUT)
            return -1;
    }
    fd = envd_connect(engine, id, CONNECT_TIMEOUT_MS, err);
    if (fd < 0)
        return -1;
    return control_call(fd, "POST", "/init", buf_str(&init->body), err);
}

void envd_init_done(struct envd_init *init)
{
    leave_connection(&init->call);
    buf_done(&init->body);
}

int envd_init(struct engine *engine, const char *id, int kept_fd, struct str body,
              struct error *err)
{
    auto_envd_init struct envd_init init = {0};

    envd_init_begin(&init, id, kept_fd, body);
    return envd_init_end(&init, engine, id, err);
}

/* Neither connecting nor sending waits for envd: the socket's backlog and buffer take both, and
 * nobody reads an answer. So this is cheap, and no sandbox can hold it up. */
int envd_lease(struct engine *engine, const char *id, int64_t seconds, int64_t revision,
               struct error *err)
{
    auto_close int fd = engine->ops->connect_envd(engine, id);
    auto_buf struct buf body = {0};
    char text[256];
    int len;

    buf_init(&body, 96);
    json_out_open(&body, NULL, '{');
    json_out_int(&body, "seconds", seconds);
    json_out_int(&body, "revision", revision);
    json_out_close(&body, "}");
    len = snprintf(text, sizeof(text),
                   "POST /init/lease HTTP/1.1\r\nHost: envd\r\nContent-Type: application/json\r\n"
                   "Connection: close\r\nContent-Length: %zu\r\n\r\n%s",
                   body.len, body.p);
    if (fd < 0 || send(fd, text, (size_t)len, MSG_NOSIGNAL) != len)
        return error_set_errno(err, fd < 0 ? -fd : errno, "tell envd its time");
    return 0;
}
