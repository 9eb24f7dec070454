#include "base/ready_ports.h"

/* By the kernel's list of sockets: the state 0A is listening. */
#define BEFORE STR("n=0; until grep -qE ':(")
#define AFTER                                                                               \
    STR(") [0-9A-F]+:0000 0A' /proc/net/tcp /proc/net/tcp6 2>/dev/null || [ $n -ge 100 ]; " \
        "do n=$((n + 1)); sleep 0.1; done")

void ready_ports_write(struct buf *out, const uint16_t *ports, size_t count)
{
    (void)buf_add_str(out, BEFORE);
    for (size_t i = 0; i < count; i++)
        (void)buf_printf(out, "%s%04X", i ? "|" : "", ports[i]);
    (void)buf_add_str(out, AFTER);
}

static bool read_port(struct str text, uint16_t *out)
{
    unsigned value = 0;

    if (text.len != 4)
        return false;
    for (size_t i = 0; i < text.len; i++) {
        char c = text.p[i];

        if (!(c >= '0' && c <= '9') && !(c >= 'A' && c <= 'F'))
            return false;
        value = value * 16 + (unsigned)(c <= '9' ? c - '0' : c - 'A' + 10);
    }
    *out = (uint16_t)value;
    return true;
}

size_t ready_ports_read(struct str text, uint16_t out[READY_PORTS_MAX])
{
    size_t count = 0;

    if (!str_starts(text, BEFORE) || !str_ends(text, AFTER) || text.len < BEFORE.len + AFTER.len)
        return 0;
    text = str_n(text.p + BEFORE.len, text.len - BEFORE.len - AFTER.len);
    while (text.p) {
        if (count == READY_PORTS_MAX || !read_port(str_split(&text, '|'), &out[count]))
            return 0;
        count++;
    }
    return count;
}
