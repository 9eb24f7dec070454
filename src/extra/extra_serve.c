#include "extra/extra_serve.h"

#include "base/extra_absent.h"
#include "extra/extra.h"
#include "protocol/http/http_server.h"

bool extras_handle_plain(struct http_exchange *ex, const char *data_dir)
{
    for (const struct extra *const *at = extras; *at; at++)
        if ((*at)->handle_plain && (*at)->handle_plain(ex, data_dir))
            return true;
    return false;
}

/* In the shapes of both APIs: {"code", "message"} and {"error": {...}}. */
bool extras_refuse_absent(struct http_exchange *ex)
{
    const char *extra = extra_absent_path(http_request(ex)->path);
    struct http_header type = {STR("Content-Type"), STR("application/json")};
    struct error err;
    char *text;

    if (!extra)
        return false;
    (void)extra_absent_error(extra, &err);
    text = arena_printf(http_arena(ex),
                        "{\"code\":501,\"message\":\"%s\",\"error\":{\"code\":\"not_built_in\","
                        "\"message\":\"%s\",\"retryable\":false}}",
                        err.message, err.message);
    http_reply(ex, 501, &type, 1, str_of(text));
    return true;
}
