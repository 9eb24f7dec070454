#include "base/address.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <ifaddrs.h>
#include <stdio.h>

enum { PORT_MAX = 65535 };

/* Without the brackets of IPv6. */
static struct str bare(struct str host)
{
    return host.len > 2 && host.p[0] == '[' && host.p[host.len - 1] == ']'
               ? str_n(host.p + 1, host.len - 2)
               : host;
}

static bool parse_v4(struct str host, union address *out)
{
    char text[INET_ADDRSTRLEN];

    *out = (union address){.v4 = {.sin_family = AF_INET}};
    return str_copy(host, text, sizeof(text)) && inet_pton(AF_INET, text, &out->v4.sin_addr) == 1;
}

static bool parse_v6(struct str host, union address *out)
{
    char text[INET6_ADDRSTRLEN];

    *out = (union address){.v6 = {.sin6_family = AF_INET6}};
    return str_copy(host, text, sizeof(text)) && inet_pton(AF_INET6, text, &out->v6.sin6_addr) == 1;
}

static void set_port(union address *address, uint16_t port)
{
    if (address->any.sa_family == AF_INET)
        address->v4.sin_port = htons(port);
    else
        address->v6.sin6_port = htons(port);
}

bool address_parse(const char *text, union address *out)
{
    const char *colon = strrchr(text, ':');
    struct str host = str_n(text, colon ? (size_t)(colon - text) : 0);
    uint64_t port;
    bool ok;

    if (!colon || !str_to_u64(str_of(colon + 1), &port) || port > PORT_MAX)
        return false;
    if (host.len == 0)
        ok = parse_v6(STR("::"), out);
    else if (str_eq_nocase(host, STR("localhost")))
        ok = parse_v4(STR("127.0.0.1"), out);
    else
        ok = host.p[0] == '[' ? parse_v6(bare(host), out) : parse_v4(host, out);
    set_port(out, (uint16_t)port);
    return ok;
}

socklen_t address_size(const union address *address)
{
    return address->any.sa_family == AF_INET ? sizeof(address->v4) : sizeof(address->v6);
}

uint16_t address_port(const union address *address)
{
    return ntohs(address->any.sa_family == AF_INET ? address->v4.sin_port : address->v6.sin6_port);
}

bool address_is_any(const union address *address)
{
    return address->any.sa_family == AF_INET ? address->v4.sin_addr.s_addr == htonl(INADDR_ANY)
                                             : IN6_IS_ADDR_UNSPECIFIED(&address->v6.sin6_addr);
}

bool address_is_loopback(const union address *address)
{
    return address->any.sa_family == AF_INET ? ntohl(address->v4.sin_addr.s_addr) >> 24 == 127
                                             : IN6_IS_ADDR_LOOPBACK(&address->v6.sin6_addr);
}

void address_url(const union address *address, char out[ADDRESS_URL_SIZE])
{
    char host[INET6_ADDRSTRLEN] = "127.0.0.1";
    bool v6 = address->any.sa_family == AF_INET6 && !address_is_any(address);

    if (v6)
        (void)inet_ntop(AF_INET6, &address->v6.sin6_addr, host, sizeof(host));
    else if (!address_is_any(address))
        (void)inet_ntop(AF_INET, &address->v4.sin_addr, host, sizeof(host));
    (void)snprintf(out, ADDRESS_URL_SIZE, "http://%s%s%s:%u", v6 ? "[" : "", host, v6 ? "]" : "",
                   address_port(address));
}

static bool same_host(const union address *a, const union address *b)
{
    if (a->any.sa_family != b->any.sa_family)
        return false;
    return a->any.sa_family == AF_INET ? a->v4.sin_addr.s_addr == b->v4.sin_addr.s_addr
                                       : IN6_ARE_ADDR_EQUAL(&a->v6.sin6_addr, &b->v6.sin6_addr);
}

static bool is_of_this_host(const union address *address)
{
    struct ifaddrs *all = NULL;
    bool found = false;

    if (getifaddrs(&all) < 0)
        return false;
    for (const struct ifaddrs *at = all; at && !found; at = at->ifa_next) {
        union address own = {.any = {.sa_family = AF_UNSPEC}};

        if (!at->ifa_addr ||
            (at->ifa_addr->sa_family != AF_INET && at->ifa_addr->sa_family != AF_INET6))
            continue;
        memcpy(&own, at->ifa_addr,
               at->ifa_addr->sa_family == AF_INET ? sizeof(own.v4) : sizeof(own.v6));
        found = same_host(&own, address);
    }
    freeifaddrs(all);
    return found;
}

bool address_is_reached(const union address *listen, struct str host, uint16_t port)
{
    bool near = address_is_any(listen) || address_is_loopback(listen);
    union address asked;

    if (port != address_port(listen))
        return false;
    if (str_eq_nocase(host, STR("localhost")))
        return near;
    if (!parse_v4(host, &asked) && !parse_v6(bare(host), &asked))
        return false;
    if (same_host(&asked, listen))
        return true;
    /* "This host", in the other family too: whoever means another server gives it another port. */
    if (address_is_any(&asked) ||
        same_host(&asked, &(union address){
                              .v6 = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT}}))
        return near;
    if (address_is_any(listen))
        return address_is_loopback(&asked) || is_of_this_host(&asked);
    return address_is_loopback(listen) && listen->any.sa_family == AF_INET6 &&
           asked.any.sa_family == AF_INET && asked.v4.sin_addr.s_addr == htonl(INADDR_LOOPBACK);
}

bool address_of_url(struct str url, struct str *out_host, uint16_t *out_port)
{
    bool tls = str_starts(url, STR("https://"));
    struct str host;
    ptrdiff_t end;
    uint64_t port;

    if (tls || str_starts(url, STR("http://"))) {
        url = str_skip(url, tls ? 8 : 7);
        *out_port = tls ? 443 : 80;
    }
    host = str_split(&url, '/');
    end = host.len && host.p[0] == '[' ? str_find(host, ']') : str_find(host, ':') - 1;
    if (end < 0) {
        *out_host = host;
        return host.len > 0 && host.p[0] != '[' && host.p[0] != ':';
    }
    *out_host = str_n(host.p, (size_t)end + 1);
    host = str_skip(host, (size_t)end + 1);
    if (host.len == 0)
        return true;
    if (host.p[0] != ':' || !str_to_u64(str_skip(host, 1), &port) || port < 1 || port > PORT_MAX)
        return false;
    *out_port = (uint16_t)port;
    return true;
}

bool address_is_label(struct str text)
{
    if (text.len == 0 || text.len > 63 || !islower((unsigned char)text.p[0]) ||
        text.p[text.len - 1] == '-')
        return false;
    for (size_t i = 0; i < text.len; i++)
        if (!islower((unsigned char)text.p[i]) && !isdigit((unsigned char)text.p[i]) &&
            text.p[i] != '-')
            return false;
    return true;
}
