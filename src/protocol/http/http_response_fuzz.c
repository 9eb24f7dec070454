/* What http_call() and the proxy's client read: responses from hostile servers. */
#include "protocol/http/http_parser.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int on_body(void *arg, struct str payload)
{
    *(size_t *)arg += payload.len;
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct http_parser parser;
    struct str all = str_n(data, size);
    size_t payload = 0;

    http_parser_init(&parser, false, on_body, &payload);
    parser.head_only = size % 11 == 0;
    while (all.len) {
        size_t step = (size_t)(unsigned char)all.p[0] % 61 + 1;
        struct str piece = str_n(all.p, step < all.len ? step : all.len);

        all = str_skip(all, piece.len);
        while (piece.len) {
            if (http_parser_feed(&parser, &piece) == HTTP_PARSE_ERROR)
                goto out;
            if (parser.complete)
                http_parser_next(&parser);
        }
    }
    (void)http_parser_finish(&parser);
out:
    if (payload > size)
        abort();
    http_parser_done(&parser);
    return 0;
}
