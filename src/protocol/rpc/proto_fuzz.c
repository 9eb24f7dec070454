/* Any bytes become a message or an error; a message goes to JSON and back to the same message. Any
 * text becomes bytes or an error, and those bytes are a message. The first byte chooses. */
#include <stdint.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "protocol/json/json_shape.h"
#include "protocol/rpc/connect.h"

extern const struct connect_method proto_test_methods[];

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct proto_message *message = proto_test_methods[0].request;
    auto_json json_t *first = NULL, *second = NULL;
    auto_buf struct buf bytes = {0};
    auto_free char *text = NULL;
    struct error err;
    struct str in;

    if (size == 0)
        return 0;
    in = str_n(data + 1, size - 1);
    buf_init(&bytes, in.len * 4 + 64);
    if (data[0] & 1) {
        /* Text is checked only where a reader could be harmed, so the bytes may be refused. */
        if (proto_encode(message, in, &bytes, &err) == 0)
            (void)proto_decode(message, buf_str(&bytes), &first, &err);
        return 0;
    }
    if (proto_decode(message, in, &first, &err) != 0)
        return 0;
    text = json_text(first);
    if (proto_encode(message, str_of(text), &bytes, &err) != 0 ||
        proto_decode(message, buf_str(&bytes), &second, &err) != 0)
        abort();
    return 0;
}
