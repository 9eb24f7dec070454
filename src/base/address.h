/* Where a server listens: "127.0.0.1:3000", "[::1]:3000", "localhost:3000", or ":3000" for all
 * addresses of the host, IPv4 and IPv6. Nothing is ever looked up. */
#pragma once

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/str.h"

union address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

enum { ADDRESS_URL_SIZE = 64 };

/* false when the text is none of the above. */
bool address_parse(const char *text, union address *out);
socklen_t address_size(const union address *address);
uint16_t address_port(const union address *address);
bool address_is_any(const union address *address);      /* 0.0.0.0, [::] */
bool address_is_loopback(const union address *address); /* 127.x.y.z, [::1] */
/* One label of a host name, in lower case. It begins with a letter, so that it is not an address. */
bool address_is_label(struct str text);
/* How this host reaches it: "http://127.0.0.1:3000"; loopback where it listens on all. */
void address_url(const union address *address, char out[ADDRESS_URL_SIZE]);
/* Does host (of a URL, brackets or not) with that port lead to who listens there? Other names than
 * "localhost" are not known. */
bool address_is_reached(const union address *listen, struct str host, uint16_t port);

/* The host and port of an http or https URL, or of "HOST" and "HOST:PORT" alone (then *out_port is as
 * before); false when it is neither. What follows the host is not looked at. */
bool address_of_url(struct str url, struct str *out_host, uint16_t *out_port);
