#include "domain/route/ingress.h"

#include <stdio.h>

#define PORT_WORD "${PORT}"

static bool is_host_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c && strchr(".-_:[]", c));
}

bool ingress_set_mask(struct ingress *ingress, struct str mask)
{
    struct str rest = mask;

    if (!mask.len || mask.len >= INGRESS_MASK_SIZE)
        return false;
    while (rest.len) {
        if (str_starts(rest, STR(PORT_WORD)))
            rest = str_skip(rest, sizeof(PORT_WORD) - 1);
        else if (is_host_char(rest.p[0]))
            rest = str_skip(rest, 1);
        else
            return false;
    }
    return str_copy(mask, ingress->mask, sizeof(ingress->mask));
}

bool ingress_is_https(const struct ingress *ingress, uint16_t port)
{
    for (size_t i = 0; i < ingress->https_count; i++) {
        if (ingress->https_ports[i] == port)
            return true;
    }
    return false;
}

bool ingress_add_https(struct ingress *ingress, uint16_t port)
{
    if (ingress_is_https(ingress, port))
        return true;
    if (ingress->https_count == INGRESS_HTTPS_MAX)
        return false;
    ingress->https_ports[ingress->https_count++] = port;
    return true;
}

/* A port is never longer than the word it stands for, so the result fits. */
void ingress_mask(const struct ingress *ingress, uint16_t port, char out[INGRESS_MASK_SIZE])
{
    struct str rest = str_of(ingress->mask);
    size_t len = 0;

    while (rest.len) {
        if (str_starts(rest, STR(PORT_WORD))) {
            len += (size_t)snprintf(out + len, INGRESS_MASK_SIZE - len, "%u", port);
            rest = str_skip(rest, sizeof(PORT_WORD) - 1);
        } else {
            out[len++] = rest.p[0];
            rest = str_skip(rest, 1);
        }
    }
    out[len] = '\0';
}

void ingress_write(const struct ingress *ingress, char out[INGRESS_TEXT_SIZE])
{
    size_t len = 0;

    out[0] = '\0';
    if (ingress->mask[0])
        len = (size_t)snprintf(out, INGRESS_TEXT_SIZE, "mask %s\n", ingress->mask);
    for (size_t i = 0; i < ingress->https_count; i++)
        len += (size_t)snprintf(out + len, INGRESS_TEXT_SIZE - len, "%s %u", i ? "" : "https",
                                ingress->https_ports[i]);
    if (ingress->https_count)
        (void)snprintf(out + len, INGRESS_TEXT_SIZE - len, "\n");
}

static void read_ports(struct str list, struct ingress *out)
{
    uint64_t port;

    while (list.p) {
        if (str_to_u64(str_split(&list, ' '), &port) && port >= 1 && port <= UINT16_MAX)
            (void)ingress_add_https(out, (uint16_t)port);
    }
}

void ingress_read(struct str text, struct ingress *out)
{
    *out = (struct ingress){0};
    while (text.p) {
        struct str rest = str_split(&text, '\n'), name = str_split(&rest, ' ');

        if (str_is(name, "mask"))
            (void)ingress_set_mask(out, rest);
        else if (str_is(name, "https"))
            read_ports(rest, out);
    }
}
