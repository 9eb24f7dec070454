/* The JSON tables of the sandbox resource. Options of the reference platform that this server does
 * not have yet are accepted in their neutral form (that is what the SDKs send by default) and refused
 * by name otherwise: an option that cannot be honoured must not be dropped silently. */
#include "edge/api_e2b/api_types.h"

#include "base/clock.h"
#include "domain/network/network_policy.h"
#include "domain/sandbox/sandbox.h"
#include "protocol/json/json_shape.h"

static const struct json_field new_sandbox_fields[] = {
    JSON_FIELD(struct api_new_sandbox, template_id, "templateID", JSON_REQUIRED),
    JSON_FIELD(struct api_new_sandbox, timeout_s, "timeout", 0),
    JSON_FIELD_SEEN(struct api_new_sandbox, internet, "allow_internet_access", 0, internet_given),
    JSON_FIELD(struct api_new_sandbox, secure, "secure", 0),
    JSON_FIELD(struct api_new_sandbox, metadata, "metadata", 0),
    JSON_FIELD(struct api_new_sandbox, env_vars, "envVars", 0),
    JSON_FIELD(struct api_new_sandbox, cpu_count, "cpuCount", 0),
    JSON_FIELD(struct api_new_sandbox, mem_mb, "memoryMB", 0),
    JSON_FIELD(struct api_new_sandbox, disk_mb, "diskSizeMB", 0),
    JSON_FIELD(struct api_new_sandbox, auto_pause, "autoPause", 0),
    JSON_FIELD(struct api_new_sandbox, auto_pause_memory, "autoPauseMemory", 0),
    JSON_FIELD(struct api_new_sandbox, auto_resume, "autoResume", 0),
    JSON_FIELD(struct api_new_sandbox, network, "network", 0),
    JSON_FIELD(struct api_new_sandbox, volume_mounts, "volumeMounts", 0),
    JSON_FIELD(struct api_new_sandbox, iam, "iam", 0),
    JSON_FIELD(struct api_new_sandbox, mcp, "mcp", 0),
    JSON_END,
};

struct timeout_body {
    int64_t timeout_s;
};

static const struct json_field timeout_required_fields[] = {
    JSON_FIELD(struct timeout_body, timeout_s, "timeout", JSON_REQUIRED),
    JSON_END,
};

static const struct json_field timeout_fields[] = {
    JSON_FIELD(struct timeout_body, timeout_s, "timeout", 0),
    JSON_END,
};

struct resume_body {
    int64_t timeout_s;
    bool memory, auto_pause, auto_pause_given;
};

static const struct json_field resume_fields[] = {
    JSON_FIELD(struct resume_body, timeout_s, "timeout", 0),
    JSON_FIELD(struct resume_body, memory, "memory", 0),
    JSON_FIELD_SEEN(struct resume_body, auto_pause, "autoPause", 0, auto_pause_given),
    JSON_END,
};

static const struct json_field resume_required_fields[] = {
    JSON_FIELD(struct resume_body, timeout_s, "timeout", JSON_REQUIRED),
    JSON_FIELD(struct resume_body, memory, "memory", 0),
    JSON_FIELD_SEEN(struct resume_body, auto_pause, "autoPause", 0, auto_pause_given),
    JSON_END,
};

static const struct json_field pause_fields[] = {
    JSON_FIELD(struct resume_body, memory, "memory", 0),
    JSON_END,
};

static const struct json_field refresh_fields[] = {
    JSON_FIELD(struct timeout_body, timeout_s, "duration", 0),
    JSON_END,
};

/* Nothing asked for: null, false, 0, "", [], {}. */
static bool is_neutral(const json_t *value)
{
    return !value || json_is_null(value) || json_is_false(value) ||
           (json_is_integer(value) && json_integer_value(value) == 0) ||
           (json_is_string(value) && json_string_length(value) == 0) ||
           (json_is_array(value) && json_array_size(value) == 0) ||
           (json_is_object(value) && json_object_size(value) == 0);
}

