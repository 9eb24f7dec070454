#include "protocol/http/http.h"

struct str http_headers_get(const struct http_headers *headers, const char *name)
{
    struct str wanted = str_of(name);

    for (size_t i = 0; i < headers->count; i++) {
        if (str_eq_nocase(headers->items[i].name, wanted))
            return headers->items[i].value;
    }
    return STR_NONE;
}

bool http_headers_has_token(const struct http_headers *headers, const char *name, const char *token)
{
    struct str wanted = str_of(name), item = str_of(token);

    for (size_t i = 0; i < headers->count; i++) {
        struct str rest = headers->items[i].value;

        if (!str_eq_nocase(headers->items[i].name, wanted))
            continue;
        while (rest.p) {
            if (str_eq_nocase(str_trim(str_split(&rest, ',')), item))
                return true;
        }
    }
    return false;
}

/* Protocols that carry further requests: a client would send its next ones, whoever they are for, to
 * who said yes. Java's HttpClient asks for h2c without being told to. */
static bool carries_requests(struct str protocol)
{
    struct str rest = protocol, name = str_trim(str_split(&rest, '/'));

    return str_eq_nocase(name, STR("h2c")) || str_eq_nocase(name, STR("h2")) ||
           str_eq_nocase(name, STR("http")) || str_eq_nocase(name, STR("tls"));
}

bool http_upgrades(const struct http_request *request)
{
    if (!request->upgrade || request->chunked || request->content_length > 0)
        return false;
    for (size_t i = 0; i < request->headers.count; i++) {
        const struct pair *header = &request->headers.items[i];
        struct str list = header->value;

        while (str_eq_nocase(header->name, STR("upgrade")) && list.p) {
            if (carries_requests(str_split(&list, ',')))
                return false;
        }
    }
    return true;
}

static const struct {
    int status;
    const char *reason;
} reasons[] = {
    {100, "Continue"},
    {101, "Switching Protocols"},
    {200, "OK"},
    {201, "Created"},
    {202, "Accepted"},
    {204, "No Content"},
    {206, "Partial Content"},
    {301, "Moved Permanently"},
    {302, "Found"},
    {303, "See Other"},
    {304, "Not Modified"},
    {307, "Temporary Redirect"},
    {308, "Permanent Redirect"},
    {400, "Bad Request"},
    {401, "Unauthorized"},
    {403, "Forbidden"},
    {404, "Not Found"},
    {405, "Method Not Allowed"},
    {406, "Not Acceptable"},
    {408, "Request Timeout"},
    {409, "Conflict"},
    {410, "Gone"},
    {411, "Length Required"},
    {412, "Precondition Failed"},
    {413, "Content Too Large"},
    {414, "URI Too Long"},
    {415, "Unsupported Media Type"},
    {416, "Range Not Satisfiable"},
    {417, "Expectation Failed"},
    {422, "Unprocessable Content"},
    {426, "Upgrade Required"},
    {429, "Too Many Requests"},
    {431, "Request Header Fields Too Large"},
    {499, "Client Closed Request"},
    {500, "Internal Server Error"},
    {501, "Not Implemented"},
    {502, "Bad Gateway"},
    {503, "Service Unavailable"},
    {504, "Gateway Timeout"},
    {505, "HTTP Version Not Supported"},
    {507, "Insufficient Storage"},
};

const char *http_reason(int status)
{
    if (status == 200)
        return "OK";
    for (size_t i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++) {
        if (reasons[i].status == status)
            return reasons[i].reason;
    }
    return "Unknown";
}
