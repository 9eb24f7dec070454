/* Small readers of text that outsiders send: addresses, URLs, times, escapes, numbers. The first byte
 * chooses; what can be written again must say the same. */
#include <stdlib.h>

#include "base/address.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/encode.h"

/* Years of four digits, whatever the offset. */
#define YEAR_1_US    INT64_C(-62135596800000000)
#define YEAR_9999_US INT64_C(253370764800000000)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void try_address(struct str text)
{
    auto_free char *copy = str_dup(text);
    union address address;
    struct str host;
    uint16_t port = 0;

    if (address_parse(copy, &address) && address_port(&address) != 0) { /* 0: any port, no URL */
        char url[ADDRESS_URL_SIZE];

        address_url(&address, url);
        if (!address_of_url(str_of(url), &host, &port) || port != address_port(&address) ||
            !address_is_reached(&address, host, port))
            abort();
    }
    if (address_of_url(text, &host, &port) && (host.p < text.p || host.len > text.len))
        abort();
}

static void try_clock(struct str text)
{
    char again[CLOCK_TEXT_SIZE];
    int64_t us, same;

    if (!clock_parse(text, &us) || us < YEAR_1_US || us >= YEAR_9999_US)
        return;
    clock_format(us, again);
    if (!clock_parse(str_of(again), &same) || same != us)
        abort();
}

static void try_base64(struct str text)
{
    auto_buf struct buf bytes = {0}, same = {0};
    auto_free char *again = NULL;

    buf_init(&bytes, text.len + 4);
    buf_init(&same, text.len + 4);
    if (!base64_decode(text, &bytes))
        return;
    again = calloc(1, BASE64_LEN(bytes.len) + 1);
    base64_encode(again, bytes.p, bytes.len);
    if (!base64_decode(str_of(again), &same) || !str_eq(buf_str(&bytes), buf_str(&same)))
        abort();
}

static void try_url(struct str text)
{
    auto_buf struct buf out = {0}, value = {0};

    buf_init(&out, text.len + 1);
    buf_init(&value, text.len + 1);
    (void)url_decode(text, text.len & 1, &out);
    if (url_query_get(text, "path", &value) && value.len > text.len)
        abort();
}

static void try_numbers(struct str text)
{
    char again[24];
    uint64_t positive;
    int64_t number, same;

    if (str_to_u64(text, &positive) && (text.len == 0 || text.p[0] == '-'))
        abort();
    if (str_to_i64(text, &number)) {
        (void)snprintf(again, sizeof(again), "%lld", (long long)number);
        if (!str_to_i64(str_of(again), &same) || same != number)
            abort();
    }
    (void)str_valid_utf8(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static void (*const readers[])(struct str) = {try_address, try_clock, try_base64, try_url,
                                                  try_numbers};

    if (size > 0)
        readers[data[0] % 5](str_n(data + 1, size - 1));
    return 0;
}
