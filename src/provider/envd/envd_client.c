/* Calls with one answer: unary Connect, and /files. */
#include "provider/envd/envd_client.h"

#include <string.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "protocol/json/json_shape.h"
#include "provider/core/rest.h"

enum {
    ANSWER_MAX = 64 * 1024 * 1024,
    REFUSAL_MAX = 64 * 1024,
    PIECE = 64 * 1024,
    WRITE_MS = 6 * 60 * 60 * 1000,
    WRITE_IDLE_MS = 120 * 1000,
};

size_t envd_headers(const struct envd_address *address, struct http_header *out, size_t count)
{
    out[count++] = (struct http_header){STR("Accept-Encoding"), STR("identity")};
    if (address->token.len)
        out[count++] = (struct http_header){STR("X-Access-Token"), address->token};
    for (size_t i = 0; i < address->extra_count; i++)
        out[count++] = address->extra[i];
    return count;
}

enum error_code envd_code(struct str code)
{
    static const struct {
        const char *name;
        enum error_code code;
    } codes[] = {
        {"invalid_argument", ERROR_INVALID},     {"out_of_range", ERROR_INVALID},
        {"not_found", ERROR_NOT_FOUND},          {"already_exists", ERROR_EXISTS},
        {"permission_denied", ERROR_FORBIDDEN},  {"unauthenticated", ERROR_UNAUTHORIZED},
        {"failed_precondition", ERROR_CONFLICT}, {"aborted", ERROR_CONFLICT},
        {"resource_exhausted", ERROR_QUOTA},     {"deadline_exceeded", ERROR_TIMEOUT},
        {"unimplemented", ERROR_UNSUPPORTED},    {"canceled", ERROR_CONFLICT},
    };

    for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++)
        if (str_is(code, codes[i].name))
            return codes[i].code;
    return ERROR_UNAVAILABLE;
}

int envd_refused(const struct envd_address *address, const char *what, int status, struct str body,
                 struct error *err)
{
    auto_json json_t *json = NULL;
    struct error ignored;
    struct str code, message;

    if (json_parse(body, &json, &ignored) < 0)
        return rest_refused(address->who, what, status, -1, body, err);
    code = json_get_str(json, "code");
    message = json_get_str(json, "message");
    /* Files and proxies have a number there, calls a word. */
    if (!code.p)
        return rest_refused(address->who, what, status, -1, body, err);
    if (message.len > 200)
        message.len = 200;
    return error_set(err, envd_code(code), "%s: %s: %.*s", address->who, what, STR_ARG(message));
}

