/* Requests of a client and answers of a server, in turn: blocks of both, each behind two bytes of length, whose
 * highest bit says that it is an answer. Whatever comes out has to be HTTP again, with the same requests in it. */
#include <stdlib.h>

#include "egress/rewrite/transform.h"
#include "protocol/json/json_shape.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct rules rules;
static size_t chosen, found;

static const char *choose(void *arg, const struct http_request *request, const struct rule **out)
{
    struct host_name host;

    (void)arg;
    if (!host_name_set(&host, http_headers_get(&request->headers, "host")))
        return "no host";
    *out = rules_for(&rules, &host);
    if (*out && str_is(request->method, "TRACE"))
        return "no";
    chosen++;
    return NULL;
}

/* What the server reads. */
static void read_again(struct str text)
{
    struct http_parser parser;

    http_parser_init(&parser, true, NULL, NULL);
    while (text.len) {
        enum http_parse step = http_parser_feed(&parser, &text);
        struct http_headers headers = http_parser_headers(&parser);

        if (step == HTTP_PARSE_ERROR)
            abort();
        if (step == HTTP_PARSE_HEAD) {
            found++;
            if (str_is(http_headers_get(&headers, "host"), "a.example") &&
                !str_is(http_headers_get(&headers, "authorization"), "secret"))
                abort();
        }
        if (parser.complete)
            http_parser_next(&parser);
    }
    http_parser_done(&parser);
}

static struct str next_block(struct str *in, bool *out_answer)
{
    size_t len = in->len < 2 ? in->len : (size_t)(in->p[0] & 0x7f) << 8 | (unsigned char)in->p[1];
    struct str block;

    *out_answer = in->len && (in->p[0] & 0x80);
    *in = str_skip(*in, in->len < 2 ? in->len : 2);
    block = str_n(in->p, len < in->len ? len : in->len);
    *in = str_skip(*in, block.len);
    return block;
}

static void set_rules(void)
{
    auto_json json_t *json = json_loads(
        "{\"a.example\":[{\"transform\":{\"headers\":{\"Authorization\":\"secret\",\"X-Gone\":null}"
        "}}]}",
        0, NULL);
    struct error ignored;

    if (rules.names.count)
        return;
    rules_init(&rules);
    if (rules_read(&rules, json, &ignored) < 0)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str in = str_n(data, size);
    struct transform transform;
    struct buf out, left;
    bool is_answer;

    set_rules();
    chosen = found = 0;
    transform_init(&transform, choose, NULL);
    buf_init(&out, (size_t)4 * 1024 * 1024);
    buf_init(&left, (size_t)1024 * 1024);
    while (in.len && !transform.fault && !transform.opaque) {
        struct str block = next_block(&in, &is_answer), rest;

        if (is_answer) {
            (void)transform_answer(&transform, block);
            continue;
        }
        (void)buf_add_str(&left, block);
        rest = buf_str(&left);
        (void)transform_request(&transform, &rest, &out);
        buf_drop(&left, left.len - rest.len);
    }
    read_again(buf_str(&out));
    if (found != chosen)
        abort();
    transform_done(&transform);
    buf_done(&out);
    buf_done(&left);
    return 0;
}
