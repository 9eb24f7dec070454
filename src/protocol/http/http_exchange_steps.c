/* What all carriers do with an exchange. The functions that call handlers are called by carriers where
 * nothing of a handler is on the stack. */
#include "protocol/http/http_conn.h"
#include "protocol/http/http_exchange.h"

#include <stdio.h>

void http_exchange_init(struct http_exchange *ex, struct http_server *server,
                        const struct http_exchange_ops *ops)
{
    *ex = (struct http_exchange){.ops = ops, .server = server};
}

void http_exchange_done(struct http_exchange *ex)
{
    ex->open = false;
    if (ex->on_done)
        ex->on_done(ex, ex->done_arg);
    http_account_drop(ex->server, &ex->owner);
    arena_done(&ex->arena);
    buf_done(&ex->body);
    http_exchange_init(ex, ex->server, ex->ops);
}

bool http_exchange_reads(const struct http_exchange *ex)
{
    return (ex->mode == BODY_ALL || ex->mode == BODY_STREAM) && !ex->paused &&
           ex->answer != ANSWER_ENDED;
}

bool http_exchange_data(struct http_exchange *ex, struct str data)
{
    if (ex->mode == BODY_ALL) {
        if (ex->body.len + data.len > ex->body_max)
            ex->too_large = true;
        else
            (void)buf_add_str(&ex->body, data);
    } else if (ex->mode == BODY_STREAM) {
        ex->on_data(ex, data, ex->body_arg);
    }
    return !ex->paused && !ex->too_large && ex->mode != BODY_UNASKED;
}

void http_exchange_data_end(struct http_exchange *ex)
{
    enum body_mode mode = ex->mode;

    ex->mode = BODY_DELIVERED;
    if (mode == BODY_ALL)
        ex->on_body(ex, buf_str(&ex->body), ex->body_arg);
    else if (ex->on_end)
        ex->on_end(ex, ex->body_arg);
}

bool http_exchange_drained(struct http_exchange *ex)
{
    if (!ex->drain_due)
        return false;
    ex->drain_due = false;
    if (!ex->on_drain || ex->answer != ANSWER_OPEN)
        return false;
    ex->on_drain(ex, ex->drain_arg);
    return true;
}

void http_exchange_fail(struct http_exchange *ex, int status, const char *text)
{
    struct pair type = {STR("Content-Type"), STR("application/json")};
    char body[160];
    int len = snprintf(body, sizeof(body), "{\"code\":%d,\"message\":\"%s\"}", status, text);

    ex->mode = BODY_UNASKED;
    ex->on_drain = NULL;
    http_reply(ex, status, &type, 1, str_n(body, (size_t)len));
}

void http_add_clean(struct buf *out, struct str s)
{
    char *to = buf_reserve(out, s.len);

    if (!to)
        return;
    for (size_t i = 0; i < s.len; i++) {
        char c = s.p[i];

        if (c == '\r' || c == '\n' || c == '\0')
            c = ' ';
        to[i] = c;
    }
    buf_grew(out, s.len);
}

bool http_status_has_payload(int status)
{
    return status >= 200 && status != 204 && status != 304;
}
