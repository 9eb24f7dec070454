/* The TCP ports that a box listens on, from /proc/net/tcp and tcp6 of its network namespace.
 *
 * The kernel lists listening sockets before all others, so the first TEXT_MAX bytes are enough, however many connections
 * the box has. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "host/native/box.h"

#define MAPPED "0000000000000000FFFF0000" /* ::ffff:a.b.c.d, without the last word */

enum { TEXT_MAX = 32 * 1024, ADDRESS_SIZE = 33 };

static struct str next_word(struct str *rest)
{
    struct str word = STR_NONE;

    while (rest->p && !word.len)
        word = str_split(rest, ' ');
    return word;
}

/* address: 8 or 32 hexadecimal digits, each word of 32 bits in the byte order of the host. */
static bool is_loopback(struct str address)
{
    if (address.len == 8)
        return str_ends(address, STR("7F"));
    return str_is(address, "00000000000000000000000001000000") ||
           (str_starts(address, STR(MAPPED)) && str_ends(address, STR("7F")));
}

static void add(struct box_ports *ports, uint16_t number, bool loopback)
{
    uint32_t at = 0;

    while (at < ports->count && ports->at[at].number < number)
        at++;
    if (at < ports->count && ports->at[at].number == number) {
        ports->at[at].loopback &= loopback;
        return;
    }
    if (ports->count == BOX_PORTS_MAX)
        return;
    memmove(&ports->at[at + 1], &ports->at[at], (ports->count - at) * sizeof(*ports->at));
    ports->at[at] = (struct box_port){number, loopback};
    ports->count++;
}

/* "  0: 0100007F:1F90 00000000:0000 0A ...": the state 0A is LISTEN. Returns false for other states and for text that is
 * not such a line. */
static bool read_line(struct str line, struct box_ports *out)
{
    struct str local, address;
    char digits[8], *end;
    unsigned long number;

    (void)next_word(&line);
    local = next_word(&line);
    (void)next_word(&line);
    if (!str_is(next_word(&line), "0A"))
        return false;
    address = str_split(&local, ':');
    if (!str_copy(local, digits, sizeof(digits)))
        return false;
    number = strtoul(digits, &end, 16);
    if (end == digits || *end || number > UINT16_MAX)
        return false;
    add(out, (uint16_t)number, is_loopback(address));
    return true;
}

void box_ports_read(struct str text, struct box_ports *out)
{
    (void)str_split(&text, '\n'); /* the titles of the columns */
    while (text.len && read_line(str_split(&text, '\n'), out))
        ;
}

static int read_file(int fd, struct box_ports *out)
{
    char text[TEXT_MAX];
    ssize_t len = fd_read_full(fd, text, sizeof(text));

    if (len < 0)
        return (int)len;
    box_ports_read(str_n(text, (size_t)len), out);
    return 0;
}

int box_ports(struct boxes *all, const char *id, struct box_ports *out, struct error *err)
{
    static const char *const names[] = {"tcp", "tcp6"};

    *out = (struct box_ports){0};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        auto_close int fd = -1;
        int r;

        if (box_open_net(all, id, names[i], &fd, err) < 0)
            return -1;
        r = read_file(fd, out);
        if (r < 0)
            return error_set_errno(err, -r, "read the sockets of '%s'", id);
    }
    return 0;
}
