/* What a session is asked for. Pure: what cannot be had is refused by its name, so that nobody believes to have it; what only asks for less than
 * there is (no recording, no captcha solver) is granted. */
#include <string.h>

#include "base/address.h"
#include "extra/browser/browser_internal.h"
#include "protocol/json/json_shape.h"

enum { TIMEOUT_MIN_S = 60, TIMEOUT_MAX_S = 21600, SIDE_MIN = 100, ID_MAX = 64 };

struct settings {
    json_t *viewport, *context, *fingerprint, *captcha_image, *captcha_input, *domains;
    struct str os, extension_id;
    bool solve_captchas, record, log, block_ads, stealth, verified, ignore_certificates;
};

static const struct json_field setting_fields[] = {
    JSON_FIELD(struct settings, viewport, "viewport", 0),
    JSON_FIELD(struct settings, context, "context", 0),
    JSON_FIELD(struct settings, fingerprint, "fingerprint", 0),
    JSON_FIELD(struct settings, captcha_image, "captchaImageSelector", 0),
    JSON_FIELD(struct settings, captcha_input, "captchaInputSelector", 0),
    JSON_FIELD(struct settings, domains, "allowedDomains", 0),
    JSON_FIELD(struct settings, os, "os", 0),
    JSON_FIELD(struct settings, extension_id, "extensionId", 0),
    JSON_FIELD(struct settings, solve_captchas, "solveCaptchas", 0),
    JSON_FIELD(struct settings, record, "recordSession", 0),
    JSON_FIELD(struct settings, log, "logSession", 0),
    JSON_FIELD(struct settings, block_ads, "blockAds", 0),
    JSON_FIELD(struct settings, stealth, "advancedStealth", 0),
    JSON_FIELD(struct settings, verified, "verified", 0),
    JSON_FIELD(struct settings, ignore_certificates, "ignoreCertificateErrors", 0),
    JSON_END,
};

struct body {
    int64_t timeout_s;
    bool keep_alive;
    struct str region, extension_id;
    json_t *metadata, *settings, *proxies, *proxy_settings;
};

static const struct json_field body_fields[] = {
    JSON_FIELD(struct body, timeout_s, "timeout", 0),
    JSON_FIELD(struct body, keep_alive, "keepAlive", 0),
    JSON_FIELD(struct body, region, "region", 0),
    JSON_FIELD(struct body, extension_id, "extensionId", 0),
    JSON_FIELD(struct body, metadata, "userMetadata", 0),
    JSON_FIELD(struct body, settings, "browserSettings", 0),
    JSON_FIELD(struct body, proxies, "proxies", 0),
    JSON_FIELD(struct body, proxy_settings, "proxySettings", 0),
    JSON_END,
};

static int refuse(struct error *err, const char *what, const char *why)
{
    return error_set(err, ERROR_INVALID, "%s cannot be had here: %s", what, why);
}

static int refuse_settings(const struct settings *settings, struct error *err)
{
    if (settings->stealth || settings->verified || settings->fingerprint)
        return refuse(err, "stealth ('advancedStealth', 'verified', 'fingerprint')",
                      "this is an ordinary Chromium; leave it out");
    if (settings->solve_captchas || settings->captcha_image || settings->captcha_input)
        return refuse(err, "a captcha solver ('solveCaptchas', captcha selectors)",
                      "leave it out, or let a person solve them in the live view");
    if (settings->block_ads)
        return refuse(err, "'blockAds'", "no lists of advertisers come with it; leave it out");
    if (settings->os.len && !str_is(settings->os, "linux"))
        return refuse(err, "'os' other than \"linux\"", "leave it out");
    if (settings->domains && json_array_size(settings->domains))
        return refuse(err, "'allowedDomains'",
                      "give the sandbox a network policy instead (docs/network.md)");
    return 0;
}

static int read_viewport(const json_t *viewport, struct browser_new *out, struct error *err)
{
    if (!viewport)
        return 0;
    out->width = json_integer_value(json_object_get(viewport, "width"));
    out->height = json_integer_value(json_object_get(viewport, "height"));
    if (out->width < SIDE_MIN || out->height < SIDE_MIN || out->width > BROWSER_SIDE_MAX ||
        out->height > BROWSER_SIDE_MAX)
        return error_set(err, ERROR_INVALID,
                         "'viewport' needs a 'width' and a 'height' from %d to %d", SIDE_MIN,
                         BROWSER_SIDE_MAX);
    return 0;
}

static int read_context(const json_t *context, struct browser_new *out, struct error *err)
{
    if (!context)
        return 0;
    out->context_id = json_get_str(context, "id");
    out->persist = json_is_true(json_object_get(context, "persist"));
    if (!out->context_id.len || out->context_id.len > ID_MAX)
        return error_set(err, ERROR_INVALID, "'context' needs the 'id' of one");
    return 0;
}

static int read_settings(const json_t *json, struct browser_new *out, struct error *err)
{
    struct settings settings = {0};

    if (!json)
        return 0;
    if (!json_is_object(json))
        return error_set(err, ERROR_INVALID, "'browserSettings' must be an object");
    if (json_read(setting_fields, json, &settings, err) < 0 ||
        refuse_settings(&settings, err) < 0 || read_viewport(settings.viewport, out, err) < 0 ||
        read_context(settings.context, out, err) < 0)
        return -1;
    out->ignore_certificates = settings.ignore_certificates;
    out->log = settings.log;
    out->record = settings.record;
    if (settings.extension_id.len)
        out->extension_id = settings.extension_id;
    return 0;
}

