#include "domain/network/network_policy.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "domain/network/network_rule.h"
#include "protocol/json/json_shape.h"

_Static_assert((int)NETWORK_POLICY_RANGES_MAX <= (int)BOX_RANGES_MAX,
               "every policy fits into a box's network");

enum { MAPPED_BITS = 96, WORD_SHOWN = 100 };

/* Behind the addresses that stand for IPv4 ones: ::ffff:1.2.3.4. */
static bool is_mapped(const unsigned char bytes[16])
{
    static const unsigned char prefix[12] = {[10] = 0xff, [11] = 0xff};

    return memcmp(bytes, prefix, sizeof(prefix)) == 0;
}

static struct box_range range_of(const unsigned char bytes[4], uint32_t prefix)
{
    uint32_t address =
        (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];

    return (struct box_range){prefix ? address & (uint32_t)(UINT64_MAX << (32 - prefix)) : 0,
                              prefix};
}

/* An address, or an address and the length of a prefix. *out_v4: *out says which, else it is one of IPv6. */
static bool parse_range(struct str text, struct box_range *out, bool *out_v4)
{
    struct str address = str_split(&text, '/');
    char copy[INET6_ADDRSTRLEN];
    unsigned char bytes[16];
    uint64_t bits;

    if (!str_copy(address, copy, sizeof(copy)))
        return false;
    *out_v4 = inet_pton(AF_INET, copy, bytes) == 1;
    if (!*out_v4 && inet_pton(AF_INET6, copy, bytes) != 1)
        return false;
    bits = *out_v4 ? 32 : 128;
    if (text.p && (!str_to_u64(text, &bits) || bits > (*out_v4 ? 32 : 128)))
        return false;
    if (*out_v4) {
        *out = range_of(bytes, (uint32_t)bits);
    } else if (is_mapped(bytes) && bits >= MAPPED_BITS) {
        *out = range_of(bytes + 12, (uint32_t)bits - MAPPED_BITS);
        *out_v4 = true;
    }
    return true;
}

bool network_address_valid(struct str text)
{
    struct box_range ignored;
    bool v4;

    return str_find(text, '/') < 0 && parse_range(text, &ignored, &v4);
}

static bool label_valid(struct str label)
{
    if (label.len == 0 || label.len > 63 || label.p[0] == '-' || label.p[label.len - 1] == '-')
        return false;
    for (size_t i = 0; i < label.len; i++)
        if (!isalnum((unsigned char)label.p[i]) && label.p[i] != '-' && label.p[i] != '_')
            return false;
    return true;
}

bool network_name_valid(struct str name)
{
    struct str last = STR_NONE;
    uint64_t number;

    if (str_starts(name, STR("*.")))
        name = str_skip(name, 2);
    if (name.len == 0 || name.len > NETWORK_NAME_MAX)
        return false;
    while (name.p) {
        last = str_split(&name, '.');
        if (!label_valid(last))
            return false;
    }
    return !str_to_u64(last, &number);
}

struct reading {
    struct arena *arena;
    struct network_policy *out;
    bool stored;                          /* it was read before */
    json_t *allow, *deny, *rules, *proxy; /* canonical; the latter two may be NULL */
    struct box_range *denied;
    size_t denied_count;
    bool deny_all;
};

static int too_many(struct error *err, int max, const char *what)
{
    return error_set(err, ERROR_INVALID, "a sandbox's network has at most %d %s", max, what);
}

static int add_denied(struct reading *reading, struct str text, struct error *err)
{
    struct box_range range;
    bool v4;

    if (!parse_range(text, &range, &v4))
        return error_set(err, ERROR_INVALID, "invalid denied CIDR %.*s",
                         (int)(text.len < WORD_SHOWN ? text.len : WORD_SHOWN), text.p);
    /* Those of IPv6 count, too: they are kept. */
    if (json_array_size(reading->deny) == NETWORK_POLICY_RANGES_MAX)
        return too_many(err, NETWORK_POLICY_RANGES_MAX, "addresses and ranges");
    if (v4)
        reading->denied[reading->denied_count++] = range;
    reading->deny_all |= v4 && range.prefix == 0;
    (void)json_array_append_new(reading->deny, json_stringn(text.p, text.len));
    return 0;
}

