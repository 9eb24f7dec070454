/* Frames in two cuts have to give the same; a cell for a shell is one line, whatever is in it, and one as a frame is itself. */
#include <stdint.h>
#include <stdlib.h>

#include "extra/interpreter/program/frame.h"
#include "extra/interpreter/program/language.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_frames(struct str all, size_t step, struct buf *out)
{
    struct frame_reader reader = {0};

    while (all.len) {
        struct str part = str_n(all.p, all.len < step ? all.len : step), body = STR_NONE;
        enum frame_event event;

        all = str_skip(all, part.len);
        while ((event = frame_read(&reader, &part, &body)) != FRAME_MORE) {
            if (event == FRAME_BAD) {
                (void)buf_add_char(out, '!');
                return;
            }
            if (event == FRAME_BODY)
                (void)buf_add_str(out, body);
            else
                (void)buf_add_char(out, event == FRAME_BEGIN ? reader.kind : '.');
        }
    }
}

static void write_cell(struct str code)
{
    struct cell_text cell = {.code = code};
    struct buf out;

    buf_init(&out, 4 << 20);
    language_write(language_find(STR("bash")), &cell, &out);
    if (!out.len || memchr(out.p, '\n', out.len) != out.p + out.len - 1 ||
        memchr(out.p, '\0', out.len))
        abort();
    buf_done(&out);
}

static void write_frame(struct str code)
{
    struct cell_text cell = {.code = code};
    struct frame_reader reader = {0};
    struct str rest, body = STR_NONE;
    struct buf out;

    buf_init(&out, 4 << 20);
    language_write(language_find(STR("r")), &cell, &out);
    rest = buf_str(&out);
    if (frame_read(&reader, &rest, &body) != FRAME_BEGIN || reader.kind != 'c' ||
        reader.left != code.len || !str_eq(rest, code))
        abort();
    buf_done(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str text = str_n(data, size);
    struct buf whole, pieces;

    buf_init(&whole, 4 << 20);
    buf_init(&pieces, 4 << 20);
    read_frames(text, size + 1, &whole);
    read_frames(text, 1 + size % 7, &pieces);
    if (!str_eq(buf_str(&whole), buf_str(&pieces)))
        abort();
    buf_done(&whole);
    buf_done(&pieces);
    write_cell(text);
    write_frame(text);
    (void)language_find(text);
    return 0;
}
