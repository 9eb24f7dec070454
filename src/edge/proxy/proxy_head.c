#include "edge/proxy/proxy_head.h"

#include "edge/proxy/proxy_guard.h"

/* RFC 9110, 7.6.1: these, and what Connection names, end at each hop. */
static bool is_hop_header(struct str name, const struct http_headers *all)
{
    static const char *const names[] = {
        "connection", "keep-alive",         "proxy-connection",   "te",
        "upgrade",    "proxy-authenticate", "proxy-authorization"};
    static const char *const kept[] = {"host", "content-length", "transfer-encoding"};
    char text[64];

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (str_eq_nocase(name, str_of(names[i])))
            return true;
    }
    for (size_t i = 0; i < sizeof(kept) / sizeof(kept[0]); i++) {
        if (str_eq_nocase(name, str_of(kept[i])))
            return false; /* whatever Connection says: the message needs them */
    }
    return str_copy(name, text, sizeof(text)) && http_headers_has_token(all, "connection", text);
}

static bool begins(struct str name, struct str prefix)
{
    return name.len >= prefix.len && str_eq_nocase(str_n(name.p, prefix.len), prefix);
}

static void add(struct buf *out, struct str name, struct str value)
{
    (void)buf_add_str(out, name);
    (void)buf_add(out, ": ", 2);
    (void)buf_add_str(out, value);
    (void)buf_add(out, "\r\n", 2);
}

static void add_forwarded(const struct http_request *request, const char *peer, bool secure,
                          struct buf *out)
{
    struct str before = http_headers_get(&request->headers, "x-forwarded-for");
    struct str proto = http_headers_get(&request->headers, "x-forwarded-proto");
    struct str host = http_headers_get(&request->headers, "x-forwarded-host");

    if (!host.p)
        host = http_headers_get(&request->headers, "host");
    if (before.len && peer[0])
        (void)buf_printf(out, "X-Forwarded-For: %.*s, %s\r\n", STR_ARG(before), peer);
    else if (before.len || peer[0])
        add(out, STR("X-Forwarded-For"), before.len ? before : str_of(peer));
    add(out, STR("X-Forwarded-Proto"), proto.len ? proto : secure ? STR("https") : STR("http"));
    if (host.len)
        add(out, STR("X-Forwarded-Host"), host);
}

static bool is_credential(struct str name)
{
    static const char *const names[] = {"authorization", "cookie", "x-api-key", "x-bb-api-key",
                                        "x-access-token"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (str_eq_nocase(name, str_of(names[i])))
            return true;
    }
    return false;
}

/* Headers that are made anew, or are none of the server's business. */
static bool is_replaced(struct str name, const struct proxy_head_origin *origin)
{
    if (str_eq_nocase(name, STR("content-length")) ||
        str_eq_nocase(name, STR("transfer-encoding")) || str_eq_nocase(name, STR("expect")) ||
        str_eq_nocase(name, STR(PROXY_TRAFFIC_HEADER)))
        return true;
    if (origin->mask[0] && str_eq_nocase(name, STR("host")))
        return true;
    if (origin->path.p && (str_eq_nocase(name, STR("origin")) || is_credential(name)))
        return true;
    return !origin->envd && (str_eq_nocase(name, STR("x-forwarded-for")) ||
                             str_eq_nocase(name, STR("x-forwarded-proto")) ||
                             str_eq_nocase(name, STR("x-forwarded-host")));
}

bool proxy_head_binds(const struct http_headers *headers, const char *name)
{
    for (size_t i = 0; i < headers->count; i++) {
        const struct pair *header = &headers->items[i];

        if (str_eq_nocase(header->name, str_of(name)) &&
            (begins(header->value, STR("ntlm")) || begins(header->value, STR("negotiate"))))
            return true;
    }
    return false;
}

bool proxy_head_keeps(const struct http_request *request)
{
    bool repeatable = str_is(request->method, "GET") || str_is(request->method, "HEAD") ||
                      str_is(request->method, "OPTIONS");

    return repeatable && request->minor && !request->chunked && request->content_length <= 0 &&
           !request->upgrade && !proxy_head_binds(&request->headers, "authorization");
}

