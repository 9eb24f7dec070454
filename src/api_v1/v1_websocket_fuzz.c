/* Any bytes of a client, in pieces: the first byte says how long these are. */
#include <stddef.h>
#include <stdint.h>

#include "api_v1/v1_websocket.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct websocket_parser parser;
    struct websocket_message message;
    size_t piece;
    int r = 0;

    if (size < 1)
        return 0;
    piece = (size_t)data[0] + 1;
    websocket_parser_init(&parser);
    for (size_t at = 1; at < size && r >= 0; at += piece) {
        struct str part = str_n(data + at, size - at < piece ? size - at : piece);
        size_t messages = 0;

        while ((r = websocket_parse(&parser, &part, &message)) > 0) {
            if (message.data.len > WEBSOCKET_MESSAGE_MAX || ++messages > size)
                __builtin_trap();
            if (message.opcode == WEBSOCKET_TEXT && !str_valid_utf8(message.data))
                __builtin_trap();
        }
        if (r < 0 && message.code < 1000)
            __builtin_trap();
    }
    websocket_parser_done(&parser);
    return 0;
}
