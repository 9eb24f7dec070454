/* The network of a sandbox: what the host can enforce, private networks (sandbox_peers.c), the egress process (sandbox_egress.c) and
 * the secrets that policies name (sandbox_secret.c). */
#pragma once

#include "base/arena.h"
#include "base/error.h"
#include "base/str.h"
#include "domain/network/network_policy.h"
#include "host/engine/engine.h"
#include "store/platform/store_event.h"
#include "store/platform/store_sandbox.h"

struct egress_authority;
struct event_filter;
struct plan;
struct sandboxes;
struct store_event;
struct store_sandbox;

/* Can all of it be enforced here? ERROR_UNSUPPORTED. */
int network_check(const struct sandboxes *all, const struct network_policy *policy,
                  struct error *err);
/* For box_network. */
uint32_t network_team(const struct sandboxes *all, struct str team_id);
/* Can the host give it at all? */
int network_can(const struct sandboxes *all, const struct box_network *network, struct error *err);

/* ---- sandbox_peers.c ---- */

/* A fork is in its source's network, known by its id: the name is taken. */
int peers_of_fork(const struct store_sandbox *row, struct arena *arena, struct plan *plan,
                  struct error *err);
/* At start; group: that of its box, or 0. */
void peers_adopt(struct sandboxes *all, const struct store_sandbox *row, uint32_t group);
/* As the row says, after a change that failed. */
void peers_restore(struct sandboxes *all, const struct store_sandbox *row);
/* When its processes stand still, and before they go on. */
void peers_hide(struct sandboxes *all, const struct store_sandbox *row);
int peers_show(struct sandboxes *all, const struct store_sandbox *row, struct error *err);

/* ---- sandbox_egress.c ---- */

/* A sandbox has a box with that address; returns when its policy holds. */
int egress_join(struct sandboxes *all, struct str team_id, const char *id, uint32_t address,
                const struct box_network *network, struct str policy, struct error *err);
/* The same in two parts: the answer comes while the engine puts the box's rules in place. */
void egress_begin(struct sandboxes *all, struct str team_id, const char *id, uint32_t address,
                  const struct box_network *network, struct str policy);
int egress_end(struct sandboxes *all, struct str team_id, const char *id,
               const struct box_network *network, struct str policy, struct error *err);
/* When the box goes. */
void egress_leave(struct sandboxes *all, const char *id);
/* Another policy for a box that runs. */
int egress_change(struct sandboxes *all, struct str team_id, const char *id,
                  const struct box_network *network, struct str policy, struct error *err);
/* What it reached and what was refused: as lines of its log, the oldest first, at most NETWORK_LOG_LINES. */
size_t egress_lines(struct sandboxes *all, const struct event_filter *filter, struct arena *arena,
                    struct store_event *out);

/* ---- sandbox_secret.c ---- */

/* The text of a policy as it may be stored; ERROR_INVALID when it names secrets that are not there, or not for its hosts. */
int secret_policy(struct sandboxes *all, struct str team_id, const struct network_policy *policy,
                  struct arena *arena, struct str *out, struct error *err);
/* Tells the egress process a stored policy, with the secrets filled in. */
int secret_tell(struct sandboxes *all, struct str team_id, const char *id, struct str policy,
                uint32_t group, struct error *err);
/* Of a sandbox whose row was not there yet: when a secret changed since secret_seen(), it is told again. */
uint64_t secret_seen(struct sandboxes *all);
void secret_tell_again(struct sandboxes *all, struct str team_id, const char *id, struct str policy,
                       uint64_t seen);
/* What a sandbox with that policy is to trust, or NULL. */
const struct egress_authority *secret_authority(const struct sandboxes *all, struct str policy);
