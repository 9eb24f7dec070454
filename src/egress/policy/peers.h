/* Private networks, as far as names go: which member of one has which name. A member is a sandbox with a seat in its network's
 * group; the server says which (channel.c), and that no two of a group have one name. That packets pass between members, and
 * between no others, is the gateway's business. */
#pragma once

#include <jansson.h>
#include <stdint.h>

#include "base/error.h"
#include "base/map.h"
#include "egress/wire/host_name.h"

enum { PEERS_TTL_S = 5 };
/* Behind the names of a network: NAME.NETWORK.internal. */
#define PEERS_DOMAIN "internal"

struct seat {
    uint32_t address;               /* host byte order */
    uint32_t group;                 /* 0 = in no network */
    struct host_name network, name; /* one label each; the name may be empty */
    struct host_name id;            /* of the sandbox: a name, too */
};

/* From {"network":…,"name":…}; the rest is the caller's. */
int seat_read(const json_t *peers, struct seat *out, struct error *err);

/* seats: name and group -> struct seat, which the caller keeps until it has left. */
void peers_enter(struct map *seats, struct seat *seat);
void peers_leave(struct map *seats, const struct seat *seat);

enum peers_found {
    PEERS_FOREIGN, /* not a name of the asker's network */
    PEERS_NOBODY,  /* of its network, but nobody has it */
    PEERS_MEMBER,
};
enum peers_found peers_find(const struct map *seats, const struct seat *asker,
                            const struct host_name *name, uint32_t *out_address);
