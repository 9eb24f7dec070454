/* What a sandbox may reach, changed while it runs. The row first: it is what a later boot goes by. */
#include "domain/sandbox/sandbox_network.h"
#include "base/log.h"
#include "domain/network/network_policy.h"
#include "domain/sandbox/sandbox_envd.h"
#include "domain/sandbox/sandbox_history.h"
#include "domain/sandbox/sandbox_internal.h"
#include "domain/sandbox/sandbox_plan.h"
#include "domain/sandbox/sandbox_table.h"

/* Names are known to who resolves them; the rules of the host know addresses only. */
int network_check(const struct sandboxes *all, const struct network_policy *policy,
                  struct error *err)
{
    if (network_can(all, &policy->box, err) < 0)
        return -1;
    if ((policy->name_count || policy->has_rules || policy->has_proxy) && !all->egress)
        return error_set(
            err, ERROR_UNSUPPORTED,
            "domains in 'allowOut', 'rules' and 'egressProxy' need the egress process, "
            "which this server lacks");
    if (policy->peers.network.len && !all->egress)
        return error_set(err, ERROR_UNSUPPORTED,
                         "'peers' needs the egress process, which this server lacks");
    return 0;
}

/* A number, since root knows no teams. Two that have the same one would share their rates. */
uint32_t network_team(const struct sandboxes *all, struct str team_id)
{
    uint32_t hash = 2166136261u;

    if (!all->team_rates)
        return 0;
    for (size_t i = 0; i < team_id.len; i++)
        hash = (hash ^ (unsigned char)team_id.p[i]) * 16777619u;
    return hash ? hash : 1;
}

int network_can(const struct sandboxes *all, const struct box_network *network, struct error *err)
{
    if (!all->no_network || (network->mode == NETWORK_NONE && !box_network_has_rules(network)))
        return 0;
    return error_set(err, ERROR_UNSUPPORTED,
                     "this server cannot give a sandbox a network, because nothing would be "
                     "enforced: %s. 'allow_internet_access: false' makes one without",
                     all->no_network);
}

static int put_row(struct sandboxes *all, struct str id, struct str network, bool internet,
                   bool given, struct error *err)
{
    return store_sandbox_set_network(
        all->store, id,
        &(struct store_sandbox_network){.text = network, .internet = internet, .given = given},
        err);
}

/* The egress process first where it will be asked, last where it no longer is. */
static int apply(struct sandboxes *all, struct str team_id, const char *id,
                 const struct box_network *network, struct str text, struct error *err)
{
    bool asked = network->mode == NETWORK_FILTERED || network->group;

    if (asked && egress_change(all, team_id, id, network, text, err) < 0)
        return -1;
    if (all->engine->ops->network(all->engine, id, network, err) < 0)
        return -1;
    return asked ? 0 : egress_change(all, team_id, id, network, text, err);
}

/* As the row says, after a change that failed. */
static void apply_row(struct sandboxes *all, const struct store_sandbox *row)
{
    struct box_spec spec = {0};
    struct error ignored = {0};

    peers_restore(all, row);
    if (spec_set_network(all, row, &spec, &ignored) < 0 ||
        egress_change(all, row->team_id, row->id.p, &spec.network, row->network, &ignored) < 0)
        log_warn("sandbox", "id=%s: %s, ignoring", row->id.p, ignored.message);
}

int sandbox_set_network(struct sandboxes *all, struct str team_id, struct str id,
                        const struct network_policy *policy, struct error *err)
{
    auto_arena struct arena arena = {0};
    struct box_network box = policy->box;
    struct error ignored = {0};
    struct store_sandbox row;
    struct str text;

    box.team = network_team(all, team_id);
    if (network_check(all, policy, err) < 0 ||
        secret_policy(all, team_id, policy, &arena, &text, err) < 0 ||
        table_check_runs(all, team_id, id, err) < 0 ||
        store_sandbox_get(all->store, id, &arena, &row, err) < 0 ||
        (policy->has_rules && envd_trust(all->engine, row.id.p, all->authority, err) < 0) ||
        peer_networks_join(all->peers, team_id, id, &policy->peers, &box.group, err) < 0)
        return -1;
    if (put_row(all, id, text, policy->internet, true, err) < 0) {
        peers_restore(all, &row);
        return -1;
    }
    if (apply(all, team_id, row.id.p, &box, text, err) == 0) {
        history_network(all, id, policy->internet, policy->text.len > 0);
        return 0;
    }
    if (put_row(all, id, row.network, row.internet, row.internet_given, &ignored) < 0)
        log_warn("sandbox", "id=%s: %s, ignoring", row.id.p, ignored.message);
    apply_row(all, &row);
    /* It may have been paused or ended in between. */
    if (table_check_runs(all, team_id, id, &ignored) < 0)
        *err = ignored;
    return -1;
}
