/* Requests cut at places the input chooses, through the parser of a server connection. */
#include "protocol/http/http_parser.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int on_body(void *arg, struct str payload)
{
    *(size_t *)arg += payload.len;
    return payload.len % 3 == 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct http_parser parser;
    struct str all = str_n(data, size);
    size_t payload = 0;

    http_parser_init(&parser, true, on_body, &payload);
    while (all.len) {
        size_t step = (size_t)(unsigned char)all.p[0] % 61 + 1;
        struct str piece = str_n(all.p, step < all.len ? step : all.len);

        all = str_skip(all, piece.len);
        while (piece.len) {
            struct http_request request = {0};
            enum http_parse result = http_parser_feed(&parser, &piece);

            if (result == HTTP_PARSE_ERROR)
                goto out;
            if (result == HTTP_PARSE_HEAD)
                http_parser_request(&parser, &request);
            if (parser.complete)
                http_parser_next(&parser);
        }
    }
out:
    if (payload > size)
        abort();
    http_parser_done(&parser);
    return 0;
}
