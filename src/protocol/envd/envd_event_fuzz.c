/* An envd's answers: any bytes are messages or an error. The first byte chooses: a stream of events, cut into
 * pieces as a network would, or one message of files. */
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "protocol/envd/envd_wire.h"
#include "protocol/rpc/connect.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_inside(struct str whole, struct str part)
{
    if (part.len && (part.p < whole.p || part.p + part.len > whole.p + whole.len))
        __builtin_trap();
}

static int on_message(void *arg, uint8_t flags, struct str message)
{
    struct envd_event event;

    (void)flags;
    if (envd_read_event(message, &event, arg) < 0)
        return -1;
    check_inside(message, event.data);
    check_inside(message, event.status);
    return 0;
}

static void read_stream(const uint8_t *data, size_t size, size_t step)
{
    struct connect_decoder decoder = {.max = 64 * 1024};
    struct error err = {0};

    for (size_t at = 0; at < size; at += step) {
        size_t len = size - at < step ? size - at : step;

        if (connect_decode(&decoder, str_n(data + at, len), on_message, &err, &err) < 0)
            break;
    }
    connect_decoder_done(&decoder);
}

static void read_files(struct str message)
{
    struct arena arena = {0};
    struct envd_file *files, file;
    struct error err = {0};
    size_t count;

    (void)envd_read_file(message, &arena, &file, &err);
    if (envd_read_list(message, &arena, &files, &count, &err) == 0)
        for (size_t i = 0; i < count; i++)
            if (!str_valid_utf8(files[i].name) || !str_valid_utf8(files[i].path))
                __builtin_trap();
    arena_done(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!size)
        return 0;
    if (data[0] & 1)
        read_files(str_n(data + 1, size - 1));
    else
        read_stream(data + 1, size - 1, 1 + data[0]);
    return 0;
}
