/* Files of a Daytona sandbox, by its toolbox, and the address of its ports. */
#include "extra/daytona/daytona.h"

#include <string.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/id.h"
#include "protocol/json/json_shape.h"

enum { TRANSFER_MS = 3600 * 1000, HEAD_MS = 60000, STALL_MS = 60000, PIECE = 64 * 1024 };

/* "{toolbox}/ID/what?path=PATH" */
static int file_url(struct daytona *daytona, const struct provider_ref *ref, const char *what,
                    const char *path, struct buf *out, struct error *err)
{
    buf_init(out, HTTP_URL_MAX);
    if (!path[0] || strlen(path) > 4095)
        return error_set(err, ERROR_INVALID, "%s: a path has 1..4095 bytes", daytona->who);
    if (daytona_toolbox(daytona, ref, out, err) < 0)
        return -1;
    (void)buf_printf(out, "%s", what);
    rest_query(out, "path", str_of(path));
    return out->overflowed ? error_set(err, ERROR_LIMIT, "%s: the path is too long", daytona->who)
                           : 0;
}

static int toolbox_call(struct daytona *daytona, const char *method, const char *url, json_t **out,
                        struct error *err)
{
    struct rest rest = daytona->rest;
    struct rest_request request = {.method = method, .path = "", .timeout_ms = HEAD_MS};

    rest.base = url;
    return rest_call(&rest, &request, out, err);
}

/* ---- read ---- */

int daytona_read(struct provider *provider, const struct provider_ref *ref, const char *path,
                 provider_sink_fn *sink, void *arg, struct error *err)
{
    struct daytona *daytona = daytona_of(provider);
    struct pair headers[REST_HEADERS_MAX];
    struct fetch_request request = {
        .method = "GET", .headers = headers, .timeout_ms = HEAD_MS, .idle_ms = STALL_MS};
    struct fetch_stream *stream = NULL;
    auto_buf struct buf url = {0};
    auto_free char *piece = xmalloc(PIECE);
    ssize_t n;
    int result = 0;

    if (file_url(daytona, ref, "/files/download", path, &url, err) < 0)
        return -1;
    request.url = url.p;
    request.header_count = daytona_headers(daytona, headers);
    if (fetch_open(daytona->rest.fetch, &request, &stream, err) < 0)
        return error_prefix(err, "%s", daytona->who);
    if (fetch_status(stream) != 200) {
        n = fetch_read(stream, piece, PIECE, STALL_MS, err);
        result = rest_refused(daytona->who, "GET", fetch_status(stream), -1,
                              str_n(piece, n > 0 ? (size_t)n : 0), err);
    }
    while (result == 0 && (n = fetch_read(stream, piece, PIECE, STALL_MS, err)) != 0) {
        if (n < 0)
            result = error_prefix(err, "%s", daytona->who);
        else if (sink(arg, str_n(piece, (size_t)n)) < 0)
            result = error_set(err, ERROR_CONFLICT, "%s: the receiver gave up", daytona->who);
    }
    fetch_close(stream);
    return result;
}

/* ---- write: one part of a multipart form, made while it is sent ---- */

struct form {
    provider_source_fn *source;
    void *arg;
    char head[256], tail[80];
    size_t head_at, tail_at;
    int64_t left; /* of the content; -1 = unknown */
    bool content_done, gave_up;
};

static ssize_t take(const char *text, size_t *at, void *p, size_t size)
{
    size_t left = strlen(text) - *at, n = left < size ? left : size;

    memcpy(p, text + *at, n);
    *at += n;
    return (ssize_t)n;
}

static ssize_t form_read(void *arg, void *p, size_t size)
{
    struct form *form = arg;
    ssize_t n;

    if (form->head[form->head_at])
        return take(form->head, &form->head_at, p, size);
    if (!form->content_done) {
        if (form->left >= 0 && (int64_t)size > form->left)
            size = (size_t)form->left;
        n = size ? form->source(form->arg, p, size) : 0;
        if (n < 0 || (n == 0 && form->left > 0)) {
            form->gave_up = true;
            return -1;
        }
        if (form->left > 0)
            form->left -= n;
        if (n > 0)
            return n;
        form->content_done = true;
    }
    return take(form->tail, &form->tail_at, p, size ? size : sizeof(form->tail));
}

