/* How it works
 *
 * A reader goes over the message with an offset; each step says whether there was enough. Names in answers may point
 * back into the message: a pointer must lead before the place where the name (or the part that led there) began, so a
 * loop cannot be, and the length of a name bounds the rest. */
#include "egress/wire/dns.h"

enum {
    FLAG_ANSWER = 0x8000,
    FLAG_TRUNCATED = 0x0200,
    FLAG_RECURSION = 0x0100,
    FLAG_RECURSES = 0x0080,
    OPCODE = 0x7800,
    CLASS_IN = 1,
    RECORDS_MAX = 512,
    EXTRAS_MAX = 16, /* records behind a question, among which OPT is looked for */
    ANSWER_SIZE = 16,
    OPT_SIZE = 11,
    POINTER_TO_QUESTION = 0xc00c,
};

struct reader {
    struct str message;
    size_t at;
};

static bool read_u8(struct reader *reader, unsigned *out)
{
    if (reader->at >= reader->message.len)
        return false;
    *out = (unsigned char)reader->message.p[reader->at++];
    return true;
}

static bool read_u16(struct reader *reader, unsigned *out)
{
    unsigned high, low;

    if (!read_u8(reader, &high) || !read_u8(reader, &low))
        return false;
    *out = high << 8 | low;
    return true;
}

static bool read_u32(struct reader *reader, uint32_t *out)
{
    unsigned high, low;

    if (!read_u16(reader, &high) || !read_u16(reader, &low))
        return false;
    *out = (uint32_t)high << 16 | low;
    return true;
}

static bool skip(struct reader *reader, size_t n)
{
    if (n > reader->message.len - reader->at)
        return false;
    reader->at += n;
    return true;
}

static bool add_label(struct host_name *name, struct reader *reader, unsigned len)
{
    size_t at = reader->at;

    return skip(reader, len) && host_name_add_label(name, str_n(reader->message.p + at, len));
}

/* The root is a name of length 0. pointers: whether names may be shortened here. */
static bool read_name(struct reader *reader, bool pointers, struct host_name *out)
{
    struct reader at = *reader;
    size_t lowest = reader->at;
    bool jumped = false;
    unsigned len, low;

    out->len = 0;
    out->text[0] = '\0';
    for (;;) {
        if (!read_u8(&at, &len))
            return false;
        if (len >= 0xc0) {
            size_t target;

            if (!pointers || !read_u8(&at, &low))
                return false;
            if (!jumped)
                reader->at = at.at;
            target = (size_t)(len & 0x3f) << 8 | low;
            if (target >= lowest)
                return false;
            jumped = true;
            at.at = lowest = target;
            continue;
        }
        if (len == 0)
            break;
        if (len > HOST_LABEL_MAX || !add_label(out, &at, len))
            return false;
    }
    if (!jumped)
        reader->at = at.at;
    return true;
}

/* Over a name whose text does not matter. */
static bool skip_name(struct reader *reader)
{
    unsigned len;

    for (;;) {
        if (!read_u8(reader, &len))
            return false;
        if (len >= 0xc0)
            return skip(reader, 1);
        if (len > HOST_LABEL_MAX)
            return false;
        if (len == 0)
            return true;
        if (!skip(reader, len))
            return false;
    }
}

struct header {
    unsigned id, flags, counts[4];
};

static bool read_header(struct reader *reader, struct header *out)
{
    if (!read_u16(reader, &out->id) || !read_u16(reader, &out->flags))
        return false;
    for (int i = 0; i < 4; i++)
        if (!read_u16(reader, &out->counts[i]))
            return false;
    return true;
}

struct record {
    unsigned type, class_or_size, length;
    uint32_t ttl;
    size_t data;
};

/* Behind the owner's name. */
static bool read_record(struct reader *reader, struct record *out)
{
    if (!read_u16(reader, &out->type) || !read_u16(reader, &out->class_or_size) ||
        !read_u32(reader, &out->ttl) || !read_u16(reader, &out->length))
        return false;
    out->data = reader->at;
    return skip(reader, out->length);
}

