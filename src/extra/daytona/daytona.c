/* Daytona: sandboxes by one REST API, what is in them by another on a host of its own (the toolbox).
 * This file has the settings and the two ways to call. */
#include "extra/daytona/daytona.h"

#include <string.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "protocol/json/json_shape.h"

#define DEFAULT_URL "https://app.daytona.io/api"

enum { TOOLBOX_URL_MAX = 2048 };

static bool is_url(struct str url)
{
    return (str_starts(url, STR("https://")) || str_starts(url, STR("http://"))) &&
           url.len < TOOLBOX_URL_MAX && str_find(url, '?') < 0 && str_find(url, '#') < 0 &&
           str_find(url, ' ') < 0 && str_find(url, '@') < 0;
}

static char *option(const json_t *options, const char *name)
{
    struct str value = json_get_str(options, name);

    return value.len ? str_dup(value) : NULL;
}

/* Without slashes at its end. */
static char *clean_url(struct str url)
{
    while (str_ends(url, STR("/")))
        url.len--;
    return str_dup(url);
}

static void daytona_close(struct provider *provider)
{
    struct daytona *daytona = provider->impl;

    if (!daytona)
        return;
    if (daytona->hub)
        fetch_hub_free(daytona->hub);
    free(daytona->base);
    free(daytona->bearer);
    free(daytona->organization);
    free(daytona->toolbox);
    free(daytona->target);
    free(daytona->image);
    free(daytona->snapshot);
    (void)pthread_mutex_destroy(&daytona->lock);
    free(daytona);
    provider->impl = NULL;
}

static int set_egress(const struct daytona *daytona, const json_t *options, unsigned *out,
                      struct error *err)
{
    const json_t *modes = json_object_get(options, "egress"), *mode;
    size_t i;
    unsigned one;

    *out = EGRESS_ALLOW_ALL | EGRESS_DENY_ALL | EGRESS_RESTRICTED;
    if (!modes)
        return 0;
    *out = 0;
    json_array_foreach (modes, i, mode) {
        if (!provider_egress_parse(str_of(json_string_value(mode)), &one))
            return error_set(err, ERROR_INVALID,
                             "%s: 'egress' must be an array of allow-all, deny-all, restricted",
                             daytona->who);
        *out |= one;
    }
    return 0;
}

static int set_urls(struct daytona *daytona, const struct provider_config *config,
                    struct error *err)
{
    struct str url = str_of(config->api_url && config->api_url[0] ? config->api_url : DEFAULT_URL);
    struct str toolbox = json_get_str(config->options, "toolbox_url");

    if (!is_url(url))
        return error_set(err, ERROR_INVALID, "%s: api_url '%.*s' is no http(s) URL", daytona->who,
                         STR_ARG(url));
    daytona->base = clean_url(url);
    if (!toolbox.len)
        return 0;
    if (!is_url(toolbox))
        return error_set(err, ERROR_INVALID, "%s: toolbox_url '%.*s' is no http(s) URL",
                         daytona->who, STR_ARG(toolbox));
    daytona->toolbox = clean_url(toolbox);
    if (!str_ends(str_of(daytona->toolbox), STR("/toolbox"))) {
        auto_free char *host = daytona->toolbox;

        daytona->toolbox = xasprintf("%s/toolbox", host);
    }
    return 0;
}

static int daytona_open(struct provider *provider, const struct provider_config *config,
                        struct error *err)
{
    struct daytona *daytona = xcalloc(1, sizeof(*daytona));
    unsigned egress;

