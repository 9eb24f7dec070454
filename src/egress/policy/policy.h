/* What one sandbox may reach, as far as the egress process decides it: the names and the ranges of addresses of its
 * policy (GLOSSARY.md), made ready for being asked. How long an answer takes does not depend on how many names there
 * are. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/map.h"
#include "egress/policy/rules.h"
#include "egress/wire/host_name.h"
#include "egress/wire/via.h"

enum { POLICY_NAMES_MAX = 20000, POLICY_RANGES_MAX = 4096 };

struct policy_range {
    uint32_t address; /* host byte order */
    uint8_t prefix;
    char *text; /* as it was given */
};

struct policy_ranges {
    struct policy_range *list;
    size_t count;
};

struct policy {
    bool closed;         /* what is not allowed is denied; otherwise the other way round */
    struct map names;    /* name -> rule */
    struct map suffixes; /* what stands behind "*." -> rule; "" for "*" */
    struct policy_ranges allow, deny;
    struct rules rules;
    struct via *via; /* or NULL */
};

/* From its JSON: {"allowOut":[…],"denyOut":[…],"internet":bool,"rules":{…},"egressProxy":{…}}. Members that are not ours are ignored, and addresses
 * of IPv6: there is no way out by it. */
int policy_new(const json_t *json, struct policy **out, struct error *err);
void policy_free(struct policy *policy); /* or NULL */

/* The rule that allows the name, or NULL. */
const char *policy_name_rule(const struct policy *policy, const struct host_name *name);
/* The rule that holds the address, or NULL. */
const char *policy_range_rule(const struct policy_ranges *ranges, uint32_t address);
/* Adds "1.2.3.4" or "1.2.3.0/24"; false when it is neither. */
bool policy_ranges_add(struct policy_ranges *ranges, struct str text);
void policy_ranges_free(struct policy_ranges *ranges);
/* Addresses that are not of the internet, whatever a policy says: private, shared, link-local, loopback, multicast,
 * reserved; but for those that the operator opened. The same as in the gateway's rules (host/network/network_rules.c). */
bool policy_address_blocked(const struct policy_ranges *opened, uint32_t address);
