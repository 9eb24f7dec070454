/* URLs that somebody gave us, and where they may lead. An address is looked at when its socket is
 * made: it is the one that is connected to, whatever the name says a moment later. */
#include <netinet/in.h>
#include <sys/socket.h>

#include "fetch/fetch_internal.h"

static bool v4_public(uint32_t a)
{
    return !(a >> 24 == 0 || a >> 24 == 10 || a >> 24 == 127 || a >> 22 == (100U << 2 | 1) ||
             a >> 16 == (169U << 8 | 254) || a >> 20 == (172U << 4 | 1) ||
             a >> 16 == (192U << 8 | 168) || a >> 8 == (192U << 16) ||
             a >> 17 == ((198U << 8 | 18) >> 1) || a >> 28 >= 14);
}

bool fetch_address_public(const struct sockaddr *address)
{
    const struct in6_addr *v6;

    if (address->sa_family == AF_INET)
        return v4_public(
            ntohl(((const struct sockaddr_in *)(const void *)address)->sin_addr.s_addr));
    if (address->sa_family != AF_INET6)
        return false;
    v6 = &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr;
    if (IN6_IS_ADDR_V4MAPPED(v6)) {
        uint32_t v4;

        memcpy(&v4, v6->s6_addr + 12, sizeof(v4));
        return v4_public(ntohl(v4));
    }
    /* 2000::/3 is all that is public; the rest is local, multicast or not given out. */
    return (v6->s6_addr[0] & 0xe0) == 0x20;
}

static curl_socket_t open_public(void *arg, curlsocktype purpose, struct curl_sockaddr *address)
{
    struct fetch_setup *setup = arg;

    (void)purpose;
    if (fetch_address_public(&address->addr))
        return socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
    setup->refused = true;
    return CURL_SOCKET_BAD;
}

void fetch_reach_set(struct fetch_setup *setup, CURL *easy)
{
    /* Through a proxy nobody would know which address it is in the end. */
    if (setup->request.reach != FETCH_ANYWHERE)
        curl_easy_setopt(easy, CURLOPT_PROXY, "");
    if (setup->request.reach == FETCH_PUBLIC) {
        curl_easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, open_public);
        curl_easy_setopt(easy, CURLOPT_OPENSOCKETDATA, setup);
    }
}

bool fetch_url_ok(const char *text)
{
    CURLU *url = curl_url();
    char *port = NULL;
    bool ok = str_starts(str_of(text), STR("http://")) || str_starts(str_of(text), STR("https://"));

    for (const char *p = text; ok && *p; p++)
        ok = *p > ' ' && *p <= '~';
    ok = ok && url && curl_url_set(url, CURLUPART_URL, text, CURLU_DISALLOW_USER) == CURLUE_OK &&
         curl_url_get(url, CURLUPART_PORT, &port, CURLU_DEFAULT_PORT) == CURLUE_OK &&
         strcmp(port, "0") != 0;
    curl_free(port);
    curl_url_cleanup(url);
    return ok;
}
