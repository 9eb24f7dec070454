#include "extra/interpreter/program/frame.h"

/* "r 1234": a letter, a blank, digits. */
static bool read_head(struct frame_reader *reader)
{
    struct str head = str_n(reader->head, reader->head_len);

    if (head.len < 3 || head.p[0] < 'a' || head.p[0] > 'z' || head.p[1] != ' ' ||
        !str_to_u64(str_skip(head, 2), &reader->left) || reader->left > FRAME_BODY_MAX)
        return false;
    reader->kind = head.p[0];
    reader->head_len = 0;
    reader->in_body = true;
    return true;
}

static enum frame_event read_body(struct frame_reader *reader, struct str *in, struct str *out)
{
    size_t take = in->len < reader->left ? in->len : (size_t)reader->left;

    if (!reader->left) {
        reader->in_body = false;
        return FRAME_END;
    }
    if (!take)
        return FRAME_MORE;
    *out = str_n(in->p, take);
    *in = str_skip(*in, take);
    reader->left -= take;
    return FRAME_BODY;
}

enum frame_event frame_read(struct frame_reader *reader, struct str *in, struct str *out)
{
    if (reader->in_body)
        return read_body(reader, in, out);
    while (in->len) {
        char c = in->p[0];

        *in = str_skip(*in, 1);
        if (c == '\n')
            return read_head(reader) ? FRAME_BEGIN : FRAME_BAD;
        if (reader->head_len == sizeof(reader->head))
            return FRAME_BAD;
        reader->head[reader->head_len++] = c;
    }
    return FRAME_MORE;
}
