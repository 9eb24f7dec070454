/* Profiles by name: those of the file, which nobody may change, those of teams in the store, and a
 * built-in "default". */
#include <stdatomic.h>

#include "runtime/backend/profile.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "protocol/json/json_shape.h"
#include "runtime/backend/backend.h"
#include "runtime/backend/capability.h"
#include "runtime/backend/profile_parts.h"
#include "runtime/core/runtime_parts.h"
#include "runtime/core/words.h"
#include "store/runtime/store_runtime.h"

enum { PROFILE_BYTES_MAX = 64 << 10 };

/* ---- checking ---- */

/* Says no more than the record: the backend's own rules need a backend that is there. */
static void check_all(struct runtime *runtime, const struct runtime_caller *caller,
                      const json_t *record, const char *prefix, json_t *faults)
{
    bool harness = false;
    auto_json json_t *flat = profile_flatten(record, &harness);
    auto_free char *inner = xasprintf("%s%s", prefix, harness ? "config." : "");
    struct profile_check check = {.faults = faults, .prefix = inner, .harness = harness};
    struct backend *backend;
    struct error err = {0};

    profile_check_record(&check, harness ? json_object_get(record, "config") : record);
    if (!flat)
        return;
    if (json_object_get(flat, "provider") && !json_is_string(json_object_get(flat, "provider")))
        return;
    if (backend_peek(runtime, caller, json_get_str(flat, "provider"), &backend, &err) < 0) {
        profile_fault(&check, "provider", "%s", err.message);
        return;
    }
    if (!backend)
        return; /* a runner: whichever will be free */
    check.caps = provider_caps(backend_provider(backend));
    check.type = provider_type(backend_provider(backend));
    check.backend_name = backend_name(backend);
    check.ttl_max_s = provider_ttl_max(backend_provider(backend));
    profile_check_caps(&check, flat);
}

static int first_fault(const json_t *faults, struct error *err)
{
    const json_t *fault = json_array_get(faults, 0);

    if (!fault)
        return 0;
    return error_set(err, ERROR_INVALID, "%s: %s", json_get_str(fault, "path").p,
                     json_get_str(fault, "message").p);
}

/* References to the server's environment and files are the operator's only. */
static void refuse_reference(struct profile_check *check, const char *path, struct str secret)
{
    if (str_starts(secret, STR("env:")) || str_starts(secret, STR("file:")))
        profile_fault(check, path,
                      "env: and file: references are only for the server's configuration file");
}

static void refuse_references(const json_t *record, json_t *faults)
{
    const json_t *config = json_object_get(record, "config");
    const char *prefix = json_is_object(config) ? "config." : "";
    struct profile_check check = {.faults = faults, .prefix = prefix};

    if (!json_is_object(config))
        config = record;
    refuse_reference(&check, "options.apiKey",
                     json_get_str(json_object_get(config, "options"), "apiKey"));
    refuse_reference(&check, "gitToken", json_get_str(config, "gitToken"));
}

int profile_check(struct runtime *runtime, const struct runtime_caller *caller,
                  const json_t *record, json_t **out_faults, struct error *err)
{
    auto_json json_t *spelt = json_deep_copy(record);

    profile_spell(spelt);
    record = spelt;
    *out_faults = json_array();
    if (!json_is_object(record)) {
        struct profile_check check = {.faults = *out_faults, .prefix = ""};

        profile_fault(&check, "", "must be an object");
        return error_set(err, ERROR_INVALID, "a profile must be an object");
    }
    refuse_references(record, *out_faults);
    check_all(runtime, caller, record, "", *out_faults);
    return first_fault(*out_faults, err);
}

static int check_of_file(struct runtime *runtime, json_t *profiles, struct error *err)
{
    struct runtime_caller nobody = {.team_id = STR("")};
    json_t *record, *fault;
    auto_json json_t *faults = json_array();
    const char *name;
    size_t i;

    json_object_foreach (profiles, name, record) {
        auto_free char *prefix = xasprintf("profiles.%s.", name);
        const json_t *config = json_object_get(record, "config");

        check_all(runtime, &nobody, record, prefix, faults);
        if (!config)
            config = record;
        runtime_secret_add(runtime, STR_NONE,
                           json_get_str(json_object_get(config, "options"), "apiKey"));
        runtime_secret_add(runtime, STR_NONE, json_get_str(config, "gitToken"));
    }
    json_array_foreach (faults, i, fault)
        log_error("runtime", "%s: %s", json_get_str(fault, "path").p,
                  json_get_str(fault, "message").p);
    return first_fault(faults, err);
}

json_t *runtime_profiles(const struct runtime *runtime)
{
    json_t *replaced = atomic_load(&runtime->profiles);

    return replaced ? replaced : runtime->config.settings->profiles;
}