static int unsupported(struct error *err, const char *option)
{
    return error_set(err, ERROR_UNSUPPORTED,
                     "the option '%.100s' is not supported by this server yet", option);
}

static int check_object(const json_t *value, const char *name, struct error *err)
{
    if (value && !json_is_null(value) && !json_is_object(value))
        return error_set(err, ERROR_INVALID, "'%s' must be an object", name);
    return 0;
}

static bool is_of_policy(const char *name)
{
    static const char *const names[] = {"allowOut", "denyOut", "rules", "egressProxy", "peers"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return false;
}

static bool has_policy(json_t *network)
{
    const char *key;
    json_t *value;

    json_object_foreach (network, key, value)
        if (is_of_policy(key))
            return true;
    return false;
}

/* Denying everything is the same as allow_internet_access: false. */
static int read_policy(struct api_new_sandbox *body, struct arena *arena, struct error *err)
{
    struct network_policy *policy;

    if (!has_policy(body->network))
        return 0;
    policy = arena_alloc(arena, sizeof(*policy));
    if (network_policy_read(body->network, body->internet, arena, policy, err) < 0)
        return -1;
    body->policy = policy;
    body->internet_given |= !policy->internet;
    return 0;
}

static int read_network(struct api_new_sandbox *body, struct arena *arena, struct error *err)
{
    const char *key;
    json_t *value;

    if (check_object(body->network, "network", err) < 0 ||
        api_ingress_read(body->network, body, err) < 0 || read_policy(body, arena, err) < 0)
        return -1;
    json_object_foreach (body->network, key, value) {
        char name[96];

        if (api_ingress_has(key) || is_neutral(value) || is_of_policy(key))
            continue;
        (void)snprintf(name, sizeof(name), "network.%s", key);
        return unsupported(err, name);
    }
    return 0;
}

/* "mcp" is taken as the SDKs send it: it is they who start the gateway inside, with this as its
 * configuration, and who end the sandbox when its template has none. */
static int check_options(struct api_new_sandbox *body, struct arena *arena, struct error *err)
{
    if (read_network(body, arena, err) < 0 || check_object(body->mcp, "mcp", err) < 0)
        return -1;
    if (!is_neutral(body->iam))
        return unsupported(err, "iam");
    return 0;
}

static int read_auto_resume(const json_t *resume, bool *out, struct error *err)
{
    const json_t *enabled = json_object_get(resume, "enabled");
    struct str policy = json_get_str(resume, "policy"); /* how older clients say it */

    if (check_object(resume, "autoResume", err) < 0)
        return -1;
    if (enabled && !json_is_boolean(enabled) && !json_is_null(enabled))
        return error_set(err, ERROR_INVALID, "'autoResume.enabled' must be true or false");
    if (policy.len && !str_is(policy, "any") && !str_is(policy, "off"))
        return error_set(err, ERROR_INVALID, "'autoResume.policy' must be 'any' or 'off'");
    *out = json_is_true(enabled) || str_is(policy, "any");
    return 0;
}

static const struct json_field volume_mount_fields[] = {
    JSON_FIELD(struct volume_mount, name, "name", JSON_REQUIRED),
    JSON_FIELD(struct volume_mount, path, "path", JSON_REQUIRED),
    JSON_END,
};

static int read_volumes(struct api_new_sandbox *body, struct error *err)
{
    const json_t *mount;
    size_t i;

    if (body->volume_mounts && !json_is_array(body->volume_mounts))
        return error_set(err, ERROR_INVALID, "'volumeMounts' must be an array");
    if (json_array_size(body->volume_mounts) > SANDBOX_VOLUMES_MAX)
        return error_set(err, ERROR_INVALID, "'volumeMounts' has more than %d entries",
                         SANDBOX_VOLUMES_MAX);
    json_array_foreach (body->volume_mounts, i, mount) {
        if (!json_is_object(mount))
            return error_set(err, ERROR_INVALID, "'volumeMounts' must be an array of objects");
        if (json_read(volume_mount_fields, mount, &body->volumes[body->volume_count++], err) < 0)
            return error_prefix(err, "'volumeMounts'");
    }
    return 0;
}

/* Objects whose values are all strings. */
int api_types_check_strings(const json_t *object, const char *name, struct error *err)
{
    const char *key;
    json_t *value;

    if (check_object(object, name, err) < 0)
        return -1;
    /* json_object_foreach() wants a non-const object although it only reads. */
    for (void *at = json_object_iter((json_t *)(uintptr_t)object); at;
         at = json_object_iter_next((json_t *)(uintptr_t)object, at)) {
        key = json_object_iter_key(at);
        value = json_object_iter_value(at);
        if (!json_is_string(value))
            return error_set(err, ERROR_INVALID, "'%s.%.60s' must be a string", name, key);
    }
    return 0;
}

void api_types_pair(struct pair *pairs, size_t *count, struct str name, struct str value)
{
    size_t i = 0;

    while (i < *count && !str_eq(pairs[i].name, name))
        i++;
    *count += i == *count;
    pairs[i] = (struct pair){name, value};
}

int api_types_new_sandbox(struct str body, enum api_generation generation, struct arena *arena,
                          struct api_new_sandbox *out, json_t **out_tree, struct error *err)
{
    auto_json json_t *tree = NULL;

    *out = (struct api_new_sandbox){
        .timeout_s = generation == API_V1 ? 15 : 300,
        .internet = true,
        .auto_pause_memory = true,
    };
    if (json_parse_as(new_sandbox_fields, body, out, &tree, err) < 0)
        return -1;
    if (generation == API_V2)
        out->secure = true;
    if (api_types_check_strings(out->metadata, "metadata", err) < 0 ||
        api_types_check_strings(out->env_vars, "envVars", err) < 0 ||
        read_auto_resume(out->auto_resume, &out->resumes, err) < 0 || read_volumes(out, err) < 0 ||
        check_options(out, arena, err) < 0)
        return -1;
    out->pair_count = json_pairs(out->metadata, arena, &out->pairs);
    out->env_count = json_pairs(out->env_vars, arena, &out->env);
    *out_tree = tree;
    tree = NULL;
    return 0;
}

int api_types_timeout(struct str body, int64_t fallback_s, int64_t *out_s, struct error *err)
{
    struct timeout_body parsed = {.timeout_s = fallback_s};
    auto_json json_t *tree = NULL;

    if ((str_trim(body).len || fallback_s < 0) &&
        json_parse_as(fallback_s < 0 ? timeout_required_fields : timeout_fields, body, &parsed,
                      &tree, err) < 0)
        return -1;
    if (parsed.timeout_s < 0)
        return error_set(err, ERROR_INVALID, "Timeout must not be negative");
    *out_s = parsed.timeout_s;
    return 0;
}

int api_types_resume(struct str body, int64_t fallback_s, struct sandbox_resume *out,
                     struct error *err)
{
    struct resume_body parsed = {.timeout_s = fallback_s, .memory = true};
    auto_json json_t *tree = NULL;

    if ((str_trim(body).len || fallback_s < 0) &&
        json_parse_as(fallback_s < 0 ? resume_required_fields : resume_fields, body, &parsed, &tree,
                      err) < 0)
        return -1;
    if (parsed.timeout_s < 0)
        return error_set(err, ERROR_INVALID, "Timeout must not be negative");
    *out = (struct sandbox_resume){.timeout_s = parsed.timeout_s,
                                   .disk_only = !parsed.memory,
                                   .auto_pause = parsed.auto_pause,
                                   .auto_pause_given = parsed.auto_pause_given};
    return 0;
}

int api_types_pause(struct str body, bool *out_memory, struct error *err)
{
    struct resume_body parsed = {.memory = true};
    auto_json json_t *tree = NULL;

    if (str_trim(body).len && json_parse_as(pause_fields, body, &parsed, &tree, err) < 0)
        return -1;
    *out_memory = parsed.memory;
    return 0;
}

int api_types_refresh(struct str body, int64_t *out_s, struct error *err)
{
    struct timeout_body parsed = {.timeout_s = 15};
    auto_json json_t *tree = NULL;

    if (str_trim(body).len && json_parse_as(refresh_fields, body, &parsed, &tree, err) < 0)
        return -1;
    if (parsed.timeout_s < 0 || parsed.timeout_s > 3600)
        return error_set(err, ERROR_INVALID, "'duration' must be between 0 and 3600");
    *out_s = parsed.timeout_s;
    return 0;
}

struct sandbox_body {
    struct str template_id, sandbox_id, alias, client_id, envd_version, access_token;
    struct str traffic_token, domain;
};

static const struct json_field sandbox_fields[] = {
    JSON_FIELD(struct sandbox_body, template_id, "templateID", 0),
    JSON_FIELD(struct sandbox_body, sandbox_id, "sandboxID", 0),
    JSON_FIELD(struct sandbox_body, alias, "alias", JSON_OMIT_EMPTY),
    JSON_FIELD(struct sandbox_body, client_id, "clientID", 0),
    JSON_FIELD(struct sandbox_body, envd_version, "envdVersion", 0),
    JSON_FIELD(struct sandbox_body, access_token, "envdAccessToken", JSON_OMIT_EMPTY),
    JSON_FIELD(struct sandbox_body, traffic_token, "trafficAccessToken", 0),
    JSON_FIELD(struct sandbox_body, domain, "domain", 0),
    JSON_END,
};

static struct str or_none(struct str s)
{
    return s.len ? s : STR_NONE;
}

json_t *api_types_sandbox(const struct sandbox_view *view, struct str domain)
{
    struct sandbox_body body = {
        .template_id = view->template_id,
        .sandbox_id = view->id,
        .alias = or_none(view->alias),
        .client_id = STR(SANDBOX_CLIENT_ID),
        .envd_version = STR(SANDBOX_ENVD_VERSION),
        .access_token = or_none(view->access_token),
        .traffic_token = or_none(view->traffic_token),
        .domain = or_none(view->domain.len ? view->domain : domain),
    };

    return json_write(sandbox_fields, &body);
}

struct sandbox_row {
    struct str template_id, sandbox_id, alias, client_id, started_at, end_at, envd_version, state;
    int64_t cpu_count, mem_mb, disk_mb;
    json_t *metadata, *volume_mounts;
    /* only in details */
    struct str access_token, domain, paused_to, resumed_from;
    json_t *internet, *network, *lifecycle;
};

#define SANDBOX_ROW_FIELDS                                               \
    JSON_FIELD(struct sandbox_row, template_id, "templateID", 0),        \
        JSON_FIELD(struct sandbox_row, alias, "alias", JSON_OMIT_EMPTY), \
        JSON_FIELD(struct sandbox_row, sandbox_id, "sandboxID", 0),      \
        JSON_FIELD(struct sandbox_row, client_id, "clientID", 0),        \
        JSON_FIELD(struct sandbox_row, started_at, "startedAt", 0),      \
        JSON_FIELD(struct sandbox_row, end_at, "endAt", 0),              \
        JSON_FIELD(struct sandbox_row, cpu_count, "cpuCount", 0),        \
        JSON_FIELD(struct sandbox_row, mem_mb, "memoryMB", 0),           \
        JSON_FIELD(struct sandbox_row, disk_mb, "diskSizeMB", 0),        \
        JSON_FIELD(struct sandbox_row, metadata, "metadata", 0),         \
        JSON_FIELD(struct sandbox_row, state, "state", 0),               \
        JSON_FIELD(struct sandbox_row, envd_version, "envdVersion", 0),  \
        JSON_FIELD(struct sandbox_row, volume_mounts, "volumeMounts", 0)

static const struct json_field sandbox_listed_fields[] = {
    SANDBOX_ROW_FIELDS,
    JSON_END,
};

static const struct json_field sandbox_detail_fields[] = {
    SANDBOX_ROW_FIELDS,
    JSON_FIELD(struct sandbox_row, access_token, "envdAccessToken", JSON_OMIT_EMPTY),
    JSON_FIELD(struct sandbox_row, internet, "allowInternetAccess", 0),
    JSON_FIELD(struct sandbox_row, domain, "domain", 0),
    JSON_FIELD(struct sandbox_row, network, "network", 0),
    JSON_FIELD(struct sandbox_row, lifecycle, "lifecycle", 0),
    /* Ours: whether the processes were kept, or only the files. */
    JSON_FIELD(struct sandbox_row, paused_to, "pausedTo", JSON_OMIT_EMPTY),
    JSON_FIELD(struct sandbox_row, resumed_from, "resumedFrom", JSON_OMIT_EMPTY),
    JSON_END,
};

/* Metadata is kept as the text of an object; what is not one reads as empty. */
static json_t *object_of(struct str text)
{
    json_t *json = text.len ? json_loadb(text.p, text.len, 0, NULL) : NULL;

    if (json_is_object(json))
        return json;
    json_decref(json);
    return json_object();
}

static json_t *volumes_of(const struct sandbox_view *view)
{
    struct volume_mount mounts[SANDBOX_VOLUMES_MAX];
    size_t count = sandbox_view_volumes(view, mounts);
    json_t *array = json_array();

    for (size_t i = 0; i < count; i++)
        (void)json_array_append_new(array, json_write(volume_mount_fields, &mounts[i]));
    return array;
}

static json_t *network_of(const struct sandbox_view *view)
{
    auto_json json_t *lists = object_of(view->network);
    json_t *network = json_object();

    api_ingress_write(view, network);
    /* A password is no part of what is told. */
    (void)json_object_del(json_object_get(lists, "egressProxy"), "sealed");
    (void)json_object_update(network, lists);
    if (!view->internet && !view->network.len)
        (void)json_object_set_new(network, "denyOut", json_pack("[s]", NETWORK_EVERYTHING));
    return network;
}

static json_t *sandbox_row(const struct sandbox_view *view, struct str domain,
                           const struct json_field *fields)
{
    char started_at[CLOCK_TEXT_SIZE], end_at[CLOCK_TEXT_SIZE];
    auto_json json_t *metadata = object_of(view->metadata), *volume_mounts = volumes_of(view);
    auto_json json_t *internet = view->internet_given ? json_boolean(view->internet) : json_null();
    auto_json json_t *network = network_of(view);
    auto_json json_t *lifecycle = json_pack("{s:b,s:s}", "autoResume", view->auto_resume,
                                            "onTimeout", view->auto_pause ? "pause" : "kill");
    struct sandbox_row row = {
        .template_id = view->template_id,
        .sandbox_id = view->id,
        .alias = or_none(view->alias),
        .client_id = STR(SANDBOX_CLIENT_ID),
        .envd_version = STR(SANDBOX_ENVD_VERSION),
        .state = view->state == SANDBOX_PAUSED ? STR("paused") : STR("running"),
        .cpu_count = view->cpu_count,
        .mem_mb = view->mem_mb,
        .disk_mb = view->disk_mb,
        .access_token = or_none(view->access_token),
        .domain = or_none(view->domain.len ? view->domain : domain),
        .paused_to = view->paused_to,
        .resumed_from = view->resumed_from,
        .metadata = metadata,
        .volume_mounts = volume_mounts,
        .internet = internet,
        .network = network,
        .lifecycle = lifecycle,
    };

    clock_format(view->started_at_us, started_at);
    clock_format(view->end_at_us, end_at);
    row.started_at = str_of(started_at);
    row.end_at = str_of(end_at);
    return json_write(fields, &row);
}

json_t *api_types_sandbox_detail(const struct sandbox_view *view, struct str domain)
{
    return sandbox_row(view, domain, sandbox_detail_fields);
}

json_t *api_types_sandbox_listed(const struct sandbox_view *view)
{
    return sandbox_row(view, STR_NONE, sandbox_listed_fields);
}
