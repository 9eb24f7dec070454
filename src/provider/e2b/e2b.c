/* Any E2B endpoint: the hosted one, or a server of ours elsewhere.
 *
 * Settings besides those all providers have: template, secure, timeout (seconds), sandbox_url (one
 * address for all sandboxes, as E2B_SANDBOX_URL), envd_url (as E2B_ENVD_BASE_URL), egress and
 * features (lists: what the operator knows the endpoint to enforce and to have). A domain without an
 * address has its API at https://api.DOMAIN, as in the SDKs. Without a domain, api.X has its
 * sandboxes at PORT-ID.X, and any other address serves them itself. */
#include "provider/e2b/e2b.h"

#include <string.h>

#include "base/address.h"
#include "base/alloc.h"
#include "base/cleanup.h"
#include "protocol/json/json_shape.h"

enum { TTL_S = 300, CALL_MS = 60 * 1000, ABOUT_MS = 5000 };

static const char hosted_url[] = "https://api.e2b.app";
static const char hosted_domain[] = "e2b.app";

static char *option(const json_t *options, const char *name)
{
    struct str value = json_get_str(options, name);

    return value.len ? str_dup(value) : NULL;
}

static void cut_slash(char *url)
{
    size_t len = url ? strlen(url) : 0;

    while (len && url[len - 1] == '/')
        url[--len] = '\0';
}

static int check_url(const char *name, const char *url, struct error *err)
{
    if (!url || str_starts(str_of(url), STR("http://")) || str_starts(str_of(url), STR("https://")))
        return 0;
    return error_set(err, ERROR_INVALID, "'%s' must begin with http:// or https://", name);
}

/* How sandboxes are reached, when it is not said. */
static void guess_address(struct e2b *e2b)
{
    struct str host = str_of(e2b->api_url);

    if (e2b->domain || e2b->sandbox_url)
        return;
    host = str_skip(host, (size_t)str_find_str(host, STR("://")) + 3);
    if (strcmp(e2b->api_url, hosted_url) == 0)
        e2b->domain = xstrdup(hosted_domain);
    else if (str_starts(host, STR("api.")) && str_find(host, '/') < 0)
        e2b->domain = str_dup(str_skip(host, 4));
    else
        e2b->sandbox_url = xstrdup(e2b->api_url);
}

static int read_list(const json_t *options, const char *name,
                     bool (*parse)(struct str name, unsigned *out), unsigned *bits,
                     struct error *err)
{
    const json_t *list = json_object_get(options, name), *item;
    size_t i;

    if (list && !json_is_array(list))
        return error_set(err, ERROR_INVALID, "'%s' must be a list", name);
    json_array_foreach (list, i, item) {
        unsigned bit;

        if (!json_is_string(item) || !parse(str_of(json_string_value(item)), &bit))
            return error_set(err, ERROR_INVALID, "'%s' has an unknown name: '%.60s'", name,
                             json_is_string(item) ? json_string_value(item) : "(no text)");
        *bits |= bit;
    }
    return 0;
}

static int set_caps(struct provider *provider, const json_t *options, struct error *err)
{
    struct provider_caps *caps = &provider->caps;

    caps->features = PROVIDER_FILES | PROVIDER_PAUSE | PROVIDER_SNAPSHOT | PROVIDER_PTY |
                     PROVIDER_PORTS | PROVIDER_EXEC | PROVIDER_TTL | PROVIDER_FIND |
                     PROVIDER_SCREEN;
    caps->isolation = ISOLATION_STRONG;
    caps->snapshot_kind = "e2b-ref";
    caps->egress = EGRESS_ALLOW_ALL;
    return read_list(options, "features", provider_feature_parse, &caps->features, err) < 0 ||
                   read_list(options, "egress", provider_egress_parse, &caps->egress, err) < 0
               ? -1
               : 0;
}

/* HOST or HOST:PORT: requests with the key go there, so nothing in it may change the host. */
static int check_domain(const char *domain, struct error *err)
{
    struct str host;
    uint16_t port;
    bool valid;

    if (!domain)
        return 0;
    valid =
        strpbrk(domain, "/@?#%[] \t\r\n\\") == NULL && address_of_url(str_of(domain), &host, &port);
    return valid ? 0
                 : error_set(err, ERROR_INVALID,
                             "'domain' must be a host name with an optional port, not '%.100s'",
                             domain);
}

static int read_api(struct e2b *e2b, const struct provider_config *config, struct error *err)
{
    if (check_domain(e2b->domain, err) < 0)
        return -1;
    if (config->api_url && config->api_url[0])
        e2b->api_url = xstrdup(config->api_url);
    else if (e2b->domain)
        e2b->api_url = xasprintf("https://api.%s", e2b->domain);
    else
        e2b->api_url = xstrdup(hosted_url);
    cut_slash(e2b->api_url);
    if (check_url("api_url", e2b->api_url, err) < 0)
        return -1;
    if (!e2b->key)
        return error_set(err, ERROR_INVALID,
                         "an API key is needed for '%.100s': set 'api_key' or E2B_API_KEY",
                         e2b->api_url);
    guess_address(e2b);
    return 0;
}

static void e2b_close(struct provider *provider)
{
    struct e2b *e2b = provider->impl;

    if (!e2b)
        return;
    free(e2b->api_url);
    free(e2b->key);
    free(e2b->domain);
    free(e2b->sandbox_url);
    free(e2b->envd_url);
    free(e2b->image);
    free(e2b->who);
    free(e2b);
    provider->impl = NULL;
}

