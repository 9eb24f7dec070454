/* Calls with one answer: unary Connect, and /files. */
#include "protocol/envd/envd_client.h"

#include <string.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "protocol/fetch/rest.h"
#include "protocol/json/json_shape.h"

enum {
    ANSWER_MAX = 64 * 1024 * 1024,
    REFUSAL_MAX = 64 * 1024,
    REFUSAL_MS = 10 * 1000,
    PIECE = 64 * 1024,
    WRITE_MS = 6 * 60 * 60 * 1000,
    WRITE_IDLE_MS = 120 * 1000,
};

size_t envd_headers(const struct envd_address *address, struct pair *out, size_t count)
{
    out[count++] = (struct pair){STR("Accept-Encoding"), STR("identity")};
    if (address->token.len)
        out[count++] = (struct pair){STR("X-Access-Token"), address->token};
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

/* From what an envd or the proxy before it refused with. Always -1. */
static int refused(const struct envd_address *address, const char *what, int status,
                   struct str body, struct error *err)
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

int envd_refused_stream(const struct envd_address *address, const char *what,
                        struct fetch_stream *stream, struct error *err)
{
    auto_buf struct buf body = {0};
    struct error ignored;
    ssize_t n;

    buf_init(&body, REFUSAL_MAX);
    do {
        char *to = buf_reserve(&body, 4096);

        n = to ? fetch_read(stream, to, 4096, REFUSAL_MS, &ignored) : 0;
        if (n > 0)
            buf_grew(&body, (size_t)n);
    } while (n > 0);
    return refused(address, what, fetch_status(stream), buf_str(&body), err);
}

int envd_call(const struct envd_address *address, const char *method, struct str request,
              uint32_t timeout_ms, struct buf *answer, struct error *err)
{
    struct pair headers[ENVD_HEADERS_MAX + 4] = {{STR("Content-Type"), STR("application/proto")},
                                                 {STR("Connect-Protocol-Version"), STR("1")}};
    auto_response struct fetch_response response = {0};
    auto_free char *url = xasprintf("%s/%s", address->base, method);
    struct fetch_request call = {.method = "POST",
                                 .url = url,
                                 .unix_path = address->unix_path,
                                 .reach = fetch_reach(address->public_only),
                                 .deadline_us = address->deadline_us,
                                 .headers = headers,
                                 .header_count = envd_headers(address, headers, 2),
                                 .body = request,
                                 .timeout_ms = timeout_ms,
                                 .response_max = ANSWER_MAX};

    if (answer)
        *answer = (struct buf){0};
    if (fetch_call(address->fetch, &call, &response, err) < 0)
        return error_prefix(err, "%s", address->who);
    if (response.status != 200)
        return refused(address, method, response.status, buf_str(&response.body), err);
    if (answer) {
        *answer = response.body;
        response.body = (struct buf){0};
    }
    return 0;
}

int envd_health(const struct envd_address *address, struct error *err)
{
    struct pair headers[ENVD_HEADERS_MAX + 2];
    auto_response struct fetch_response response = {0};
    auto_free char *url = xasprintf("%s/health", address->base);
    struct fetch_request call = {.method = "GET",
                                 .url = url,
                                 .unix_path = address->unix_path,
                                 .reach = fetch_reach(address->public_only),
                                 .deadline_us = address->deadline_us,
                                 .headers = headers,
                                 .header_count = envd_headers(address, headers, 0),
                                 .timeout_ms = 10000};

    if (fetch_call(address->fetch, &call, &response, err) < 0)
        return error_prefix(err, "%s", address->who);
    if (response.status / 100 != 2)
        return refused(address, "/health", response.status, buf_str(&response.body), err);
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

static int pass_on(struct fetch_stream *stream, envd_sink_fn *sink, void *arg, struct error *err)
{
    auto_free char *piece = xmalloc(PIECE);
    ssize_t n;

    while ((n = fetch_read(stream, piece, PIECE, ENVD_CALL_MS, err)) > 0)
        if (sink(arg, str_n(piece, (size_t)n)) < 0)
            return error_set(err, ERROR_CONFLICT, "whoever takes the file's content gave up");
    return (int)n;
}

int envd_read(const struct envd_address *address, const char *path, envd_sink_fn *sink, void *arg,
              struct error *err)
{
    struct pair headers[ENVD_HEADERS_MAX + 2];
    auto_free char *url = files_url(address, path);
    struct fetch_request request = {.method = "GET",
                                    .url = url,
                                    .unix_path = address->unix_path,
                                    .reach = fetch_reach(address->public_only),
                                    .deadline_us = address->deadline_us,
                                    .headers = headers,
                                    .header_count = envd_headers(address, headers, 0),
                                    .timeout_ms = ENVD_CALL_MS};
    struct fetch_stream *stream;
    int result;

    if (fetch_open(address->fetch, &request, &stream, err) < 0)
        return error_prefix(err, "%s", address->who);
    result = fetch_status(stream) == 200
                 ? pass_on(stream, sink, arg, err)
                 : envd_refused_stream(address, "reading a file", stream, err);
    fetch_close(stream);
    return result;
}

int envd_write(const struct envd_address *address, const char *path, envd_source_fn *source,
               void *arg, int64_t length, struct error *err)
{
    struct pair headers[ENVD_HEADERS_MAX + 3];
    auto_response struct fetch_response response = {0};
    auto_free char *url = files_url(address, path);
    struct fetch_request request = {.method = "POST",
                                    .url = url,
                                    .unix_path = address->unix_path,
                                    .reach = fetch_reach(address->public_only),
                                    .deadline_us = address->deadline_us,
                                    .headers = headers,
                                    .source = source,
                                    .source_arg = arg,
                                    .source_length = length,
                                    .timeout_ms = WRITE_MS,
                                    .idle_ms = WRITE_IDLE_MS};

    headers[0] = (struct pair){STR("Content-Type"), STR("application/octet-stream")};
    request.header_count = envd_headers(address, headers, 1);
    if (fetch_call(address->fetch, &request, &response, err) < 0)
        return error_prefix(err, "%s", address->who);
    if (response.status / 100 != 2)
        return refused(address, "writing a file", response.status, buf_str(&response.body), err);
    return 0;
}

/* A call of Filesystem about one path. */
static int call_path(const struct envd_address *address, const char *method, const char *path,
                     unsigned depth, struct buf *answer, struct error *err)
{
    auto_buf struct buf request = {0};

    if (!str_valid_utf8(str_of(path)))
        return error_set(err, ERROR_INVALID, "the path is not text");
    buf_init(&request, strlen(path) + 64);
    envd_put_path(&request, path, depth);
    return envd_call(address, method, buf_str(&request), ENVD_CALL_MS, answer, err);
}

/* What is listed is kept as structs, and written once more by the caller. */
enum { LISTED_TIMES = 2 };

int envd_list(const struct envd_address *address, const char *path, struct arena *arena,
              struct envd_file **out, size_t *out_count, struct error *err)
{
    auto_buf struct buf answer = {0};

    if (call_path(address, "filesystem.Filesystem/ListDir", path, 1, &answer, err) < 0 ||
        buf_account_reserve(answer.len * LISTED_TIMES, err) < 0)
        return -1;
    return envd_read_list(buf_str(&answer), arena, out, out_count, err) < 0
               ? error_prefix(err, "%s", address->who)
               : 0;
}

int envd_make_dir(const struct envd_address *address, const char *path, struct arena *arena,
                  struct envd_file *out, struct error *err)
{
    auto_buf struct buf answer = {0};

    if (call_path(address, "filesystem.Filesystem/MakeDir", path, 0, &answer, err) < 0)
        return -1;
    return envd_read_file(buf_str(&answer), arena, out, err) < 0
               ? error_prefix(err, "%s", address->who)
               : 0;
}

int envd_remove(const struct envd_address *address, const char *path, struct error *err)
{
    /* Removing what is not there succeeds, so envd is asked for it first. */
    if (call_path(address, "filesystem.Filesystem/Stat", path, 0, NULL, err) < 0)
        return -1;
    return call_path(address, "filesystem.Filesystem/Remove", path, 0, NULL, err);
}
