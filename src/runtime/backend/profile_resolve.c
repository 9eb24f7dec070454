/* A profile as one request sees it: the record of the name, or of the agent's type, with what the
 * request says laid over it and every default filled in. The result is checked again as a whole, so
 * a request cannot say what a profile could not. */
#include <stdlib.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "protocol/json/json_shape.h"
#include "runtime/backend/backend_internal.h"
#include "runtime/backend/profile_parts.h"
#include "runtime/run/run.h"
#include "store/runtime/store_runtime.h"

enum { DEFAULT_IDLE_S = 900, DEFAULT_OUTPUT = 65536, DIGEST_MARK = '#' };

/* ---- backends with a key of their own ---- */

static const char *own_key(const json_t *record)
{
    const json_t *config = json_object_get(record, "config");

    return json_string_value(json_object_get(
        json_object_get(json_is_object(config) ? config : record, "options"), "apiKey"));
}

struct str profile_find_key(struct runtime *runtime, const struct runtime_caller *caller,
                            const char *digest, struct arena *arena)
{
    json_t *record;
    const char *name;
    struct store_profile *rows = NULL;
    struct error err = {0};
    size_t count = 0;
    char other[KEY_DIGEST_SIZE];

    json_object_foreach (runtime_profiles(runtime), name, record) {
        const char *key = own_key(record);

        if (key) {
            profile_key_digest(str_of(key), other);
            if (strcmp(other, digest) == 0)
                return arena_str(arena, str_of(key));
        }
    }
    (void)store_profile_list(runtime->config.store, caller->team_id, PROFILES_MAX, arena, &rows,
                             &count, &err);
    for (size_t i = 0; i < count; i++) {
        auto_json json_t *parsed = NULL;
        const char *key = json_parse(rows[i].record, &parsed, &err) == 0 ? own_key(parsed) : NULL;

        if (key) {
            profile_key_digest(str_of(key), other);
            if (strcmp(other, digest) == 0)
                return arena_str(arena, str_of(key));
        }
    }
    return STR_NONE;
}

/* With backends_lock held. */
static int check_keys(const struct runtime *runtime, const struct runtime_caller *caller,
                      struct error *err)
{
    size_t count = 0;

    for (const struct backend *at = runtime->backends; at; at = at->next)
        count += at->origin && str_is(caller->team_id, at->team_id) ? 1 : 0;
    if (count < BACKEND_TEAM_KEYS_MAX)
        return 0;
    return error_set(err, ERROR_QUOTA,
                     "options.apiKey: a team may use at most %d keys of its own until the server"
                     " restarts",
                     BACKEND_TEAM_KEYS_MAX);
}

int backend_with_key(struct runtime *runtime, const struct runtime_caller *caller,
                     struct backend *origin, struct str key, struct backend **out,
                     struct error *err)
{
    const struct backend_settings *settings = origin->settings;
    auto_arena struct arena arena = {0};
    char digest[KEY_DIGEST_SIZE], name[RUNTIME_NAME_MAX + 1];
    struct provider_config config;
    struct provider *provider = NULL;
    struct backend *made;

    *out = origin;
    if (!settings || strcmp(settings->api_url, "embedded") == 0 || str_is(key, settings->api_key))
        return 0;
    profile_key_digest(key, digest);
    if (snprintf(name, sizeof(name), "%s%c%s", settings->name, DIGEST_MARK, digest) >=
        (int)sizeof(name))
        return error_set(err, ERROR_INVALID,
                         "provider '%s': its name is too long for a key of a"
                         " profile",
                         settings->name);
    (void)pthread_rwlock_wrlock(&runtime->backends_lock);
    *out = backend_named(runtime, caller, name);
    if (*out) {
        (void)pthread_rwlock_unlock(&runtime->backends_lock);
        return 0;
    }
    config = (struct provider_config){.name = name,
                                      .type = settings->type,
                                      .api_url = settings->api_url,
                                      .domain = settings->domain,
                                      .api_key = arena_str(&arena, key).p,
                                      .options = settings->record};
    made = backend_alloc(name);
    made->settings = settings;
    made->origin = origin;
    if (check_keys(runtime, caller, err) < 0 ||
        !str_copy(caller->team_id, made->team_id, sizeof(made->team_id)) ||
        backend_make_provider(runtime, caller->team_id, &config, &provider, err) < 0) {
        (void)pthread_rwlock_unlock(&runtime->backends_lock);
        made->provider = provider;
        backend_free(made);
        return -1;
    }
    made->provider = provider;
    backend_link(runtime, made);
    (void)pthread_rwlock_unlock(&runtime->backends_lock);
    *out = made;
    return 0;
}

