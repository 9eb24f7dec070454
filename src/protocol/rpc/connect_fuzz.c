/* Envelopes in pieces of every size give the same messages as in one piece. */
#include <stdint.h>
#include <stdlib.h>

#include "protocol/rpc/connect.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int count(void *arg, uint8_t flags, struct str message)
{
    *(size_t *)arg = *(size_t *)arg * 31 + message.len + flags + 1;
    return 0;
}

static int decode(struct str data, size_t piece, size_t *sum)
{
    struct connect_decoder decoder = {.max = 1000};
    struct error err = {0};
    int r = 0;

    while (data.len > 0 && r == 0) {
        size_t n = data.len < piece ? data.len : piece;

        r = connect_decode(&decoder, str_n(data.p, n), count, sum, &err);
        data = str_skip(data, n);
    }
    connect_decoder_done(&decoder);
    return r;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t whole = 0, pieces = 0;

    if (decode(str_n(data, size), size + 1, &whole) != decode(str_n(data, size), 3, &pieces) ||
        whole != pieces)
        abort();
    return 0;
}
