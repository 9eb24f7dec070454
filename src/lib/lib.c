/* The runtime behind the plain types of quicksand.h: opening, errors, sandboxes, snapshots. */
#include <pthread.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "extra/types/extra_providers.h"
#include "lib/lib_internal.h"
#include "protocol/json/json_shape.h"
#include "runtime/backend/backend.h"
#include "runtime/config/config.h"
#include "runtime/main/runtime_main.h"
#include "store/core/store.h"

#define TEAM "library" /* all rows of a store that is only ours belong to it */

enum { FAULTS_MAX = 16384 };

static _Thread_local struct error last;

int lib_result(int r, const struct error *err)
{
    if (r < 0)
        last = *err;
    return r < 0 ? -1 : 0;
}

const char *qs_version(void)
{
    return QUICKSAND_VERSION;
}

const char *qs_error(void)
{
    return last.message;
}

const char *qs_error_code(void)
{
    return error_code_name(last.code);
}

void qs_free(void *p)
{
    free(p);
}

/* ---- opening ---- */

static const char *environment(const char *name)
{
    return getenv(name);
}

/* The settings of a server always have its engine, which is not here. As the default it stays, and
 * opening it says what is missing. */
static void drop_engine(struct runtime_settings *settings)
{
    size_t kept = 0;

    for (size_t i = 0; i < settings->backend_count; i++) {
        struct backend_settings *backend = &settings->backends[i];

        if (strcmp(backend->api_url, "embedded") != 0 ||
            strcmp(backend->name, settings->default_provider) == 0) {
            settings->backends[kept++] = *backend;
            continue;
        }
        free(backend->api_url);
        free(backend->domain);
        free(backend->api_key);
        json_decref(backend->record);
    }
    settings->backend_count = kept;
}

static int load(struct qs *qs, const char *config, struct error *err)
{
    auto_buf struct buf faults = {0};

    buf_init(&faults, FAULTS_MAX);
    if (runtime_settings_load(config ? str_of(config) : STR_NONE, environment, NULL, &qs->settings,
                              &faults) == 0) {
        drop_engine(&qs->settings);
        return 0;
    }
    return error_set(err, ERROR_INVALID, "the configuration is wrong: %s",
                     faults.p ? faults.p : "");
}

static int open_all(struct qs *qs, const char *config, const char *store, struct error *err)
{
    struct runtime_config runtime = {.settings = &qs->settings};

    if (!store || !store[0])
        return error_set(err, ERROR_INVALID, "a store is needed: a file, or \":memory:\"");
    if (load(qs, config, err) < 0 || store_open(store, &qs->store, err) < 0 ||
        sender_open(&qs->sender, err) < 0)
        return -1;
    runtime.store = qs->store;
    runtime.sender = qs->sender;
    runtime.fetch = qs->fetch = fetch_new();
    return runtime_open(&runtime, &qs->runtime, err);
}

static void set_types(void)
{
    provider_types_set(extra_providers);
}

int qs_open(const char *config, const char *store, struct qs **out)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct qs *qs = xcalloc(1, sizeof(*qs));
    struct error err = {0};

    *out = NULL;
    (void)pthread_once(&once, set_types);
    log_set_level(LOG_WARN);
    qs->caller = (struct runtime_caller){.team_id = STR(TEAM), .actor = STR(TEAM)};
    if (open_all(qs, config, store, &err) < 0) {
        qs_close(qs);
        return lib_result(-1, &err);
    }
    *out = qs;
    return 0;
}

void qs_close(struct qs *qs)
{
    if (!qs)
        return;
    if (qs->runtime)
        runtime_close(qs->runtime);
    sender_close(qs->sender);
    store_close(qs->store);
    fetch_free(qs->fetch);
    runtime_settings_done(&qs->settings);
    free(qs);
}

int qs_providers(struct qs *qs, int check, char **out_json)
{
    auto_json json_t *all = backends_json(qs->runtime, &qs->caller, check != 0);

    *out_json = json_text(all);
    return 0;
}

/* ---- sandboxes ---- */

static int ensure(struct qs *qs, struct runtime_ensure *request, char out_id[QS_ID_SIZE],
                  enum qs_tier *out_tier, struct error *err)
{
    auto_arena struct arena arena = {0};
    struct runtime_sandbox sandbox = {0};
    enum runtime_tier tier = TIER_CREATED;

