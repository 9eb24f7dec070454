#include "edge/proxy/proxy_errors.h"

#include <assert.h>

#include "edge/proxy/proxy_guard.h"
#include "protocol/json/json_out.h"

static const struct {
    int status;
    bool with_port;
    const char *message;
    const char *title;
    const char *text; /* for the page */
} errors[] = {
    [PROXY_ERROR_NOT_FOUND] = {502, false, "The sandbox was not found", "Sandbox Not Found",
                               "The sandbox was not found. It may have ended."},
    [PROXY_ERROR_PAUSED] = {502, false, "The sandbox is paused", "Sandbox Is Paused",
                            "The sandbox is paused and has to be resumed first."},
    [PROXY_ERROR_PORT_CLOSED] = {502, true, "The sandbox is running but port is not open",
                                 "Closed Port",
                                 "The sandbox is running, but there is no service running on port"},
    [PROXY_ERROR_BROKEN] = {502, true, "The service in the sandbox closed the connection",
                            "Connection Closed",
                            "The service closed the connection before it answered on port"},
    [PROXY_ERROR_CUT] = {502, false, "The sandbox was paused or ended before it answered",
                         "Sandbox Stopped", "The sandbox was paused or ended before it answered."},
    [PROXY_ERROR_TOKEN_MISSING] =
        {403, false,
         "Sandbox is secured with traffic access token. Token header '" PROXY_TRAFFIC_HEADER
         "' is missing",
         "Missing Traffic Access Token",
         "The sandbox is secured: the header '" PROXY_TRAFFIC_HEADER "' is missing."},
    [PROXY_ERROR_TOKEN_INVALID] =
        {403, false,
         "Sandbox is secured with traffic access token. Provided token in header "
         "'" PROXY_TRAFFIC_HEADER "' is invalid",
         "Invalid Traffic Access Token",
         "The sandbox is secured: the token in the header '" PROXY_TRAFFIC_HEADER "' is invalid."},
    [PROXY_ERROR_CONTROL] = {404, false, "This endpoint is reserved for the E2B control plane",
                             "Not Found", "This endpoint is reserved for the E2B control plane."},
    [PROXY_ERROR_BUSY] = {503, false, "Too many connections to the sandbox are open",
                          "Too Many Connections", "Too many connections to the sandbox are open."},
    [PROXY_ERROR_SCRIPT] = {403, false,
                            "Nothing in a sandbox is a script of this host; use the sandbox's own",
                            "Not A Script", "Nothing in a sandbox is a script of this host."},
    [PROXY_ERROR_RAW] = {401, true,
                         "A raw connection needs the sandbox's access token in the header "
                         "'X-Access-Token', or as the password of 'Proxy-Authorization'",
                         "Missing Access Token",
                         "A raw connection needs the sandbox's access token. This was for port"},
};
static_assert(sizeof(errors) / sizeof(errors[0]) == PROXY_ERROR_COUNT, "one row per error");

/* A page's script that asks for JSON is a program. */
static bool is_browser(struct http_exchange *ex)
{
    struct str accept = http_header(ex, "accept");

    return str_find_str(http_header(ex, "user-agent"), STR("Mozilla")) >= 0 &&
           (str_find_str(accept, STR("text/html")) >= 0 ||
            str_find_str(accept, STR("application/json")) < 0);
}

/* The id is [a-z0-9] by construction and all other parts (also reasons) are literals: nothing needs
 * escaping. */
static void make_page(struct buf *body, enum proxy_error error, const struct proxy_target *target,
                      const char *reason)
{
    (void)buf_printf(body,
                     "<html lang=\"en\"><head><meta charset=\"utf-8\"><title>%s</title></head>"
                     "<body style=\"font-family:sans-serif;margin:4em auto;max-width:40em\">"
                     "<h1>%s</h1><p>%s",
                     errors[error].title, errors[error].title, errors[error].text);
    if (errors[error].with_port)
        (void)buf_printf(body, " %u.", target->port);
    if (reason)
        (void)buf_printf(body, " Why it ended: %s.", reason);
    (void)buf_printf(body, "</p><p>Sandbox: <code>%s</code></p></body></html>", target->id);
}

static void make_json(struct buf *body, enum proxy_error error, const struct proxy_target *target,
                      const char *reason)
{
    json_out_open(body, NULL, '{');
    json_out_str(body, "sandboxId", str_of(target->id));
    json_out_str(body, "message", str_of(errors[error].message));
    if (errors[error].with_port)
        json_out_uint(body, "port", target->port);
    if (reason)
        json_out_str(body, "reason", str_of(reason));
    json_out_int(body, "code", errors[error].status);
    json_out_close(body, "}");
}

static void reply(struct http_exchange *ex, enum proxy_error error,
                  const struct proxy_target *target, const char *reason)
{
    struct pair type = {STR("Content-Type"), STR("application/json; charset=utf-8")};
    auto_buf struct buf body = {0};

    buf_init(&body, 4096);
    if (is_browser(ex)) {
        type.value = STR("text/html; charset=utf-8");
        make_page(&body, error, target, reason);
    } else {
        make_json(&body, error, target, reason);
    }
    http_reply(ex, errors[error].status, &type, 1, buf_str(&body));
}

void proxy_errors_reply(struct http_exchange *ex, enum proxy_error error,
                        const struct proxy_target *target)
{
    reply(ex, error, target, NULL);
}

void proxy_errors_ended(struct http_exchange *ex, const struct proxy_target *target,
                        const char *reason)
{
    reply(ex, PROXY_ERROR_NOT_FOUND, target, reason);
}

void proxy_errors_bad_request(struct http_exchange *ex, const char *message)
{
    struct pair type = {STR("Content-Type"), STR("application/json; charset=utf-8")};
    auto_buf struct buf body = {0};

    buf_init(&body, 256);
    json_out_open(&body, NULL, '{');
    json_out_int(&body, "code", 400);
    json_out_str(&body, "message", str_of(message));
    json_out_close(&body, "}");
    http_reply(ex, 400, &type, 1, buf_str(&body));
}
