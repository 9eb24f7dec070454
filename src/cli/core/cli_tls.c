/* libcurl connects, shakes hands and verifies; then it only carries bytes (CONNECT_ONLY). So remote
 * servers are reached as curl reaches them, also through a proxy of the environment. */
#include "cli/core/cli_tls.h"

#include <curl/curl.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "cli/core/cli_stream.h"

struct tls {
    struct http_carrier carrier;
    CURL *curl;
};

static bool is_loopback(const char *host)
{
    return strcmp(host, "localhost") == 0 || strcmp(host, "::1") == 0 ||
           str_starts(str_of(host), STR("127."));
}

static CURL *curl_of(struct http_carrier *carrier)
{
    return ((struct tls *)carrier)->curl;
}

static ssize_t result(CURLcode rc, size_t n)
{
    if (rc == CURLE_OK)
        return (ssize_t)n;
    errno = rc == CURLE_AGAIN ? EAGAIN : ECONNRESET;
    return -1;
}

static ssize_t tls_send(struct http_carrier *carrier, const void *p, size_t len)
{
    size_t n = 0;
    CURLcode rc = curl_easy_send(curl_of(carrier), p, len, &n);

    return result(rc, n);
}

static ssize_t tls_recv(struct http_carrier *carrier, void *p, size_t len)
{
    size_t n = 0;
    CURLcode rc = curl_easy_recv(curl_of(carrier), p, len, &n);

    return result(rc, n);
}

static void tls_close(struct http_carrier *carrier)
{
    curl_easy_cleanup(curl_of(carrier));
    free(carrier);
}

int cli_tls_open(const struct cli_url *url, uint32_t timeout_ms, struct http_carrier **out,
                 int *out_fd, struct error *err)
{
    bool v6 = strchr(url->host, ':') != NULL;
    auto_free char *text =
        xasprintf("https://%s%s%s:%u", v6 ? "[" : "", url->host, v6 ? "]" : "", url->port);
    const char *authorities = getenv("SSL_CERT_FILE");
    CURL *curl = curl_easy_init();
    curl_socket_t fd = CURL_SOCKET_BAD;
    struct tls *tls;
    CURLcode rc;

    if (!curl)
        return error_set(err, ERROR_INTERNAL, "TLS cannot be used on this machine");
    (void)curl_easy_setopt(curl, CURLOPT_URL, text);
    (void)curl_easy_setopt(curl, CURLOPT_CONNECT_ONLY, 1L);
    (void)curl_easy_setopt(curl, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    (void)curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    (void)curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, timeout_ms ? (long)timeout_ms : 30000L);
    if (authorities && authorities[0])
        (void)curl_easy_setopt(curl, CURLOPT_CAINFO, authorities);
    if (is_loopback(url->host))
        (void)curl_easy_setopt(curl, CURLOPT_PROXY, "");
    rc = curl_easy_perform(curl);
    if (rc == CURLE_OK)
        rc = curl_easy_getinfo(curl, CURLINFO_ACTIVESOCKET, &fd);
    if (rc != CURLE_OK || fd == CURL_SOCKET_BAD) {
        curl_easy_cleanup(curl);
        return error_set(err, ERROR_UNAVAILABLE, "no server answers at %s: %s", text,
                         curl_easy_strerror(rc));
    }
    tls = xcalloc(1, sizeof(*tls));
    *tls = (struct tls){.carrier = {tls_send, tls_recv, tls_close}, .curl = curl};
    *out = &tls->carrier;
    *out_fd = fd;
    return 0;
}