static int e2b_open(struct provider *provider, const struct provider_config *config,
                    struct error *err)
{
    struct e2b *e2b = xcalloc(1, sizeof(*e2b));
    const json_t *secure = json_object_get(config->options, "secure");
    const json_t *timeout = json_object_get(config->options, "timeout");

    provider->impl = e2b;
    e2b->who = xasprintf("provider '%s'", config->name);
    e2b->key = config->api_key && config->api_key[0] ? xstrdup(config->api_key) : NULL;
    e2b->domain = config->domain && config->domain[0] ? xstrdup(config->domain) : NULL;
    e2b->sandbox_url = option(config->options, "sandbox_url");
    e2b->envd_url = option(config->options, "envd_url");
    e2b->image = option(config->options, "template");
    e2b->secure = !json_is_false(secure);
    e2b->ttl_s = json_is_integer(timeout) ? json_integer_value(timeout) : TTL_S;
    cut_slash(e2b->sandbox_url);
    cut_slash(e2b->envd_url);
    if (!e2b->image)
        e2b->image = xstrdup("base");
    if (e2b->ttl_s < 1 || (secure && !json_is_boolean(secure)))
        return error_set(err, ERROR_INVALID, "'timeout' must be seconds, 'secure' true or false");
    if (check_url("sandbox_url", e2b->sandbox_url, err) < 0 ||
        check_url("envd_url", e2b->envd_url, err) < 0 || read_api(e2b, config, err) < 0)
        return -1;
    return set_caps(provider, config->options, err);
}

int e2b_call(struct provider *provider, const struct e2b_call *call, json_t **out,
             struct error *err)
{
    const struct e2b *e2b = provider->impl;
    struct rest rest = {
        .fetch = provider->fetch,
        .who = e2b->who,
        .base = e2b->api_url,
        .headers = {{STR("X-API-Key"), str_of(e2b->key)}},
        .header_count = 1,
    };

    if (out)
        *out = NULL;
    return rest_call(
        &rest,
        &(struct rest_request){.method = call->method,
                               .path = call->path,
                               .body = call->body,
                               .deadline_us = call->deadline_us,
                               .timeout_ms = call->timeout_ms ? call->timeout_ms : CALL_MS},
        out, err);
}

/* E2B's own cloud runs microVMs. Another Quicksand says what it is; others say nothing. */
static bool is_cloud(const char *api_url)
{
    struct str rest = str_of(api_url), host;

    if (str_starts(rest, STR("https://")))
        rest = str_skip(rest, 8);
    host = str_split(&rest, '/');
    return str_ends(host, STR(".e2b.app")) || str_ends(host, STR(".e2b.dev"));
}

static void find_out(struct provider *provider)
{
    struct e2b *e2b = provider->impl;
    auto_json json_t *health = NULL;
    struct error ignored;

    if (is_cloud(e2b->api_url) || atomic_load(&e2b->quicksand))
        return;
    if (e2b_call(
            provider,
            &(struct e2b_call){.method = "GET", .path = "/api/v1/health", .timeout_ms = ABOUT_MS},
            &health, &ignored) == 0)
        atomic_store(&e2b->quicksand, str_is(json_get_str(health, "name"), "quicksand"));
}

static void e2b_about(const struct provider *provider, struct provider_about *out)
{
    const struct e2b *e2b = provider->impl;

    if (is_cloud(e2b->api_url)) {
        *out = (struct provider_about){"e2b", "strong", "microvm", "a service"};
    } else if (atomic_load(&((struct e2b *)(uintptr_t)e2b)->quicksand)) {
        *out = (struct provider_about){"quicksand", "process", "namespaces", "another host"};
    } else {
        *out = (struct provider_about){"unknown", "unknown", "unknown", "unknown"};
    }
}

static int check_key(struct provider *provider, struct error *err)
{
    auto_json json_t *out = NULL;

    return e2b_call(
        provider,
        &(struct e2b_call){.method = "GET", .path = "/v2/sandboxes?limit=1", .timeout_ms = 10000},
        &out, err);
}

static int e2b_check(struct provider *provider, struct error *err)
{
    if (check_key(provider, err) < 0)
        return -1;
    find_out(provider);
    return 0;
}

static const struct provider_ops ops = {
    .type = "e2b",
    .about = e2b_about,
    .open = e2b_open,
    .close = e2b_close,
    .check = e2b_check,
    .create = e2b_create,
    .find = e2b_find,
    .get = e2b_get,
    .connect = e2b_connect,
    .pause = e2b_pause,
    .kill = e2b_kill,
    .extend = e2b_extend,
    .snapshot = e2b_snapshot,
    .snapshot_delete = e2b_snapshot_delete,
    .address = e2b_address,
    .usage = e2b_usage,
    .envd = e2b_envd,
    .start = envd_machine_start,
    .attach = envd_machine_attach,
    .read = envd_machine_read,
    .write = envd_machine_write,
    .list = envd_machine_list,
    .remove = envd_machine_remove,
};

static const char *const members[] = {"secure",   "egress",      "features", "timeout",
                                      "template", "sandbox_url", "envd_url", NULL};
static const struct provider_env envs[] = {
    {"E2B_API_URL", "api_url"},        {"E2B_DOMAIN", "domain"},
    {"E2B_TEMPLATE", "template"},      {"E2B_TEMPLATE_ID", "template"},
    {"E2B_ENVD_BASE_URL", "envd_url"}, {NULL, NULL},
};
const struct provider_type provider_type_e2b = {
    .ops = &ops, .members = members, .envs = envs, .key_env = "E2B_API_KEY"};
