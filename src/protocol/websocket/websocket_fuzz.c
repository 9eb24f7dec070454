/* Any bytes of either side, in pieces: the first byte says how long these are. */
#include <stddef.h>
#include <stdint.h>

#include "protocol/websocket/websocket.h"

enum { MESSAGE_MAX = 100000 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void parse(const uint8_t *data, size_t size, size_t piece, enum websocket_side from)
{
    struct websocket_parser parser;
    struct websocket_message message;
    int r = 0;

    websocket_parser_init(&parser, from, MESSAGE_MAX);
    for (size_t at = 0; at < size && r >= 0; at += piece) {
        struct str part = str_n(data + at, size - at < piece ? size - at : piece);
        size_t messages = 0;

        while ((r = websocket_parse(&parser, &part, &message)) > 0) {
            if (message.data.len > MESSAGE_MAX || ++messages > size)
                __builtin_trap();
            if (message.opcode == WEBSOCKET_TEXT && !str_valid_utf8(message.data))
                __builtin_trap();
        }
        if (r < 0 && message.code < 1000)
            __builtin_trap();
    }
    websocket_parser_done(&parser);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    parse(data + 1, size - 1, (size_t)data[0] + 1, WEBSOCKET_CLIENT);
    parse(data + 1, size - 1, (size_t)data[0] + 1, WEBSOCKET_SERVER);
    return 0;
}