static int add_name(struct reading *reading, struct str text, struct error *err)
{
    char name[NETWORK_NAME_MAX + 3];
    size_t len = str_ends(text, STR(".")) ? text.len - 1 : text.len;

    if (!network_name_valid(str_n(text.p, len)))
        return error_set(
            err, ERROR_INVALID,
            "'%.*s' in 'allowOut' is neither an address, a range of addresses nor a domain",
            (int)(text.len < WORD_SHOWN ? text.len : WORD_SHOWN), text.p);
    if (reading->out->name_count++ == NETWORK_POLICY_NAMES_MAX)
        return too_many(err, NETWORK_POLICY_NAMES_MAX, "domains");
    str_lower(str_n(text.p, len), name);
    (void)json_array_append_new(reading->allow, json_stringn(name, len));
    return 0;
}

static int add_allowed(struct reading *reading, struct str text, struct error *err)
{
    struct box_network *box = &reading->out->box;
    struct box_range range;
    bool v4;

    if (!parse_range(text, &range, &v4))
        return add_name(reading, text, err);
    if (json_array_size(reading->allow) - reading->out->name_count == NETWORK_POLICY_RANGES_MAX)
        return too_many(err, NETWORK_POLICY_RANGES_MAX, "addresses and ranges");
    if (v4)
        box->ranges[box->allow_count++] = range;
    (void)json_array_append_new(reading->allow, json_stringn(text.p, text.len));
    return 0;
}

static int each_string(struct reading *reading, const json_t *network, const char *name,
                       int (*add)(struct reading *, struct str, struct error *), struct error *err)
{
    const json_t *array = json_object_get(network, name), *item;
    size_t i;

    if (array && !json_is_null(array) && !json_is_array(array))
        return error_set(err, ERROR_INVALID, "'%s' must be an array", name);
    json_array_foreach (array, i, item) {
        if (!json_is_string(item))
            return error_set(err, ERROR_INVALID, "'%s' must be an array of strings", name);
        if (add(reading, str_n(json_string_value(item), json_string_length(item)), err) < 0)
            return -1;
    }
    return 0;
}

/* What the egress process decides alone. Where nothing is allowed there is nothing to decide. */
static void make_watched_box(const struct reading *reading)
{
    struct network_policy *out = reading->out;

    out->box.mode =
        out->internet || json_array_size(reading->allow) ? NETWORK_FILTERED : NETWORK_NONE;
    out->box.allow_count = 0;
}

/* What is denied besides everything changes nothing for the box. */
static int make_box(struct reading *reading, struct error *err)
{
    struct network_policy *out = reading->out;

    if (out->internet && out->name_count)
        return error_set(err, ERROR_INVALID,
                         "domains in 'allowOut' need '" NETWORK_EVERYTHING "' in 'denyOut'");
    if (out->has_rules || out->has_proxy) {
        make_watched_box(reading);
        return 0;
    }
    if (!out->internet) {
        out->box.mode = out->name_count ? NETWORK_FILTERED : NETWORK_NONE;
        return 0;
    }
    if (out->box.allow_count + reading->denied_count > NETWORK_POLICY_RANGES_MAX)
        return too_many(err, NETWORK_POLICY_RANGES_MAX, "addresses and ranges");
    out->box.mode = NETWORK_OPEN;
    out->box.deny_count = (uint32_t)reading->denied_count;
    if (reading->denied_count)
        memcpy(out->box.ranges + out->box.allow_count, reading->denied,
               reading->denied_count * sizeof(*reading->denied));
    return 0;
}

static bool is_plain(const struct reading *reading)
{
    size_t denied = json_array_size(reading->deny);

    return json_array_size(reading->allow) == 0 && !reading->out->peers.network.len &&
           !reading->rules && !reading->proxy &&
           (denied == 0 || (denied == 1 && reading->deny_all));
}

static int make_text(struct reading *reading, struct error *err)
{
    auto_json json_t *tree = json_object();
    auto_free char *text = NULL;

    if (is_plain(reading))
        return 0;
    if (!reading->out->internet && !reading->deny_all)
        (void)json_array_append_new(reading->deny, json_string(NETWORK_EVERYTHING));
    if (json_array_size(reading->allow))
        (void)json_object_set(tree, "allowOut", reading->allow);
    if (json_array_size(reading->deny))
        (void)json_object_set(tree, "denyOut", reading->deny);
    if (reading->out->peers.network.len)
        (void)json_object_set_new(tree, "peers", network_peers_write(&reading->out->peers));
    if (reading->rules)
        (void)json_object_set(tree, "rules", reading->rules);
    if (reading->proxy)
        (void)json_object_set(tree, "egressProxy", reading->proxy);
    text = json_text(tree);
    if (strlen(text) > NETWORK_POLICY_TEXT_MAX)
        return error_set(err, ERROR_INVALID,
                         "a sandbox's network has at most %d KiB of lists and rules",
                         NETWORK_POLICY_TEXT_MAX / 1024);
    reading->out->text = arena_str(reading->arena, str_of(text));
    return 0;
}