int daytona_write(struct provider *provider, const struct provider_ref *ref, const char *path,
                  provider_source_fn *source, void *arg, int64_t length, struct error *err)
{
    struct daytona *daytona = daytona_of(provider);
    struct pair headers[REST_HEADERS_MAX + 1];
    struct form form = {.source = source, .arg = arg, .left = length < 0 ? -1 : length};
    struct fetch_request request = {.method = "POST",
                                    .headers = headers,
                                    .source = form_read,
                                    .source_arg = &form,
                                    .timeout_ms = TRANSFER_MS};
    auto_response struct fetch_response response = {0};
    auto_buf struct buf url = {0};
    char boundary[40] = "quicksand-", type[96];

    id_hex(boundary + strlen(boundary), 12);
    (void)snprintf(type, sizeof(type), "multipart/form-data; boundary=%s", boundary);
    (void)snprintf(form.head, sizeof(form.head),
                   "--%s\r\nContent-Disposition: form-data; name=\"file\"; filename=\"file\"\r\n"
                   "Content-Type: application/octet-stream\r\n\r\n",
                   boundary);
    (void)snprintf(form.tail, sizeof(form.tail), "\r\n--%s--\r\n", boundary);
    if (file_url(daytona, ref, "/files/upload", path, &url, err) < 0)
        return -1;
    request.url = url.p;
    request.header_count = daytona_headers(daytona, headers);
    headers[request.header_count++] = (struct pair){STR("Content-Type"), str_of(type)};
    request.source_length = length < 0
                                ? FETCH_BODY_LATER
                                : (int64_t)strlen(form.head) + length + (int64_t)strlen(form.tail);
    if (fetch_call(daytona->rest.fetch, &request, &response, err) < 0) {
        if (form.gave_up)
            return error_set(err, ERROR_CONFLICT, "%s: the content broke off", daytona->who);
        return error_prefix(err, "%s", daytona->who);
    }
    if (response.status >= 300)
        return rest_refused(daytona->who, "POST", response.status, response.retry_after_s,
                            buf_str(&response.body), err);
    return 0;
}

/* ---- list, remove ---- */

static void read_file(const json_t *json, const char *dir, struct arena *arena,
                      struct provider_file *out)
{
    struct str permissions = json_get_str(json, "permissions"), dir_text = str_of(dir);
    char octal[8];

    while (dir_text.len > 0 && dir_text.p[dir_text.len - 1] == '/')
        dir_text.len--;
    *out = (struct provider_file){
        .name = arena_str(arena, json_get_str(json, "name")),
        .directory = json_is_true(json_object_get(json, "isDir")),
        .size = json_integer_value(json_object_get(json, "size")),
    };
    out->path = str_of(arena_printf(arena, "%.*s/%.*s", STR_ARG(dir_text), STR_ARG(out->name)));
    if (str_copy(permissions, octal, sizeof(octal)))
        out->mode = (uint32_t)strtoul(octal, NULL, 8) & 07777;
    (void)clock_parse(json_get_str(json, "modTime"), &out->modified_at_us);
}

int daytona_list(struct provider *provider, const struct provider_ref *ref, const char *path,
                 struct arena *arena, struct provider_file **out, size_t *out_count,
                 struct error *err)
{
    struct daytona *daytona = daytona_of(provider);
    auto_buf struct buf url = {0};
    auto_json json_t *answer = NULL;
    json_t *item;
    size_t i;

    *out = NULL;
    *out_count = 0;
    if (file_url(daytona, ref, "/files", path, &url, err) < 0 ||
        toolbox_call(daytona, "GET", url.p, &answer, err) < 0)
        return -1;
    if (!json_is_array(answer))
        return error_set(err, ERROR_UNAVAILABLE, "%s: an answer that is no list of files",
                         daytona->who);
    *out = arena_alloc(arena, (json_array_size(answer) + 1) * sizeof(**out));
    json_array_foreach (answer, i, item)
        read_file(item, path, arena, &(*out)[(*out_count)++]);
    return 0;
}

int daytona_remove(struct provider *provider, const struct provider_ref *ref, const char *path,
                   struct error *err)
{
    struct daytona *daytona = daytona_of(provider);
    auto_buf struct buf url = {0};

    if (file_url(daytona, ref, "/files", path, &url, err) < 0)
        return -1;
    rest_query(&url, "recursive", STR("true"));
    return toolbox_call(daytona, "DELETE", url.p, NULL, err);
}

/* ---- ports ---- */

int daytona_address(struct provider *provider, const struct provider_ref *ref, uint16_t port,
                    struct arena *arena, struct provider_address *out, struct error *err)
{
    struct daytona *daytona = daytona_of(provider);
    auto_json json_t *answer = NULL;
    struct str url, token;
    char path[192];

    if (daytona_check_id(daytona, ref->id, err) < 0)
        return -1;
    (void)snprintf(path, sizeof(path), "/sandbox/%.*s/ports/%u/preview-url", STR_ARG(ref->id),
                   (unsigned)port);
    if (rest_call(&daytona->rest, &(struct rest_request){.method = "GET", .path = path}, &answer,
                  err) < 0)
        return -1;
    url = json_get_str(answer, "url");
    token = json_get_str(answer, "token");
    if (!str_starts(url, STR("http")))
        return error_set(err, ERROR_UNAVAILABLE, "%s: a port without a URL", daytona->who);
    *out = (struct provider_address){.url = arena_str(arena, url)};
    out->local_url = out->url;
    if (token.len) {
        out->headers = arena_alloc(arena, sizeof(*out->headers));
        out->headers[0] = (struct pair){STR("x-daytona-preview-token"), arena_str(arena, token)};
        out->header_count = 1;
    }
    return 0;
}
