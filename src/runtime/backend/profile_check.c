/* The rules of profiles, apart from what backends can do: which members there are, of which type and
 * in which range, and which of them go together. Every fault is noted with its path. */
#include <arpa/inet.h>
#include <ctype.h>
#include <stdarg.h>
#include <stdlib.h>

#include "base/address.h"
#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/env_name.h"
#include "base/near.h"
#include "protocol/json/json_shape.h"
#include "runtime/backend/profile_parts.h"

enum {
    TIMEOUT_MAX_S = 600,
    IDLE_MAX_S = 7 * 24 * 3600,
    LIFETIME_MAX_S = 30 * 24 * 3600,
    EXPIRE_MAX_S = 10 * 365 * 24 * 3600,
    OUTPUT_MAX = 256 * 1024,
    LIST_MAX = 256,
    ENV_MAX = 256,
    TEXT_MAX = 32768,
};

void profile_fault(struct profile_check *check, const char *path, const char *fmt, ...)
{
    char where[256], message[400];
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(message, sizeof(message), fmt, args);
    va_end(args);
    (void)snprintf(where, sizeof(where), "%s%s", check->prefix, path);
    (void)json_array_append_new(check->faults,
                                json_pack("{s:o, s:o}", "path", json_str(str_of(where)), "message",
                                          json_str(str_of(message))));
}

static void known_keys(struct profile_check *check, const json_t *object, const char *path,
                       const char *const *known)
{
    const char *key;
    json_t *value;

    json_object_foreach ((json_t *)(uintptr_t)object, key, value) {
        const char *const *at = known, *meant;
        char where[160];

        while (*at && strcmp(*at, key) != 0)
            at++;
        if (*at)
            continue;
        (void)snprintf(where, sizeof(where), "%s%s%.60s", path, *path ? "." : "", key);
        meant = near_word(str_of(key), known);
        if (meant)
            profile_fault(check, where, "unknown member; did you mean '%s'?", meant);
        else
            profile_fault(check, where, "unknown member");
    }
}

/* Present and not null. */
static json_t *member(const json_t *object, const char *key)
{
    json_t *value = json_object_get(object, key);

    return value && !json_is_null(value) ? value : NULL;
}

static void check_int(struct profile_check *check, const json_t *object, const char *path,
                      const char *key, int64_t min, int64_t max)
{
    const json_t *value = member(object, key);
    char where[96];

    if (!value || (json_is_integer(value) && json_integer_value(value) >= min &&
                   json_integer_value(value) <= max))
        return;
    (void)snprintf(where, sizeof(where), "%s%s%s", path, *path ? "." : "", key);
    profile_fault(check, where, "must be a whole number from %lld to %lld", (long long)min,
                  (long long)max);
}

static void check_bool(struct profile_check *check, const json_t *config, const char *key)
{
    const json_t *value = member(config, key);

    if (value && !json_is_boolean(value))
        profile_fault(check, key, "must be true or false");
}

static bool plain_text(const json_t *value)
{
    return json_is_string(value) && json_string_length(value) > 0 &&
           json_string_length(value) <= TEXT_MAX &&
           strlen(json_string_value(value)) == json_string_length(value);
}

static void check_text(struct profile_check *check, const json_t *object, const char *path,
                       const char *key)
{
    const json_t *value = member(object, key);
    char where[96];

    if (!value || plain_text(value))
        return;
    (void)snprintf(where, sizeof(where), "%s%s%s", path, *path ? "." : "", key);
    profile_fault(check, where, "must be a string that is not empty");
}

static bool valid_domain(const char *text)
{
    size_t len = strlen(text), label = 0;

    if (text[0] == '*' && text[1] == '.') {
        text += 2;
        len -= 2;
    }
    if (len == 0 || len > 253)
        return false;
    for (size_t i = 0; i < len; i++) {
        if (text[i] == '.') {
            if (label == 0 || text[i - 1] == '-')
                return false;
            label = 0;
            continue;
        }
        if (!(isalnum((unsigned char)text[i]) || (text[i] == '-' && label > 0)) || ++label > 63)
            return false;
    }
    return label > 0 && text[len - 1] != '-';
}

static bool valid_cidr(const char *text)
{
    struct str rest = str_of(text), address = str_split(&rest, '/');
    unsigned char bytes[16];
    char plain[64];
    int64_t bits = -1;
    bool six;

    if (!str_copy(address, plain, sizeof(plain)))
        return false;
    six = strchr(plain, ':') != NULL;
    if (inet_pton(six ? AF_INET6 : AF_INET, plain, bytes) != 1)
        return false;
    return !rest.p || (str_to_i64(rest, &bits) && bits >= 0 && bits <= (six ? 128 : 32));
}