static int read_members(struct reading *reading, const json_t *network, struct error *err)
{
    if (network_peers_read(network, reading->arena, &reading->out->peers, err) < 0 ||
        each_string(reading, network, "denyOut", add_denied, err) < 0 ||
        each_string(reading, network, "allowOut", add_allowed, err) < 0 ||
        network_rules_read(json_object_get(network, "rules"), &reading->rules, err) < 0)
        return -1;
    return network_proxy_read(json_object_get(network, "egressProxy"), reading->stored,
                              &reading->proxy, err);
}

static struct reading reading_of(bool internet, struct arena *arena, struct network_policy *out)
{
    *out = (struct network_policy){.internet = internet, .text = STR("")};
    return (struct reading){
        .arena = arena, .out = out, .allow = json_array(), .deny = json_array()};
}

/* Ends the reading. r: whether all members were read. */
static int read_end(struct reading *reading, int r, struct error *err)
{
    struct network_policy *out = reading->out;

    if (r == 0) {
        out->internet = out->internet && !reading->deny_all;
        out->has_rules = reading->rules != NULL;
        out->has_proxy = reading->proxy != NULL;
        r = make_box(reading, err) < 0 ? -1 : make_text(reading, err);
    }
    json_decref(reading->allow);
    json_decref(reading->deny);
    json_decref(reading->rules);
    json_decref(reading->proxy);
    return r;
}

static int read_network(const json_t *network, bool internet, bool stored, struct arena *arena,
                        struct network_policy *out, struct error *err)
{
    struct reading reading = reading_of(internet, arena, out);

    reading.stored = stored;
    if (network)
        reading.denied = arena_alloc(arena, NETWORK_POLICY_RANGES_MAX * sizeof(*reading.denied));
    return read_end(&reading, read_members(&reading, network, err), err);
}

int network_policy_make(const struct network_lists *lists, bool internet, struct arena *arena,
                        struct network_policy *out, struct error *err)
{
    struct reading reading = reading_of(internet, arena, out);
    int r = network_peers_check(&lists->peers, err);

    out->peers = lists->peers.network.len ? lists->peers : (struct network_peers){STR(""), STR("")};
    for (size_t i = 0; i < lists->allow_count && r == 0; i++)
        r = add_allowed(&reading, lists->allow[i], err);
    return read_end(&reading, r, err);
}

int network_policy_read(const json_t *network, bool internet, struct arena *arena,
                        struct network_policy *out, struct error *err)
{
    return read_network(network, internet, false, arena, out, err);
}

int network_policy_parse(struct str text, bool internet, struct arena *arena,
                         struct network_policy *out, struct error *err)
{
    auto_json json_t *tree = NULL;

    if (text.len) {
        tree = json_loadb(text.p, text.len, 0, NULL);
        if (!tree)
            return error_set(err, ERROR_INTERNAL, "bad network of a sandbox in the store");
    }
    return read_network(tree, internet, true, arena, out, err);
}

int network_policy_seal(const struct network_policy *policy, network_seal_fn *seal, void *arg,
                        struct arena *arena, struct str *out, struct error *err)
{
    auto_json json_t *tree = NULL;
    auto_free char *text = NULL;
    struct str password, sealed;
    json_t *proxy;

    *out = policy->text;
    if (!policy->has_proxy)
        return 0;
    if (json_parse(policy->text, &tree, err) < 0)
        return -1;
    proxy = json_object_get(tree, "egressProxy");
    password = json_get_str(proxy, "password");
    if (!password.p)
        return 0;
    if (seal(arg, password, arena, &sealed, err) < 0)
        return -1;
    (void)json_object_set_new(proxy, "sealed", json_str(sealed));
    (void)json_object_del(proxy, "password");
    text = json_text(tree);
    *out = arena_str(arena, str_of(text));
    return 0;
}