/* One of the user's own, for all pages and without a password: what Chromium takes by a flag. */
static int read_proxy(const json_t *proxy, struct browser_new *out, struct error *err)
{
    struct str type = json_get_str(proxy, "type"), server = json_get_str(proxy, "server"), host;
    uint16_t port;

    if (!str_is(type, "external"))
        return refuse(err, "proxies of the service",
                      "name one of your own: {\"type\":\"external\"}");
    if (json_get_str(proxy, "username").len || json_get_str(proxy, "password").len)
        return refuse(err, "a proxy with a password",
                      "Chromium asks its client for it: answer there, or use one without");
    if (json_get_str(proxy, "domainPattern").len)
        return refuse(err, "a proxy for some domains only ('domainPattern')", "leave it out");
    if (!server.len || server.len > 255 || !address_of_url(server, &host, &port))
        return error_set(err, ERROR_INVALID,
                         "'server' of a proxy must be like "
                         "\"http://host:port\"");
    for (size_t i = 0; i < server.len; i++)
        if (server.p[i] <= ' ' || server.p[i] == '"' || server.p[i] == '\\' || server.p[i] == 0x7f)
            return error_set(err, ERROR_INVALID, "'server' of a proxy has odd letters in it");
    out->proxy = server;
    return 0;
}

static int read_proxies(const json_t *proxies, struct browser_new *out, struct error *err)
{
    if (!proxies || json_is_false(proxies) || (json_is_array(proxies) && !json_array_size(proxies)))
        return 0;
    if (json_is_true(proxies))
        return refuse(err, "proxies of the service ('proxies': true)",
                      "name one of your own: [{\"type\":\"external\",\"server\":…}]");
    if (!json_is_array(proxies) || json_array_size(proxies) != 1)
        return error_set(err, ERROR_INVALID, "'proxies' must be an array with one proxy");
    return read_proxy(json_array_get(proxies, 0), out, err);
}

static int read_metadata(const json_t *metadata, struct arena *arena, struct browser_new *out,
                         struct error *err)
{
    char *text;

    if (!metadata)
        return 0;
    if (!json_is_object(metadata))
        return error_set(err, ERROR_INVALID, "'userMetadata' must be an object");
    text = json_text(metadata);
    out->metadata = arena_str(arena, str_of(text));
    free(text);
    if (out->metadata.len > BROWSER_METADATA_MAX)
        return error_set(err, ERROR_INVALID, "'userMetadata' is longer than %d characters of JSON",
                         BROWSER_METADATA_MAX);
    return 0;
}

static int check_region(struct str region, struct error *err)
{
    static const char *const regions[] = {"us-west-2", "us-east-1", "eu-central-1",
                                          "ap-southeast-1"};

    for (size_t i = 0; i < sizeof(regions) / sizeof(regions[0]); i++)
        if (str_is(region, regions[i]))
            return 0;
    return error_set(err, ERROR_INVALID,
                     "'region' must be us-west-2, us-east-1, eu-central-1 or "
                     "ap-southeast-1 (all of them are this host)");
}

int browser_new_read(const json_t *body, struct arena *arena, struct browser_new *out,
                     struct error *err)
{
    struct body read = {.region = STR("us-west-2")};

    if (!json_is_object(body))
        return error_set(err, ERROR_INVALID, "the body must be a JSON object");
    if (json_read(body_fields, body, &read, err) < 0)
        return -1;
    if (read.timeout_s && (read.timeout_s < TIMEOUT_MIN_S || read.timeout_s > TIMEOUT_MAX_S))
        return error_set(err, ERROR_INVALID, "'timeout' must be from %d to %d seconds",
                         TIMEOUT_MIN_S, TIMEOUT_MAX_S);
    if (read.proxy_settings && json_object_size(read.proxy_settings))
        return refuse(err, "'proxySettings'", "leave it out");
    out->timeout_s = read.timeout_s;
    out->keep_alive = read.keep_alive;
    out->region = read.region;
    out->extension_id = read.extension_id;
    if (check_region(read.region, err) < 0 || read_metadata(read.metadata, arena, out, err) < 0 ||
        read_proxies(read.proxies, out, err) < 0 || read_settings(read.settings, out, err) < 0)
        return -1;
    return 0;
}

/* ---- queries ---- */

static bool skip(struct str *text, const char *what)
{
    struct str head = str_of(what);

    if (!str_starts(*text, head))
        return false;
    *text = str_skip(*text, head.len);
    return true;
}

/* 'text', with a backslash before what is meant as it is; either quote. */
static bool quoted(struct str *text, struct arena *arena, struct str *out)
{
    char quote = text->len ? text->p[0] : '\0';
    char *copy = arena_alloc(arena, text->len + 1);
    size_t at = 1, len = 0;

    if (quote != '\'' && quote != '"')
        return false;
    while (at < text->len && text->p[at] != quote) {
        if (text->p[at] == '\\' && at + 1 < text->len)
            at++;
        copy[len++] = text->p[at++];
    }
    if (at >= text->len)
        return false;
    *out = str_n(copy, len);
    *text = str_skip(*text, at + 1);
    return true;
}

int browser_filter_read(struct str q, struct arena *arena, struct browser_filter *out,
                        struct error *err)
{
    struct str rest = str_trim(q);

    if (!skip(&rest, "user_metadata[") || !quoted(&rest, arena, &out->name) || !skip(&rest, "]:") ||
        !quoted(&rest, arena, &out->value) || rest.len)
        return error_set(err, ERROR_INVALID, "'q' must be like user_metadata['name']:'value'");
    return 0;
}