/* Does the asker take longer datagrams? What stands behind a question otherwise is of no interest. */
static void read_edns(struct reader *reader, const struct header *header, struct dns_question *out)
{
    unsigned count = header->counts[1] + header->counts[2] + header->counts[3];
    struct record record;

    for (unsigned i = 0; i < count && i < EXTRAS_MAX; i++) {
        if (!skip_name(reader) || !read_record(reader, &record))
            return;
        if (record.type != DNS_OPT)
            continue;
        out->edns = true;
        if (record.class_or_size > out->size_max)
            out->size_max =
                record.class_or_size < DNS_EDNS_MAX ? record.class_or_size : DNS_EDNS_MAX;
    }
}

int dns_read_question(struct str message, struct dns_question *out)
{
    struct reader reader = {message, 0};
    struct header header;
    unsigned type, class;
    bool named;

    *out = (struct dns_question){.size_max = DNS_PLAIN_MAX};
    if (!read_header(&reader, &header) || (header.flags & FLAG_ANSWER))
        return -1;
    out->id = (uint16_t)header.id;
    out->recursion = header.flags & FLAG_RECURSION;
    if (header.flags & OPCODE)
        return DNS_NOT_IMPLEMENTED;
    if (header.counts[0] != 1)
        return DNS_FORMAT_ERROR;
    named = read_name(&reader, false, &out->name);
    if (!named) {
        reader.at = DNS_HEADER_SIZE;
        if (!skip_name(&reader))
            return DNS_FORMAT_ERROR;
    }
    if (!read_u16(&reader, &type) || !read_u16(&reader, &class))
        return DNS_FORMAT_ERROR;
    if (reader.at - DNS_HEADER_SIZE > sizeof(out->wire))
        return DNS_FORMAT_ERROR;
    out->wire_len = reader.at - DNS_HEADER_SIZE;
    memcpy(out->wire, message.p + DNS_HEADER_SIZE, out->wire_len);
    out->type = (uint16_t)type;
    read_edns(&reader, &header, out);
    return named && class == CLASS_IN ? DNS_NO_ERROR : DNS_REFUSED;
}

/* ---- answers ---- */

static bool read_owner(struct reader *reader, struct host_name *owner)
{
    struct reader before = *reader;

    if (read_name(reader, true, owner))
        return true;
    /* Some name that cannot be one of ours. */
    *reader = before;
    owner->len = 0;
    return skip_name(reader);
}

static void lower(uint32_t *ttl, uint32_t other)
{
    if (other < *ttl)
        *ttl = other;
}

/* Looks through the answers for a CNAME of that name; true when there was one, then *name is where it leads. */
static bool follow(struct reader reader, unsigned count, struct host_name *name, uint32_t *ttl)
{
    struct host_name owner;
    struct record record;

    for (unsigned i = 0; i < count; i++) {
        struct reader data = reader;

        if (!read_owner(&reader, &owner) || !read_record(&reader, &record))
            return false;
        if (record.type != DNS_CNAME || record.class_or_size != CLASS_IN ||
            !str_eq(host_name_str(&owner), host_name_str(name)))
            continue;
        data.at = record.data;
        lower(ttl, record.ttl);
        return read_name(&data, true, name) && name->len;
    }
    return false;
}

static bool collect(struct reader reader, unsigned count, const struct host_name *name,
                    struct dns_answer *out)
{
    struct host_name owner;
    struct record record;

    for (unsigned i = 0; i < count; i++) {
        struct reader data;

        if (!read_owner(&reader, &owner) || !read_record(&reader, &record))
            return false;
        if (record.type != DNS_A || record.class_or_size != CLASS_IN || record.length != 4 ||
            out->count == DNS_ADDRESSES_MAX || !str_eq(host_name_str(&owner), host_name_str(name)))
            continue;
        data = (struct reader){reader.message, record.data};
        (void)read_u32(&data, &out->addresses[out->count++]);
        lower(&out->ttl_s, record.ttl);
    }
    return true;
}

static bool same_question(struct reader *reader, const struct dns_question *question)
{
    struct host_name name;
    unsigned type, class;

    return read_name(reader, false, &name) && read_u16(reader, &type) && read_u16(reader, &class) &&
           type == question->type && class == CLASS_IN &&
           str_eq(host_name_str(&name), host_name_str(&question->name));
}

