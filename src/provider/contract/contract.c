/* What every provider must do, tried on a real one.
 *
 * The record is a provider's as in the configuration, with two members more: "image" for what
 * sandboxes start from and "only", part of the names of the checks to run. Checks of what the provider
 * does not declare try that it is refused. One sandbox serves most of them; all that was made is killed
 * at the end. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/id.h"
#include "protocol/json/json_shape.h"
#include "provider/contract/contract.h"

static struct {
    int passed, failed, skipped;
    bool check_failed, check_skipped;
} tally;

void contract_fail(const char *file, int line, const char *fmt, ...)
{
    char text[1024];
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    if (tally.check_failed)
        return;
    tally.check_failed = true;
    (void)printf("    %s:%d: %s\n", strrchr(file, '/') ? strrchr(file, '/') + 1 : file, line, text);
}

void contract_skip(const char *why)
{
    tally.check_skipped = true;
    (void)printf("    %s\n", why);
}

/* ---- running commands ---- */

void contract_result_done(struct contract_result *result)
{
    buf_done(&result->out);
    buf_done(&result->errors);
}

int contract_collect(struct provider_process *process, struct contract_result *out,
                     struct error *err)
{
    int64_t end_ms = clock_mono_ms() + 60000;
    struct provider_event event;

    while (clock_mono_ms() < end_ms) {
        int r = provider_process_next(process, 1000, &event, err);

        if (r < 0)
            return -1;
        if (r == 0)
            continue;
        if (event.kind == PROVIDER_STARTED) {
            out->started = true;
        } else if (event.kind == PROVIDER_EXITED) {
            out->exit_code = event.exit_code;
            out->timed_out = event.timed_out;
            return 0;
        } else {
            (void)buf_add_str(event.kind == PROVIDER_STDOUT ? &out->out : &out->errors, event.data);
        }
    }
    return error_set(err, ERROR_TIMEOUT, "the command did not end within 60 s");
}

int contract_run(struct contract *contract, const struct provider_command *command,
                 struct contract_result *out, struct error *err)
{
    struct provider_process *process;
    int r;

    *out = (struct contract_result){0};
    buf_init(&out->out, 64 * 1024 * 1024);
    buf_init(&out->errors, 64 * 1024 * 1024);
    if (provider_start(contract->provider, &contract->ref, command, &process, err) < 0)
        return -1;
    r = contract_collect(process, out, err);
    provider_process_free(process);
    return r;
}

int contract_sh(struct contract *contract, const char *script, struct contract_result *out,
                struct error *err)
{
    const char *argv[] = {"/bin/sh", "-c", script, NULL};

    return contract_run(contract, &(struct provider_command){.argv = argv}, out, err);
}

/* ---- sandboxes ---- */

int contract_create(struct contract *contract, const struct provider_spec *spec,
                    struct provider_ref *out, struct error *err)
{
    struct provider_spec of_team = *spec;
    struct provider_sandbox sandbox;

    if (contract->made_count == CONTRACT_SANDBOXES_MAX)
        return error_set(err, ERROR_LIMIT, "too many sandboxes");
    of_team.team_id = contract->team_id;
    if (provider_create(contract->provider, &of_team, &contract->arena, &sandbox, err) < 0)
        return -1;
    *out = (struct provider_ref){.team_id = contract->team_id,
                                 .id = sandbox.id,
                                 .token = sandbox.token,
                                 .address = sandbox.address};
    contract->made[contract->made_count++] = *out;
    return 0;
}

static void refuses_commands(struct contract *contract)
{
    const char *const argv[] = {"true", NULL};
    const struct provider_command command = {.argv = argv};
    struct provider_process *process;
    struct error err = {0};

    MUST_FAIL(provider_start(contract->provider, &contract->ref, &command, &process, &err), err,
              ERROR_UNSUPPORTED);
}

static void refuses_files(struct contract *contract)
{
    struct provider_file *files;
    struct error err = {0};
    size_t count;

    MUST_FAIL(provider_list(contract->provider, &contract->ref, "/", &contract->arena, &files,
                            &count, &err),
              err, ERROR_UNSUPPORTED);
}

/* Of what the provider does not declare: that it is refused. */
static void do_check(struct contract *contract, const struct contract_check *check)
{
    struct str name = str_of(check->name);

    if (str_starts(name, STR("exec:")) && !(contract->features & PROVIDER_EXEC))
        refuses_commands(contract);
    else if (str_starts(name, STR("files:")) && !(contract->features & PROVIDER_FILES))
        refuses_files(contract);
    else
        check->fn(contract);
}

static void run_check(struct contract *contract, const struct contract_check *check)
{
    int64_t begun_ms = clock_mono_ms();

    if (contract->only && !strstr(check->name, contract->only))
        return;
    tally.check_failed = tally.check_skipped = false;
    do_check(contract, check);
    if (tally.check_failed)
        tally.failed++;
    else if (tally.check_skipped)
        tally.skipped++;
    else
        tally.passed++;
    (void)printf("%s %s (%lld ms)\n",
                 tally.check_failed    ? "FAIL"
                 : tally.check_skipped ? "skip"
                                       : "ok  ",
                 check->name, (long long)(clock_mono_ms() - begun_ms));
    (void)fflush(stdout);
}

static void clean_up(struct contract *contract)
{
    struct error err;

    for (size_t i = 0; i < contract->made_count; i++)
        if (provider_kill(contract->provider, &contract->made[i], &err) < 0)
            (void)printf("cannot kill %.*s: %s\n", STR_ARG(contract->made[i].id), err.message);
}

static char *text_of(const json_t *record, const char *name)
{
    struct str value = json_get_str(record, name);

    return value.p ? str_dup(value) : xstrdup("");
}

static int open_provider(struct contract *contract, const json_t *record,
                         const struct provider_embedded *embedded, struct error *err)
{
    auto_free char *name = text_of(record, "name"), *type = text_of(record, "type");
    auto_free char *api_url = text_of(record, "api_url"), *domain = text_of(record, "domain");
    auto_free char *api_key = text_of(record, "api_key");

    return provider_new(&(struct provider_config){.name = name[0] ? name : "contract",
                                                  .type = type,
                                                  .api_url = api_url,
                                                  .domain = domain,
                                                  .api_key = api_key,
                                                  .options = record,
                                                  .fetch = contract->fetch,
                                                  .embedded = embedded},
                        &contract->provider, err);
}

int contract_try(const json_t *record, struct fetch *fetch,
                 const struct provider_embedded *embedded, struct str team_id)
{
    struct contract contract = {.team_id = team_id, .fetch = fetch};
    struct error err = {0};

    contract.image = json_get_str(record, "image");
    contract.only = json_string_value(json_object_get(record, "only"));
    id_hex(contract.key, 8);
    if (open_provider(&contract, record, embedded, &err) < 0) {
        (void)fprintf(stderr, "%s\n", err.message);
        return 2;
    }
    contract.features = provider_caps(contract.provider)->features;
    for (const struct contract_check *check = contract_checks; check->name; check++)
        run_check(&contract, check);
    for (const struct contract_check *check = contract_file_checks; check->name; check++)
        run_check(&contract, check);
    for (const struct contract_check *check = contract_life_checks; check->name; check++)
        run_check(&contract, check);
    clean_up(&contract);
    provider_free(contract.provider);
    arena_done(&contract.arena);
    (void)printf("%d passed, %d failed, %d skipped\n", tally.passed, tally.failed, tally.skipped);
    (void)fflush(stdout);
    return tally.failed ? 1 : 0;
}