static void check_strings(struct profile_check *check, const json_t *list, const char *path,
                          bool (*valid)(const char *text), const char *what)
{
    const json_t *item;
    size_t i;

    if (!list)
        return;
    if (!json_is_array(list) || json_array_size(list) > LIST_MAX) {
        profile_fault(check, path, "must be an array of at most %d %s", LIST_MAX, what);
        return;
    }
    json_array_foreach (list, i, item) {
        char where[96];

        if (plain_text(item) && (!valid || valid(json_string_value(item))))
            continue;
        (void)snprintf(where, sizeof(where), "%s[%zu]", path, i);
        profile_fault(check, where, "is not one of %s", what);
    }
}

static void check_peers(struct profile_check *check, const json_t *peers)
{
    static const char rule[] = "must be a label of a host name: a to z, 0 to 9 and '-', beginning "
                               "with a letter, at most 63 characters";

    if (!peers)
        return;
    if (!json_is_object(peers)) {
        profile_fault(check, "network.peers", "must be an object");
        return;
    }
    known_keys(check, peers, "network.peers", profile_peers_keys);
    if (!address_is_label(json_get_str(peers, "network")))
        profile_fault(check, "network.peers.network", "%s", rule);
    if (member(peers, "name") && !address_is_label(json_get_str(peers, "name")))
        profile_fault(check, "network.peers.name", "%s", rule);
}

static void check_network(struct profile_check *check, const json_t *config)
{
    const json_t *network = member(config, "network");
    const json_t *domains = member(network, "allowDomains"), *cidrs = member(network, "allowCidrs");
    struct str mode = json_get_str(network, "mode");

    if (json_object_get(config, "internet"))
        profile_fault(check, "internet", "config.internet is no longer supported");
    if (!network)
        return;
    if (!json_is_object(network)) {
        profile_fault(check, "network", "must be an object");
        return;
    }
    known_keys(check, network, "network", profile_network_keys);
    if (member(network, "mode") && !str_is(mode, "allow-all") && !str_is(mode, "deny-all") &&
        !str_is(mode, "restricted"))
        profile_fault(check, "network.mode", "must be allow-all, deny-all or restricted");
    check_strings(check, domains, "network.allowDomains", valid_domain, "domain names");
    check_strings(check, cidrs, "network.allowCidrs", valid_cidr, "addresses or CIDR ranges");
    check_peers(check, member(network, "peers"));
    if (!str_is(mode, "restricted") && (json_array_size(domains) || json_array_size(cidrs)))
        profile_fault(check, "network",
                      "config.network.allowDomains and config.network.allowCidrs are only allowed"
                      " with mode restricted");
}

static void check_lifecycle(struct profile_check *check, const json_t *config)
{
    const json_t *lifecycle = member(config, "lifecycle");
    bool persistent = json_is_true(json_object_get(config, "persistent"));

    /* In our own form a sandbox that is not persistent has a lifetime too: it just ends then. */
    if (lifecycle && check->harness && !persistent)
        profile_fault(check, "lifecycle", "config.lifecycle requires config.persistent to be true");
    if ((json_array_size(json_object_get(config, "onCreate")) ||
         json_array_size(json_object_get(config, "onResume"))) &&
        !persistent)
        profile_fault(check, "onCreate",
                      "config.onCreate and config.onResume require config.persistent to be true");
    if (!lifecycle)
        return;
    if (!json_is_object(lifecycle)) {
        profile_fault(check, "lifecycle", "must be an object");
        return;
    }
    known_keys(check, lifecycle, "lifecycle", profile_lifecycle_keys);
    check_int(check, lifecycle, "lifecycle", "idleTimeoutSeconds", 1, IDLE_MAX_S);
    check_int(check, lifecycle, "lifecycle", "expireAfterSeconds", 1, EXPIRE_MAX_S);
    check_int(check, lifecycle, "lifecycle", "maxLifetimeSeconds", 1, LIFETIME_MAX_S);
}

static void check_variables(struct profile_check *check, const json_t *env, const char *path)
{
    json_t *value;
    const char *name;

    if (!env)
        return;
    if (!json_is_object(env) || json_object_size(env) > ENV_MAX) {
        profile_fault(check, path, "must be an object of at most %d strings", ENV_MAX);
        return;
    }
    json_object_foreach ((json_t *)(uintptr_t)env, name, value) {
        char shown[ENV_NAME_SHOWN_SIZE], where[2 * ENV_NAME_SHOWN_SIZE];

        env_name_show(str_of(name), shown);
        (void)snprintf(where, sizeof(where), "%s.%s", path, shown);
        if (!env_name_ok(str_of(name)))
            profile_fault(check, where, "is not a valid name of an environment variable");
        if (!json_is_string(value) || json_string_length(value) > TEXT_MAX ||
            strlen(json_string_value(value)) != json_string_length(value))
            profile_fault(check, where, "must be a string of at most %d bytes", TEXT_MAX);
    }
}

