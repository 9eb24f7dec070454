/* An envd's stream, cut into pieces as a network would: any bytes are an answer or an error. */
#include <stddef.h>
#include <stdint.h>

#include "protocol/rpc/connect.h"
#include "provider/envd/envd_client.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct connect_decoder decoder = {.max = 64 * 1024};
    struct envd_events events = {0};
    size_t step = size ? 1 + data[0] : 1;

    for (size_t at = 1; at < size; at += step) {
        struct error err = {0};
        size_t len = size - at < step ? size - at : step;

        if (connect_decode(&decoder, str_n(data + at, len), envd_events_add, &events, &err) < 0)
            break;
        for (size_t i = 0; i < events.count; i++)
            if (events.items[i].offset + events.items[i].len > events.data.len)
                __builtin_trap();
    }
    connect_decoder_done(&decoder);
    envd_events_done(&events);
    return 0;
}
