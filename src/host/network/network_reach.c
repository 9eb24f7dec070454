/* What each slot may reach, in the gateway's map and sets.
 *
 * The map gives a box's connections their mark: the slot, the mode, and whether there are ranges. Ranges are elements of one set for
 * each length of a prefix and each list, by mark and address: looked up by a hash of the masked address, put and removed in a time that
 * does not grow with what others have. (The kernel's own sets of intervals of pairs are copied as a whole for each
 * change.) A change is one transaction, so a connection meets the old rules or the new ones. What is in the kernel outlives this
 * process: it is read again when the gateway is opened. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "host/network/network_internal.h"
#include "protocol/netlink/nft.h"

static const struct nft_map online_map = {NETWORK_GATEWAY_TABLE, NETWORK_GATEWAY_ONLINE};
static const struct nft_map groups_map = {NETWORK_GATEWAY_TABLE, NETWORK_GATEWAY_GROUPS};
static const struct nft_map teams_map = {NETWORK_GATEWAY_TABLE, NETWORK_GATEWAY_TEAMS};
static const struct nft_map members_set = {NETWORK_GATEWAY_TABLE, NETWORK_GATEWAY_MEMBERS};

struct set_name {
    char text[16];
};

static struct nft_map set_of(bool allow, uint32_t prefix, struct set_name *name)
{
    (void)snprintf(name->text, sizeof(name->text), "%s%u",
                   allow ? NETWORK_GATEWAY_ALLOW : NETWORK_GATEWAY_DENY, prefix);
    return (struct nft_map){NETWORK_GATEWAY_TABLE, name->text};
}

/* 0 = not in the map: nothing is reached. */
static uint32_t mark_of(uint32_t slot, const struct box_network *policy)
{
    bool lists = policy->allow_count || policy->deny_count;
    uint32_t mark = slot + 1;

    if (policy->mode == NETWORK_NONE && !lists && !policy->group)
        return 0;
    if (policy->group)
        mark |= NETWORK_MARK_GROUP;
    if (policy->mode == NETWORK_FILTERED)
        mark |= NETWORK_MARK_FILTERED;
    if (policy->mode == NETWORK_NONE)
        mark |= NETWORK_MARK_CLOSED;
    return lists ? mark | NETWORK_MARK_LISTS : mark;
}

static int compare(const void *a, const void *b)
{
    const struct box_range *left = a, *right = b;

    if (left->prefix != right->prefix)
        return left->prefix < right->prefix ? -1 : 1;
    return left->address < right->address ? -1 : left->address > right->address;
}

/* Each range once: what is in a set twice is there once, and removed once. */
static uint32_t put_sorted(struct box_range *out, const struct box_range *ranges, uint32_t count)
{
    uint32_t kept = 0;

    if (count == 0)
        return 0;
    memcpy(out, ranges, count * sizeof(*ranges));
    qsort(out, count, sizeof(*out), compare);
    for (uint32_t i = 0; i < count; i++)
        if (kept == 0 || compare(&out[i], &out[kept - 1]) != 0)
            out[kept++] = out[i];
    return kept;
}

static void make_reach(uint32_t slot, const struct box_network *policy, struct network_reach *out)
{
    uint32_t count = policy->allow_count + policy->deny_count;

    *out = (struct network_reach){
        .mark = mark_of(slot, policy), .group = policy->group, .team = policy->team};
    if (count == 0)
        return;
    out->ranges = xmalloc(count * sizeof(*out->ranges));
    out->allow_count = put_sorted(out->ranges, policy->ranges, policy->allow_count);
    out->deny_count = put_sorted(out->ranges + out->allow_count,
                                 policy->ranges + policy->allow_count, policy->deny_count);
}

static void change(struct nft_changes *changes, uint32_t slot, const struct network_reach *reach,
                   bool put)
{
    struct set_name name;

    for (uint32_t i = 0; i < reach->allow_count + reach->deny_count; i++) {
        const struct box_range *range = &reach->ranges[i];
        const struct nft_map set = set_of(i < reach->allow_count, range->prefix, &name);

        nft_changes_set(changes, &set, put, reach->mark, range->address);
    }
    if (reach->mark)
        nft_changes_map(changes, &online_map, put, network_address_of(slot), reach->mark);
    if (reach->team)
        nft_changes_map(changes, &teams_map, put, network_address_of(slot), reach->team);
    if (!reach->group)
        return;
    nft_changes_map(changes, &groups_map, put, network_address_of(slot), reach->group);
    nft_changes_set(changes, &members_set, put, reach->group, network_address_of(slot));
}

static bool is_same(const struct network_reach *a, const struct network_reach *b)
{
    return a->mark == b->mark && a->group == b->group && a->team == b->team && !a->ranges &&
           !b->ranges;
}

