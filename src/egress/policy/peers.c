#include "egress/policy/peers.h"

#include <stdio.h>

#include "protocol/json/json_shape.h"

/* A group's number and a label. */
struct key {
    char text[12 + HOST_LABEL_MAX + 1];
    size_t len;
};

static struct str key_of(struct key *key, uint32_t group, struct str label)
{
    int len = snprintf(key->text, sizeof(key->text), "%u/%.*s", group, STR_ARG(label));

    return str_n(key->text, (size_t)len < sizeof(key->text) ? (size_t)len : sizeof(key->text) - 1);
}

static bool read_label(struct str text, struct host_name *out)
{
    return text.len <= HOST_LABEL_MAX && str_find(text, '.') < 0 && host_name_set(out, text);
}

int seat_read(const json_t *peers, struct seat *out, struct error *err)
{
    struct str name = json_get_str(peers, "name");

    if (!read_label(json_get_str(peers, "network"), &out->network) ||
        (name.len && !read_label(name, &out->name)))
        return error_set(err, ERROR_INVALID, "'peers' needs a network, and a name of one label");
    return 0;
}

static void put(struct map *seats, struct seat *seat, const struct host_name *label)
{
    struct key key = {0};

    if (label->len)
        (void)map_put(seats, key_of(&key, seat->group, host_name_str(label)), seat);
}

void peers_enter(struct map *seats, struct seat *seat)
{
    if (!seat->group)
        return;
    put(seats, seat, &seat->name);
    put(seats, seat, &seat->id);
}

/* Unless somebody else has the name meanwhile. */
static void take(struct map *seats, const struct seat *seat, const struct host_name *label)
{
    struct key key = {0};
    struct str text = key_of(&key, seat->group, host_name_str(label));

    if (map_get(seats, text) == seat)
        (void)map_remove(seats, text);
}

void peers_leave(struct map *seats, const struct seat *seat)
{
    if (!seat->group)
        return;
    take(seats, seat, &seat->name);
    take(seats, seat, &seat->id);
}

enum peers_found peers_find(const struct map *seats, const struct seat *asker,
                            const struct host_name *name, uint32_t *out_address)
{
    struct str rest = host_name_str(name), label = str_split(&rest, '.'), network = STR_NONE;
    const struct seat *found;
    struct key key = {0};

    if (!asker->group || !name->len)
        return PEERS_FOREIGN;
    if (rest.p) {
        network = str_split(&rest, '.');
        if (!str_eq(network, host_name_str(&asker->network)) || !str_is(rest, PEERS_DOMAIN))
            return PEERS_FOREIGN;
    }
    found = map_get(seats, key_of(&key, asker->group, label));
    if (!found)
        return network.p ? PEERS_NOBODY : PEERS_FOREIGN;
    *out_address = found->address;
    return PEERS_MEMBER;
}
