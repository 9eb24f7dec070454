/* URLs that somebody gave us, and where they may lead. An address is looked at when its socket is
 * made: it is the one that is connected to, whatever the name says a moment later. */
#include <sys/socket.h>

#include "protocol/fetch/fetch_internal.h"
#include "protocol/http/http_address.h"

static curl_socket_t open_public(void *arg, curlsocktype purpose, struct curl_sockaddr *address)
{
    struct fetch_setup *setup = arg;
    int local;

    (void)purpose;
    if (!http_address_public(&address->addr)) {
        setup->refused = true;
        return CURL_SOCKET_BAD;
    }
    local = fetch_address_local(&address->addr);
    if (local == 0)
        return socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
    setup->refused = local > 0;
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

bool fetch_url_follow(const char *base, const char *location, char *out, size_t size)
{
    CURLU *url = curl_url();
    char *whole = NULL;
    bool ok = location[0] && url &&
              curl_url_set(url, CURLUPART_URL, base, CURLU_DISALLOW_USER) == CURLUE_OK &&
              curl_url_set(url, CURLUPART_URL, location,
                           CURLU_DISALLOW_USER | CURLU_NON_SUPPORT_SCHEME) == CURLUE_OK &&
              curl_url_get(url, CURLUPART_URL, &whole, 0) == CURLUE_OK;

    ok = ok && str_copy(str_of(whole), out, size) && fetch_url_ok(out);
    curl_free(whole);
    curl_url_cleanup(url);
    return ok;
}