bool proxy_head_switches(const struct http_request *request, const struct http_headers *answer)
{
    struct str protocol = http_headers_get(answer, "upgrade");
    char text[64];

    return http_upgrades(request) && str_copy(protocol, text, sizeof(text)) &&
           http_headers_has_token(&request->headers, "upgrade", text);
}

void proxy_head_request(const struct http_request *request, const struct proxy_head_origin *origin,
                        struct buf *out)
{
    const struct http_headers *headers = &request->headers;

    (void)buf_add_str(out, request->method);
    (void)buf_add_char(out, ' ');
    (void)buf_add_str(out, origin->path.p ? origin->path : request->target);
    /* A 1.0 client cannot take chunks, so the server must not think it could. */
    (void)buf_add_str(out, request->minor ? STR(" HTTP/1.1\r\n") : STR(" HTTP/1.0\r\n"));
    if (origin->mask[0])
        add(out, STR("Host"), str_of(origin->mask));
    for (size_t i = 0; i < headers->count; i++) {
        const struct pair *header = &headers->items[i];

        if (!is_hop_header(header->name, headers) && !is_replaced(header->name, origin))
            add(out, header->name, header->value);
    }
    if (request->chunked)
        (void)buf_add_str(out, STR("Transfer-Encoding: chunked\r\n"));
    else if (request->content_length >= 0)
        (void)buf_printf(out, "Content-Length: %lld\r\n", (long long)request->content_length);
    if (!origin->envd)
        add_forwarded(request, origin->peer, origin->secure, out);
    if (http_upgrades(request)) {
        add(out, STR("Connection"), STR("Upgrade"));
        add(out, STR("Upgrade"), http_headers_get(headers, "upgrade"));
    } else if (!origin->keeps || !request->minor) {
        add(out, STR("Connection"), STR("close"));
    }
    if (!origin->envd && http_headers_has_token(headers, "te", "trailers")) {
        add(out, STR("TE"), STR("trailers"));
        add(out, STR("Connection"), STR("TE"));
    }
    (void)buf_add(out, "\r\n", 2);
}

/* They say something about the whole origin, or make the browser ask in its name. */
static bool speaks_for_origin(struct str name)
{
    static const char *const names[] = {"set-cookie",
                                        "set-cookie2",
                                        "service-worker-allowed",
                                        "clear-site-data",
                                        "strict-transport-security",
                                        "public-key-pins",
                                        "expect-ct",
                                        "alt-svc",
                                        "nel",
                                        "report-to",
                                        "reporting-endpoints",
                                        "accept-ch",
                                        "critical-ch",
                                        "origin-agent-cluster",
                                        "origin-trial",
                                        "use-as-dictionary",
                                        "set-login",
                                        "sec-session-registration",
                                        "secure-session-registration",
                                        "refresh"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (str_eq_nocase(name, str_of(names[i])))
            return true;
    }
    return false;
}

/* What a download needs. */
static bool describes_file(struct str name)
{
    static const char *const names[] = {"content-type",  "content-encoding", "content-language",
                                        "content-range", "content-md5",      "accept-ranges",
                                        "etag",          "last-modified",    "date",
                                        "vary",          "cache-control",    "expires",
                                        "retry-after",   "content-length",   "transfer-encoding"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (str_eq_nocase(name, str_of(names[i])))
            return true;
    }
    return begins(name, STR("access-control-")) || begins(name, STR("x-metadata-"));
}

static bool may_pass(struct str name, enum proxy_place place)
{
    if (place == PROXY_PLACE_OWN)
        return true;
    if (str_eq_nocase(name, STR("x-content-type-options")))
        return false; /* made anew */
    return place == PROXY_PLACE_LINK ? describes_file(name) : !speaks_for_origin(name);
}

/* With the name envd gave the file, but never shown in the browser. */
static struct str attachment(const struct http_headers *headers, struct arena *arena)
{
    struct str given = http_headers_get(headers, "content-disposition"), rest = given;
    struct str type = str_trim(str_split(&rest, ';'));
    struct buf value;
    struct str copy;