/* The idle time of profiles that name none. */
static int check_default_idle(struct runtime *runtime, struct error *err)
{
    struct runtime_caller nobody = {.team_id = STR("")};
    int64_t idle_s = runtime->config.settings->sandbox_timeout_ms / 1000, max_s;
    struct backend *backend = NULL;
    struct error ignored;

    if (backend_peek(runtime, &nobody, STR_NONE, &backend, &ignored) < 0 || !backend)
        return 0;
    max_s = provider_ttl_max(backend_provider(backend));
    if (max_s <= 0 || idle_s <= max_s)
        return 0;
    return error_set(err, ERROR_INVALID,
                     "sandbox_timeout_ms (E2B_SANDBOX_TIMEOUT_MS): must be at most %lld on provider"
                     " '%s' (the server's setting max-hours)",
                     (long long)max_s * 1000, backend_name(backend));
}

int profiles_open(struct runtime *runtime, struct error *err)
{
    if (check_of_file(runtime, runtime_profiles(runtime), err) < 0 ||
        check_default_idle(runtime, err) < 0)
        return -1;
    return backend_capabilities_check(runtime, err);
}

int profiles_replace(struct runtime *runtime, json_t *profiles, struct error *err)
{
    if (check_of_file(runtime, profiles, err) < 0)
        return -1;
    /* Who reads the old ones reads on: they stay. */
    if (!runtime->file_profiles)
        runtime->file_profiles = json_array();
    (void)json_array_append(runtime->file_profiles, profiles);
    atomic_store(&runtime->profiles, profiles);
    return 0;
}

/* ---- by name ---- */

/* New reference; NULL when there is no such profile. */
static json_t *load_flat(struct runtime *runtime, const struct runtime_caller *caller,
                         struct str name)
{
    auto_json json_t *record = NULL;
    struct error ignored = {0};
    bool harness, read_only;

    if (!name.len || profile_load(runtime, caller, name, &record, &read_only, &ignored) < 0)
        return NULL;
    return profile_flatten(record, &harness);
}

char *profile_git_token(struct runtime *runtime, const struct runtime_caller *caller,
                        struct str name)
{
    auto_json json_t *flat = load_flat(runtime, caller, name);
    struct str token = json_get_str(flat, "gitToken");

    return token.len ? str_dup(token) : NULL;
}

bool profile_conventional_commits(struct runtime *runtime, const struct runtime_caller *caller,
                                  struct str name)
{
    auto_json json_t *flat = load_flat(runtime, caller, name);

    return json_is_true(json_object_get(flat, "conventionalCommits"));
}

static json_t *built_in_default(const struct runtime *runtime)
{
    const struct runtime_settings *settings = runtime->config.settings;

    return json_pack("{s:{s:s}, s:b, s:{s:I}, s:I, s:i, s:s, s:{}, s:n}", "network", "mode",
                     "allow-all", "persistent", 0, "lifecycle", "idleTimeoutSeconds",
                     (json_int_t)(settings->sandbox_timeout_ms / 1000), "timeout",
                     (json_int_t)settings->command_timeout_s, "outputLimitBytes", 65536,
                     "permissionMode", "ask", "envVars", "mcp");
}

/* One that has a screen. */
static json_t *built_in_desktop(const struct runtime *runtime)
{
    json_t *record = built_in_default(runtime);

    (void)json_object_set_new(record, "template", json_string("desktop"));
    return record;
}

int profile_find(struct runtime *runtime, const struct runtime_caller *caller, struct str name,
                 struct arena *arena, struct profile_source *out, struct error *err)
{
    struct store_profile row;

    *out = (struct profile_source){
        .of_file = json_object_get(runtime_profiles(runtime), arena_str(arena, name).p)};
    if (out->of_file)
        return 0;
    if (store_profile_get(runtime->config.store, caller->team_id, name, arena, &row, err) == 0) {
        out->text = row.record;
        return 0;
    }
    if (err->code == ERROR_NOT_FOUND && str_is(name, "default"))
        out->built_in = built_in_default;
    else if (err->code == ERROR_NOT_FOUND && str_is(name, "desktop"))
        out->built_in = built_in_desktop;
    else
        return -1;
    *err = (struct error){0};
    return 0;
}

int profile_read(const struct runtime *runtime, const struct profile_source *source, json_t **out,
                 struct error *err)
{
    if (source->text.p)
        return json_parse(source->text, out, err);
    *out = source->of_file ? json_deep_copy(source->of_file) : source->built_in(runtime);
    return 0;
}

int profile_load(struct runtime *runtime, const struct runtime_caller *caller, struct str name,
                 json_t **out, bool *out_read_only, struct error *err)
{
    auto_arena struct arena arena = {0};
    struct profile_source source;

    *out_read_only = false;
    if (profile_find(runtime, caller, name, &arena, &source, err) < 0)
        return -1;
    *out_read_only = source.of_file != NULL;
    return profile_read(runtime, &source, out, err);
}

static int check_name(struct str name, struct error *err)
{
    if (runtime_name_valid(name))
        return 0;
    return error_set(err, ERROR_INVALID,
                     "a profile's name has 1 to %d of a-z, 0-9, '.', '_', '-' and begins with a"
                     " letter or digit",
                     RUNTIME_NAME_MAX);
}

