/* Policies: what is taken, what is refused, what a box gets of them, and that they are read the same again. */
#include "domain/network/network_policy.h"

#include "base/cleanup.h"
#include "base/test.h"
#include "protocol/json/json_shape.h"

static struct arena arena;

static int read_policy(const char *text, bool internet, struct network_policy *out,
                       struct error *err)
{
    auto_json json_t *tree = NULL;

    if (json_parse(str_of(text), &tree, err) < 0)
        test_fail(__FILE__, __LINE__, "%s: %s", text, err->message);
    return network_policy_read(tree, internet, &arena, out, err);
}

/* What the store gives back is the same policy. */
static void check_again(const struct network_policy *policy)
{
    struct network_policy again;

    OK(network_policy_parse(policy->text, policy->internet, &arena, &again, &err));
    CHECK(str_eq(again.text, policy->text));
    CHECK(again.internet == policy->internet && again.name_count == policy->name_count);
    CHECK(memcmp(&again.box, &policy->box, sizeof(again.box)) == 0);
}

TEST(policies_are_read_and_written)
{
    static const struct {
        const char *text;
        bool internet;
        const char *out;
        enum network_mode mode;
        uint32_t allowed, denied;
        bool out_internet;
    } cases[] = {
        {"{}", true, "", NETWORK_OPEN, 0, 0, true},
        {"{}", false, "", NETWORK_NONE, 0, 0, false},
        {"{\"allowOut\":null,\"denyOut\":[]}", true, "", NETWORK_OPEN, 0, 0, true},
        {"{\"denyOut\":[\"0.0.0.0/0\"]}", true, "", NETWORK_NONE, 0, 0, false},
        {"{\"denyOut\":[\"8.8.8.8\"]}", true, "{\"denyOut\":[\"8.8.8.8\"]}", NETWORK_OPEN, 0, 1,
         true},
        {"{\"denyOut\":[\"::/0\"]}", true, "{\"denyOut\":[\"::/0\"]}", NETWORK_OPEN, 0, 0, true},
        {"{\"allowOut\":[\"1.1.1.1\"],\"denyOut\":[\"0.0.0.0/0\"]}", true,
         "{\"allowOut\":[\"1.1.1.1\"],\"denyOut\":[\"0.0.0.0/0\"]}", NETWORK_NONE, 1, 0, false},
        {"{\"allowOut\":[\"1.1.1.1\"]}", false,
         "{\"allowOut\":[\"1.1.1.1\"],\"denyOut\":[\"0.0.0.0/0\"]}", NETWORK_NONE, 1, 0, false},
        {"{\"allowOut\":[\"1.1.1.1\"],\"denyOut\":[\"1.0.0.0/8\"],\"other\":1}", true,
         "{\"allowOut\":[\"1.1.1.1\"],\"denyOut\":[\"1.0.0.0/8\"]}", NETWORK_OPEN, 1, 1, true},
        {"{\"allowOut\":[\"API.Example.com.\",\"*.b.c\",\"9.9.9.9/31\"],"
         "\"denyOut\":[\"0.0.0.0/0\",\"7.7.7.7\"]}",
         true,
         "{\"allowOut\":[\"api.example.com\",\"*.b.c\",\"9.9.9.9/31\"],"
         "\"denyOut\":[\"0.0.0.0/0\",\"7.7.7.7\"]}",
         NETWORK_FILTERED, 1, 0, false},
        {"{\"allowOut\":[\"a.b\"]}", false, "{\"allowOut\":[\"a.b\"],\"denyOut\":[\"0.0.0.0/0\"]}",
         NETWORK_FILTERED, 0, 0, false},
        {"{\"peers\":{\"network\":\"build\",\"name\":\"db\",\"other\":1}}", true,
         "{\"peers\":{\"network\":\"build\",\"name\":\"db\"}}", NETWORK_OPEN, 0, 0, true},
        {"{\"peers\":{\"network\":\"build\"}}", false,
         "{\"denyOut\":[\"0.0.0.0/0\"],\"peers\":{\"network\":\"build\"}}", NETWORK_NONE, 0, 0,
         false},
        {"{\"peers\":{},\"denyOut\":[]}", true, "", NETWORK_OPEN, 0, 0, true},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct network_policy policy;

        OK(read_policy(cases[i].text, cases[i].internet, &policy, &err));
        CHECK_STR(policy.text, cases[i].out);
        CHECK_INT(policy.box.mode, cases[i].mode);
        CHECK_INT(policy.box.allow_count, cases[i].allowed);
        CHECK_INT(policy.box.deny_count, cases[i].denied);
        CHECK_INT(policy.internet, cases[i].out_internet);
        check_again(&policy);
    }
    arena_done(&arena);
}

