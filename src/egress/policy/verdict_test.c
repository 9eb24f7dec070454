/* The policy of a sandbox, what it was answered, and what follows from both. */
#include "egress/policy/verdict.h"

#include "base/clock.h"
#include "base/test.h"
#include "protocol/json/json_shape.h"

enum { SECOND = 1000000 };
#define CLOSED "\"denyOut\":[\"0.0.0.0/0\"]"

static const struct policy_ranges nothing_opened;

static int make(const char *text, struct policy **out, struct error *err)
{
    auto_json json_t *json = NULL;

    if (json_parse(str_of(text), &json, err) < 0)
        return -1;
    return policy_new(json, out, err);
}

static struct policy *policy_of(const char *text)
{
    struct policy *policy = NULL;

    OK(make(text, &policy, &err));
    return policy;
}

static struct host_name name_of(const char *text)
{
    struct host_name name;

    CHECK(host_name_set(&name, str_of(text)));
    return name;
}

static bool may_ask(const struct policy *policy, const char *text)
{
    struct host_name name = name_of(text);

    return verdict_question(policy, &name).allowed;
}

TEST(names_and_wildcards_are_matched)
{
    struct policy *policy =
        policy_of("{\"allowOut\":[\"a.example\",\"*.b.example\",\"1.2.3.4\"]," CLOSED "}");

    CHECK(may_ask(policy, "a.example") && may_ask(policy, "A.EXAMPLE."));
    CHECK(may_ask(policy, "x.b.example") && may_ask(policy, "y.x.b.example"));
    CHECK(!may_ask(policy, "b.example") && !may_ask(policy, "xb.example"));
    CHECK(!may_ask(policy, "x.a.example") && !may_ask(policy, "example"));
    CHECK(!may_ask(policy, "a.example.evil") && !may_ask(policy, "1.2.3.4"));
    policy_free(policy);
}

TEST(a_star_allows_every_name)
{
    struct policy *policy = policy_of("{\"allowOut\":[\"*\"]," CLOSED "}");

    CHECK(may_ask(policy, "x") && may_ask(policy, "a.b.c"));
    policy_free(policy);
}

TEST(a_policy_is_open_unless_it_denies_everything)
{
    static const struct {
        const char *text;
        bool closed;
    } cases[] = {{"{}", false},
                 {"{\"denyOut\":[\"8.8.8.8\"]}", false},
                 {"{" CLOSED "}", true},
                 {"{\"denyOut\":[\"1.1.1.1\",\"0.0.0.0/0\"]}", true},
                 {"{\"internet\":false}", true},
                 {"{\"allowOut\":[\"::/0\"],\"denyOut\":[\"::/0\"],\"rules\":{}}", false}};

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct policy *policy = policy_of(cases[i].text);

        CHECK_INT(policy->closed, cases[i].closed);
        CHECK_INT(may_ask(policy, "a.example"), !cases[i].closed);
        policy_free(policy);
    }
}

TEST(what_is_no_policy_says_why)
{
    struct policy *policy = NULL;

    FAILS(make("{\"allowOut\":[\"a b\"]}", &policy, &err), ERROR_INVALID, "a b");
    FAILS(make("{\"allowOut\":[\"*.\"]}", &policy, &err), ERROR_INVALID, "*.");
    FAILS(make("{\"allowOut\":[\"\"]}", &policy, &err), ERROR_INVALID, "no name");
    FAILS(make("{\"allowOut\":\"a\"}", &policy, &err), ERROR_INVALID, "array");
    FAILS(make("{\"denyOut\":[\"a.example\"]}", &policy, &err), ERROR_INVALID, "no range");
}

TEST(ten_thousand_names_are_as_fast_as_ten)
{
    auto_json json_t *few = json_pack("{s:[],s:[s]}", "allowOut", "denyOut", "0.0.0.0/0");
    auto_json json_t *many = json_deep_copy(few);
    struct policy *policies[2] = {0};
    int64_t took[2], from;
    char text[64];

    for (int i = 0; i < 10000; i++) {
        (void)snprintf(text, sizeof(text), "%sn%d.example", i % 2 ? "*." : "", i);
        (void)json_array_append_new(json_object_get(many, "allowOut"), json_string(text));
        if (i < 10)
            (void)json_array_append_new(json_object_get(few, "allowOut"), json_string(text));
    }
    OK(policy_new(few, &policies[0], &err));
    OK(policy_new(many, &policies[1], &err));
    CHECK(may_ask(policies[1], "n9998.example") && may_ask(policies[1], "x.n9999.example"));
    for (int k = 0; k < 2; k++) {
        from = clock_mono_us();
        for (int i = 0; i < 100000; i++)
            CHECK(!may_ask(policies[k], "a.b.c.d.nowhere.example"));
        took[k] = clock_mono_us() - from;
    }
    CHECK(took[1] < took[0] * 5 + 20000);
    policy_free(policies[0]);
    policy_free(policies[1]);
}

