/* The same body in two cuts has to give the same parts. */
#include "protocol/http/http_multipart.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int on_part(void *arg, struct str name, struct str filename)
{
    return buf_add_str(arg, name) && buf_add_str(arg, filename) ? 0 : -1;
}

static int on_data(void *arg, struct str data)
{
    return buf_add_str(arg, data) ? 0 : -1;
}

static int on_part_end(void *arg)
{
    return buf_add_char(arg, ']') ? 0 : -1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct http_multipart_events events = {on_part, on_data, on_part_end};
    struct buf out[2];
    int results[2] = {0};

    for (int run = 0; run < 2; run++) {
        struct http_multipart *reader;
        size_t step = run ? 1 + size % 7 : size + 1;

        buf_init(&out[run], 4 << 20);
        reader = http_multipart_new(STR("multipart/form-data; boundary=b"), &events, &out[run]);
        for (size_t at = 0; at < size && results[run] == 0; at += step)
            results[run] =
                http_multipart_feed(reader, str_n(data + at, size - at < step ? size - at : step));
        http_multipart_free(reader);
    }
    if (results[0] == 0 && results[1] == 0 && !str_eq(buf_str(&out[0]), buf_str(&out[1])))
        abort();
    buf_done(&out[0]);
    buf_done(&out[1]);
    return 0;
}
