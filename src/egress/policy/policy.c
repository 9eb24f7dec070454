#include "egress/policy/policy.h"

#include <arpa/inet.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "protocol/json/json_shape.h"

static bool range_has(uint32_t address, uint8_t prefix, uint32_t what)
{
    return prefix == 0 || (address ^ what) >> (32 - prefix) == 0;
}

bool policy_address_blocked(const struct policy_ranges *opened, uint32_t address)
{
    static const struct {
        uint32_t address;
        uint8_t prefix;
    } blocked[] = {
        {0x00000000, 8},  {0x0a000000, 8},  {0x64400000, 10}, {0x7f000000, 8},
        {0xa9fe0000, 16}, {0xac100000, 12}, {0xc0000000, 24}, {0xc0a80000, 16},
        {0xc6120000, 15}, {0xe0000000, 4},  {0xf0000000, 4},
    };

    for (size_t i = 0; i < sizeof(blocked) / sizeof(*blocked); i++)
        if (range_has(blocked[i].address, blocked[i].prefix, address))
            return !policy_range_rule(opened, address);
    return false;
}

/* ---- reading ---- */

/* "1.2.3.4" or "1.2.3.0/24". */
static bool parse_range(struct str text, struct policy_range *out)
{
    struct str address = str_split(&text, '/');
    char copy[INET_ADDRSTRLEN];
    struct in_addr parsed;
    uint64_t prefix = 32;

    if (!str_copy(address, copy, sizeof(copy)) || inet_pton(AF_INET, copy, &parsed) != 1 ||
        (text.p && (!str_to_u64(text, &prefix) || prefix > 32)))
        return false;
    out->address = ntohl(parsed.s_addr);
    out->prefix = (uint8_t)prefix;
    return true;
}

bool policy_ranges_add(struct policy_ranges *ranges, struct str text)
{
    struct policy_range range = {0};

    if (!parse_range(text, &range))
        return false;
    range.text = str_dup(text);
    ranges->list = xrealloc(ranges->list, (ranges->count + 1) * sizeof(*ranges->list));
    ranges->list[ranges->count++] = range;
    return true;
}

static bool add_name(struct policy *policy, struct str text)
{
    struct host_name name = {0};
    struct map *map = &policy->names;
    struct str rest = text;

    if (str_is(text, "*") || str_starts(text, STR("*."))) {
        map = &policy->suffixes;
        rest = str_skip(text, text.len > 1 ? 2 : 1);
    }
    if (rest.len && !host_name_set(&name, rest))
        return false;
    if (!rest.len && text.len != 1)
        return false;
    free(map_put(map, host_name_str(&name), str_dup(text)));
    return true;
}

static int check_count(const json_t *list, const char *name, size_t max, struct error *err)
{
    if (!list || json_is_null(list))
        return 0;
    if (!json_is_array(list))
        return error_set(err, ERROR_INVALID, "'%s' must be an array", name);
    if (json_array_size(list) > max)
        return error_set(err, ERROR_LIMIT, "'%s' has more than %zu entries", name, max);
    return 0;
}

static int read_allowed(struct policy *policy, const json_t *list, struct error *err)
{
    const json_t *item;
    size_t i;

    if (check_count(list, "allowOut", POLICY_NAMES_MAX, err) < 0)
        return -1;
    json_array_foreach (list, i, item) {
        struct str text = str_of(json_string_value(item));

        if (str_find(text, ':') >= 0)
            continue;
        if (policy->allow.count < POLICY_RANGES_MAX && policy_ranges_add(&policy->allow, text))
            continue;
        if (!add_name(policy, text))
            return error_set(err, ERROR_INVALID, "'allowOut' has '%.*s', which is no name or range",
                             STR_ARG(text));
    }
    return 0;
}

static int read_denied(struct policy *policy, const json_t *list, struct error *err)
{
    const json_t *item;
    size_t i;

    if (check_count(list, "denyOut", POLICY_RANGES_MAX, err) < 0)
        return -1;
    json_array_foreach (list, i, item) {
        struct str text = str_of(json_string_value(item));

        if (str_find(text, ':') >= 0)
            continue;
        if (!policy_ranges_add(&policy->deny, text))
            return error_set(err, ERROR_INVALID, "'denyOut' has '%.*s', which is no range",
                             STR_ARG(text));
        policy->closed |= policy->deny.list[policy->deny.count - 1].prefix == 0;
    }
    return 0;
}

struct policy_body {
    json_t *allow_out, *deny_out, *rules, *via;
    bool internet;
};

static const struct json_field body_fields[] = {
    JSON_FIELD(struct policy_body, allow_out, "allowOut", 0),
    JSON_FIELD(struct policy_body, deny_out, "denyOut", 0),
    JSON_FIELD(struct policy_body, internet, "internet", 0),
    JSON_FIELD(struct policy_body, rules, "rules", 0),
    JSON_FIELD(struct policy_body, via, "egressProxy", 0),
    JSON_END,
};

int policy_new(const json_t *json, struct policy **out, struct error *err)
{
    struct policy_body body = {.internet = true};
    struct policy *policy = xcalloc(1, sizeof(*policy));

    map_init(&policy->names);
    map_init(&policy->suffixes);
    rules_init(&policy->rules);
    if (json_read(body_fields, json, &body, err) < 0 ||
        read_allowed(policy, body.allow_out, err) < 0 ||
        read_denied(policy, body.deny_out, err) < 0 ||
        rules_read(&policy->rules, body.rules, err) < 0 ||
        via_new(body.via, &policy->via, err) < 0) {
        policy_free(policy);
        return error_prefix(err, "policy");
    }
    policy->closed |= !body.internet;
    *out = policy;
    return 0;
}

static void free_map(struct map *map)
{
    struct map_entry *entry;

    map_for_each (map, entry)
        free(entry->value);
    map_done(map);
}

void policy_ranges_free(struct policy_ranges *ranges)
{
    for (size_t i = 0; i < ranges->count; i++)
        free(ranges->list[i].text);
    free(ranges->list);
}

void policy_free(struct policy *policy)
{
    if (!policy)
        return;
    free_map(&policy->names);
    free_map(&policy->suffixes);
    policy_ranges_free(&policy->allow);
    policy_ranges_free(&policy->deny);
    rules_done(&policy->rules);
    via_free(policy->via);
    free(policy);
}

/* ---- asking ---- */

const char *policy_name_rule(const struct policy *policy, const struct host_name *name)
{
    struct str rest = host_name_str(name);
    const char *rule = map_get(&policy->names, rest);

    if (!name->len)
        return NULL;
    while (!rule && rest.p) {
        (void)str_split(&rest, '.');
        rule = map_get(&policy->suffixes, rest.p ? rest : STR(""));
    }
    return rule;
}

const char *policy_range_rule(const struct policy_ranges *ranges, uint32_t address)
{
    for (size_t i = 0; i < ranges->count; i++)
        if (range_has(ranges->list[i].address, ranges->list[i].prefix, address))
            return ranges->list[i].text;
    return NULL;
}