int envd_parse(struct str text, json_t **out)
{
    /* The library has its own bound on depth. */
    *out =
        json_loadb(text.len ? text.p : "", text.len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
    return *out ? 0 : -1;
}

static int call_envd(const struct envd_address *address, const char *method, const char *type,
                     struct str body, uint32_t timeout_ms, struct fetch_response *response,
                     struct error *err)
{
    struct http_header headers[ENVD_HEADERS_MAX + 4];
    auto_free char *url = xasprintf("%s/%s", address->base, method);
    struct fetch_request call = {.method = "POST",
                                 .url = url,
                                 .unix_path = address->unix_path,
                                 .reach = fetch_reach(address->public_only)};

    headers[0] = (struct http_header){STR("Content-Type"), str_of(type)};
    headers[1] = (struct http_header){STR("Connect-Protocol-Version"), STR("1")};
    call.header_count = envd_headers(address, headers, 2);
    call.headers = headers;
    call.body = body;
    call.timeout_ms = timeout_ms;
    call.response_max = ANSWER_MAX;
    if (fetch_call(address->fetch, &call, response, err) < 0)
        return error_prefix(err, "%s", address->who);
    if (response->status != 200)
        return envd_refused(address, method, response->status, buf_str(&response->body), err);
    return 0;
}

int envd_call_binary(const struct envd_address *address, const char *method, struct str request,
                     uint32_t timeout_ms, struct error *err)
{
    auto_response struct fetch_response response = {0};

    return call_envd(address, method, "application/proto", request, timeout_ms, &response, err);
}

int envd_call_within(const struct envd_address *address, const char *method, const json_t *request,
                     uint32_t timeout_ms, json_t **out, struct error *err)
{
    auto_response struct fetch_response response = {0};
    auto_free char *body = json_text(request);

    if (out)
        *out = NULL;
    if (call_envd(address, method, "application/json", str_of(body), timeout_ms, &response, err) <
        0)
        return -1;
    if (!out)
        return 0;
    if (envd_parse(buf_str(&response.body), out) < 0)
        return error_set(err, ERROR_UNAVAILABLE, "%s: %s: the answer is no JSON", address->who,
                         method);
    return 0;
}

int envd_call(const struct envd_address *address, const char *method, const json_t *request,
              json_t **out, struct error *err)
{
    return envd_call_within(address, method, request, ENVD_CALL_MS, out, err);
}

int envd_health(const struct envd_address *address, struct error *err)
{
    struct http_header headers[ENVD_HEADERS_MAX + 2];
    auto_response struct fetch_response response = {0};
    auto_free char *url = xasprintf("%s/health", address->base);
    struct fetch_request call = {.method = "GET",
                                 .url = url,
                                 .unix_path = address->unix_path,
                                 .reach = fetch_reach(address->public_only),
                                 .headers = headers,
                                 .header_count = envd_headers(address, headers, 0),
                                 .timeout_ms = 10000};

    if (fetch_call(address->fetch, &call, &response, err) < 0)
        return error_prefix(err, "%s", address->who);
    if (response.status / 100 != 2)
        return envd_refused(address, "/health", response.status, buf_str(&response.body), err);
    return 0;
}

/* ---- files ---- */

static char *files_url(const struct envd_address *address, const char *path)
{
    struct buf url;

    buf_init(&url, HTTP_URL_MAX);
    (void)buf_printf(&url, "%s/files", address->base);
    rest_query(&url, "path", str_of(path));
    return buf_take(&url);
}

/* Up to REFUSAL_MAX of a stream's body. */
static void read_refusal(struct fetch_stream *stream, struct buf *out)
{
    struct error ignored;
    ssize_t n;

    buf_init(out, REFUSAL_MAX);
    do {
        char *to = buf_reserve(out, 4096);

        n = to ? fetch_read(stream, to, 4096, 10000, &ignored) : 0;
        if (n > 0)
            buf_grew(out, (size_t)n);
    } while (n > 0);
}

static int pass_on(struct fetch_stream *stream, provider_sink_fn *sink, void *arg,
                   struct error *err)
{
    auto_free char *piece = xmalloc(PIECE);
    ssize_t n;

    while ((n = fetch_read(stream, piece, PIECE, ENVD_CALL_MS, err)) > 0)
        if (sink(arg, str_n(piece, (size_t)n)) < 0)
            return error_set(err, ERROR_CONFLICT, "whoever takes the file's content gave up");
    return (int)n;
}

int envd_read(const struct envd_address *address, const char *path, provider_sink_fn *sink,
              void *arg, struct error *err)
{
    struct http_header headers[ENVD_HEADERS_MAX + 2];
    auto_free char *url = files_url(address, path);
    struct fetch_request request = {.method = "GET",
                                    .url = url,
                                    .unix_path = address->unix_path,
                                    .reach = fetch_reach(address->public_only),
                                    .headers = headers,
                                    .header_count = envd_headers(address, headers, 0),
                                    .timeout_ms = ENVD_CALL_MS};
    struct fetch_stream *stream;
    int result;

    if (fetch_open(address->fetch, &request, &stream, err) < 0)
        return error_prefix(err, "%s", address->who);
    if (fetch_status(stream) == 200) {
        result = pass_on(stream, sink, arg, err);
    } else {
        auto_buf struct buf refusal = {0};

        read_refusal(stream, &refusal);
        result =
            envd_refused(address, "reading a file", fetch_status(stream), buf_str(&refusal), err);
    }
    fetch_close(stream);
    return result;
}

int envd_write(const struct envd_address *address, const char *path, provider_source_fn *source,
               void *arg, int64_t length, struct error *err)
{
    struct http_header headers[ENVD_HEADERS_MAX + 3];
    auto_response struct fetch_response response = {0};
    auto_free char *url = files_url(address, path);
    struct fetch_request request = {.method = "POST",
                                    .url = url,
                                    .unix_path = address->unix_path,
                                    .reach = fetch_reach(address->public_only),
                                    .headers = headers,
                                    .source = source,
                                    .source_arg = arg,
                                    .source_length = length,
                                    .timeout_ms = WRITE_MS,
                                    .idle_ms = WRITE_IDLE_MS};

    headers[0] = (struct http_header){STR("Content-Type"), STR("application/octet-stream")};
    request.header_count = envd_headers(address, headers, 1);
    if (fetch_call(address->fetch, &request, &response, err) < 0)
        return error_prefix(err, "%s", address->who);
    if (response.status / 100 != 2)
        return envd_refused(address, "writing a file", response.status, buf_str(&response.body),
                            err);
    return 0;
}

static void read_entry(const json_t *entry, struct arena *arena, struct provider_file *out)
{
    struct str type = json_get_str(entry, "type"), modified = json_get_str(entry, "modifiedTime");
    const json_t *size = json_object_get(entry, "size");
    int64_t number = json_integer_value(size);

    if (json_is_string(size))
        (void)str_to_i64(str_of(json_string_value(size)), &number);
    out->name = arena_str(arena, json_get_str(entry, "name"));
    out->path = arena_str(arena, json_get_str(entry, "path"));
    out->directory = str_is(type, "FILE_TYPE_DIRECTORY") ||
                     json_integer_value(json_object_get(entry, "type")) == 2;
    out->size = number;
    out->mode = (uint32_t)json_integer_value(json_object_get(entry, "mode"));
    if (modified.p)
        (void)clock_parse(modified, &out->modified_at_us);
}

int envd_list(const struct envd_address *address, const char *path, struct arena *arena,
              struct provider_file **out, size_t *out_count, struct error *err)
{
    auto_json json_t *request = json_pack("{s:s, s:i}", "path", path, "depth", 1), *answer = NULL;
    const json_t *entries;
    size_t count;

    if (!request)
        return error_set(err, ERROR_INVALID, "the path is not text");
    if (envd_call(address, "filesystem.Filesystem/ListDir", request, &answer, err) < 0)
        return -1;
    entries = json_object_get(answer, "entries");
    count = json_array_size(entries);
    *out = arena_alloc(arena, (count + 1) * sizeof(**out));
    for (size_t i = 0; i < count; i++)
        read_entry(json_array_get(entries, i), arena, &(*out)[i]);
    *out_count = count;
    return 0;
}

int envd_remove(const struct envd_address *address, const char *path, struct error *err)
{
    auto_json json_t *request = json_pack("{s:s}", "path", path);

    if (!request)
        return error_set(err, ERROR_INVALID, "the path is not text");
    /* Removing what is not there succeeds; asking first tells. */
    if (envd_call(address, "filesystem.Filesystem/Stat", request, NULL, err) < 0)
        return -1;
    return envd_call(address, "filesystem.Filesystem/Remove", request, NULL, err);
}