/* ---- laying over ---- */

static void lay(json_t *flat, const char *key, const json_t *value)
{
    json_t *copy = value ? json_deep_copy(value) : NULL;

    profile_spell_part(key, copy);
    if (copy)
        (void)json_object_set_new(flat, key, copy);
}

/* Member by member. */
static void lay_members(json_t *flat, const char *key, const json_t *value)
{
    json_t *there = json_object_get(flat, key);
    auto_json json_t *copy = NULL;

    if (!json_is_object(value) || !json_is_object(there)) {
        lay(flat, key, value);
        return;
    }
    copy = json_deep_copy(value);
    profile_spell_part(key, copy);
    (void)json_object_update(there, copy);
}

/* Another type of provider: the profile's image and options were not meant for it. */
static void change_provider(json_t *flat, const char *old_type, const char *new_type)
{
    if (strcmp(old_type, new_type) == 0)
        return;
    (void)json_object_del(flat, "template");
    (void)json_object_del(flat, "options");
}

/* As a whole; but who only says which sandboxes it is with changes nothing of what else it reaches. */
static void lay_network(json_t *flat, const json_t *network)
{
    if (json_object_size(network) == 1 && json_object_get(network, "peers"))
        lay_members(flat, "network", network);
    else
        lay(flat, "network", network);
}

static void lay_request(json_t *flat, const struct runtime_overrides *request)
{
    if (request->image.p)
        (void)json_object_set_new(flat, "template", json_str(request->image));
    lay_network(flat, request->network);
    lay_members(flat, "lifecycle", request->lifecycle);
    lay_members(flat, "limits", request->limits);
    lay_members(flat, "envVars", request->env);
    lay(flat, "mcp", request->mcp);
    lay(flat, "mounts", request->mounts);
    lay_members(flat, "options", request->options);
    if (request->workspace_root.p)
        (void)json_object_set_new(flat, "workspaceRoot", json_str(request->workspace_root));
    if (request->timeout_s)
        (void)json_object_set_new(flat, "timeout", json_integer(request->timeout_s));
    if (request->output_limit)
        (void)json_object_set_new(flat, "outputLimitBytes", json_integer(request->output_limit));
    if (request->persistent_given)
        (void)json_object_set_new(flat, "persistent", json_boolean(request->persistent));
}

static struct str profile_name(const struct runtime *runtime,
                               const struct runtime_overrides *request, struct arena *arena)
{
    struct str name;

    if (request->profile.p)
        return request->profile;
    if (request->agent_type.p) {
        name =
            json_get_str(runtime->config.settings->agents, arena_str(arena, request->agent_type).p);
        if (name.p)
            return name;
    }
    return STR("default");
}

static int64_t number(const json_t *object, const char *key, int64_t otherwise)
{
    const json_t *value = json_object_get(object, key);

    return json_is_integer(value) ? json_integer_value(value) : otherwise;
}

static json_t *not_null(const json_t *object, const char *key)
{
    json_t *value = json_object_get(object, key);

    return json_is_null(value) ? NULL : value;
}