static int send_changes(struct network *network, uint32_t slot, const struct network_reach *has)
{
    const struct network_reach *had = &network->reaches[slot];
    struct nft_changes *changes = nft_changes_new((size_t)had->allow_count + had->deny_count +
                                                  has->allow_count + has->deny_count + 8);
    int r;

    change(changes, slot, had, false);
    change(changes, slot, has, true);
    r = nft_changes_send(&network->filter, changes);
    nft_changes_free(changes);
    return r;
}

static void forget_all(struct network *network)
{
    for (uint32_t slot = 0; slot <= NETWORK_SLOT_MAX; slot++) {
        free(network->reaches[slot].ranges);
        network->reaches[slot] = (struct network_reach){0};
    }
}

int network_reach_set(struct network *network, uint32_t slot, const struct box_network *policy)
{
    struct network_reach has;
    int r;

    make_reach(slot, policy, &has);
    if (is_same(&network->reaches[slot], &has))
        return 0;
    r = send_changes(network, slot, &has);
    if (r == -ENOENT || r == -EEXIST || r == -ENOBUFS) {
        /* Somebody else was at it; many failures are more than a socket holds. */
        forget_all(network);
        r = network_reach_load(network);
        if (r == 0 && !is_same(&network->reaches[slot], &has))
            r = send_changes(network, slot, &has);
    }
    if (r < 0) {
        free(has.ranges);
        return r;
    }
    free(network->reaches[slot].ranges);
    network->reaches[slot] = has;
    return 0;
}

static bool is_in(const struct box_range *ranges, uint32_t count, uint32_t address)
{
    for (uint32_t i = 0; i < count; i++)
        if (box_range_has(&ranges[i], address))
            return true;
    return false;
}

/* As the rules do with the first packet of a connection. */
bool network_reach_allows(const struct box_network *policy, const struct conntrack_pair *pair)
{
    uint32_t address = pair->begun.destination;

    if (pair->leaving.destination != address)
        return policy->mode == NETWORK_FILTERED ||
               (policy->group && pair->begun.destination_port == NETWORK_DNS_PORT);
    if (network_address_is_ours(address)) /* its group decides, for each packet */
        return policy->group != 0;
    if (policy->mode == NETWORK_FILTERED && pair->begun.destination_port == NETWORK_DNS_PORT)
        return false;
    if (is_in(policy->ranges, policy->allow_count, address))
        return true;
    return policy->mode == NETWORK_OPEN &&
           !is_in(policy->ranges + policy->allow_count, policy->deny_count, address);
}

struct loading {
    struct network *network;
    bool allow;
    uint32_t prefix;
};

static void load_mark(uint32_t address, uint32_t mark, void *arg)
{
    const struct loading *loading = arg;
    uint32_t slot = address - NETWORK_SANDBOXES;

    if (slot <= NETWORK_SLOT_MAX)
        loading->network->reaches[slot].mark = mark;
}

static void load_group(uint32_t address, uint32_t group, void *arg)
{
    const struct loading *loading = arg;
    uint32_t slot = address - NETWORK_SANDBOXES;

    if (slot <= NETWORK_SLOT_MAX)
        loading->network->reaches[slot].group = group;
}

static void load_team(uint32_t address, uint32_t team, void *arg)
{
    const struct loading *loading = arg;
    uint32_t slot = address - NETWORK_SANDBOXES;

    if (slot <= NETWORK_SLOT_MAX)
        loading->network->reaches[slot].team = team;
}

static void load_range(uint32_t address, uint32_t mark, void *arg)
{
    const struct loading *loading = arg;
    uint32_t slot = (mark & NETWORK_MARK_SLOT) - 1, count;
    struct network_reach *reach;

    if (slot > NETWORK_SLOT_MAX)
        return;
    reach = &loading->network->reaches[slot];
    count = reach->allow_count + reach->deny_count;
    reach->ranges = xrealloc(reach->ranges, (count + 1) * sizeof(*reach->ranges));
    reach->ranges[count] = (struct box_range){address, loading->prefix};
    if (loading->allow)
        reach->allow_count++;
    else
        reach->deny_count++;
}

int network_reach_load(struct network *network)
{
    struct loading loading = {.network = network};
    struct set_name name;
    int r = nft_each(&network->filter, &online_map, load_mark, &loading);

    if (r == 0)
        r = nft_each(&network->filter, &groups_map, load_group, &loading);
    if (r == 0)
        r = nft_each(&network->filter, &teams_map, load_team, &loading);
    for (int list = 0; r == 0 && list < 2; list++) {
        loading.allow = list == 0; /* first those that are allowed */
        for (loading.prefix = 0; r == 0 && loading.prefix <= 32; loading.prefix++) {
            const struct nft_map set = set_of(loading.allow, loading.prefix, &name);

            r = nft_each(&network->filter, &set, load_range, &loading);
        }
    }
    return r;
}

void network_reach_free(struct network *network)
{
    if (network->reaches)
        forget_all(network);
    free(network->reaches);
}
