#include "edge/api_runtime/test/v1_fake.h"
#include "domain/account/team.h"

#include <pthread.h>
#include <stdarg.h>
#include <time.h>

#include "base/alloc.h"
#include "base/list.h"
#include "domain/account/api_key.h"
#include "protocol/json/json_shape.h"
#include "runtime/backend/backend.h"
#include "runtime/command/command.h"
#include "runtime/command/terminal.h"
#include "runtime/job/job.h"
#include "runtime/session/session.h"
#include "store/platform/store_audit.h"
#include "store/platform/store_sandbox.h"

struct v1_fake v1_fake;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

int v1_fake_asked(struct error *err, const char *fmt, ...)
{
    size_t len;
    va_list args;

    (void)pthread_mutex_lock(&lock);
    len = strlen(v1_fake.asked);
    va_start(args, fmt);
    (void)vsnprintf(v1_fake.asked + len, sizeof(v1_fake.asked) - len, fmt, args);
    va_end(args);
    (void)pthread_mutex_unlock(&lock);
    if (!v1_fake.fail.code)
        return 0;
    *err = v1_fake.fail;
    return -1;
}

void runtime_mask(const struct runtime *runtime, struct str team_id, char *text)
{
    char *at = strstr(text, V1_FAKE_SECRET);

    (void)runtime;
    (void)team_id;
    if (at)
        memset(at, '*', strlen(V1_FAKE_SECRET));
}

int api_keys_find(struct api_keys *keys, struct str key, struct api_key_owner *out,
                  struct error *err)
{
    (void)keys;
    if (!str_is(key, V1_FAKE_KEY))
        return error_set(err, ERROR_UNAUTHORIZED, "invalid API key");
    *out = (struct api_key_owner){.team_id = "team-1", .key_id = "k", .found_us = 1};
    return 0;
}

bool api_keys_current(struct api_keys *keys, const struct api_key_owner *owner)
{
    (void)keys;
    return owner->found_us > 0;
}

enum api_key_peek api_keys_peek(struct api_keys *keys, struct str key, struct api_key_owner *out)
{
    struct error err = {0};

    return api_keys_find(keys, key, out, &err) == 0 ? API_KEY_KNOWN : API_KEY_UNSEEN;
}

int api_key_new(struct store *store, const struct api_key_wanted *wanted, struct arena *arena,
                struct store_key *out, char out_key[API_KEY_SIZE], struct error *err)
{
    (void)store, (void)arena;
    *out =
        (struct store_key){.id = STR("k2"), .name = wanted->name, .sandbox_id = wanted->sandbox_id};
    (void)str_copy(STR("e2b_new"), out_key, API_KEY_SIZE);
    return v1_fake_asked(err, "key(%.*s %.*s) ", STR_ARG(wanted->name),
                         STR_ARG(wanted->sandbox_id));
}

int store_sandbox_get(struct store *store, struct str id, struct arena *arena,
                      struct store_sandbox *out, struct error *err)
{
    (void)store, (void)arena, (void)out;
    return error_set(err, ERROR_NOT_FOUND, "sandbox '%.*s' not found", STR_ARG(id));
}

int store_key_sandbox(struct store *store, struct str team_id, struct str sandbox_id,
                      struct arena *arena, struct str *out_engine_id, struct error *err)
{
    (void)store, (void)team_id, (void)sandbox_id, (void)arena, (void)err;
    *out_engine_id = STR("");
    return 0;
}

int store_audit_add(struct store *store, const struct store_audit *entry, struct error *err)
{
    (void)store;
    return v1_fake_asked(err, "audit(%.*s %.*s %d) ", STR_ARG(entry->method), STR_ARG(entry->path),
                         (int)entry->status);
}

/* ---- backends and profiles ---- */

json_t *backends_json(struct runtime *runtime, const struct runtime_caller *caller, bool check)
{
    (void)runtime;
    (void)caller;
    return json_pack("[{s:s, s:b}]", "name", "e2b", "checked", (int)check);
}

