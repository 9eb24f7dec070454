/* The page of the live view: constant bytes, the same for everybody. What it shows comes by its link. */
#include "extra/browser/bb_internal.h"
#include "extra/browser/live_css.h"
#include "extra/browser/live_html.h"
#include "extra/browser/live_js.h"
#include "protocol/http/http_server.h"

static const struct file {
    const char *path, *type;
    const unsigned char *bytes;
    size_t size;
} files[] = {
    {"/v1/live", "text/html; charset=utf-8", live_html, sizeof(live_html) - 1},
    {"/v1/live.js", "text/javascript; charset=utf-8", live_js, sizeof(live_js) - 1},
    {"/v1/live.css", "text/css; charset=utf-8", live_css, sizeof(live_css) - 1},
};

/* Others may show it in a frame: that is what its link is given away for. */
static void answer(struct http_exchange *ex, const struct file *file)
{
    const struct pair headers[] = {
        {STR("Content-Type"), str_of(file->type)},
        {STR("Cache-Control"), STR("no-cache")},
        {STR("Content-Security-Policy"),
         STR("default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
             "img-src data:; base-uri 'none'; form-action 'none'")},
        {STR("X-Content-Type-Options"), STR("nosniff")},
        {STR("Referrer-Policy"), STR("no-referrer")},
    };

    http_reply_static(ex, 200, headers, sizeof(headers) / sizeof(headers[0]),
                      str_n(file->bytes, file->size));
}

bool bb_live_handle(struct http_exchange *ex)
{
    const struct http_request *request = http_request(ex);

    if (!str_is(request->method, "GET") && !str_is(request->method, "HEAD"))
        return false;
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
        if (str_is(request->path, files[i].path)) {
            answer(ex, &files[i]);
            return true;
        }
    return false;
}