static void fill(const struct runtime *runtime, struct profile *out, struct arena *arena)
{
    const struct runtime_settings *settings = runtime->config.settings;
    const json_t *flat = out->tree, *network = json_object_get(flat, "network");
    const json_t *lifecycle = json_object_get(flat, "lifecycle");
    const json_t *limits = json_object_get(flat, "limits");
    struct str image = json_get_str(flat, "template"), root = json_get_str(flat, "workspaceRoot");
    struct str mode = json_get_str(flat, "permissionMode");
    unsigned permission;
    bool is_e2b = strcmp(provider_type(out->backend->provider), "e2b") == 0;
    auto_json json_t *screen = profile_screen(flat);

    if (!image.p && is_e2b && screen)
        image = STR("desktop");
    if (!image.p && is_e2b && *settings->default_template)
        image = str_of(settings->default_template);
    out->image = image.p ? arena_str(arena, image) : STR_NONE;
    out->workspace_root = root.p ? arena_str(arena, root) : STR_NONE;
    out->egress = profile_egress(flat);
    out->allow_domains = not_null(network, "allowDomains");
    out->allow_cidrs = not_null(network, "allowCidrs");
    out->peers = not_null(network, "peers");
    out->persistent = json_is_true(json_object_get(flat, "persistent"));
    out->idle_s = number(lifecycle, "idleTimeoutSeconds",
                         out->persistent ? DEFAULT_IDLE_S : settings->sandbox_timeout_ms / 1000);
    out->max_lifetime_s = number(lifecycle, "maxLifetimeSeconds", 0);
    out->expire_s = number(lifecycle, "expireAfterSeconds", 0);
    out->timeout_s = number(flat, "timeout", settings->command_timeout_s);
    out->output_limit = number(flat, "outputLimitBytes", DEFAULT_OUTPUT);
    out->keep_output = json_is_true(json_object_get(flat, "keepOutput"));
    out->cpu = number(limits, "cpu", 0);
    out->mem_mb = number(limits, "memoryMb", 0);
    out->disk_mb = number(limits, "diskMb", 0);
    out->permission = name_find(&permission_names, mode, &permission) ? permission : PERMISSION_ASK;
    out->env = not_null(flat, "envVars");
    out->mcp = not_null(flat, "mcp");
    out->on_create = not_null(flat, "onCreate");
    out->on_resume = not_null(flat, "onResume");
    out->options = not_null(flat, "options");
    out->mounts = not_null(flat, "mounts");
    out->equips = profile_equips(flat);
    out->settings = profile_settings(out, arena);
}

static int check_result(const struct profile *profile, bool harness, struct error *err)
{
    auto_json json_t *faults = json_array();
    struct profile_check check = {
        .faults = faults,
        .prefix = "",
        .harness = harness,
        .caps = provider_caps(profile->backend->provider),
        .type = provider_type(profile->backend->provider),
        .backend_name = profile->backend->name,
        .ttl_max_s = provider_ttl_max(profile->backend->provider),
    };
    const json_t *fault;

    profile_check_record(&check, profile->tree);
    profile_check_caps(&check, profile->tree);
    fault = json_array_get(faults, 0);
    if (!fault)
        return 0;
    return error_set(err, ERROR_INVALID, "profile '%.*s': %s: %s", STR_ARG(profile->name),
                     json_get_str(fault, "path").p, json_get_str(fault, "message").p);
}

/* The backend of the request, else of the profile, else the default one; then its own key. */
static int choose_backend(struct runtime *runtime, const struct runtime_caller *caller,
                          const struct runtime_overrides *request, struct profile *out,
                          struct error *err)
{
    struct str named = json_get_str(out->tree, "provider");
    json_t *options;
    struct str key;

