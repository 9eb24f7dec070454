#include "egress/wire/hello.h"

#include "base/buf.h"

enum {
    RECORD_HANDSHAKE = 22,
    RECORD_HEAD = 5,
    RECORD_MAX = 16384,
    HANDSHAKE_HELLO = 1,
    HANDSHAKE_HEAD = 4,
    EXTENSION_NAME = 0,
    EXTENSION_HIDDEN = 0xfe0d,
    NAME_OF_HOST = 0,
};

static unsigned byte_at(struct str s, size_t i)
{
    return (unsigned char)s.p[i];
}

/* Cuts off what stands behind a length of that many bytes. */
static bool take_vector(struct str *rest, size_t length_bytes, struct str *out)
{
    size_t len = 0;

    if (rest->len < length_bytes)
        return false;
    for (size_t i = 0; i < length_bytes; i++)
        len = len << 8 | byte_at(*rest, i);
    *rest = str_skip(*rest, length_bytes);
    if (rest->len < len)
        return false;
    *out = str_n(rest->p, len);
    *rest = str_skip(*rest, len);
    return true;
}

static bool take_u16(struct str *rest, unsigned *out)
{
    if (rest->len < 2)
        return false;
    *out = byte_at(*rest, 0) << 8 | byte_at(*rest, 1);
    *rest = str_skip(*rest, 2);
    return true;
}

bool hello_begins(struct str bytes)
{
    return bytes.len && byte_at(bytes, 0) == RECORD_HANDSHAKE &&
           (bytes.len < 2 || byte_at(bytes, 1) == 3);
}

/* Puts the handshake's bytes together. False: they are not TLS. */
static bool join_records(struct str bytes, struct buf *out)
{
    while (bytes.len) {
        size_t len;

        if (!hello_begins(bytes))
            return false;
        if (bytes.len < RECORD_HEAD)
            return true;
        len = byte_at(bytes, 3) << 8 | byte_at(bytes, 4);
        if (len == 0 || len > RECORD_MAX)
            return false;
        bytes = str_skip(bytes, RECORD_HEAD);
        (void)buf_add(out, bytes.p, len < bytes.len ? len : bytes.len);
        bytes = str_skip(bytes, len < bytes.len ? len : bytes.len);
    }
    return true;
}

/* RFC 6066: a list of one name. More than one, or of another kind, is nobody's. */
static enum hello read_names(struct str extension, struct hello_name *out)
{
    struct str list, name;

    if (!take_vector(&extension, 2, &list) || extension.len || !list.len)
        return HELLO_BROKEN;
    if (byte_at(list, 0) != NAME_OF_HOST)
        return HELLO_UNNAMED;
    list = str_skip(list, 1);
    if (!take_vector(&list, 2, &name) || list.len)
        return HELLO_BROKEN;
    return host_name_set(&out->name, name) ? HELLO_NAMED : HELLO_UNNAMED;
}

static enum hello read_extensions(struct str extensions, struct hello_name *out)
{
    enum hello result = HELLO_UNNAMED;
    bool seen = false;
    struct str data;
    unsigned type;

    while (extensions.len) {
        if (!take_u16(&extensions, &type) || !take_vector(&extensions, 2, &data))
            return HELLO_BROKEN;
        out->hides |= type == EXTENSION_HIDDEN;
        if (type != EXTENSION_NAME)
            continue;
        if (seen)
            return HELLO_BROKEN;
        seen = true;
        result = read_names(data, out);
        if (result == HELLO_BROKEN)
            return HELLO_BROKEN;
    }
    return result;
}

static enum hello read_body(struct str body, struct hello_name *out)
{
    enum { VERSION_AND_RANDOM = 34 };
    struct str ignored, extensions;

    if (body.len < VERSION_AND_RANDOM)
        return HELLO_BROKEN;
    body = str_skip(body, VERSION_AND_RANDOM);
    if (!take_vector(&body, 1, &ignored) || !take_vector(&body, 2, &ignored) ||
        !take_vector(&body, 1, &ignored))
        return HELLO_BROKEN;
    if (!body.len)
        return HELLO_UNNAMED;
    if (!take_vector(&body, 2, &extensions) || body.len)
        return HELLO_BROKEN;
    return read_extensions(extensions, out);
}

enum hello hello_read(struct str bytes, struct hello_name *out)
{
    auto_buf struct buf joined = {0};
    struct str rest, body;
    size_t len;

    *out = (struct hello_name){0};
    buf_init(&joined, HELLO_MAX);
    if (bytes.len > HELLO_MAX || !join_records(bytes, &joined))
        return HELLO_BROKEN;
    rest = buf_str(&joined);
    if (rest.len && byte_at(rest, 0) != HANDSHAKE_HELLO)
        return HELLO_BROKEN;
    if (rest.len < HANDSHAKE_HEAD)
        return HELLO_MORE;
    len = (size_t)byte_at(rest, 1) << 16 | byte_at(rest, 2) << 8 | byte_at(rest, 3);
    if (len > HELLO_MAX - HANDSHAKE_HEAD)
        return HELLO_BROKEN;
    if (rest.len - HANDSHAKE_HEAD < len)
        return HELLO_MORE;
    body = str_n(rest.p + HANDSHAKE_HEAD, len);
    return read_body(body, out);
}
