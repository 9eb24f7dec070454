/* Who is in which private network: names, numbers and limits. */
#include "domain/network/network_peers.h"

#include <stdio.h>

#include "base/cleanup.h"
#include "base/test.h"
#include "protocol/json/json_shape.h"

static const struct network_peers nowhere = {{"", 0}, {"", 0}};

static struct network_peers peers_of(const char *network, const char *name)
{
    return (struct network_peers){str_of(network), str_of(name)};
}

static uint32_t join(struct peer_networks *all, const char *team, const char *id,
                     const char *network, const char *name)
{
    struct network_peers peers = peers_of(network, name);
    uint32_t group;

    OK(peer_networks_join(all, str_of(team), str_of(id), &peers, &group, &err));
    CHECK(group != 0);
    CHECK_INT(peer_networks_group(all, str_of(id)), group);
    return group;
}

TEST(what_is_asked_for_is_checked)
{
    static const struct {
        const char *text, *why;
    } bad[] = {
        {"{\"peers\":7}", "must be an object"},
        {"{\"peers\":{\"name\":\"db\"}}", "'network.peers.network'"},
        {"{\"peers\":{\"network\":\"Build\"}}", "'network.peers.network'"},
        {"{\"peers\":{\"network\":\"a.b\"}}", "'network.peers.network'"},
        {"{\"peers\":{\"network\":\"a/b\"}}", "'network.peers.network'"},
        {"{\"peers\":{\"network\":7}}", "'network.peers'"},
        {"{\"peers\":{\"network\":\"build\",\"name\":\"10\"}}", "'network.peers.name'"},
        {"{\"peers\":{\"network\":\"build\",\"name\":\"db-\"}}", "'network.peers.name'"},
        {"{\"peers\":{\"network\":\"build\",\"name\":\"localhost\"}}", "'network.peers.name'"},
        {"{\"peers\":{\"network\":\"build\",\"name\":"
         "\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"}}",
         "'network.peers.name'"},
    };
    auto_arena struct arena arena = {0};
    struct network_peers peers;

    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        auto_json json_t *tree = NULL;

        OK(json_parse(str_of(bad[i].text), &tree, &err));
        FAILS(network_peers_read(tree, &arena, &peers, &err), ERROR_INVALID, bad[i].why);
    }
    OK(network_peers_read(NULL, &arena, &peers, &err));
    CHECK_INT(peers.network.len, 0);
    CHECK(!network_peers_write(&peers));
}

TEST(networks_have_numbers_of_their_own)
{
    struct peer_networks *all = peer_networks_new();
    uint32_t build = join(all, "red", "i1", "build", "db"), group;

    CHECK_INT(join(all, "red", "i2", "build", ""), build);
    CHECK(join(all, "blue", "i3", "build", "db") != build);
    CHECK(join(all, "red", "i4", "test", "db") != build);
    CHECK_INT(peer_networks_group(all, STR("i9")), 0);
    /* Another name, another network, none. */
    CHECK_INT(join(all, "red", "i1", "build", "cache"), build);
    CHECK_INT(join(all, "red", "i2", "build", "db"), build);
    CHECK(join(all, "red", "i1", "test", "cache") != build);
    OK(peer_networks_join(all, STR("red"), STR("i2"), &nowhere, &group, &err));
    CHECK_INT(group, 0);
    CHECK_INT(peer_networks_group(all, STR("i2")), 0);
    /* The last one took it with it: a new one is another. */
    CHECK(join(all, "red", "i5", "build", "db") != build);
    peer_networks_leave(all, STR("i5"));
    peer_networks_leave(all, STR("i5"));
    peer_networks_free(all);
}

TEST(a_name_is_that_of_one)
{
    struct peer_networks *all = peer_networks_new();
    struct network_peers db = peers_of("build", "db");
    uint32_t group = join(all, "red", "i1", "build", "db"), other = 7;

    FAILS(peer_networks_check(all, STR("red"), &db, &err), ERROR_CONFLICT, "'db'");
    FAILS(peer_networks_join(all, STR("red"), STR("i2"), &db, &other, &err), ERROR_CONFLICT,
          "sandbox 'i1'");
    CHECK_INT(other, 0);
    CHECK_INT(join(all, "red", "i1", "build", "db"), group);
    OK(peer_networks_check(all, STR("blue"), &db, &err));
    peer_networks_leave(all, STR("i1"));
    OK(peer_networks_check(all, STR("red"), &db, &err));
    OK(peer_networks_check(all, STR("red"), &nowhere, &err));
    peer_networks_free(all);
}

TEST(members_and_networks_are_counted)
{
    struct peer_networks *all = peer_networks_new();
    struct network_peers build = peers_of("net0", ""), more = peers_of("more", "");
    uint32_t group;
    char text[16];

    for (int i = 0; i < PEERS_NETWORKS_MAX; i++) {
        (void)snprintf(text, sizeof(text), "net%d", i);
        (void)join(all, "red", text, text, "");
    }
    FAILS(peer_networks_check(all, STR("red"), &more, &err), ERROR_QUOTA, "64 private networks");
    OK(peer_networks_check(all, STR("blue"), &more, &err));
    for (int i = 1; i < PEERS_MEMBERS_MAX; i++) {
        (void)snprintf(text, sizeof(text), "i%d", i);
        (void)join(all, "red", text, "net0", "");
    }
    FAILS(peer_networks_join(all, STR("red"), STR("ix"), &build, &group, &err), ERROR_QUOTA,
          "256 members");
    (void)join(all, "red", "i1", "net0", "db");
    peer_networks_leave(all, STR("i2"));
    OK(peer_networks_join(all, STR("red"), STR("ix"), &build, &group, &err));
    peer_networks_free(all);
}

/* Boxes that outlived the server have numbers already. */
TEST(numbers_are_adopted)
{
    struct peer_networks *all = peer_networks_new();
    struct network_peers db = peers_of("build", "db"), web = peers_of("build", "web"),
                         test = peers_of("test", "db");

    peer_networks_seen(all, 40);
    peer_networks_seen(all, 7);
    OK(peer_networks_adopt(all, STR("red"), STR("i1"), &db, 0, &err)); /* paused */
    OK(peer_networks_adopt(all, STR("red"), STR("i2"), &web, 40, &err));
    OK(peer_networks_adopt(all, STR("red"), STR("i3"), &test, 40, &err)); /* was being moved */
    OK(peer_networks_adopt(all, STR("red"), STR("i4"), &nowhere, 0, &err));
    CHECK_INT(peer_networks_group(all, STR("i1")), 40);
    CHECK_INT(peer_networks_group(all, STR("i2")), 40);
    CHECK_INT(peer_networks_group(all, STR("i3")), 41);
    CHECK_INT(join(all, "blue", "i5", "build", "db"), 42);
    FAILS(peer_networks_adopt(all, STR("red"), STR("i6"), &db, 40, &err), ERROR_CONFLICT, "'i1'");
    CHECK_INT(peer_networks_group(all, STR("i6")), 40);
    peer_networks_free(all);
}
