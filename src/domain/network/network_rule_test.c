/* Rules and proxies of policies: what is taken, what is refused, and what the egress process gets. */
#include "domain/network/network_rule.h"

#include "base/cleanup.h"
#include "base/test.h"
#include "domain/network/network_policy.h"
#include "domain/network/network_secret.h"
#include "protocol/json/json_shape.h"

#define RULE(headers) "[{\"transform\":{\"headers\":{" headers "}}}]"

static struct arena arena;

static int read_policy(const char *text, struct network_policy *out, struct error *err)
{
    auto_json json_t *tree = NULL;

    if (json_parse(str_of(text), &tree, err) < 0)
        test_fail(__FILE__, __LINE__, "%s: %s", text, err->message);
    return network_policy_read(tree, true, &arena, out, err);
}

TEST(rules_are_read_and_written)
{
    static const struct {
        const char *text, *out;
        enum network_mode mode;
    } cases[] = {
        {"{\"rules\":null,\"egressProxy\":null}", "", NETWORK_OPEN},
        {"{\"rules\":{}}", "", NETWORK_OPEN},
        {"{\"rules\":{\"API.Example.com.\":" RULE("\"X-A\":\"b\"") "}}",
         "{\"rules\":{\"api.example.com\":" RULE("\"X-A\":\"b\"") "}}", NETWORK_FILTERED},
        {"{\"rules\":{\"*.b.org\":" RULE("\"A\":\"Bearer ${e2b.secrets.My-Key} ${x}\"") "}}",
         "{\"rules\":{\"*.b.org\":" RULE("\"A\":\"Bearer ${e2b.secrets.my-key} ${x}\"") "}}",
         NETWORK_FILTERED},
        {"{\"rules\":{\"a.b\":[{},{\"transform\":{}}]}}",
         "{\"rules\":{\"a.b\":[{},{\"transform\":{\"headers\":{}}}]}}", NETWORK_FILTERED},
        /* Ranges are the egress process's to decide. */
        {"{\"allowOut\":[\"1.1.1.1\"],\"denyOut\":[\"0.0.0.0/0\"],\"rules\":{\"a.b\":[]}}",
         "{\"allowOut\":[\"1.1.1.1\"],\"denyOut\":[\"0.0.0.0/0\"],\"rules\":{\"a.b\":[]}}",
         NETWORK_FILTERED},
        {"{\"denyOut\":[\"0.0.0.0/0\"],\"rules\":{\"a.b\":[]}}",
         "{\"denyOut\":[\"0.0.0.0/0\"],\"rules\":{\"a.b\":[]}}", NETWORK_NONE},
        {"{\"egressProxy\":{\"address\":\"socks5://Proxy.example:1080\"}}",
         "{\"egressProxy\":{\"address\":\"proxy.example:1080\"}}", NETWORK_FILTERED},
        {"{\"egressProxy\":{\"address\":\"http://192.0.2.1:3128\",\"username\":\"me\"}}",
         "{\"egressProxy\":{\"address\":\"http://192.0.2.1:3128\",\"username\":\"me\"}}",
         NETWORK_FILTERED},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct network_policy policy, again;

        OK(read_policy(cases[i].text, &policy, &err));
        CHECK_STR(policy.text, cases[i].out);
        CHECK_INT(policy.box.mode, cases[i].mode);
        CHECK_INT(policy.box.allow_count + policy.box.deny_count, 0);
        OK(network_policy_parse(policy.text, policy.internet, &arena, &again, &err));
        CHECK(str_eq(again.text, policy.text));
        CHECK(network_has_rules(policy.text) == policy.has_rules);
    }
    arena_done(&arena);
}

