/* Sandboxes and the egress process: it knows them by the addresses of their boxes, so it is told whenever a box gets or
 * loses one. Until it knows a policy with names, the box reaches nothing. */
#include "domain/network/egress_link.h"
#include "domain/network/network_secret.h"
#include "domain/sandbox/sandbox_internal.h"
#include "domain/sandbox/sandbox_network.h"

static bool is_asked(const struct box_network *network)
{
    return network->mode == NETWORK_FILTERED || network->group;
}

void egress_begin(struct sandboxes *all, struct str team_id, const char *id, uint32_t address,
                  const struct box_network *network, struct str policy)
{
    if (!all->egress)
        return;
    egress_link_box(all->egress, team_id, str_of(id), address);
    egress_link_rules(all->egress, str_of(id), network);
    if (is_asked(network) && !network_fill_needed(policy))
        egress_link_ahead(all->egress, str_of(id), policy, network->group);
}

int egress_end(struct sandboxes *all, struct str team_id, const char *id,
               const struct box_network *network, struct str policy, struct error *err)
{
    if (!all->egress || !is_asked(network))
        return 0;
    return secret_tell(all, team_id, id, policy, network->group, err);
}

int egress_join(struct sandboxes *all, struct str team_id, const char *id, uint32_t address,
                const struct box_network *network, struct str policy, struct error *err)
{
    egress_begin(all, team_id, id, address, network, policy);
    return egress_end(all, team_id, id, network, policy, err);
}

void egress_leave(struct sandboxes *all, const char *id)
{
    if (all->egress)
        egress_link_box(all->egress, STR_NONE, str_of(id), 0);
}

int egress_change(struct sandboxes *all, struct str team_id, const char *id,
                  const struct box_network *network, struct str policy, struct error *err)
{
    if (!all->egress)
        return 0;
    egress_link_rules(all->egress, str_of(id), network);
    if (!is_asked(network))
        policy = STR("");
    return secret_tell(all, team_id, id, policy, network->group, err);
}

size_t egress_lines(struct sandboxes *all, const struct event_filter *filter, struct arena *arena,
                    struct store_event *out)
{
    struct network_line *lines;
    size_t count;

    if (!all->egress)
        return 0;
    lines = arena_alloc(arena, NETWORK_LOG_LINES * sizeof(*lines));
    count = network_log_read(egress_link_log(all->egress), filter->sandbox_id, arena, lines,
                             NETWORK_LOG_LINES);
    for (size_t i = 0; i < count; i++)
        out[i] =
            (struct store_event){.type = STR("network"),
                                 .message = lines[i].message,
                                 .detail = lines[i].fields,
                                 .level = lines[i].denied ? STORE_LEVEL_WARN : STORE_LEVEL_INFO,
                                 .at_us = lines[i].at_us,
                                 .sandbox_id = filter->sandbox_id,
                                 .team_id = filter->team_id};
    return count;
}