    if (backend_find(runtime, caller, request->provider.p ? request->provider : named,
                     &out->backend, err) < 0)
        return -1;
    if (request->provider.p) {
        struct backend *before = NULL;
        struct error ignored = {0};

        if (backend_peek(runtime, caller, named, &before, &ignored) < 0 || !before)
            before = out->backend;
        change_provider(out->tree, provider_type(before->provider),
                        provider_type(out->backend->provider));
    }
    (void)json_object_set_new(out->tree, "provider",
                              json_str(str_of(provider_type(out->backend->provider))));
    lay_request(out->tree, request);
    options = json_object_get(out->tree, "options");
    key = json_get_str(options, "apiKey");
    if (key.p && key.len &&
        backend_with_key(runtime, caller, out->backend, key, &out->backend, err) < 0)
        return -1;
    (void)json_object_del(options, "apiKey");
    return 0;
}

static int check_gateway_lines(struct runtime *runtime, const json_t *mcp, struct error *err)
{
    auto_json json_t *lines = profile_gateway_lines(mcp);

    return runtime_command_check_hooks(runtime, lines, err);
}

/* Besides which profile is meant. */
static bool says_nothing(const struct runtime_overrides *overrides)
{
    const struct runtime_overrides *o = overrides;

    return !o->provider.p && !o->image.p && !o->workspace_root.p && !o->network && !o->lifecycle &&
           !o->limits && !o->env && !o->mcp && !o->mounts && !o->options && !o->timeout_s &&
           !o->output_limit && !o->persistent_given;
}

/* The tree: with all that the request says, for the backend, checked. */
static int make_tree(struct runtime *runtime, const struct runtime_caller *caller,
                     const struct runtime_overrides *overrides, struct profile_source *source,
                     struct arena *arena, struct profile *out, struct error *err)
{
    auto_json json_t *record = NULL;
    bool harness = false, read_only = source->of_file != NULL;

    if (profile_read(runtime, source, &record, err) < 0)
        return -1;
    out->tree = profile_flatten(record, &harness);
    /* What the operator's own profile says was not meant by commands.allow. */
    if (runtime_command_check_env(runtime, overrides->env, err) < 0 ||
        check_gateway_lines(runtime, overrides->mcp, err) < 0 ||
        (!read_only && check_gateway_lines(runtime, json_object_get(out->tree, "mcp"), err) < 0) ||
        (!read_only &&
         (runtime_command_check_env(runtime, json_object_get(out->tree, "envVars"), err) < 0 ||
          runtime_command_check_hooks(runtime, json_object_get(out->tree, "onCreate"), err) < 0 ||
          runtime_command_check_hooks(runtime, json_object_get(out->tree, "onResume"), err) < 0)))
        return -1;
    if (!out->tree)
        return error_set(err, ERROR_INVALID, "profile '%.*s' is not an object", STR_ARG(out->name));
    source->provider = arena_str(arena, json_get_str(out->tree, "provider"));
    return choose_backend(runtime, caller, overrides, out, err) < 0
               ? -1
               : check_result(out, harness && !overrides->lifecycle, err);
}

int profile_resolve(struct runtime *runtime, const struct runtime_caller *caller,
                    const struct runtime_overrides *overrides, struct arena *arena,
                    struct profile *out, struct error *err)
{
    bool as_it_is = says_nothing(overrides);
    struct profile_source source;

    *out = (struct profile){0};
    out->name = arena_str(arena, profile_name(runtime, overrides, arena));
    if (profile_find(runtime, caller, out->name, arena, &source, err) < 0) {
        if (err->code == ERROR_NOT_FOUND)
            err->code = ERROR_INVALID;
        return overrides->profile.p || !overrides->agent_type.p
                   ? -1
                   : error_prefix(err, "agent type '%.*s'", STR_ARG(overrides->agent_type));
    }
    if (as_it_is && profile_kept_get(runtime, caller, &source, arena, out))
        return 0;
    if (make_tree(runtime, caller, overrides, &source, arena, out, err) < 0) {
        profile_done(out);
        return -1;
    }
    fill(runtime, out, arena);
    if (as_it_is)
        profile_kept_put(runtime, caller, &source, out);
    return 0;
}

void profile_done(struct profile *profile)
{
    json_decref(profile->tree);
    *profile = (struct profile){0};
}
