/* Sandboxes in private networks (domain/network/network_peers.h): each is in the network that its row names from before it has
 * a box until nothing of it is left. While it is paused its box has no group: to the others it is gone, as what is killed is, but nobody
 * takes its name. */
#include "base/log.h"
#include "domain/network/network_policy.h"
#include "domain/sandbox/sandbox_internal.h"
#include "domain/sandbox/sandbox_network.h"
#include "domain/sandbox/sandbox_plan.h"
#include "protocol/json/json_shape.h"

int peers_of_fork(const struct store_sandbox *row, struct arena *arena, struct plan *plan,
                  struct error *err)
{
    auto_json json_t *tree = NULL;
    struct network_policy *policy;
    json_t *peers;

    if (!row->network.len)
        return 0;
    policy = arena_alloc(arena, sizeof(*policy));
    if (json_parse(row->network, &tree, err) < 0)
        return -1;
    peers = json_object_get(tree, "peers");
    if (!peers)
        return 0;
    (void)json_object_del(peers, "name");
    if (network_policy_read(tree, row->internet, arena, policy, err) < 0)
        return -1;
    plan->network = policy->text;
    plan->peers = policy->peers;
    return 0;
}

static int read_row(const struct store_sandbox *row, struct arena *arena, struct network_peers *out,
                    struct error *err)
{
    auto_json json_t *tree = NULL;

    if (row->network.len && json_parse(row->network, &tree, err) < 0)
        return -1;
    return network_peers_read(tree, arena, out, err);
}

void peers_adopt(struct sandboxes *all, const struct store_sandbox *row, uint32_t group)
{
    auto_arena struct arena arena = {0};
    struct network_peers peers;
    struct error err = {0};

    if (read_row(row, &arena, &peers, &err) < 0 ||
        peer_networks_adopt(all->peers, row->team_id, row->id, &peers, group, &err) < 0)
        log_error("sandbox", "id=%.*s: %s", STR_ARG(row->id), err.message);
}

void peers_restore(struct sandboxes *all, const struct store_sandbox *row)
{
    auto_arena struct arena arena = {0};
    struct network_peers peers;
    struct error err = {0};
    uint32_t ignored;

    if (read_row(row, &arena, &peers, &err) < 0 ||
        peer_networks_join(all->peers, row->team_id, row->id, &peers, &ignored, &err) < 0)
        log_warn("sandbox", "id=%.*s: %s, ignoring", STR_ARG(row->id), err.message);
}

static int apply(struct sandboxes *all, const struct store_sandbox *row, bool hidden,
                 struct error *err)
{
    struct box_spec spec = {0};

    if (!peer_networks_group(all->peers, row->id))
        return 0;
    if (spec_set_network(all, row, &spec, err) < 0)
        return -1;
    if (hidden)
        spec.network.group = 0;
    if (all->engine->ops->network(all->engine, row->id.p, &spec.network, err) < 0)
        return -1;
    return egress_change(all, row->team_id, row->id.p, &spec.network, row->network, err);
}

void peers_hide(struct sandboxes *all, const struct store_sandbox *row)
{
    struct error err = {0};

    if (apply(all, row, true, &err) < 0 && err.code != ERROR_NOT_FOUND)
        log_warn("sandbox", "id=%.*s: %s; others still know it", STR_ARG(row->id), err.message);
}

int peers_show(struct sandboxes *all, const struct store_sandbox *row, struct error *err)
{
    return apply(all, row, false, err);
}
