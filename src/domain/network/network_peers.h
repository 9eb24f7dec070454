/* Private networks: sandboxes of one team that reach each other by name (GLOSSARY.md: private network).
 *
 *   {"peers": {"network": "build", "name": "db"}}
 *
 * Here is who is in which: of every sandbox that is there, paused ones too, so that nobody takes their names meanwhile. A network
 * comes with its first member and goes with its last. Its group is the number by which the engine and the egress process know it;
 * no two networks have one at a time, whatever they are called. Any thread. */
#pragma once

#include <jansson.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/str.h"

enum { PEERS_LABEL_MAX = 63, PEERS_MEMBERS_MAX = 256, PEERS_NETWORKS_MAX = 64 /* of a team */ };

struct network_peers {
    struct str network; /* "" = in none */
    struct str name;    /* "" = it is known by its id alone */
};

/* Of a policy: its member "peers". ERROR_INVALID says what is wrong with it. */
int network_peers_read(const json_t *network, struct arena *arena, struct network_peers *out,
                       struct error *err);
/* The same of strings; in none when the network is "". Strings are borrowed. */
int network_peers_check(const struct network_peers *peers, struct error *err);
/* NULL when it is in none. */
json_t *network_peers_write(const struct network_peers *peers);

struct peer_networks;

struct peer_networks *peer_networks_new(void);
void peer_networks_free(struct peer_networks *all); /* or NULL */

/* Would a new member be taken? ERROR_CONFLICT when another has the name, ERROR_QUOTA when there are too many. */
int peer_networks_check(struct peer_networks *all, struct str team_id,
                        const struct network_peers *peers, struct error *err);
/* The sandbox is in this network from now on, and not in the one it was in. *out_group: 0 where that is none. */
int peer_networks_join(struct peer_networks *all, struct str team_id, struct str sandbox_id,
                       const struct network_peers *peers, uint32_t *out_group, struct error *err);
void peer_networks_leave(struct peer_networks *all, struct str sandbox_id);
/* 0: it is in none. */
uint32_t peer_networks_group(struct peer_networks *all, struct str sandbox_id);

/* At start: a number that a box has, and who was a member before. group: that of its box, or 0. */
void peer_networks_seen(struct peer_networks *all, uint32_t group);
int peer_networks_adopt(struct peer_networks *all, struct str team_id, struct str sandbox_id,
                        const struct network_peers *peers, uint32_t group, struct error *err);
