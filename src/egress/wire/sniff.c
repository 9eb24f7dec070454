#include "egress/wire/sniff.h"

#include "protocol/http/http_parser.h"

static enum sniff sniff_tls(struct str bytes, struct sniffed *out)
{
    struct hello_name hello;

    switch (hello_read(bytes, &hello)) {
    case HELLO_MORE:
        return SNIFF_MORE;
    case HELLO_NAMED:
        out->name = hello.name;
        out->hides = hello.hides;
        return SNIFF_TLS;
    case HELLO_UNNAMED:
        out->fault = "its TLS hello names no server (SNI)";
        return SNIFF_TLS;
    case HELLO_BROKEN:
        break;
    }
    out->fault = "its TLS hello is malformed";
    return SNIFF_OTHER;
}

bool sniff_host(struct str header, struct host_name *out)
{
    struct str name = str_split(&header, ':');
    uint64_t port;

    if (header.p && (!str_to_u64(header, &port) || port == 0 || port > 65535))
        return false;
    return host_name_set(out, name);
}

static enum sniff sniff_http(struct str bytes, struct sniffed *out)
{
    struct http_parser parser;
    struct http_headers headers;
    enum sniff result = SNIFF_MORE;

    http_parser_init(&parser, true, NULL, NULL);
    switch (http_parser_feed(&parser, &bytes)) {
    case HTTP_PARSE_HEAD:
    case HTTP_PARSE_DONE:
        headers = http_parser_headers(&parser);
        result = SNIFF_HTTP;
        if (!sniff_host(http_headers_get(&headers, "host"), &out->name)) {
            out->name.len = 0;
            out->fault = "its HTTP request names no host";
        }
        break;
    case HTTP_PARSE_ERROR:
        result = SNIFF_OTHER;
        out->fault = "it is neither TLS nor an HTTP/1 request";
        break;
    case HTTP_PARSE_MORE:
    case HTTP_PARSE_PAUSED:
        break;
    }
    http_parser_done(&parser);
    return result;
}

enum sniff sniff_read(struct str bytes, struct sniffed *out)
{
    *out = (struct sniffed){0};
    if (!bytes.len)
        return SNIFF_MORE;
    if (hello_begins(bytes))
        return sniff_tls(bytes, out);
    if (bytes.p[0] >= 'A' && bytes.p[0] <= 'Z')
        return sniff_http(bytes, out);
    out->fault = "it is neither TLS nor an HTTP/1 request";
    return SNIFF_OTHER;
}