TEST(ranges_are_what_they_cover)
{
    static const struct {
        const char *word;
        uint32_t address, prefix;
    } cases[] = {
        {"1.2.3.4", 0x01020304, 32},          {"1.2.3.4/24", 0x01020300, 24},
        {"255.255.255.255/1", 0x80000000, 1}, {"9.9.9.9/0", 0, 0},
        {"::ffff:1.2.3.4", 0x01020304, 32},   {"::ffff:1.2.3.4/120", 0x01020300, 24},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct network_policy policy;
        char text[128];

        (void)snprintf(text, sizeof(text), "{\"allowOut\":[\"%s\"]}", cases[i].word);
        OK(read_policy(text, true, &policy, &err));
        CHECK_INT(policy.box.allow_count, 1);
        CHECK_INT(policy.box.ranges[0].address, cases[i].address);
        CHECK_INT(policy.box.ranges[0].prefix, cases[i].prefix);
        check_again(&policy);
    }
    arena_done(&arena);
}

TEST(what_is_wrong_is_named)
{
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"{\"allowOut\":\"1.1.1.1\"}", "'allowOut' must be an array"},
        {"{\"denyOut\":{}}", "'denyOut' must be an array"},
        {"{\"denyOut\":[1]}", "'denyOut' must be an array of strings"},
        {"{\"denyOut\":[\"example.com\"]}", "invalid denied CIDR example.com"},
        {"{\"denyOut\":[\"1.2.3.4/33\"]}", "invalid denied CIDR 1.2.3.4/33"},
        {"{\"denyOut\":[\"1.2.3\"]}", "invalid denied CIDR 1.2.3"},
        {"{\"denyOut\":[\"\"]}", "invalid denied CIDR "},
        {"{\"denyOut\":[\"1.2.3.4/\"]}", "invalid denied CIDR 1.2.3.4/"},
        {"{\"allowOut\":[\"example.com\"]}", "domains in 'allowOut' need '0.0.0.0/0' in 'denyOut'"},
        {"{\"allowOut\":[\"example.com\"],\"denyOut\":[\"8.8.8.8\"]}",
         "domains in 'allowOut' need '0.0.0.0/0' in 'denyOut'"},
    };
    static const char *const names[] = {
        "https://a.b", "a.b:443",   "a b",       "-a.b", "a..b", "*", "*.",
        "a.*.b",       "1.2.3.4.5", "1.2.3.999", "a/24", ".",    "",
    };
    struct network_policy policy;
    char text[128];

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        FAILS(read_policy(cases[i].text, true, &policy, &err), ERROR_INVALID, cases[i].says);
    }
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        (void)snprintf(text, sizeof(text), "{\"allowOut\":[\"%s\"],\"denyOut\":[\"0.0.0.0/0\"]}",
                       names[i]);
        FAILS(read_policy(text, true, &policy, &err), ERROR_INVALID);
    }
    arena_done(&arena);
}

enum many { ADDRESSES, NAMES, LONG_NAMES };

static json_t *one_of(enum many kind, int i)
{
    switch (kind) {
    case ADDRESSES:
        return json_sprintf("1.2.%d.%d", i % 250, i / 250);
    case NAMES:
        return json_sprintf("n%d.example.com", i);
    default:
        return json_sprintf(
            "a-name-that-is-as-long-as-one-may-be-in-a-list-of-many.n%d.example.com", i);
    }
}

static void check_many(enum many kind, const char *deny, int count, bool fits)
{
    auto_json json_t *tree = json_object();
    json_t *allow = json_array();
    struct network_policy policy;

    (void)json_object_set_new(tree, "allowOut", allow);
    (void)json_object_set_new(tree, "denyOut", json_pack("[s]", deny));
    for (int i = 0; i < count; i++)
        (void)json_array_append_new(allow, one_of(kind, i));
    if (!fits) {
        FAILS(network_policy_read(tree, true, &arena, &policy, &err), ERROR_INVALID);
        return;
    }
    OK(network_policy_read(tree, true, &arena, &policy, &err));
    check_again(&policy);
}

TEST(a_policy_has_limits)
{
    check_many(ADDRESSES, "0.0.0.0/0", 1000, true);
    check_many(ADDRESSES, "0.0.0.0/0", 1001, false);
    check_many(ADDRESSES, "3.3.3.3", 999, true);
    check_many(ADDRESSES, "3.3.3.3", 1000, false);
    check_many(NAMES, "0.0.0.0/0", 10000, true);
    check_many(NAMES, "0.0.0.0/0", 10001, false);
    check_many(LONG_NAMES, "0.0.0.0/0", 10000, false);
    arena_done(&arena);
}

TEST(a_policy_of_strings_is_that_of_the_same_request)
{
    const struct str allow[] = {STR("api.example.com"), STR("198.51.100.0/24")};
    struct network_lists lists = {
        .allow = allow, .allow_count = 2, .peers = {STR("build"), STR("db")}};
    auto_json json_t *request =
        json_pack("{s:[s,s],s:{s:s,s:s}}", "allowOut", "api.example.com", "198.51.100.0/24",
                  "peers", "network", "build", "name", "db");

    struct network_policy made, read;

    OK(network_policy_make(&lists, false, &arena, &made, &err));
    OK(network_policy_read(request, false, &arena, &read, &err));
    CHECK(str_eq(made.text, read.text) && made.box.mode == read.box.mode);
    CHECK(made.box.allow_count == read.box.allow_count && str_eq(made.peers.name, STR("db")));
    lists.peers.name = STR("Db");
    FAILS(network_policy_make(&lists, false, &arena, &made, &err), ERROR_INVALID,
          "network.peers.name");
}