TEST(addresses_that_are_not_of_the_internet_are_blocked)
{
    static const uint32_t blocked[] = {0x00000000, 0x0a010203, 0x0ad54007, 0x64400001,
                                       0x7f000001, 0xa9fea9fe, 0xac1fffff, 0xc0000001,
                                       0xc0a80101, 0xc6130001, 0xe0000001, 0xffffffff};
    static const uint32_t open[] = {0x01010101, 0x08080808, 0x64800000,
                                    0xac200000, 0xc0000201, 0xcb007101};

    for (size_t i = 0; i < sizeof(blocked) / sizeof(*blocked); i++)
        CHECK(policy_address_blocked(&nothing_opened, blocked[i]));
    for (size_t i = 0; i < sizeof(open) / sizeof(*open); i++)
        CHECK(!policy_address_blocked(&nothing_opened, open[i]));
}

TEST(what_the_operator_opened_is_answered_and_reached)
{
    struct dns_answer answer = {.count = 2, .addresses = {0x0a010203, 0x0a020203}};
    struct policy *policy = policy_of("{\"allowOut\":[\"10.0.0.0/8\"]," CLOSED "}");
    struct policy_ranges opened = {0};
    struct connection connection = {.address = 0x0a010203, .opened = &opened};
    struct answers answers;

    answers_init(&answers);
    CHECK(!verdict_connection(policy, &answers, &connection, 0).allowed);
    CHECK(policy_ranges_add(&opened, STR("10.1.0.0/16")));
    CHECK(verdict_connection(policy, &answers, &connection, 0).allowed);
    connection.address = 0x0a020203;
    CHECK(!verdict_connection(policy, &answers, &connection, 0).allowed);
    CHECK(verdict_answer(&answer, &opened).allowed);
    CHECK(answer.count == 1 && answer.addresses[0] == 0x0a010203);
    answers_done(&answers);
    policy_ranges_free(&opened);
    policy_free(policy);
}

TEST(an_answer_keeps_only_addresses_of_the_internet)
{
    struct dns_answer mixed = {.count = 3, .addresses = {0x0a000001, 0x01010101, 0x7f000001}};
    struct dns_answer inner = {.count = 1, .addresses = {0xa9fea9fe}}, none = {0};

    CHECK(verdict_answer(&mixed, &nothing_opened).allowed);
    CHECK(mixed.count == 1 && mixed.addresses[0] == 0x01010101);
    CHECK(!verdict_answer(&inner, &nothing_opened).allowed && inner.count == 0);
    CHECK(verdict_answer(&none, &nothing_opened).allowed);
}

static void put(struct answers *answers, const char *text, uint32_t address, uint32_t ttl_s,
                int64_t now_us)
{
    struct dns_answer answer = {.count = 1, .addresses = {address}, .ttl_s = ttl_s};
    struct host_name name = name_of(text);

    answers_put(answers, &name, &answer, now_us);
}

TEST(answers_are_remembered_for_their_time_and_a_grace)
{
    struct host_name name = name_of("a.example"), other = name_of("b.example");
    struct answers answers;
    struct dns_answer got;

    answers_init(&answers);
    put(&answers, "a.example", 1, 10, 0);
    CHECK(answers_get(&answers, &name, 9 * SECOND, &got));
    CHECK(got.count == 1 && got.addresses[0] == 1 && got.ttl_s == 1);
    CHECK(!answers_get(&answers, &name, 10 * SECOND, &got));
    CHECK(answers_has(&answers, &name, 1, 309 * (int64_t)SECOND));
    CHECK(!answers_has(&answers, &name, 1, 310 * (int64_t)SECOND));
    CHECK(!answers_has(&answers, &other, 1, 0) && !answers_has(&answers, &name, 2, 0));
    /* Another answer comes to it, and is the one that is given. */
    put(&answers, "a.example", 2, 10, 20 * SECOND);
    CHECK(answers_has(&answers, &name, 1, 21 * SECOND) &&
          answers_has(&answers, &name, 2, 21 * SECOND));
    CHECK(answers_get(&answers, &name, 21 * SECOND, &got) && got.count == 1 &&
          got.addresses[0] == 2);
    CHECK(answers_knows(&answers, 1) && answers_knows(&answers, 2) && !answers_knows(&answers, 3));
    put(&answers, "a.example", 3, 10, 400 * (int64_t)SECOND);
    CHECK(!answers_knows(&answers, 1) && answers_knows(&answers, 3));
    answers_done(&answers);
}