    if (!rest.p || !(str_eq_nocase(type, STR("inline")) || str_eq_nocase(type, STR("attachment"))))
        return STR("attachment");
    buf_init(&value, given.len + sizeof("attachment;"));
    (void)buf_printf(&value, "attachment;%.*s", STR_ARG(rest));
    copy = arena_str(arena, buf_str(&value));
    buf_done(&value);
    return copy;
}

struct http_headers proxy_head_response(const struct http_headers *headers, enum proxy_place place,
                                        struct arena *arena)
{
    /* A cache in between must not take it for the control plane's page of that name. */
    static const struct pair added[] = {
        {STR_INIT("Content-Security-Policy"), STR_INIT("sandbox")},
        {STR_INIT("X-Content-Type-Options"), STR_INIT("nosniff")},
        {STR_INIT("Vary"), STR_INIT("E2b-Sandbox-Id, E2b-Sandbox-Port, X-Access-Token")},
    };
    const size_t added_count = sizeof(added) / sizeof(added[0]);
    struct http_headers out = {0};

    out.items = arena_alloc(arena, (headers->count + added_count + 1) * sizeof(*out.items));
    for (size_t i = 0; i < headers->count; i++) {
        struct str name = headers->items[i].name;

        if (!is_hop_header(name, headers) && may_pass(name, place))
            out.items[out.count++] = headers->items[i];
    }
    for (size_t i = 0; i < added_count && place != PROXY_PLACE_OWN; i++)
        out.items[out.count++] = added[i];
    if (place == PROXY_PLACE_LINK)
        out.items[out.count++] =
            (struct pair){STR("Content-Disposition"), attachment(headers, arena)};
    return out;
}

/* What comes behind a body is too late to say where the message goes, how it ends, whose it is or how it is to be read
 * (RFC 9110, 6.5.1): who merges it with the head must not be made to believe otherwise. */
static bool may_trail(struct str name)
{
    static const char *const names[] = {"host",
                                        "content-length",
                                        "transfer-encoding",
                                        "trailer",
                                        "authorization",
                                        "cookie",
                                        "set-cookie",
                                        "expect",
                                        "range",
                                        "max-forwards",
                                        "content-type",
                                        "content-encoding",
                                        "content-range",
                                        "location",
                                        "x-access-token",
                                        "x-api-key",
                                        "age",
                                        "vary"};
    static const struct str prefixes[] = {STR_INIT("e2b-"), STR_INIT("x-forwarded-"),
                                          STR_INIT("proxy-"), STR_INIT("sec-"),
                                          STR_INIT("access-control-")};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (str_eq_nocase(name, str_of(names[i])))
            return false;
    }
    for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++) {
        if (begins(name, prefixes[i]))
            return false;
    }
    return true;
}

struct http_headers proxy_head_trailers(const struct http_headers *trailers, enum proxy_place place,
                                        struct arena *arena)
{
    struct http_headers out = {0};

    out.items = arena_alloc(arena, (trailers->count + 1) * sizeof(*out.items));
    for (size_t i = 0; i < trailers->count; i++) {
        struct str name = trailers->items[i].name;

        if (!is_hop_header(name, trailers) && may_trail(name) && may_pass(name, place))
            out.items[out.count++] = trailers->items[i];
    }
    return out;
}

void proxy_head_chunks_end(const struct http_headers *trailers, struct buf *out)
{
    (void)buf_add(out, "0\r\n", 3);
    for (size_t i = 0; i < trailers->count; i++)
        add(out, trailers->items[i].name, trailers->items[i].value);
    (void)buf_add(out, "\r\n", 2);
}

void proxy_head_switching(struct str reason, const struct http_headers *headers,
                          enum proxy_place place, struct buf *out)
{
    (void)buf_printf(out, "HTTP/1.1 101 %.*s\r\n", STR_ARG(reason));
    for (size_t i = 0; i < headers->count; i++) {
        struct str name = headers->items[i].name;

        if (!str_eq_nocase(name, STR("content-length")) &&
            !str_eq_nocase(name, STR("transfer-encoding")) &&
            (place == PROXY_PLACE_OWN || !speaks_for_origin(name)))
            add(out, name, headers->items[i].value);
    }
    (void)buf_add(out, "\r\n", 2);
}