int runner_register(struct runtime *runtime, const struct runtime_caller *caller,
                    const struct runner *runner, struct error *err)
{
    (void)runtime;
    (void)caller;
    return v1_fake_asked(err, "register(%.*s) ", STR_ARG(runner->name));
}

int runner_heartbeat(struct runtime *runtime, const struct runtime_caller *caller, struct str name,
                     int64_t active_sessions, struct error *err)
{
    (void)runtime;
    (void)caller;
    return v1_fake_asked(err, "heartbeat(%.*s,%d) ", STR_ARG(name), (int)active_sessions);
}

int runner_remove(struct runtime *runtime, const struct runtime_caller *caller, struct str name,
                  struct error *err)
{
    (void)runtime;
    (void)caller;
    return v1_fake_asked(err, "remove(%.*s) ", STR_ARG(name));
}

/* A record is good when it has a provider. */
int profile_check(struct runtime *runtime, const struct runtime_caller *caller,
                  const json_t *record, json_t **out_faults, struct error *err)
{
    (void)runtime;
    (void)caller;
    *out_faults = json_array();
    if (json_object_get(record, "provider"))
        return 0;
    (void)json_array_append_new(
        *out_faults, json_pack("{s:s, s:s}", "path", "config.provider", "message", "is missing"));
    return error_set(err, ERROR_INVALID, "config.provider is missing");
}

int profile_put(struct runtime *runtime, const struct runtime_caller *caller, struct str name,
                const json_t *record, json_t **out_faults, struct error *err)
{
    if (profile_check(runtime, caller, record, out_faults, err) < 0)
        return -1;
    return v1_fake_asked(err, "put(%.*s) ", STR_ARG(name));
}

int profile_get(struct runtime *runtime, const struct runtime_caller *caller, struct str name,
                json_t **out, struct error *err)
{
    (void)runtime;
    (void)caller;
    if (v1_fake_asked(err, "profile(%.*s) ", STR_ARG(name)) < 0)
        return -1;
    *out = json_pack("{s:s}", "provider", "e2b");
    return 0;
}

json_t *profile_list(struct runtime *runtime, const struct runtime_caller *caller)
{
    (void)runtime;
    (void)caller;
    return json_array();
}

int profile_delete(struct runtime *runtime, const struct runtime_caller *caller, struct str name,
                   struct error *err)
{
    (void)runtime;
    (void)caller;
    return v1_fake_asked(err, "delete(%.*s) ", STR_ARG(name));
}

/* ---- sandboxes ---- */

const char *runtime_tier_name(enum runtime_tier tier)
{
    return tier == TIER_CREATED ? "created" : "resumed";
}

int v1_fake_find(const struct runtime_caller *caller, struct str id, struct error *err)
{
    if (!str_is(id, V1_FAKE_ID))
        return error_set(err, ERROR_NOT_FOUND, "sandbox '%.*s' was not found", STR_ARG(id));
    if (caller->agent_id.len && !str_is(caller->agent_id, "a1"))
        return error_set(err, ERROR_FORBIDDEN, "sandbox '%.*s' is another agent's", STR_ARG(id));
    return 0;
}

static void fill(struct runtime_sandbox *out)
{
    *out = (struct runtime_sandbox){.id = STR(V1_FAKE_ID),
                                    .state = SANDBOX_RUNNING,
                                    .provider = STR("e2b"),
                                    .agent_id = STR("a1"),
                                    .created_at_us = 1767225600123456};
}

int runtime_sandbox_ensure(struct runtime *runtime, const struct runtime_caller *caller,
                           const struct runtime_ensure *request, struct arena *arena,
                           struct runtime_sandbox *out, enum runtime_tier *out_tier,
                           struct error *err)
{
    (void)runtime;
    (void)caller;
    (void)arena;
    if (v1_fake_asked(err, "ensure(%.*s,%.*s,%.*s,%d) ", STR_ARG(request->key),
                      STR_ARG(request->overrides.image), STR_ARG(request->agent_id),
                      (int)request->overrides.persistent_given) < 0)
        return -1;
    fill(out);
    *out_tier = TIER_CREATED;
    return 0;
}