TEST(too_many_names_make_the_oldest_forgotten)
{
    struct host_name first = name_of("n0.example"), second = name_of("n1.example");
    struct answers answers;
    struct dns_answer got;
    char text[32];

    answers_init(&answers);
    for (uint32_t i = 0; i < ANSWERS_NAMES_MAX; i++) {
        (void)snprintf(text, sizeof(text), "n%u.example", i);
        put(&answers, text, i + 1, 60, 0);
    }
    CHECK(answers_get(&answers, &first, 0, &got)); /* used again */
    put(&answers, "more.example", 7, 60, 0);
    CHECK(answers_has(&answers, &first, 1, 0));
    CHECK(!answers_has(&answers, &second, 2, 0) && !answers_knows(&answers, 2));
    answers_done(&answers);
}

struct rig {
    struct policy *policy;
    struct answers answers;
};

static struct verdict connects(const struct rig *rig, uint32_t address, enum sniff kind,
                               const char *name)
{
    struct sniffed sniffed = {.fault = name ? NULL : "no name"};

    if (name)
        sniffed.name = name_of(name);
    return verdict_connection(rig->policy, &rig->answers,
                              &(struct connection){address, kind, &sniffed, &nothing_opened}, 0);
}

TEST(connections_need_an_allowed_name_and_its_address)
{
    struct rig rig = {
        .policy = policy_of("{\"allowOut\":[\"a.example\",\"*.b.example\",\"192.0.2.0/24\"]," CLOSED
                            "}")};

    answers_init(&rig.answers);
    put(&rig.answers, "a.example", 0x01010101, 60, 0);
    put(&rig.answers, "x.b.example", 0x02020202, 60, 0);
    CHECK(connects(&rig, 0x01010101, SNIFF_TLS, "a.example").allowed);
    CHECK(connects(&rig, 0x02020202, SNIFF_HTTP, "x.b.example").allowed);
    CHECK(!connects(&rig, 0x02020202, SNIFF_TLS, "a.example").allowed);
    CHECK(!connects(&rig, 0x01010101, SNIFF_TLS, "evil.example").allowed);
    CHECK(!connects(&rig, 0x01010101, SNIFF_TLS, "b.example").allowed);
    CHECK(!connects(&rig, 0x01010101, SNIFF_TLS, NULL).allowed);
    CHECK(!connects(&rig, 0x01010101, SNIFF_OTHER, NULL).allowed);
    CHECK(!connects(&rig, 0x03030303, SNIFF_TLS, "a.example").allowed);
    /* An allowed range needs no name. */
    CHECK(connects(&rig, 0xc0000209, SNIFF_OTHER, NULL).allowed);
    CHECK(connects(&rig, 0xc0000209, SNIFF_TLS, "evil.example").allowed);
    CHECK_STR(str_of(connects(&rig, 0x01010101, SNIFF_TLS, "a.example").rule), "a.example");
    CHECK_STR(str_of(connects(&rig, 0x01010101, SNIFF_TLS, "evil.example").rule), "0.0.0.0/0");
    answers_done(&rig.answers);
    policy_free(rig.policy);
}

TEST(an_encrypted_hello_is_told_as_what_it_is)
{
    struct rig rig = {.policy = policy_of("{\"allowOut\":[\"a.example\"]," CLOSED "}")};
    struct sniffed sniffed = {.name = name_of("a.example"), .hides = true};
    struct verdict verdict;

    answers_init(&rig.answers);
    put(&rig.answers, "a.example", 0x01010101, 60, 0);
    verdict = verdict_connection(
        rig.policy, &rig.answers,
        &(struct connection){0x01010101, SNIFF_TLS, &sniffed, &nothing_opened}, 0);
    CHECK(verdict.allowed && strstr(verdict.reason, "may hide another one (ECH)"));
    CHECK(!strstr(connects(&rig, 0x01010101, SNIFF_TLS, "a.example").reason, "ECH"));
    answers_done(&rig.answers);
    policy_free(rig.policy);
}

TEST(no_policy_opens_what_is_not_of_the_internet)
{
    struct rig rig = {.policy = policy_of("{\"allowOut\":[\"10.0.0.0/8\",\"*\"]}")};

    answers_init(&rig.answers);
    put(&rig.answers, "a.example", 0x0a000001, 60, 0);
    CHECK(!connects(&rig, 0x0a000001, SNIFF_TLS, "a.example").allowed);
    answers_done(&rig.answers);
    policy_free(rig.policy);
}

TEST(an_open_policy_denies_its_ranges_only)
{
    struct rig rig = {.policy =
                          policy_of("{\"allowOut\":[\"8.8.8.8\"],\"denyOut\":[\"8.8.0.0/16\"]}")};

    answers_init(&rig.answers);
    CHECK(connects(&rig, 0x08080808, SNIFF_OTHER, NULL).allowed);
    CHECK(!connects(&rig, 0x08080809, SNIFF_OTHER, NULL).allowed);
    CHECK_STR(str_of(connects(&rig, 0x08080809, SNIFF_TLS, "a.example").rule), "8.8.0.0/16");
    CHECK(connects(&rig, 0x09090909, SNIFF_OTHER, NULL).allowed);
    answers_done(&rig.answers);
    policy_free(rig.policy);
}
