/* One HTTP/1 message after the other out of a byte stream: llhttp underneath, plus the limits, the
 * collected head and stricter rules for requests. Private to src/http. */
#pragma once

#include <llhttp.h>

#include "base/buf.h"
#include "protocol/http/http.h"
#include "protocol/http/http_body.h"

enum http_parse {
    HTTP_PARSE_MORE,   /* all input used, more is needed */
    HTTP_PARSE_HEAD,   /* head complete (parser->complete: and no body follows) */
    HTTP_PARSE_DONE,   /* message complete; input behind it is left */
    HTTP_PARSE_PAUSED, /* on_body asked for a break; feed again to go on */
    HTTP_PARSE_ERROR,  /* error_status and error_text say why; nothing more can be fed */
};

struct http_span {
    uint32_t name, name_len, value, value_len;
};

struct http_parser {
    llhttp_t ll;
    http_body_fn *on_body;
    void *arg;
    bool request;
    bool connects;  /* requests: CONNECT is taken */
    bool head_only; /* responses: no body whatever the head says (HEAD) */
    bool head_done, complete;
    bool keep_alive; /* from the end of the head on */
    bool name_done;
    char scan_last;  /* last byte seen in a request head */
    bool scan_line;  /* the current line has bytes */
    bool scan_any;   /* a line with bytes was seen */
    bool scan_first; /* the request line is behind us */
    size_t head_bytes;
    struct http_body body;
    struct buf text; /* target or reason, then names and values */
    struct buf trailer_text;
    struct http_headers trailers; /* of trailer_text */
    uint32_t first_len;
    struct http_span *spans;
    struct pair *items;
    size_t count, cap;
    int error_status;
    const char *error_text;
};

void http_parser_init(struct http_parser *parser, bool request, http_body_fn *on_body, void *arg);
void http_parser_done(struct http_parser *parser);
/* Makes ready for the next message. */
void http_parser_next(struct http_parser *parser);
/* Uses bytes from the front of *in. */
enum http_parse http_parser_feed(struct http_parser *parser, struct str *in);
/* End of the stream: true when that completes the message (a body delimited by the close). */
bool http_parser_finish(struct http_parser *parser);
/* Has anything of the current message been seen? */
bool http_parser_begun(const struct http_parser *parser);

/* Valid between HTTP_PARSE_HEAD and http_parser_next(). */
void http_parser_request(const struct http_parser *parser, struct http_request *out);
struct http_headers http_parser_headers(const struct http_parser *parser);
/* The same, once it is complete: what followed the last chunk. */
const struct http_headers *http_parser_trailers(const struct http_parser *parser);
/* Responses. */
struct http_framing http_parser_framing(const struct http_parser *parser);
struct str http_parser_reason(const struct http_parser *parser);