bool dns_read_answer(struct str message, uint16_t id, const struct dns_question *question,
                     struct dns_answer *out)
{
    struct reader reader = {message, 0};
    struct host_name name = question->name;
    struct header header;

    *out = (struct dns_answer){.ttl_s = UINT32_MAX};
    if (!read_header(&reader, &header) || header.id != id || !(header.flags & FLAG_ANSWER) ||
        (header.flags & OPCODE) || header.counts[0] != 1 || !same_question(&reader, question))
        return false;
    out->code = header.flags & 15;
    out->truncated = header.flags & FLAG_TRUNCATED;
    if (out->truncated || out->code != DNS_NO_ERROR)
        return true;
    if (header.counts[1] > RECORDS_MAX)
        header.counts[1] = RECORDS_MAX;
    for (int i = 0; i < DNS_CHAIN_MAX; i++)
        if (!follow(reader, header.counts[1], &name, &out->ttl_s))
            break;
    return collect(reader, header.counts[1], &name, out);
}

/* ---- writing ---- */

static bool put_u16(struct buf *out, unsigned value)
{
    const char bytes[] = {(char)(value >> 8), (char)value};

    return buf_add(out, bytes, sizeof(bytes));
}

static bool put_u32(struct buf *out, uint32_t value)
{
    return put_u16(out, value >> 16) && put_u16(out, value & 0xffff);
}

static bool put_header(struct buf *out, unsigned id, unsigned flags, const unsigned counts[4])
{
    bool ok = put_u16(out, id) && put_u16(out, flags);

    for (int i = 0; i < 4; i++)
        ok = ok && put_u16(out, counts[i]);
    return ok;
}

static bool put_opt(struct buf *out)
{
    return buf_add_char(out, '\0') && put_u16(out, DNS_OPT) && put_u16(out, DNS_EDNS_MAX) &&
           put_u32(out, 0) && put_u16(out, 0);
}

bool dns_write_question(struct buf *out, uint16_t id, const struct dns_question *question)
{
    static const unsigned counts[4] = {1, 0, 0, 1};
    struct str rest = host_name_str(&question->name);
    bool ok = put_header(out, id, FLAG_RECURSION, counts);

    while (ok && rest.len) {
        struct str label = str_split(&rest, '.');

        ok = buf_add_char(out, (char)label.len) && buf_add_str(out, label);
    }
    return ok && buf_add_char(out, '\0') && put_u16(out, question->type) &&
           put_u16(out, CLASS_IN) && put_opt(out);
}

bool dns_write_answer(struct buf *out, const struct dns_question *question,
                      const struct dns_answer *answer, size_t size_max)
{
    size_t fixed = DNS_HEADER_SIZE + question->wire_len + (question->edns ? OPT_SIZE : 0);
    bool cut = answer->truncated || fixed + answer->count * ANSWER_SIZE > size_max;
    size_t count = cut ? 0 : answer->count;
    const unsigned counts[4] = {question->wire_len ? 1 : 0, (unsigned)count, 0, question->edns};
    unsigned flags = FLAG_ANSWER | FLAG_RECURSES | (unsigned)answer->code |
                     (question->recursion ? FLAG_RECURSION : 0) | (cut ? FLAG_TRUNCATED : 0);
    bool ok = put_header(out, question->id, flags, counts) &&
              buf_add(out, question->wire, question->wire_len);

    for (size_t i = 0; ok && i < count; i++)
        ok = put_u16(out, POINTER_TO_QUESTION) && put_u16(out, DNS_A) && put_u16(out, CLASS_IN) &&
             put_u32(out, answer->ttl_s) && put_u16(out, 4) && put_u32(out, answer->addresses[i]);
    return ok && (!question->edns || put_opt(out));
}

bool dns_pass_answer(struct buf *out, const struct dns_question *question, struct str message,
                     size_t size_max)
{
    if (message.len > size_max || message.len < DNS_HEADER_SIZE + question->wire_len)
        return false;
    return put_u16(out, question->id) && buf_add(out, message.p + 2, DNS_HEADER_SIZE - 2) &&
           buf_add(out, question->wire, question->wire_len) &&
           buf_add_str(out, str_skip(message, DNS_HEADER_SIZE + question->wire_len));
}