/* The agent's own servers have "env", those of the gateway "envs"; both become the environment of a process. */
static void check_mcp(struct profile_check *check, const json_t *mcp)
{
    static const char *const members[] = {"env", "envs"};
    json_t *server;
    const char *name;

    if (!mcp)
        return;
    if (!json_is_object(mcp)) {
        profile_fault(check, "mcp", "must be an object or null");
        return;
    }
    json_object_foreach ((json_t *)(uintptr_t)mcp, name, server)
        for (size_t i = 0; i < sizeof(members) / sizeof(members[0]); i++) {
            char shown[ENV_NAME_SHOWN_SIZE], path[ENV_NAME_SHOWN_SIZE];

            env_name_show(str_of(name), shown);
            (void)snprintf(path, sizeof(path), "mcp.%.100s.%s", shown, members[i]);
            check_variables(check, member(server, members[i]), path);
        }
}

static void check_limits(struct profile_check *check, const json_t *config)
{
    const json_t *limits = member(config, "limits");

    check_int(check, config, "", "memoryLimit", 64, 1 << 20);
    if (!limits)
        return;
    if (!json_is_object(limits)) {
        profile_fault(check, "limits", "must be an object");
        return;
    }
    known_keys(check, limits, "limits", profile_limits_keys);
    check_int(check, limits, "limits", "cpu", 1, 256);
    check_int(check, limits, "limits", "memoryMb", 64, 1 << 20);
    check_int(check, limits, "limits", "diskMb", 64, 64 << 20);
}

static void check_root(struct profile_check *check, const json_t *object, const char *path)
{
    const json_t *root = member(object, "workspaceRoot");

    if (root && (!plain_text(root) || json_string_value(root)[0] != '/'))
        profile_fault(check, path, "must be an absolute path");
}

static void check_options(struct profile_check *check, const json_t *config)
{
    const json_t *options = member(config, "options");
    struct str provider = json_get_str(config, "provider");
    struct str name = json_get_str(options, "template"),
               alias = json_get_str(options, "templateId");
    struct str template = json_get_str(config, "template");

    if (!options)
        return;
    if (!json_is_object(options)) {
        profile_fault(check, "options", "must be an object");
        return;
    }
    /* Those of other types are their own to know. */
    if (str_eq_nocase(str_trim(provider), STR("e2b")))
        known_keys(check, options, "options", profile_e2b_keys);
    check_text(check, options, "options", "apiKey");
    check_text(check, options, "options", "template");
    check_text(check, options, "options", "templateId");
    if ((name.p && alias.p && !str_eq(name, alias)) ||
        (template.p &&
         ((name.p && !str_eq(name, template)) || (alias.p && !str_eq(alias, template)))))
        profile_fault(check, "options.template",
                      "template and templateId name different templates; one is enough");
    check_root(check, options, "options.workspaceRoot");
    profile_check_screen(check, options);
}

void profile_check_record(struct profile_check *check, const json_t *config)
{
    struct str mode = json_get_str(config, "permissionMode");
    const json_t *mounts = member(config, "mounts");

    if (!json_is_object(config)) {
        profile_fault(check, "", "must be an object");
        return;
    }
    known_keys(check, config, "", profile_keys);
    check_text(check, config, "", "provider");
    check_text(check, config, "", "template");
    check_text(check, config, "", "gitToken");
    check_network(check, config);
    check_bool(check, config, "persistent");
    check_lifecycle(check, config);
    check_limits(check, config);
    check_int(check, config, "", "timeout", 1, TIMEOUT_MAX_S);
    check_int(check, config, "", "outputLimitBytes", 1, OUTPUT_MAX);
    check_bool(check, config, "keepOutput");
    check_bool(check, config, "conventionalCommits");
    if (member(config, "permissionMode") && !name_find(&permission_names, mode, &(unsigned){0}))
        profile_fault(check, "permissionMode", "must be ask, edit or bypass");
    check_variables(check, member(config, "envVars"), "envVars");
    check_strings(check, member(config, "onCreate"), "onCreate", NULL, "commands");
    check_strings(check, member(config, "onResume"), "onResume", NULL, "commands");
    check_strings(check, member(config, "runtimes"), "runtimes", NULL, "runtimes");
    check_mcp(check, member(config, "mcp"));
    if (mounts && (!json_is_array(mounts) || json_array_size(mounts) > LIST_MAX))
        profile_fault(check, "mounts", "must be an array of at most %d mounts", LIST_MAX);
    check_root(check, config, "workspaceRoot");
    check_options(check, config);
}