int runtime_sandbox_get(struct runtime *runtime, const struct runtime_caller *caller, struct str id,
                        bool refresh, struct arena *arena, struct runtime_sandbox *out,
                        struct error *err)
{
    (void)runtime;
    (void)arena;
    if (v1_fake_asked(err, "get(%d) ", (int)refresh) < 0 || v1_fake_find(caller, id, err) < 0)
        return -1;
    fill(out);
    return 0;
}

int runtime_sandbox_list(struct runtime *runtime, const struct runtime_caller *caller,
                         const struct runtime_sandbox_filter *filter, struct arena *arena,
                         struct runtime_sandbox **out, size_t *out_count, struct error *err)
{
    (void)runtime;
    (void)caller;
    if (v1_fake_asked(err, "list(%s,%d) ",
                      filter->state ? name_of(&runtime_state_names, *filter->state) : "",
                      (int)filter->limit) < 0)
        return -1;
    *out = arena_alloc(arena, sizeof(**out));
    fill(*out);
    *out_count = 1;
    return 0;
}

int runtime_sandbox_pause(struct runtime *runtime, const struct runtime_caller *caller,
                          struct str id, struct error *err)
{
    (void)runtime;
    return v1_fake_asked(err, "pause() ") < 0 ? -1 : v1_fake_find(caller, id, err);
}

int runtime_sandbox_resume(struct runtime *runtime, const struct runtime_caller *caller,
                           struct str id, struct error *err)
{
    (void)runtime;
    return v1_fake_asked(err, "resume() ") < 0 ? -1 : v1_fake_find(caller, id, err);
}

int runtime_sandbox_kill(struct runtime *runtime, const struct runtime_caller *caller,
                         struct str id, struct error *forced, struct error *err)
{
    (void)runtime;
    if (forced) {
        (void)error_set(forced, ERROR_CONFLICT, "no such provider");
        return 1;
    }
    return v1_fake_asked(err, "kill() ") < 0 ? -1 : v1_fake_find(caller, id, err);
}

int runtime_sandbox_address(struct runtime *runtime, const struct runtime_caller *caller,
                            struct str id, uint16_t port, struct arena *arena,
                            struct provider_address *out, struct error *err)
{
    (void)runtime;
    *out = (struct provider_address){
        .url = str_of(arena_printf(arena, "http://%u-x", (unsigned)port))};
    return v1_fake_find(caller, id, err);
}

double runtime_usage_round(double value)
{
    return value;
}

int runtime_sandbox_usage(struct runtime *runtime, const struct runtime_caller *caller,
                          struct str id, struct provider_usage *out, struct error *err)
{
    (void)runtime;
    *out = (struct provider_usage){1000000, 12.5, 2, 3, 4, -1, 6};
    return v1_fake_find(caller, id, err);
}

int runtime_sandbox_traffic(struct runtime *runtime, const struct runtime_caller *caller,
                            struct str id, struct provider_traffic *out, struct error *err)
{
    (void)runtime;
    *out = (struct provider_traffic){.sent_bytes = 7, .connections = 2};
    return v1_fake_find(caller, id, err);
}

void runtime_sandbox_ports(struct runtime *runtime, const struct runtime_caller *caller,
                           struct runtime_sandbox *items, size_t count, struct arena *arena)
{
    (void)runtime;
    (void)caller;
    for (size_t i = 0; i < count; i++) {
        items[i].ports = arena_alloc(arena, sizeof(*items[i].ports));
        *items[i].ports = (struct provider_ports){.count = 2, .at = {{443, false}, {8080, true}}};
    }
}

