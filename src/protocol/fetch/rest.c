#include "protocol/fetch/rest.h"

#include <string.h>

#include "base/cleanup.h"
#include "protocol/json/json_shape.h"

enum { QUOTED_MAX = 160, RETRY_AFTER_MAX_S = 3600 };

static bool unreserved(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '~' || c == '-';
}

void rest_encode(struct buf *out, struct str s)
{
    for (size_t i = 0; i < s.len; i++) {
        if (unreserved(s.p[i]))
            (void)buf_add_char(out, s.p[i]);
        else
            (void)buf_printf(out, "%%%02X", (unsigned char)s.p[i]);
    }
}

void rest_query(struct buf *path, const char *name, struct str value)
{
    bool first = str_find(buf_str(path), '?') < 0;

    (void)buf_printf(path, "%c%s=", first ? '?' : '&', name);
    rest_encode(path, value);
}

bool rest_id_valid(struct str id)
{
    if (id.len == 0 || id.len > 128 || str_is(id, ".") || str_is(id, ".."))
        return false;
    for (size_t i = 0; i < id.len; i++) {
        if (!unreserved(id.p[i]) || id.p[i] == '~')
            return false;
    }
    return true;
}

static enum error_code code_of(int status)
{
    switch (status) {
    case 401:
    case 403:
        return ERROR_UNAUTHORIZED;
    case 402:
    case 429:
        return ERROR_QUOTA;
    case 404:
    case 410:
        return ERROR_NOT_FOUND;
    case 409:
    case 425:
        return ERROR_CONFLICT;
    case 408:
    case 504:
        return ERROR_TIMEOUT;
    case 413:
        return ERROR_LIMIT;
    case 507:
        return ERROR_NO_SPACE;
    default:
        return status >= 500 ? ERROR_UNAVAILABLE : ERROR_INVALID;
    }
}

/* The vendor's own words: the first member that usually holds them, or the text itself; one line,
 * printable, bounded. */
static void quote(struct str body, char out[QUOTED_MAX + 1])
{
    static const char *const members[] = {"message", "error", "detail", "title"};
    auto_json json_t *json = NULL;
    struct error ignored;
    struct str text = body;
    size_t n = 0;

    if (json_parse(body, &json, &ignored) == 0) {
        text = STR_NONE;
        for (size_t i = 0; i < sizeof(members) / sizeof(members[0]) && text.len == 0; i++) {
            const json_t *member = json_object_get(json, members[i]);

            text = json_is_object(member) ? json_get_str(member, "message")
                                          : json_get_str(json, members[i]);
        }
    }
    text = str_trim(text);
    for (size_t i = 0; i < text.len && n < QUOTED_MAX; i++) {
        char c = text.p[i];

        out[n++] = c >= 0x20 && c < 0x7f ? c : ' ';
    }
    out[n] = '\0';
}

static int refused(const char *who, const char *method, int status, int64_t retry_after_s,
                   struct str body, struct error *err)
{
    char quoted[QUOTED_MAX + 1];
    enum error_code code = code_of(status);

    quote(body, quoted);
    if (code == ERROR_UNAVAILABLE && strstr(quoted, "no space left"))
        code = ERROR_NO_SPACE;
    if (code == ERROR_QUOTA && retry_after_s >= 0)
        return error_set(err, code, "%s: its limit is reached (status %d), try again in %lld s: %s",
                         who, status, (long long)retry_after_s, quoted);
    if (code == ERROR_QUOTA)
        return error_set(err, code, "%s: its limit is reached (status %d): %s", who, status,
                         quoted);
    if (code == ERROR_UNAUTHORIZED)
        return error_set(err, code, "%s: refuses our key (status %d): %s", who, status, quoted);
    if (quoted[0] && status < 500) /* its own words say enough */
        return error_set(err, code, "%s: %s (status %d)", who, quoted, status);
    return error_set(err, code, "%s: %s answered %d: %s", who, method, status,
                     quoted[0] ? quoted : "without a reason");
}

int rest_refused(const char *who, const char *method, int status, int64_t retry_after_s,
                 struct str body, struct error *err)
{
    (void)refused(who, method, status, retry_after_s, body, err);
    if (retry_after_s > 0 && (err->code == ERROR_QUOTA || err->code == ERROR_UNAVAILABLE))
        err->retry_after_s =
            (int)(retry_after_s < RETRY_AFTER_MAX_S ? retry_after_s : RETRY_AFTER_MAX_S);
    return -1;
}

int rest_call(const struct rest *rest, const struct rest_request *request, json_t **out,
              struct error *err)
{
    struct pair headers[REST_HEADERS_MAX + 2];
    auto_response struct fetch_response response = {0};
    auto_buf struct buf url;
    auto_free char *body = request->body ? json_text(request->body) : NULL;
    struct fetch_request fetch = {
        .method = request->method,
        .unix_path = rest->unix_path,
        .headers = headers,
        .header_count = rest->header_count,
        .body = str_of(body),
        .timeout_ms = request->timeout_ms,
        .deadline_us = request->deadline_us,
        .response_max = request->answer_max ? request->answer_max : REST_ANSWER_MAX,
    };
    struct error why;

    if (out)
        *out = NULL;
    buf_init(&url, HTTP_URL_MAX);
    if (!buf_printf(&url, "%s%s", rest->base, request->path))
        return error_set(err, ERROR_LIMIT, "%s: the request is too long", rest->who);
    fetch.url = url.p;
    memcpy(headers, rest->headers, sizeof(rest->headers));
    headers[fetch.header_count++] = (struct pair){STR("Accept"), STR("application/json")};
    if (body)
        headers[fetch.header_count++] = (struct pair){STR("Content-Type"), STR("application/json")};

    if (fetch_call(rest->fetch, &fetch, &response, err) < 0)
        return error_prefix(err, "%s", rest->who);
    if (response.status >= 400)
        return rest_refused(rest->who, request->method, response.status, response.retry_after_s,
                            buf_str(&response.body), err);
    if (response.status == 304) /* it is so already */
        return 0;
    if (response.status < 200 || response.status >= 300)
        return error_set(err, ERROR_UNAVAILABLE, "%s: unexpected status %d", rest->who,
                         response.status);
    if (!out || str_trim(buf_str(&response.body)).len == 0)
        return 0;
    if (json_parse(buf_str(&response.body), out, &why) < 0)
        return error_set(err, ERROR_UNAVAILABLE, "%s: the answer is no JSON: %s", rest->who,
                         why.message);
    return 0;
}