static int refuse_change(struct runtime *runtime, struct str name, struct error *err)
{
    auto_arena struct arena arena = {0};

    if (!json_object_get(runtime_profiles(runtime), arena_str(&arena, name).p))
        return 0;
    return error_set(err, ERROR_CONFLICT,
                     "profile '%.*s' is set in the server's configuration and cannot be changed",
                     STR_ARG(name));
}

static int fault_only(json_t **out_faults, const char *path, const char *message, struct error *err)
{
    struct profile_check check = {.prefix = ""};

    *out_faults = json_array();
    check.faults = *out_faults;
    profile_fault(&check, path, "%s", message);
    return first_fault(*out_faults, err);
}

static int put_record(struct runtime *runtime, const struct runtime_caller *caller, struct str name,
                      json_t *record, json_t **out_faults, struct error *err)
{
    int64_t now = clock_wall_us();
    auto_json json_t *old = NULL;
    auto_free char *redacted = NULL, *text = NULL;
    struct error why = {0};
    bool read_only;

    (void)profile_load(runtime, caller, name, &old, &read_only, &why);
    redacted = profile_restore(record, old);
    if (redacted)
        return fault_only(out_faults, redacted, "is redacted: give the value itself", err);
    if (profile_check(runtime, caller, record, out_faults, err) < 0)
        return -1;
    (void)json_object_del(record, "readOnly");
    text = json_text(record);
    if (strlen(text) > PROFILE_BYTES_MAX)
        return error_set(err, ERROR_LIMIT, "a profile has at most %d bytes", PROFILE_BYTES_MAX);
    return store_profile_put(runtime->config.store,
                             &(struct store_profile){.team_id = caller->team_id,
                                                     .name = name,
                                                     .record = str_of(text),
                                                     .created_at_us = now,
                                                     .updated_at_us = now},
                             PROFILES_MAX, err);
}

int profile_put(struct runtime *runtime, const struct runtime_caller *caller, struct str name,
                const json_t *record, json_t **out_faults, struct error *err)
{
    auto_json json_t *copy = json_deep_copy(record);
    struct str own = json_get_str(record, "name");

    profile_spell(copy);
    *out_faults = NULL;
    if (check_name(name, err) < 0 || refuse_change(runtime, name, err) < 0) {
        *out_faults = json_array();
        return -1;
    }
    if (own.p && !str_eq(own, name))
        return fault_only(out_faults, "name", "is not the name it is put under", err);
    if (!json_is_object(copy))
        return fault_only(out_faults, "", "must be an object", err);
    if (put_record(runtime, caller, name, copy, out_faults, err) < 0) {
        if (!*out_faults)
            *out_faults = json_array();
        return -1;
    }
    return 0;
}

static json_t *shown(const json_t *record, struct str name, bool read_only)
{
    json_t *out = profile_redacted(record);

    (void)json_object_set_new(out, "name", json_str(name));
    (void)json_object_set_new(out, "readOnly", json_boolean(read_only));
    return out;
}

int profile_get(struct runtime *runtime, const struct runtime_caller *caller, struct str name,
                json_t **out, struct error *err)
{
    auto_json json_t *record = NULL;
    bool read_only;

    if (check_name(name, err) < 0 ||
        profile_load(runtime, caller, name, &record, &read_only, err) < 0)
        return -1;
    *out = shown(record, name, read_only);
    return 0;
}

static bool has_named(const json_t *list, const char *name)
{
    const json_t *item;
    size_t i;

    json_array_foreach (list, i, item)
        if (str_is(json_get_str(item, "name"), name))
            return true;
    return false;
}

json_t *profile_list(struct runtime *runtime, const struct runtime_caller *caller)
{
    auto_arena struct arena arena = {0};
    struct store_profile *rows = NULL;
    struct error err = {0};
    json_t *list = json_array(), *record;
    const char *name;
    size_t count = 0;

    json_object_foreach (runtime_profiles(runtime), name, record)
        (void)json_array_append_new(list, shown(record, str_of(name), true));
    if (store_profile_list(runtime->config.store, caller->team_id, PROFILES_MAX, &arena, &rows,
                           &count, &err) < 0)
        log_error("runtime", "profiles cannot be listed: %s", err.message);
    for (size_t i = 0; i < count; i++) {
        auto_json json_t *parsed = NULL;

        if (!has_named(list, rows[i].name.p) && json_parse(rows[i].record, &parsed, &err) == 0)
            (void)json_array_append_new(list, shown(parsed, rows[i].name, false));
    }
    if (!has_named(list, "default")) {
        auto_json json_t *built_in = built_in_default(runtime);

        (void)json_array_append_new(list, shown(built_in, STR("default"), false));
    }
    if (!has_named(list, "desktop")) {
        auto_json json_t *built_in = built_in_desktop(runtime);

        (void)json_array_append_new(list, shown(built_in, STR("desktop"), false));
    }
    return list;
}

int profile_delete(struct runtime *runtime, const struct runtime_caller *caller, struct str name,
                   struct error *err)
{
    if (refuse_change(runtime, name, err) < 0)
        return -1;
    return store_profile_delete(runtime->config.store, caller->team_id, name, err);
}
