/* Requests for the bare connection to a port, without HTTP in between: CONNECT, or an upgrade to one of our own
 * protocols, which passes through other proxies as WebSockets do. */
#pragma once

#include "domain/route/route.h"
#include "protocol/http/http.h"

#define PROXY_RAW_TCP "quicksand-tcp"
#define PROXY_RAW_UDP "quicksand-udp" /* datagrams: proxy_datagrams.h */

enum proxy_raw {
    PROXY_RAW_NONE,
    PROXY_RAW_CONNECT,
    PROXY_RAW_UPGRADE,
    PROXY_RAW_DATAGRAMS,
};

enum proxy_raw proxy_raw_of(const struct http_request *request);

/* Who has envd's token may run anything inside, and so connect to anything, too. It comes in X-Access-Token, or
 * as the password of Proxy-Authorization, for programs that know proxies only. */
bool proxy_raw_is_owner(const struct route *route, const struct http_request *request);

/* The head that says yes. */
struct str proxy_raw_head(enum proxy_raw raw);
