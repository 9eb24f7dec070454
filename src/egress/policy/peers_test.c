/* Who is found under which name, and by whom. */
#include "base/cleanup.h"
#include "base/test.h"
#include "egress/policy/peers.h"
#include "protocol/json/json_shape.h"

static struct map seats;

static struct seat seat_of(uint32_t address, uint32_t group, const char *network, const char *name)
{
    struct seat seat = {.address = address, .group = group};
    auto_json json_t *peers = json_pack("{s:s,s:s}", "network", network, "name", name);
    char id[8];

    OK(seat_read(peers, &seat, &err));
    (void)snprintf(id, sizeof(id), "i%u", address);
    CHECK(host_name_set(&seat.id, str_of(id)));
    return seat;
}

static enum peers_found find(const struct seat *asker, const char *text, uint32_t *out)
{
    struct host_name name;

    CHECK(host_name_set(&name, str_of(text)));
    return peers_find(&seats, asker, &name, out);
}

TEST(names_of_a_network_lead_to_its_members)
{
    struct seat web = seat_of(1, 7, "build", "web"), db = seat_of(2, 7, "build", "db"),
                bare = seat_of(3, 7, "build", ""), alone = {.address = 4};
    uint32_t address = 0;

    map_init(&seats);
    peers_enter(&seats, &web);
    peers_enter(&seats, &db);
    peers_enter(&seats, &bare);
    peers_enter(&seats, &alone);
    CHECK(find(&web, "db", &address) == PEERS_MEMBER && address == 2);
    CHECK(find(&web, "DB.Build.internal.", &address) == PEERS_MEMBER && address == 2);
    CHECK(find(&db, "db.build.internal", &address) == PEERS_MEMBER && address == 2);
    CHECK(find(&db, "i3", &address) == PEERS_MEMBER && address == 3);
    CHECK(find(&bare, "i1.build.internal", &address) == PEERS_MEMBER && address == 1);
    CHECK_INT(find(&web, "mail.build.internal", &address), PEERS_NOBODY);
    CHECK_INT(find(&web, "mail", &address), PEERS_FOREIGN);
    CHECK_INT(find(&web, "build.internal", &address), PEERS_FOREIGN);
    CHECK_INT(find(&web, "db.other.internal", &address), PEERS_FOREIGN);
    CHECK_INT(find(&web, "x.db.build.internal", &address), PEERS_FOREIGN);
    CHECK_INT(find(&web, "db.build.internal.example", &address), PEERS_FOREIGN);
    CHECK_INT(find(&alone, "db", &address), PEERS_FOREIGN);
    CHECK_INT(find(&alone, "db.build.internal", &address), PEERS_FOREIGN);
    map_done(&seats);
}

/* Groups tell networks apart, not their names. */
TEST(networks_of_one_name_are_strangers)
{
    struct seat mine = seat_of(1, 7, "build", "db"), theirs = seat_of(2, 77, "build", "db"),
                ours = seat_of(3, 7, "build", "web");
    uint32_t address = 0;

    map_init(&seats);
    peers_enter(&seats, &mine);
    peers_enter(&seats, &theirs);
    CHECK(find(&ours, "db", &address) == PEERS_MEMBER && address == 1);
    CHECK(find(&theirs, "db", &address) == PEERS_MEMBER && address == 2);
    CHECK_INT(find(&theirs, "i1.build.internal", &address), PEERS_NOBODY);
    peers_leave(&seats, &mine);
    CHECK_INT(find(&ours, "db.build.internal", &address), PEERS_NOBODY);
    CHECK_INT(find(&ours, "i1.build.internal", &address), PEERS_NOBODY);
    CHECK(find(&theirs, "db", &address) == PEERS_MEMBER && address == 2);
    map_done(&seats);
}

/* The order of records is no reason to lose the newer one. */
TEST(who_leaves_takes_only_what_it_has)
{
    struct seat old = seat_of(1, 7, "build", "db"), new = seat_of(2, 7, "build", "db");
    uint32_t address = 0;

    map_init(&seats);
    peers_enter(&seats, &old);
    peers_enter(&seats, &new);
    peers_leave(&seats, &old);
    CHECK(find(&new, "db", &address) == PEERS_MEMBER && address == 2);
    peers_leave(&seats, &new);
    CHECK_INT(seats.count, 0);
    map_done(&seats);
}

TEST(seats_that_are_none)
{
    static const char *const texts[] = {"{}", "{\"network\":\"a.b\"}", "{\"network\":\"\"}",
                                        "{\"network\":7}", "{\"network\":\"a\",\"name\":\"b.c\"}"};
    struct seat seat = {0};

    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
        auto_json json_t *json = NULL;

        OK(json_parse(str_of(texts[i]), &json, &err));
        FAILS(seat_read(json, &seat, &err), ERROR_INVALID, "'peers' needs a network");
    }
}
