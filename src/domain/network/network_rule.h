/* Rules of a policy: which headers requests to a host get on their way out, and through whose proxy connections go.
 *
 *   "rules": {"api.example.com": [{"transform": {"headers": {"Authorization": "Bearer ${e2b.secrets.NAME}"}}}]}
 *   "egressProxy": {"address": "proxy.example.com:1080", "username": "me", "password": "…"}
 *
 * A rule allows nothing by itself. The limits are those of the egress process, which reads them again. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "base/error.h"

enum {
    NETWORK_RULE_HOSTS_MAX = 128,
    NETWORK_RULES_MAX = 16,        /* of a host */
    NETWORK_RULE_HEADERS_MAX = 32, /* of a host, all rules together */
    NETWORK_HEADER_NAME_MAX = 128,
    NETWORK_HEADER_VALUE_MAX = 8 * 1024,
    NETWORK_PROXY_WORD_MAX = 255, /* user name, password */
};

/* The member "rules" with hosts and names of secrets in lower case; *out is NULL when there is none, else a new reference.
 * ERROR_INVALID and ERROR_UNSUPPORTED say which host, and quote no value. */
int network_rules_read(const json_t *rules, json_t **out, struct error *err);
/* The same of "egressProxy". Without a scheme it is a SOCKS5 proxy, with "http://" one of HTTP. stored: it was read
 * already, and its password may be sealed. */
int network_proxy_read(const json_t *proxy, bool stored, json_t **out, struct error *err);
