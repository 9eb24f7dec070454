/* A policy: what a sandbox may reach, in the words of the E2B API.
 *
 *   {"allowOut": ["1.2.3.4", "198.51.100.0/24", "api.example.com", "*.example.org"], "denyOut": ["0.0.0.0/0"],
 *    "rules": {…}, "egressProxy": {…}}                                         (network_rule.h)
 *
 * What is allowed beats what is denied; what neither list names is reached. A name in allowOut means something only where
 * everything else is denied. Where there are rules or a proxy, all that leaves goes by the egress process, which knows what
 * the lists allow. IPv6 ranges are taken and kept, and change nothing: sandboxes have no way out by IPv6.
 *
 * Its member "peers" puts the sandbox into a private network of its team (network_peers.h), whatever the lists say.
 *
 * A policy is read once, when a request brings it, and kept as text in the sandbox's row; from there it is read again for every box
 * that is started. The root process gets the ranges (`box`), the egress process the whole text. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/str.h"
#include "domain/network/network_peers.h"
#include "host/engine/box_network.h"

enum {
    NETWORK_POLICY_RANGES_MAX = 1000,
    NETWORK_POLICY_NAMES_MAX = 10000,
    NETWORK_POLICY_TEXT_MAX = 512 * 1024,
    NETWORK_NAME_MAX = 253,
};

/* In "denyOut": all traffic to the outside. */
#define NETWORK_EVERYTHING "0.0.0.0/0"

struct network_policy {
    bool internet; /* what no list names is reached */
    /* All of it as JSON, names in lower case, with NETWORK_EVERYTHING among the denied when `internet` is false.
     * "" = there is nothing: all or nothing. */
    struct str text;
    size_t name_count;
    bool has_rules; /* headers for hosts: their connections are opened */
    bool has_proxy;
    struct network_peers peers;
    struct box_network box; /* without a group: peer_networks_join() */
};

/* Of a request. network: the object with the lists, whose other members are not looked at, or NULL; internet:
 * allow_internet_access. ERROR_INVALID says which entry is wrong. */
int network_policy_read(const json_t *network, bool internet, struct arena *arena,
                        struct network_policy *out, struct error *err);
/* The same of strings, where everything else is denied unless `internet`. */
struct network_lists {
    const struct str *allow;
    size_t allow_count;
    struct network_peers peers; /* network "" = none */
};
int network_policy_make(const struct network_lists *lists, bool internet, struct arena *arena,
                        struct network_policy *out, struct error *err);
/* Of the store: what network_policy_read() gave. */
int network_policy_parse(struct str text, bool internet, struct arena *arena,
                         struct network_policy *out, struct error *err);
/* With a proxy's password replaced by what `seal` makes of it: this is what may be stored. */
typedef int network_seal_fn(void *arg, struct str password, struct arena *arena, struct str *out,
                            struct error *err);
int network_policy_seal(const struct network_policy *policy, network_seal_fn *seal, void *arg,
                        struct arena *arena, struct str *out, struct error *err);
/* An address of IPv4 or IPv6. */
bool network_address_valid(struct str text);
/* A host's name, or "*." and one: no scheme, no port, not an address. */
bool network_name_valid(struct str name);
