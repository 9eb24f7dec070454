#include "extra/core/extra_serve.h"

#include <assert.h>

#include "base/extra_absent.h"
#include "protocol/http/http_server.h"
#include "protocol/json/json_out.h"

enum { EXTRAS_MAX = 32 };

static void *states[EXTRAS_MAX]; /* in the order of extras_all() */

int extras_open(const struct extra_host *host, struct error *err)
{
    const struct extra *const *all = extras_all();

    for (size_t i = 0; all[i]; i++) {
        assert(i < EXTRAS_MAX);
        if (all[i]->open && all[i]->open(host, &states[i], err) < 0)
            return error_prefix(err, "%s", all[i]->name);
    }
    return 0;
}

bool extras_handle(struct http_exchange *ex)
{
    const struct extra *const *all = extras_all();

    for (size_t i = 0; all[i]; i++)
        if (all[i]->handle && all[i]->handle(states[i], ex))
            return true;
    return false;
}

void extras_drain(void)
{
    const struct extra *const *all = extras_all();

    for (size_t i = 0; all[i]; i++)
        if (all[i]->drain)
            all[i]->drain(states[i]);
}

void extras_close(void)
{
    const struct extra *const *all = extras_all();

    for (size_t i = 0; all[i]; i++)
        if (all[i]->close)
            all[i]->close(states[i]);
}

bool extras_handle_plain(struct http_exchange *ex, const char *data_dir)
{
    for (const struct extra *const *at = extras_all(); *at; at++)
        if ((*at)->handle_plain && (*at)->handle_plain(ex, data_dir))
            return true;
    return false;
}

bool extras_plain(struct http_exchange *ex)
{
    struct str path = http_request(ex)->path;

    for (const struct extra *const *at = extras_all(); *at; at++)
        if ((*at)->plain_prefix && str_starts(path, str_of((*at)->plain_prefix)))
            return true;
    return false;
}

/* In the shapes of both APIs: {"code", "message"} and {"error": {...}}. */
bool extras_refuse_absent(struct http_exchange *ex)
{
    const char *extra = extra_absent_path(http_request(ex)->path);
    struct pair type = {STR("Content-Type"), STR("application/json")};
    struct error err;
    auto_buf struct buf text = {0};

    if (!extra)
        return false;
    (void)extra_absent_error(extra, &err);
    buf_init(&text, SIZE_MAX);
    json_out_open(&text, NULL, '{');
    json_out_int(&text, "code", 501);
    json_out_str(&text, "message", str_of(err.message));
    json_out_open(&text, "error", '{');
    json_out_str(&text, "code", STR("not_built_in"));
    json_out_str(&text, "message", str_of(err.message));
    json_out_bool(&text, "retryable", false);
    json_out_close(&text, "}}");
    http_reply(ex, 501, &type, 1, buf_str(&text));
    return true;
}
