#include "egress/policy/rules.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "protocol/json/json_shape.h"

void rules_init(struct rules *rules)
{
    map_init(&rules->names);
    map_init(&rules->suffixes);
}

static void free_value(struct rule_header *header)
{
    if (header->value)
        explicit_bzero(header->value, strlen(header->value));
    free(header->value);
}

static void free_rule(struct rule *rule)
{
    for (size_t i = 0; rule && i < rule->count; i++) {
        free(rule->headers[i].name);
        free_value(&rule->headers[i]);
    }
    if (rule) {
        free(rule->host);
        free(rule->headers);
    }
    free(rule);
}

static void free_all(struct map *map)
{
    struct map_entry *entry;

    map_for_each (map, entry)
        free_rule(entry->value);
    map_done(map);
}

void rules_done(struct rules *rules)
{
    free_all(&rules->names);
    free_all(&rules->suffixes);
}

/* ---- reading ---- */

static bool is_value(struct str text)
{
    for (size_t i = 0; i < text.len; i++) {
        unsigned char c = (unsigned char)text.p[i];

        if ((c < ' ' && c != '\t') || c == 0x7f)
            return false;
    }
    return text.len <= RULE_VALUE_MAX;
}

/* They say where a message ends, or where it goes: that is ours to say. */
static bool is_ours(struct str name)
{
    static const char *const ours[] = {
        "host", "content-length", "transfer-encoding", "connection", "keep-alive", "upgrade",
        "te",   "trailer",        "proxy-connection",  "expect",
    };

    for (size_t i = 0; i < sizeof(ours) / sizeof(*ours); i++)
        if (str_eq_nocase(name, str_of(ours[i])))
            return true;
    return false;
}

/* The one of that name, or a new one without a name; NULL when there are too many. */
static struct rule_header *header_for(struct rule *rule, struct str name)
{
    for (size_t i = 0; i < rule->count; i++)
        if (str_eq_nocase(str_of(rule->headers[i].name), name))
            return &rule->headers[i];
    if (rule->count == RULE_HEADERS_MAX)
        return NULL;
    rule->headers = xrealloc(rule->headers, (rule->count + 1) * sizeof(*rule->headers));
    rule->headers[rule->count] = (struct rule_header){0};
    return &rule->headers[rule->count];
}

static int add_header(struct rule *rule, struct str name, const json_t *json, struct error *err)
{
    struct str value = str_n(json_string_value(json), json_string_length(json));
    struct rule_header *header;

    if (!str_is_token(name) || name.len > RULE_NAME_MAX || is_ours(name))
        return error_set(err, ERROR_INVALID, "the header '%.*s' cannot be set", STR_ARG(name));
    if (!json_is_null(json) && (!json_is_string(json) || !is_value(value)))
        return error_set(err, ERROR_INVALID,
                         "the value of '%.*s' is no text of one line and at most %d bytes",
                         STR_ARG(name), RULE_VALUE_MAX);
    header = header_for(rule, name);
    if (!header)
        return error_set(err, ERROR_LIMIT, "more than %d headers", RULE_HEADERS_MAX);
    if (header->name) {
        free_value(header);
    } else {
        header->name = str_dup(name);
        rule->count++;
    }
    header->value = json_is_null(json) ? NULL : str_dup(value);
    return 0;
}

static int read_headers(struct rule *rule, const json_t *item, struct error *err)
{
    const json_t *transform = json_object_get(item, "transform");
    const json_t *headers = json_object_get(transform, "headers"), *value;
    const char *name;
    size_t len;

    if (!json_is_object(item) || (headers && !json_is_object(headers)))
        return error_set(err, ERROR_INVALID, "a rule is an object with a transform of headers");
    json_object_keylen_foreach ((json_t *)(uintptr_t)headers, name, len, value)
        if (add_header(rule, str_n(name, len), value, err) < 0)
            return -1;
    return 0;
}

/* Where the rule of that host belongs, or NULL. */
static struct map *place_for(struct rules *rules, struct str host, struct host_name *out_name)
{
    bool below = str_starts(host, STR("*."));

    if (!host_name_set(out_name, below ? str_skip(host, 2) : host))
        return NULL;
    return below ? &rules->suffixes : &rules->names;
}

static int add_host(struct rules *rules, struct str host, const json_t *list, struct error *err)
{
    struct host_name name;
    struct map *map = place_for(rules, host, &name);
    const json_t *item;
    struct rule *rule;
    size_t i;

    if (!map || !json_is_array(list))
        return error_set(err, ERROR_INVALID, "'%.*s' is no host with a list of rules",
                         STR_ARG(host));
    if (rules->names.count + rules->suffixes.count == RULES_HOSTS_MAX)
        return error_set(err, ERROR_LIMIT, "more than %d hosts", RULES_HOSTS_MAX);
    rule = xcalloc(1, sizeof(*rule));
    rule->host = str_dup(host);
    json_array_foreach (list, i, item)
        if (read_headers(rule, item, err) < 0) {
            free_rule(rule);
            return -1;
        }
    /* A rule that does nothing is none: its host is left alone. */
    free_rule(rule->count ? map_put(map, host_name_str(&name), rule) : rule);
    return 0;
}

int rules_read(struct rules *rules, const json_t *json, struct error *err)
{
    const json_t *list;
    const char *host;
    size_t len;

    if (!json || json_is_null(json))
        return 0;
    if (!json_is_object(json))
        return error_set(err, ERROR_INVALID, "'rules' must be an object");
    json_object_keylen_foreach ((json_t *)(uintptr_t)json, host, len, list)
        if (add_host(rules, str_n(host, len), list, err) < 0)
            return error_prefix(err, "rules");
    return 0;
}

/* ---- asking ---- */

const struct rule *rules_for(const struct rules *rules, const struct host_name *name)
{
    struct str rest = host_name_str(name);
    const struct rule *rule = name->len ? map_get(&rules->names, rest) : NULL;

    while (!rule && name->len && rest.p) {
        (void)str_split(&rest, '.');
        rule = rest.p ? map_get(&rules->suffixes, rest) : NULL;
    }
    return rule;
}

bool rules_any(const struct rules *rules)
{
    return rules->names.count || rules->suffixes.count;
}

static char folded(char c)
{
    if (c >= 'A' && c <= 'Z')
        return (char)(c - 'A' + 'a');
    return c == '_' ? '-' : c;
}

static bool same_header(struct str a, struct str b)
{
    bool same = a.len == b.len;

    for (size_t i = 0; same && i < a.len; i++)
        same = folded(a.p[i]) == folded(b.p[i]);
    return same;
}

bool rule_sets(const struct rule *rule, struct str name)
{
    for (size_t i = 0; rule && i < rule->count; i++)
        if (same_header(str_of(rule->headers[i].name), name))
            return true;
    return false;
}