int runtime_sandbox_prune(struct runtime *runtime, const struct runtime_caller *caller,
                          int64_t older_than_s, bool dry_run, size_t *out_sandboxes,
                          size_t *out_snapshots, struct error *err)
{
    (void)runtime;
    (void)caller;
    *out_sandboxes = 2;
    *out_snapshots = 1;
    return v1_fake_asked(err, "prune(%d,%d) ", (int)older_than_s, (int)dry_run);
}

int runtime_stats(struct runtime *runtime, const struct runtime_caller *caller, json_t **out,
                  struct error *err)
{
    (void)runtime;
    (void)caller;
    *out = json_object();
    return v1_fake_asked(err, "stats() ");
}

int runtime_stats_teams(struct runtime *runtime, json_t **out, struct error *err)
{
    (void)runtime;
    *out = json_object();
    return v1_fake_asked(err, "stats_teams() ");
}

int runtime_usage_steps(struct runtime *runtime, const struct runtime_caller *caller,
                        enum runtime_usage_by by, int64_t step_s, size_t steps, struct arena *arena,
                        struct runtime_usage_steps *out, struct error *err)
{
    (void)runtime;
    (void)caller;
    (void)by;
    (void)arena;
    (void)err;
    *out = (struct runtime_usage_steps){.step_s = step_s, .steps = steps};
    return 0;
}

int team_list(struct store *store, struct arena *arena, struct store_team **out, size_t *out_count,
              struct error *err)
{
    (void)store, (void)arena, (void)err;
    *out = NULL;
    *out_count = 0;
    return 0;
}

/* ---- commands and files ---- */

int runtime_command_check(struct runtime *runtime, const struct runtime_command *command,
                          struct error *err)
{
    (void)runtime;
    return str_starts(command->command, STR("rm ")) ? error_set(err, ERROR_FORBIDDEN, "no rm") : 0;
}

static int pass_on(const struct runtime_command *command, bool is_err, struct str data)
{
    int r;

    do
        r = command->on_output(command->on_output_arg, is_err, data);
    while (r > 0);
    return r;
}

/* -1: nobody listens. */
static int stream(const struct runtime_command *command)
{
    const struct timespec turn = {.tv_nsec = 5000000};
    int stopped = v1_fake.stopped;
    char block[100000];

    memset(block, 'x', sizeof(block));
    if (command->on_started(command->on_output_arg, "exe_1") < 0 ||
        pass_on(command, false, STR("one\xc3")) < 0 || pass_on(command, true, STR("e\xff")) < 0 ||
        pass_on(command, false, STR("\xa9")) < 0)
        return -1;
    for (size_t done = 0; done < v1_fake.output_size; done += sizeof(block)) {
        if (pass_on(command, false, str_n(block, sizeof(block))) < 0)
            return -1;
        v1_fake.taken += sizeof(block);
    }
    while (v1_fake.hangs && v1_fake.stopped == stopped)
        if (nanosleep(&turn, NULL) < 0 || pass_on(command, false, STR_NONE) < 0)
            return -1;
    return v1_fake.hangs ? -1 : 0;
}

void runtime_exec_stop(struct runtime *runtime, struct str id)
{
    (void)runtime;
    if (str_is(id, "exe_1"))
        v1_fake.stopped++;
}

int runtime_exec_input(struct runtime *runtime, const struct runtime_caller *caller,
                       struct str sandbox_id, struct str id, struct str data, bool close,
                       struct error *err)
{
    (void)runtime;
    (void)caller;
    return v1_fake_asked(err, "exec_input(%.*s,%.*s,%.*s,%d) ", STR_ARG(sandbox_id), STR_ARG(id),
                         STR_ARG(data), (int)close);
}

int runtime_exec_signal(struct runtime *runtime, const struct runtime_caller *caller,
                        struct str sandbox_id, struct str id, int signal, struct error *err)
{
    (void)runtime;
    (void)caller;
    return v1_fake_asked(err, "exec_signal(%.*s,%.*s,%d) ", STR_ARG(sandbox_id), STR_ARG(id),
                         signal);
}