    provider->impl = daytona;
    (void)pthread_mutex_init(&daytona->lock, NULL);
    (void)snprintf(daytona->who, sizeof(daytona->who), "daytona '%s'", config->name);
    if (!config->api_key || !config->api_key[0]) {
        daytona_close(provider);
        return error_set(err, ERROR_INVALID, "a key is needed: set api_key or DAYTONA_API_KEY");
    }
    if (set_urls(daytona, config, err) < 0 ||
        set_egress(daytona, config->options, &egress, err) < 0) {
        daytona_close(provider);
        return -1;
    }
    daytona->bearer = xasprintf("Bearer %s", config->api_key);
    daytona->organization = option(config->options, "organization_id");
    daytona->target = option(config->options, "target");
    daytona->image = option(config->options, "image");
    daytona->snapshot = option(config->options, "snapshot");
    daytona->rest =
        (struct rest){.fetch = config->fetch, .who = daytona->who, .base = daytona->base};
    daytona->rest.header_count = daytona_headers(daytona, daytona->rest.headers);
    provider->caps = (struct provider_caps){
        .features = PROVIDER_FILES | PROVIDER_PAUSE | PROVIDER_SNAPSHOT | PROVIDER_HOOKS |
                    PROVIDER_PORTS | PROVIDER_EXEC | PROVIDER_TTL | PROVIDER_FIND,
        .egress = egress,
        .isolation = ISOLATION_STRONG,
        .snapshot_kind = "daytona-ref",
    };
    return 0;
}

size_t daytona_headers(const struct daytona *daytona, struct pair out[REST_HEADERS_MAX])
{
    size_t count = 0;

    out[count++] = (struct pair){STR("Authorization"), str_of(daytona->bearer)};
    if (daytona->organization)
        out[count++] =
            (struct pair){STR("X-Daytona-Organization-ID"), str_of(daytona->organization)};
    return count;
}

int daytona_check_id(const struct daytona *daytona, struct str id, struct error *err)
{
    if (!rest_id_valid(id))
        return error_set(err, ERROR_NOT_FOUND, "%s: '%.*s' is no sandbox id", daytona->who,
                         (int)(id.len < 80 ? id.len : 80), id.p ? id.p : "");
    return 0;
}

int daytona_toolbox(struct daytona *daytona, const struct provider_ref *ref, struct buf *out,
                    struct error *err)
{
    auto_json json_t *answer = NULL;
    struct str url = daytona->toolbox ? str_of(daytona->toolbox) : ref->address;
    char path[192];

    if (daytona_check_id(daytona, ref->id, err) < 0)
        return -1;
    if (!url.len) {
        (void)snprintf(path, sizeof(path), "/sandbox/%.*s/toolbox-proxy-url", STR_ARG(ref->id));
        if (rest_call(&daytona->rest, &(struct rest_request){.method = "GET", .path = path},
                      &answer, err) < 0)
            return -1;
        url = json_get_str(answer, "url");
    }
    if (!is_url(url))
        return error_set(err, ERROR_UNAVAILABLE, "%s: it tells no usable toolbox URL",
                         daytona->who);
    while (str_ends(url, STR("/")))
        url.len--;
    (void)buf_printf(out, "%.*s/%.*s", STR_ARG(url), STR_ARG(ref->id));
    return 0;
}

static int daytona_check(struct provider *provider, struct error *err)
{
    return rest_call(
        &daytona_of(provider)->rest,
        &(struct rest_request){.method = "GET", .path = "/sandbox?limit=1", .timeout_ms = 15000},
        NULL, err);
}

static void daytona_about(const struct provider *provider, struct provider_about *out)
{
    (void)provider;
    out->isolated_by = "unknown";
    out->runs_on = "a service";
}

static const struct provider_ops ops = {
    .type = "daytona",
    .about = daytona_about,
    .open = daytona_open,
    .close = daytona_close,
    .check = daytona_check,
    .create = daytona_create,
    .find = daytona_find,
    .get = daytona_get,
    .connect = daytona_connect,
    .pause = daytona_pause,
    .kill = daytona_kill,
    .extend = daytona_extend,
    .snapshot = daytona_snapshot,
    .snapshot_delete = daytona_snapshot_delete,
    .address = daytona_address,
    .start = daytona_start,
    .read = daytona_read,
    .write = daytona_write,
    .list = daytona_list,
    .remove = daytona_remove,
};

static const char *const members[] = {
    "toolbox_url", "target", "organization_id", "snapshot", "image", "egress", NULL};
static const struct provider_env envs[] = {
    {"DAYTONA_API_URL", "api_url"},
    {"DAYTONA_TOOLBOX_URL", "toolbox_url"},
    {"DAYTONA_TARGET", "target"},
    {"DAYTONA_ORGANIZATION_ID", "organization_id"},
    {NULL, NULL},
};
const struct provider_type provider_type_daytona = {
    .ops = &ops, .members = members, .envs = envs, .key_env = "DAYTONA_API_KEY", .remote = true};
