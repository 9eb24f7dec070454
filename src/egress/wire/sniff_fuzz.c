/* First bytes of connections: what all of them are must not change when they come in two parts. */
#include <stdlib.h>

#include "egress/wire/sniff.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sniffed whole, part;
    enum sniff kind = sniff_read(str_n(data, size), &whole);
    enum sniff half = sniff_read(str_n(data, size / 2), &part);

    if (half != SNIFF_MORE && half != SNIFF_OTHER && kind == SNIFF_MORE)
        abort();
    if ((kind == SNIFF_TLS || kind == SNIFF_HTTP) && !whole.name.len == !whole.fault)
        abort();
    if (whole.name.len > HOST_NAME_LENGTH || whole.name.text[whole.name.len])
        abort();
    return 0;
}