int runtime_exec(struct runtime *runtime, const struct runtime_caller *caller, struct str id,
                 const struct runtime_command *command, struct runtime_result *out,
                 struct error *err)
{
    struct timespec delay = {.tv_sec = v1_fake.delay_ms / 1000,
                             .tv_nsec = (long)(v1_fake.delay_ms % 1000) * 1000000};

    (void)runtime;
    buf_init(&out->out, 4096);
    buf_init(&out->err, 4096);
    (void)nanosleep(&delay, NULL);
    if (v1_fake_asked(err, "exec(%.*s,%d,%d) ", STR_ARG(command->command),
                      (int)json_array_size(command->argv), (int)command->timeout_ms) < 0 ||
        v1_fake_find(caller, id, err) < 0)
        return -1;
    if (command->on_started)
        out->stopped = stream(command) < 0;
    else
        (void)buf_add_str(&out->out, STR("out\xff"));
    out->exit_code = 3;
    out->duration_ms = 7;
    return 0;
}

void runtime_result_done(struct runtime_result *result)
{
    buf_done(&result->out);
    buf_done(&result->err);
}

int runtime_file_read(struct runtime *runtime, const struct runtime_caller *caller, struct str id,
                      const char *path, provider_sink_fn *sink, void *arg, struct error *err)
{
    char block[10000];
    size_t left = v1_fake.file_size;

    (void)runtime;
    if (v1_fake_asked(err, "read(%s) ", path) < 0 || v1_fake_find(caller, id, err) < 0)
        return -1;
    if (v1_fake.directory)
        return error_set(err, ERROR_INVALID, "'%s' is a directory", path);
    memset(block, 'x', sizeof(block));
    while (left) {
        size_t n = left < sizeof(block) ? left : sizeof(block);

        if (sink(arg, str_n(block, n)) < 0)
            return error_set(err, ERROR_CONFLICT, "given up");
        left -= n;
    }
    return strcmp(path, "/broken") == 0 ? error_set(err, ERROR_UNAVAILABLE, "it broke") : 0;
}

int runtime_file_write(struct runtime *runtime, const struct runtime_caller *caller, struct str id,
                       const char *path, provider_source_fn *source, void *arg, int64_t length,
                       struct error *err)
{
    char block[10000];
    ssize_t n;

    (void)runtime;
    if (v1_fake_asked(err, "write(%s,%lld) ", path, (long long)length) < 0 ||
        v1_fake_find(caller, id, err) < 0)
        return -1;
    while ((n = source(arg, block, sizeof(block))) > 0)
        v1_fake.written += (size_t)n;
    return n < 0 ? error_set(err, ERROR_CONFLICT, "given up") : 0;
}

int runtime_file_list(struct runtime *runtime, const struct runtime_caller *caller, struct str id,
                      const char *path, struct arena *arena, struct provider_file **out,
                      size_t *out_count, struct error *err)
{
    (void)runtime;
    if (v1_fake_asked(err, "ls(%s) ", path) < 0 || v1_fake_find(caller, id, err) < 0)
        return -1;
    *out = arena_alloc(arena, sizeof(**out));
    **out = (struct provider_file){.name = STR("a"), .path = STR("/a"), .size = 5, .mode = 0644};
    *out_count = 1;
    return 0;
}

int runtime_file_remove(struct runtime *runtime, const struct runtime_caller *caller, struct str id,
                        const char *path, struct error *err)
{
    (void)runtime;
    return v1_fake_asked(err, "rm(%s) ", path) < 0 ? -1 : v1_fake_find(caller, id, err);
}

/* ---- snapshots ---- */

static void fill_snapshot(struct runtime_snapshot *out)
{
    *out = (struct runtime_snapshot){.id = STR("snap_1"), .kind = STR("e2b-ref")};
}

