#include "domain/network/network_peers.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/address.h"
#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/map.h"
#include "protocol/json/json_shape.h"

/* ---- what is asked for ---- */

struct peers_body {
    struct str network, name;
};

static const struct json_field peers_fields[] = {
    JSON_FIELD(struct peers_body, network, "network", 0),
    JSON_FIELD(struct peers_body, name, "name", 0),
    JSON_END,
};

static int check_label(struct str label, const char *what, struct error *err)
{
    if (address_is_label(label) && !str_is(label, "localhost"))
        return 0;
    return error_set(err, ERROR_INVALID,
                     "'network.peers.%s' must be a label of a host name: a to z, 0 to 9 and '-', "
                     "beginning with a letter, at most %d characters",
                     what, PEERS_LABEL_MAX);
}

int network_peers_read(const json_t *network, struct arena *arena, struct network_peers *out,
                       struct error *err)
{
    const json_t *peers = json_object_get(network, "peers");
    struct peers_body body = {0};

    *out = (struct network_peers){STR(""), STR("")};
    if (!peers || json_is_null(peers) || (json_is_object(peers) && !json_object_size(peers)))
        return 0;
    if (!json_is_object(peers))
        return error_set(err, ERROR_INVALID, "'network.peers' must be an object");
    if (json_read(peers_fields, peers, &body, err) < 0)
        return error_prefix(err, "'network.peers'");
    if (check_label(body.network, "network", err) < 0 ||
        network_peers_check(&(struct network_peers){body.network, body.name}, err) < 0)
        return -1;
    out->network = arena_str(arena, body.network);
    if (body.name.len)
        out->name = arena_str(arena, body.name);
    return 0;
}

int network_peers_check(const struct network_peers *peers, struct error *err)
{
    if (!peers->network.len)
        return 0;
    return check_label(peers->network, "network", err) < 0 ||
                   (peers->name.len && check_label(peers->name, "name", err) < 0)
               ? -1
               : 0;
}

json_t *network_peers_write(const struct network_peers *peers)
{
    json_t *tree;

    if (!peers->network.len)
        return NULL;
    tree = json_object();
    (void)json_object_set_new(tree, "network", json_str(peers->network));
    if (peers->name.len)
        (void)json_object_set_new(tree, "name", json_str(peers->name));
    return tree;
}

/* ---- who is where ---- */

struct network {
    char *key, *team_id;
    uint32_t group; /* 0 = nobody asked for it yet */
    size_t member_count;
    struct map names; /* name -> struct member */
};

struct member {
    char *id, *name; /* name: "" = none */
    struct network *network;
};

struct peer_networks {
    pthread_mutex_t lock;
    struct map networks; /* team and name -> struct network */
    struct map members;  /* id of a sandbox -> struct member */
    uint32_t last_group;
};

struct peer_networks *peer_networks_new(void)
{
    struct peer_networks *all = xcalloc(1, sizeof(*all));

    (void)pthread_mutex_init(&all->lock, NULL);
    map_init(&all->networks);
    map_init(&all->members);
    return all;
}

static void network_free(struct network *network)
{
    map_done(&network->names);
    free(network->key);
    free(network->team_id);
    free(network);
}

static void member_free(struct member *member)
{
    free(member->id);
    free(member->name);
    free(member);
}

void peer_networks_free(struct peer_networks *all)
{
    struct map_entry *at;

    if (!all)
        return;
    map_for_each (&all->members, at)
        member_free(at->value);
    map_for_each (&all->networks, at)
        network_free(at->value);
    map_done(&all->members);
    map_done(&all->networks);
    (void)pthread_mutex_destroy(&all->lock);
    free(all);
}

/* Teams' ids have no '/'; networks' names have none either. */
static char *key_of(struct str team_id, const struct network_peers *peers)
{
    return xasprintf("%.*s/%.*s", STR_ARG(team_id), STR_ARG(peers->network));
}

static size_t count_of_team(const struct peer_networks *all, struct str team_id)
{
    struct map_entry *at;
    size_t count = 0;

    map_for_each (&all->networks, at)
        count += str_is(team_id, ((const struct network *)at->value)->team_id);
    return count;
}

static int check_name(const struct network *network, const struct network_peers *peers,
                      struct str but, struct error *err)
{
    const struct member *holder = peers->name.len ? map_get(&network->names, peers->name) : NULL;

    if (!holder || str_is(but, holder->id))
        return 0;
    return error_set(err, ERROR_CONFLICT,
                     "the name '%.*s' in the network '%.*s' is that of sandbox '%s'",
                     STR_ARG(peers->name), STR_ARG(peers->network), holder->id);
}

