/* What a box may reach, as the root process knows it: a mode and ranges of addresses, no names. It is made of a
 * sandbox's policy (domain/network), checked again by the warden and enforced by host/network.
 *
 * Whatever the mode, ranges that are allowed are reached and beat those that are denied; what is never reached (the host,
 * private ranges that the operator did not allow, boxes that are not of the same group) no list can open. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum network_mode {
    NETWORK_NONE = 0, /* nothing but what is allowed; no names are resolved either */
    NETWORK_OPEN,     /* everything but what is denied */
    NETWORK_FILTERED, /* TCP and DNS by the egress process, which knows names; nothing else but what is allowed */
};

/* Why the rules refuse a packet, in the words that the log of the kernel has. */
#define BOX_REFUSED_RANGE    "range"    /* not of the internet, or the gateway itself */
#define BOX_REFUSED_DENIED   "denied"   /* a range that is denied */
#define BOX_REFUSED_CLOSED   "closed"   /* nothing but what is allowed */
#define BOX_REFUSED_NAMES    "names"    /* the same, where names are allowed: neither TCP nor DNS */
#define BOX_REFUSED_PROTOCOL "protocol" /* neither TCP, UDP nor an echo request */
#define BOX_REFUSED_FLOWS    "flows"    /* too many connections at once */
#define BOX_REFUSED_RATE \
    "rate" /* more connections or DNS queries a second than a sandbox may make */

enum { BOX_RANGES_MAX = 1024 };

struct box_range {
    uint32_t address; /* host byte order, no bits behind the prefix */
    uint32_t prefix;  /* 0 to 32 */
};

struct box_network {
    uint32_t mode;  /* enum network_mode */
    uint32_t group; /* those of one group reach each other; 0 = it is in none */
    uint32_t team;  /* those of one team share its rates; 0 = there are none */
    uint32_t allow_count, deny_count;
    struct box_range ranges[BOX_RANGES_MAX]; /* first those that are allowed, then those denied */
};

static inline bool box_range_has(const struct box_range *range, uint32_t address)
{
    return range->prefix == 0 || (address ^ range->address) >> (32 - range->prefix) == 0;
}

/* Is it neither all nor nothing? */
static inline bool box_network_has_rules(const struct box_network *network)
{
    return network->mode == NETWORK_FILTERED || network->group || network->allow_count ||
           network->deny_count;
}
