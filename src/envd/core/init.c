/* POST /init: the engine sets the sandbox's token, environment and defaults.
 *
 * The time stamp orders the calls; it does not set the clock, which no sandbox has of its own. */
#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "envd/core/auth.h"
#include "envd/core/ca_bundle.h"
#include "envd/core/claim.h"
#include "envd/core/envd.h"
#include "envd/core/journal.h"
#include "envd/core/run_files.h"
#include "envd/view/disk_use.h"
#include "envd/volume/volume.h"
#include "protocol/json/json_shape.h"

enum { BODY_MAX = 1024 * 1024 };

struct init_request {
    json_t *env_vars;
    struct str token, timestamp, default_user, default_workdir;
    struct str sandbox_id, template_id;
    struct str events_ip, ca_bundle, ca_hash;
    struct str volume_id; /* not of E2B: envd is for this volume only */
    int64_t life_s, disk_mb;
};

static const struct json_field fields[] = {
    JSON_FIELD(struct init_request, env_vars, "envVars", 0),
    JSON_FIELD(struct init_request, token, "accessToken", 0),
    JSON_FIELD(struct init_request, timestamp, "timestamp", 0),
    JSON_FIELD(struct init_request, default_user, "defaultUser", 0),
    JSON_FIELD(struct init_request, default_workdir, "defaultWorkdir", 0),
    JSON_FIELD(struct init_request, sandbox_id, "sandboxID", 0),
    JSON_FIELD(struct init_request, template_id, "templateID", 0),
    JSON_FIELD(struct init_request, events_ip, "hyperloopIP", 0),
    JSON_FIELD(struct init_request, ca_bundle, "caBundle", 0),
    JSON_FIELD(struct init_request, ca_hash, "caHash", 0),
    JSON_FIELD(struct init_request, volume_id, "volumeID", 0),
    JSON_FIELD(struct init_request, life_s, "lifeSeconds", 0),
    JSON_FIELD(struct init_request, disk_mb, "diskMB", 0),
    JSON_END,
};

/* Without a token set before, only the engine's own socket may set one: a program inside must not
 * lock the platform out. */
static int check_token(const struct envd_door *door, struct str given, struct error *err)
{
    const struct settings *settings = &door->envd->settings;

    if (settings->token[0] == '\0' ? door->control : auth_token_is(settings, given))
        return 0;
    return error_set(err, ERROR_UNAUTHORIZED,
                     given.len ? "access token validation failed"
                               : "access token reset not authorized");
}

/* 1: older than what is set already, to be ignored. */
static int check_timestamp(struct settings *settings, struct str text, struct error *err)
{
    int64_t at_us;

    if (!text.p)
        return 0;
    if (!clock_parse(text, &at_us))
        return error_set(err, ERROR_INVALID, "'timestamp' is not an RFC 3339 time");
    if (settings->initialized && at_us <= settings->init_at_us)
        return 1;
    settings->init_at_us = at_us;
    settings->initialized = true;
    return 0;
}

static int set_internal(struct settings *settings, struct str name, struct str value,
                        struct error *err)
{
    return value.len ? env_set(&settings->internal, name, value, err) : 0;
}

/* A variable that is a file too. A failure to write that one must not keep the sandbox from starting:
 * whoever is root inside can cause it. */
static int set_id(struct settings *settings, const char *name, struct str id, struct error *err)
{
    char file[64];

    if (set_internal(settings, str_of(name), id, err) != 0)
        return -1;
    if (id.len == 0 || !settings->run_dir)
        return 0;
    (void)snprintf(file, sizeof(file), ".%s", name);
    if (run_files_write(settings->run_dir, file, id, 0644, err) != 0)
        log_error("envd", "%s", err->message);
    return 0;
}

static int set_events_address(struct settings *settings, struct str ip, struct error *err)
{
    char address[128];
    int len = snprintf(address, sizeof(address), "http://%.*s", STR_ARG(ip));

    if (ip.len == 0)
        return 0;
    if (len < 0 || (size_t)len >= sizeof(address))
        return error_set(err, ERROR_INVALID, "'hyperloopIP' is too long");
    return set_internal(settings, STR("E2B_EVENTS_ADDRESS"), str_n(address, (size_t)len), err);
}

static int apply_env(struct settings *settings, const struct init_request *request,
                     struct error *err)
{
    struct env fresh = {0};

    if (set_id(settings, "E2B_SANDBOX_ID", request->sandbox_id, err) != 0 ||
        set_id(settings, "E2B_TEMPLATE_ID", request->template_id, err) != 0 ||
        set_events_address(settings, request->events_ip, err) != 0)
        return -1;
    if (!request->env_vars)
        return 0;
    if (env_add_json(&fresh, request->env_vars, err) != 0) {
        env_done(&fresh);
        return -1;
    }
    env_done(&settings->user);
    settings->user = fresh;
    return 0;
}

/* Programs that have certificates of their own are told of ours by variables. */
static int set_trust(struct settings *settings, struct error *err)
{
    static const char *const bundles[] = {"SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE",
                                          "GIT_SSL_CAINFO", "AWS_CA_BUNDLE"};

    for (size_t i = 0; i < sizeof(bundles) / sizeof(bundles[0]); i++)
        if (env_set(&settings->trust, str_of(bundles[i]), STR(CA_BUNDLE_PATH), err) != 0)
            return -1;
    return env_set(&settings->trust, STR("NODE_EXTRA_CA_CERTS"), STR(CA_EXTRA_PATH), err);
}