TEST(rules_that_are_refused)
{
    static const struct {
        const char *text;
        enum error_code code;
        const char *words;
    } cases[] = {
        {"{\"rules\":[]}", ERROR_INVALID, "'rules' must be an object"},
        {"{\"rules\":{\"*\":[]}}", ERROR_INVALID, "'*' in 'rules'"},
        {"{\"rules\":{\"1.2.3.4\":[]}}", ERROR_INVALID, "1.2.3.4"},
        {"{\"rules\":{\"1.2.3.0/24\":[]}}", ERROR_INVALID, "1.2.3.0/24"},
        {"{\"rules\":{\"https://a.b\":[]}}", ERROR_INVALID, "https://a.b"},
        {"{\"rules\":{\"a.b\":{}}}", ERROR_INVALID, "must be an array"},
        {"{\"rules\":{\"a.b\":[1]}}", ERROR_INVALID, "must be an object"},
        {"{\"rules\":{\"a.b\":[],\"A.b.\":[]}}", ERROR_INVALID, "twice"},
        {"{\"rules\":{\"a.b\":[{\"deny\":true}]}}", ERROR_UNSUPPORTED, "'deny'"},
        {"{\"rules\":{\"a.b\":[{\"transform\":{\"query\":{}}}]}}", ERROR_UNSUPPORTED, "'query'"},
        {"{\"rules\":{\"a.b\":" RULE("\"Host\":\"x\"") "}}", ERROR_INVALID, "'Host'"},
        {"{\"rules\":{\"a.b\":" RULE("\"content-Length\":\"1\"") "}}", ERROR_INVALID, "ength"},
        {"{\"rules\":{\"a.b\":" RULE("\"Proxy-Authorization\":\"1\"") "}}", ERROR_INVALID, "Proxy"},
        {"{\"rules\":{\"a.b\":" RULE("\"a b\":\"x\"") "}}", ERROR_INVALID, "'a b'"},
        {"{\"rules\":{\"a.b\":" RULE("\"\":\"x\"") "}}", ERROR_INVALID, "header"},
        {"{\"rules\":{\"a.b\":" RULE("\"A\":1") "}}", ERROR_INVALID, "must be a string"},
        {"{\"rules\":{\"a.b\":" RULE("\"A\":\"x\\r\\nB: y\"") "}}", ERROR_INVALID, "line ends"},
        {"{\"rules\":{\"a.b\":" RULE("\"A\":\"${e2b.secrets.}\"") "}}", ERROR_INVALID,
         "placeholder"},
        {"{\"rules\":{\"a.b\":" RULE("\"A\":\"${e2b.secrets.a b}\"") "}}", ERROR_INVALID,
         "placeholder"},
        {"{\"rules\":{\"a.b\":" RULE("\"A\":\"${e2b.secrets.open\"") "}}", ERROR_INVALID,
         "placeholder"},
        {"{\"rules\":{\"a.b\":" RULE("\"A\":\"${e2b.identity.tokens.x}\"") "}}", ERROR_UNSUPPORTED,
         "identity"},
        {"{\"egressProxy\":\"a:1\"}", ERROR_INVALID, "must be an object"},
        {"{\"egressProxy\":{}}", ERROR_INVALID, "address"},
        {"{\"egressProxy\":{\"address\":\"a.b\"}}", ERROR_INVALID, "HOST:PORT"},
        {"{\"egressProxy\":{\"address\":\"a.b:0\"}}", ERROR_INVALID, "HOST:PORT"},
        {"{\"egressProxy\":{\"address\":\"a.b:65536\"}}", ERROR_INVALID, "HOST:PORT"},
        {"{\"egressProxy\":{\"address\":\"*.b:1\"}}", ERROR_INVALID, "HOST:PORT"},
        {"{\"egressProxy\":{\"address\":\"https://a.b:1\"}}", ERROR_INVALID, "HOST:PORT"},
        {"{\"egressProxy\":{\"address\":\"a.b:1\",\"password\":\"x\"}}", ERROR_INVALID, "username"},
        {"{\"egressProxy\":{\"address\":\"a.b:1\",\"username\":\"a\\nb\"}}", ERROR_INVALID,
         "username"},
        {"{\"egressProxy\":{\"address\":\"a.b:1\",\"sealed\":\"00\"}}", ERROR_UNSUPPORTED,
         "sealed"},
        /* A rule allows nothing. */
        {"{\"allowOut\":[\"a.b\"],\"rules\":{\"a.b\":[]}}", ERROR_INVALID, "0.0.0.0/0"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct network_policy policy;
        struct error err = {0};

        CHECK_INT(read_policy(cases[i].text, &policy, &err), -1);
        CHECK_INT(err.code, cases[i].code);
        if (!strstr(err.message, cases[i].words))
            test_fail(__FILE__, __LINE__, "%s: %s", cases[i].text, err.message);
    }
    arena_done(&arena);
}

static bool takes_hosts(size_t hosts, size_t headers)
{
    auto_json json_t *rules = json_object(), *out = NULL;
    struct error ignored = {0};
    char name[32];

    for (size_t i = 0; i < hosts; i++) {
        json_t *all = json_object();

        for (size_t j = 0; j < headers; j++) {
            (void)snprintf(name, sizeof(name), "x-%zu", j);
            (void)json_object_set_new(all, name, json_string("v"));
        }
        (void)snprintf(name, sizeof(name), "h%zu.example", i);
        (void)json_object_set_new(rules, name,
                                  json_pack("[{s:{s:o}}]", "transform", "headers", all));
    }
    return network_rules_read(rules, &out, &ignored) == 0;
}

TEST(rules_have_a_number)
{
    CHECK(takes_hosts(NETWORK_RULE_HOSTS_MAX, NETWORK_RULE_HEADERS_MAX));
    CHECK(!takes_hosts(NETWORK_RULE_HOSTS_MAX + 1, 1));
    CHECK(!takes_hosts(1, NETWORK_RULE_HEADERS_MAX + 1));
}

/* ---- filling in ---- */

static int fill_secret(void *arg, struct str name, struct str host, struct buf *out,
                       struct error *err)
{
    (void)arg;
    if (str_is(name, "gone"))
        return error_set(err, ERROR_NOT_FOUND, "no '%.*s'", STR_ARG(name));
    if (str_is(name, "bound") && !str_is(host, "a.b"))
        return error_set(err, ERROR_FORBIDDEN, "not for '%.*s'", STR_ARG(host));
    if (str_is(name, "large")) {
        for (int i = 0; i < NETWORK_SECRET_VALUE_MAX; i++)
            (void)buf_add_char(out, 'x');
        return 0;
    }
    (void)buf_printf(out, "\"%.*s\"", STR_ARG(name));
    return 0;
}

static int unseal(void *arg, struct str sealed, struct buf *out, struct error *err)
{
    (void)arg;
    if (!str_is(sealed, "SEALED"))
        return error_set(err, ERROR_INTERNAL, "another key");
    (void)buf_add_str(out, STR("pa\\ss"));
    return 0;
}

static int seal(void *arg, struct str password, struct arena *to, struct str *out,
                struct error *err)
{
    (void)arg, (void)to, (void)err;
    CHECK_STR(password, "open");
    *out = STR("SEALED");
    return 0;
}

static int fill(const char *text, bool strict, struct buf *out, struct error *err)
{
    const struct network_filler filler = {
        .secret = fill_secret, .unseal = unseal, .strict = strict};

    return network_fill(str_of(text), &filler, out, err);
}

static void check_filled(const char *text, const char *want)
{
    auto_wiped struct buf filled = {0};

    OK(fill(text, false, &filled, &err));
    CHECK_STR(buf_str(&filled), want);
}

TEST(placeholders_are_filled_in)
{
    check_filled("{\"denyOut\":[\"1.1.1.1\"]}", "{\"denyOut\":[\"1.1.1.1\"]}");
    check_filled("{\"rules\":{\"a.b\":" RULE("\"A\":\"x ${e2b.secrets.k} y${e2b.secrets.bound}\","
                                             "\"B\":\"plain $ {\"") ",\"c.d\":[]}}",
                 "{\"rules\":{\"a.b\":" RULE("\"A\":\"x \\\"k\\\" y\\\"bound\\\"\","
                                             "\"B\":\"plain $ {\"") ",\"c.d\":[]}}");
    check_filled("{\"egressProxy\":{\"address\":\"p:1\",\"username\":\"u\",\"sealed\":\"SEALED\"}}",
                 "{\"egressProxy\":{\"address\":\"p:1\",\"username\":\"u\",\"password\":"
                 "\"pa\\\\ss\"}}");
}

TEST(a_secret_that_is_gone_or_not_for_the_host_takes_its_header_away)
{
    static const char gone[] = "{\"rules\":{\"c.d\":" RULE("\"A\":\"x${e2b.secrets.gone}\"") "}}",
                      bound[] = "{\"rules\":{\"c.d\":" RULE("\"A\":\"${e2b.secrets.bound}\"") "}}",
                      large[] = "{\"rules\":{\"c.d\":" RULE("\"A\":\"x${e2b.secrets.large}\"") "}}",
                      other[] = "{\"egressProxy\":{\"address\":\"p:1\",\"username\":\"u\","
                                "\"sealed\":\"X\"}}";
    const char *const strict[] = {gone, bound, large};

    check_filled(gone, "{\"rules\":{\"c.d\":" RULE("\"A\":null") "}}");
    check_filled(bound, "{\"rules\":{\"c.d\":" RULE("\"A\":null") "}}");
    for (size_t i = 0; i < sizeof(strict) / sizeof(strict[0]); i++) {
        auto_wiped struct buf filled = {0};
        struct error err = {0};

        CHECK_INT(fill(strict[i], true, &filled, &err), -1);
    }
    for (int i = 0; i < 2; i++) {
        auto_wiped struct buf filled = {0};
        struct error err = {0};

        CHECK_INT(fill(other, i, &filled, &err), -1);
        CHECK_INT(err.code, ERROR_INTERNAL);
    }
}

TEST(a_proxys_password_is_not_stored)
{
    struct network_policy policy, again;
    struct str stored;

    OK(read_policy("{\"egressProxy\":{\"address\":\"p.q:1\",\"username\":\"u\",\"password\":"
                   "\"open\"}}",
                   &policy, &err));
    OK(network_policy_seal(&policy, seal, NULL, &arena, &stored, &err));
    CHECK_STR(stored, "{\"egressProxy\":{\"address\":\"p.q:1\",\"username\":\"u\",\"sealed\":"
                      "\"SEALED\"}}");
    CHECK(network_fill_needed(stored));
    OK(network_policy_parse(stored, true, &arena, &again, &err));
    CHECK(str_eq(again.text, stored) && again.has_proxy);
    arena_done(&arena);
}