    if (runtime_sandbox_ensure(qs->runtime, &qs->caller, request, &arena, &sandbox, &tier, err) < 0)
        return -1;
    if (!str_copy(sandbox.id, out_id, QS_ID_SIZE))
        return error_set(err, ERROR_INTERNAL, "the sandbox's id is too long");
    if (out_tier)
        *out_tier = tier == TIER_RESUMED    ? QS_RESUMED
                    : tier == TIER_RESTORED ? QS_RESTORED
                                            : QS_CREATED;
    return 0;
}

int qs_ensure(struct qs *qs, const char *key, const char *spec, char out_id[QS_ID_SIZE],
              enum qs_tier *out_tier)
{
    struct runtime_ensure request = {0};
    auto_json json_t *tree = NULL;
    struct error err = {0};
    int r = lib_spec_read(spec, &request, &tree, &err);

    request.key = key ? str_of(key) : STR_NONE;
    if (r == 0)
        r = ensure(qs, &request, out_id, out_tier, &err);
    return lib_result(r, &err);
}

static json_t *text(struct str s)
{
    return s.len ? json_str(s) : json_null();
}

int qs_show(struct qs *qs, const char *id, char **out_json)
{
    auto_arena struct arena arena = {0};
    auto_json json_t *json = NULL;
    struct runtime_sandbox sandbox = {0};
    struct error err = {0};

    if (runtime_sandbox_get(qs->runtime, &qs->caller, str_of(id), true, &arena, &sandbox, &err) < 0)
        return lib_result(-1, &err);
    json = json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:b}", "id",
                     text(sandbox.id), "key", text(sandbox.key), "provider", text(sandbox.provider),
                     "external_id", text(sandbox.external_id), "template", text(sandbox.image),
                     "profile", text(sandbox.profile), "state",
                     text(str_of(name_of(&runtime_state_names, sandbox.state))), "error",
                     text(sandbox.error), "snapshot_id", text(sandbox.snapshot_id), "cdp_url",
                     text(sandbox.cdp_url), "persistent", (int)sandbox.persistent);
    *out_json = json_text(json);
    return 0;
}

int qs_pause(struct qs *qs, const char *id)
{
    struct error err = {0};

    return lib_result(runtime_sandbox_pause(qs->runtime, &qs->caller, str_of(id), &err), &err);
}

int qs_resume(struct qs *qs, const char *id)
{
    struct error err = {0};

    return lib_result(runtime_sandbox_resume(qs->runtime, &qs->caller, str_of(id), &err), &err);
}

int qs_kill(struct qs *qs, const char *id)
{
    struct error err = {0};

    return lib_result(runtime_sandbox_kill(qs->runtime, &qs->caller, str_of(id), NULL, &err), &err);
}

int qs_url(struct qs *qs, const char *id, uint16_t port, char **out)
{
    auto_arena struct arena arena = {0};
    struct provider_address address = {0};
    struct error err = {0};

    if (runtime_sandbox_address(qs->runtime, &qs->caller, str_of(id), port, &arena, &address,
                                &err) < 0)
        return lib_result(-1, &err);
    *out = str_dup(address.url);
    return 0;
}

/* ---- snapshots ---- */

int qs_snapshot(struct qs *qs, const char *id, const char *alias, char out_id[QS_ID_SIZE])
{
    auto_arena struct arena arena = {0};
    struct runtime_snapshot snapshot = {0};
    struct error err = {0};
    int r = runtime_snapshot_create(qs->runtime, &qs->caller, str_of(id),
                                    alias ? str_of(alias) : STR_NONE, 0, &arena, &snapshot, &err);

    if (r == 0 && !str_copy(snapshot.id, out_id, QS_ID_SIZE))
        r = error_set(&err, ERROR_INTERNAL, "the snapshot's id is too long");
    return lib_result(r, &err);
}

int qs_restore(struct qs *qs, const char *snapshot, const char *spec, char out_id[QS_ID_SIZE])
{
    struct runtime_ensure request = {0};
    auto_json json_t *tree = NULL;
    struct error err = {0};
    int r = lib_spec_read(spec, &request, &tree, &err);

    request.snapshot = str_of(snapshot);
    if (r == 0)
        r = ensure(qs, &request, out_id, NULL, &err);
    return lib_result(r, &err);
}

int qs_snapshot_remove(struct qs *qs, const char *snapshot)
{
    struct error err = {0};

    return lib_result(
        runtime_snapshot_delete(qs->runtime, &qs->caller, str_of(snapshot), NULL, &err), &err);
}