/* but: the sandbox that asks, whose own place does not count. */
static int check(const struct peer_networks *all, struct str team_id,
                 const struct network_peers *peers, struct str but, struct error *err)
{
    auto_free char *key = key_of(team_id, peers);
    const struct network *network = map_get(&all->networks, str_of(key));
    const struct member *own = but.len ? map_get(&all->members, but) : NULL;

    if (!network) {
        if (count_of_team(all, team_id) >= PEERS_NETWORKS_MAX)
            return error_set(err, ERROR_QUOTA, "a team has at most %d private networks at a time",
                             PEERS_NETWORKS_MAX);
        return 0;
    }
    if ((!own || own->network != network) && network->member_count >= PEERS_MEMBERS_MAX)
        return error_set(err, ERROR_QUOTA,
                         "the network '%.*s' has %d members, as many as there can be",
                         STR_ARG(peers->network), PEERS_MEMBERS_MAX);
    return check_name(network, peers, but, err);
}

int peer_networks_check(struct peer_networks *all, struct str team_id,
                        const struct network_peers *peers, struct error *err)
{
    int r;

    if (!peers->network.len)
        return 0;
    (void)pthread_mutex_lock(&all->lock);
    r = check(all, team_id, peers, STR_NONE, err);
    (void)pthread_mutex_unlock(&all->lock);
    return r;
}

static void leave(struct peer_networks *all, struct str sandbox_id)
{
    struct member *member = map_remove(&all->members, sandbox_id);
    struct network *network = member ? member->network : NULL;

    if (!member)
        return;
    if (member->name[0])
        (void)map_remove(&network->names, str_of(member->name));
    if (--network->member_count == 0) {
        (void)map_remove(&all->networks, str_of(network->key));
        network_free(network);
    }
    member_free(member);
}

static struct network *network_for(struct peer_networks *all, struct str team_id,
                                   const struct network_peers *peers)
{
    auto_free char *key = key_of(team_id, peers);
    struct network *network = map_get(&all->networks, str_of(key));

    if (network)
        return network;
    network = xcalloc(1, sizeof(*network));
    network->key = take_ptr(&key);
    network->team_id = str_dup(team_id);
    map_init(&network->names);
    (void)map_put(&all->networks, str_of(network->key), network);
    return network;
}

static struct network *enter(struct peer_networks *all, struct str team_id, struct str sandbox_id,
                             const struct network_peers *peers)
{
    struct network *network = network_for(all, team_id, peers);
    struct member *member = xcalloc(1, sizeof(*member));

    network->member_count++; /* before it leaves the one that it was in, which may be the same */
    leave(all, sandbox_id);
    *member = (struct member){str_dup(sandbox_id), str_dup(peers->name), network};
    (void)map_put(&all->members, sandbox_id, member);
    if (peers->name.len)
        (void)map_put(&network->names, peers->name, member);
    return network;
}

static uint32_t group_of(struct peer_networks *all, struct network *network)
{
    if (!network->group)
        network->group = ++all->last_group;
    return network->group;
}

int peer_networks_join(struct peer_networks *all, struct str team_id, struct str sandbox_id,
                       const struct network_peers *peers, uint32_t *out_group, struct error *err)
{
    int r = 0;

    *out_group = 0;
    (void)pthread_mutex_lock(&all->lock);
    if (!peers->network.len)
        leave(all, sandbox_id);
    else if ((r = check(all, team_id, peers, sandbox_id, err)) == 0)
        *out_group = group_of(all, enter(all, team_id, sandbox_id, peers));
    (void)pthread_mutex_unlock(&all->lock);
    return r;
}

void peer_networks_leave(struct peer_networks *all, struct str sandbox_id)
{
    (void)pthread_mutex_lock(&all->lock);
    leave(all, sandbox_id);
    (void)pthread_mutex_unlock(&all->lock);
}

uint32_t peer_networks_group(struct peer_networks *all, struct str sandbox_id)
{
    const struct member *member;
    uint32_t group;

    (void)pthread_mutex_lock(&all->lock);
    member = map_get(&all->members, sandbox_id);
    group = member ? group_of(all, member->network) : 0;
    (void)pthread_mutex_unlock(&all->lock);
    return group;
}

void peer_networks_seen(struct peer_networks *all, uint32_t group)
{
    (void)pthread_mutex_lock(&all->lock);
    if (group > all->last_group)
        all->last_group = group;
    (void)pthread_mutex_unlock(&all->lock);
}

static bool is_taken(const struct peer_networks *all, uint32_t group)
{
    struct map_entry *at;

    map_for_each (&all->networks, at)
        if (((const struct network *)at->value)->group == group)
            return true;
    return false;
}

/* What was there before stays, whatever the limits are now. */
int peer_networks_adopt(struct peer_networks *all, struct str team_id, struct str sandbox_id,
                        const struct network_peers *peers, uint32_t group, struct error *err)
{
    struct network *network;
    int r;

    if (!peers->network.len)
        return 0;
    (void)pthread_mutex_lock(&all->lock);
    network = network_for(all, team_id, peers);
    r = check_name(network, peers, sandbox_id, err);
    (void)enter(all, team_id, sandbox_id,
                r < 0 ? &(struct network_peers){peers->network, STR("")} : peers);
    /* A box that was being moved may still have the number of another network. */
    if (!network->group && !is_taken(all, group))
        network->group = group;
    (void)pthread_mutex_unlock(&all->lock);
    return r;
}
