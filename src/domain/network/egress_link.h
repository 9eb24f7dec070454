/* The server's side of the egress process: which sandbox, known by its address, may reach what; and what it tells of
 * them. Whatever was set is told again when that process starts anew. Any thread. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/str.h"
#include "domain/network/network_log.h"
#include "host/engine/box_network.h"

struct egress_link;

/* path: its socket. The process need not be there yet. */
struct egress_link *egress_link_open(const char *path);
/* By which authority it signs, as PEM; before the start. */
void egress_link_authority(struct egress_link *link, struct str certificate, struct str key);
/* Can it do what rules and proxies need? Asked once it runs. ERROR_UNSUPPORTED, ERROR_UNAVAILABLE. */
int egress_link_signs(struct egress_link *link, struct error *err);
/* When whatever runs already is known: what is not is dropped over there. Until then nothing is told. */
void egress_link_start(struct egress_link *link);
void egress_link_close(struct egress_link *link); /* or NULL */

/* Which address the box of a team's sandbox has; 0: none any more, and its policy goes with it. Does not wait. */
void egress_link_box(struct egress_link *link, struct str team_id, struct str sandbox_id,
                     uint32_t address);
/* What the gateway's rules deny to it: for the log, which names the rule. Does not wait. */
void egress_link_rules(struct egress_link *link, struct str sandbox_id,
                       const struct box_network *network);
/* The policy of a sandbox whose address is known (network_policy.text; "" = it has none with names or peers), and the group of its
 * private network (0 = none); returns when it holds. ERROR_UNAVAILABLE when it is not taken in time: then it holds as soon as the process is there. */
int egress_link_set(struct egress_link *link, struct str sandbox_id, struct str policy,
                    uint32_t group, struct error *err);
/* Sends it ahead of that call, which then has only to wait for the answer. Does not wait; where it cannot be sent nothing happens. */
void egress_link_ahead(struct egress_link *link, struct str sandbox_id, struct str policy,
                       uint32_t group);

/* The same for one that has a policy, in whose text something else changed; nothing happens when it has none. */
int egress_link_renew(struct egress_link *link, struct str sandbox_id, struct str policy,
                      struct error *err);

struct network_log *egress_link_log(struct egress_link *link);

/* By the egress process; open: connections now. What each sandbox sends and receives its link counts (host/network). */
struct egress_usage {
    int64_t connections, denied, questions, sent, received, open;
};
/* Of all together, also of those that have gone; returns how many have a policy with names now. */
size_t egress_link_total(struct egress_link *link, struct egress_usage *out);
bool egress_link_up(struct egress_link *link);