int runtime_snapshot_create(struct runtime *runtime, const struct runtime_caller *caller,
                            struct str id, struct str alias, int64_t ttl_s, struct arena *arena,
                            struct runtime_snapshot *out, struct error *err)
{
    (void)runtime;
    (void)arena;
    fill_snapshot(out);
    return v1_fake_asked(err, "snapshot(%.*s,%d) ", STR_ARG(alias), (int)ttl_s) < 0
               ? -1
               : v1_fake_find(caller, id, err);
}

int runtime_snapshot_get(struct runtime *runtime, const struct runtime_caller *caller,
                         struct str name, struct arena *arena, struct runtime_snapshot *out,
                         struct error *err)
{
    (void)runtime;
    (void)caller;
    (void)arena;
    fill_snapshot(out);
    return v1_fake_asked(err, "snapshot_get(%.*s) ", STR_ARG(name));
}

int runtime_snapshot_list(struct runtime *runtime, const struct runtime_caller *caller,
                          struct str sandbox_id, struct arena *arena, struct runtime_snapshot **out,
                          size_t *out_count, struct error *err)
{
    (void)runtime;
    (void)caller;
    *out = arena_alloc(arena, sizeof(**out));
    fill_snapshot(*out);
    *out_count = 1;
    return v1_fake_asked(err, "snapshots(%.*s) ", STR_ARG(sandbox_id));
}

int runtime_snapshot_delete(struct runtime *runtime, const struct runtime_caller *caller,
                            struct str name, struct error *forced, struct error *err)
{
    (void)runtime;
    (void)caller;
    (void)forced;
    return v1_fake_asked(err, "snapshot_delete(%.*s) ", STR_ARG(name));
}

/* ---- jobs ---- */

static void fill_errand(struct job *out)
{
    *out = (struct job){.id = STR("job_1"),
                        .sandbox_id = STR(V1_FAKE_ID),
                        .state = v1_fake.job_running ? JOB_RUNNING : JOB_COMPLETED,
                        .has_exit_code = !v1_fake.job_running};
}

int job_start(struct runtime *runtime, const struct runtime_caller *caller, struct str sandbox_id,
              const struct runtime_command *command, const struct runtime_callback *callback,
              struct arena *arena, struct job *out, struct error *err)
{
    (void)runtime;
    (void)arena;
    fill_errand(out);
    return v1_fake_asked(err, "job(%.*s,%.*s) ", STR_ARG(command->command),
                         STR_ARG(callback ? callback->url : STR_NONE)) < 0
               ? -1
               : v1_fake_find(caller, sandbox_id, err);
}

int job_get(struct runtime *runtime, const struct runtime_caller *caller, struct str id,
            struct arena *arena, struct job *out, struct error *err)
{
    (void)runtime;
    (void)caller;
    (void)arena;
    fill_errand(out);
    return str_is(id, "job_1") ? 0 : error_set(err, ERROR_NOT_FOUND, "no such job");
}

int job_list(struct runtime *runtime, const struct runtime_caller *caller, struct str sandbox_id,
             struct arena *arena, struct job **out, size_t *out_count, struct error *err)
{
    (void)runtime;
    *out = arena_alloc(arena, sizeof(**out));
    fill_errand(*out);
    *out_count = 1;
    return v1_fake_find(caller, sandbox_id, err);
}

int job_stop(struct runtime *runtime, const struct runtime_caller *caller, struct str id,
             int signal, struct error *err)
{
    (void)runtime;
    (void)caller;
    return v1_fake_asked(err, "stop(%.*s,%d) ", STR_ARG(id), signal);
}

int job_input(struct runtime *runtime, const struct runtime_caller *caller, struct str id,
              struct str data, bool close, struct error *err)
{
    (void)runtime;
    (void)caller;
    (void)id;
    return v1_fake_asked(err, "input(%.*s,%d) ", STR_ARG(data), (int)close);
}

int job_wait(struct runtime *runtime, const struct runtime_caller *caller, struct str id,
             uint32_t timeout_ms, struct error *err)
{
    (void)runtime;
    (void)caller;
    (void)id;
    return v1_fake_asked(err, "wait(%u) ", timeout_ms) < 0 ? -1 : 1;
}