static int apply_ca_bundle(struct settings *settings, const struct init_request *request,
                           struct error *err)
{
    struct str pem = request->ca_bundle;

    if (pem.len == 0 || (settings->ca_bundle && str_is(pem, settings->ca_bundle)))
        return 0;
    if (ca_bundle_install(CA_BUNDLE_PATH, CA_EXTRA_PATH, pem, str_of(settings->ca_bundle), err) !=
        0)
        return -1;
    ca_bundle_link(CA_HASHED_DIR, request->ca_hash, CA_EXTRA_PATH);
    free(settings->ca_bundle);
    settings->ca_bundle = str_dup(pem);
    return set_trust(settings, err);
}

static int apply(struct settings *settings, const struct init_request *request, struct error *err)
{
    char user[USER_NAME_SIZE], token[SETTINGS_TOKEN_SIZE];

    if (!str_copy(request->token, token, sizeof(token)))
        return error_set(err, ERROR_INVALID, "'accessToken' is too long");
    if (!str_copy(request->default_user, user, sizeof(user)))
        return error_set(err, ERROR_INVALID, "'defaultUser' is too long");
    if (request->default_workdir.len >= PATH_MAX ||
        (request->default_workdir.len &&
         memchr(request->default_workdir.p, '\0', request->default_workdir.len)))
        return error_set(err, ERROR_INVALID, "'defaultWorkdir' is too long");
    if (apply_env(settings, request, err) != 0)
        return -1;
    /* Whoever is root inside can cause the failure, and must not keep the sandbox from starting by it. */
    if (apply_ca_bundle(settings, request, err) != 0) {
        if (err->code == ERROR_INVALID)
            return -1;
        log_error("envd", "%s", err->message);
    }
    memcpy(settings->token, token, sizeof(token));
    if (user[0])
        memcpy(settings->default_user, user, sizeof(user));
    if (request->default_workdir.len) {
        free(settings->default_workdir);
        settings->default_workdir = str_dup(request->default_workdir);
    }
    return 0;
}

static int set_all(struct envd_door *door, struct str body, struct error *err)
{
    struct init_request request = {0};
    auto_json json_t *tree = NULL;
    int r;

    if (json_parse_as(fields, body.len ? body : STR("{}"), &request, &tree, err) != 0 ||
        check_token(door, request.token, err) != 0)
        return -1;
    r = check_timestamp(&door->envd->settings, request.timestamp, err);
    if (r != 0)
        return r < 0 ? -1 : 0;
    if (request.volume_id.len && door->control && !door->envd->volume.id[0] &&
        volume_open(&door->envd->volume, request.volume_id, err) != 0)
        return -1;
    if (door->control) {
        lease_set(door->envd, request.life_s, 0);
        disk_use_set_size(request.disk_mb > 0 ? (uint64_t)request.disk_mb << 20 : 0);
    }
    return apply(&door->envd->settings, &request, err);
}

static void on_body(struct http_exchange *ex, struct str body, void *arg)
{
    static const struct pair headers[] = {
        {STR_INIT("x-envd-version"), STR_INIT(ENVD_VERSION)},
        {STR_INIT("cache-control"), STR_INIT("no-store")},
    };
    struct error err = {0};

    if (set_all(arg, body, &err) != 0) {
        journal_envd(JOURNAL_WARN, "envd refused its settings: %s", err.message);
        envd_reply_failure(ex, &err);
        return;
    }
    journal_envd(JOURNAL_INFO, "envd " ENVD_VERSION " has its settings");
    http_reply(ex, 204, headers, sizeof(headers) / sizeof(headers[0]), STR(""));
    claim_finish();
}

void init_handle(struct envd_door *door, struct http_exchange *ex)
{
    http_read_all(ex, BODY_MAX, on_body, door);
}

static void on_authority(struct http_exchange *ex, struct str body, void *arg)
{
    struct envd_door *door = arg;
    struct init_request request = {0};
    auto_json json_t *tree = NULL;
    struct error err = {0};

    if (json_parse_as(fields, body, &request, &tree, &err) != 0 ||
        apply_ca_bundle(&door->envd->settings, &request, &err) != 0) {
        envd_reply_failure(ex, &err);
        return;
    }
    http_reply(ex, 204, NULL, 0, STR(""));
}

void init_authority(struct envd_door *door, struct http_exchange *ex)
{
    if (door->control)
        http_read_all(ex, BODY_MAX, on_authority, door);
    else
        envd_reply_error(ex, 404, "not found");
}

/* The first of a name stays: internal ones are not for users to change. */
static void add_env(json_t *object, const struct env *env)
{
    for (size_t i = 0; i < env->count; i++) {
        struct str value = str_of(env->items[i]);
        auto_free char *name = str_dup(str_split(&value, '='));

        if (!json_object_get(object, name))
            json_object_set_new(object, name, json_str(value));
    }
}

void init_envs(struct envd *envd, struct http_exchange *ex)
{
    auto_json json_t *object = json_object();
    auto_free char *text = NULL;

    add_env(object, &envd->settings.internal);
    add_env(object, &envd->settings.user);
    add_env(object, &envd->settings.trust);
    text = json_text(object);
    envd_reply_json(ex, 200, str_of(text));
}
