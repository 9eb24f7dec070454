/* Creating, finding and running. */
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/thread.h"
#include "provider/contract/contract.h"

#define LABEL "quicksand.contract"

static void check_check(struct contract *contract)
{
    struct error err = {0};

    MUST_OK(provider_check(contract->provider, &err), err);
}

/* Before any sandbox is there, so that nothing can be reached by mistake. */
static void check_unsupported(struct contract *contract)
{
    struct provider_ref ref = {.id = STR("inosuchsandbox000000")};
    struct provider *provider = contract->provider;
    struct error err;
    struct str text;

    if (!(contract->features & PROVIDER_PAUSE)) {
        MUST_FAIL(provider_pause(provider, &ref, &err), err, ERROR_UNSUPPORTED);
        MUST(strstr(err.message, provider_name(provider)) && strstr(err.message, "pause"));
    }
    if (!(contract->features & PROVIDER_SNAPSHOT))
        MUST_FAIL(provider_snapshot(provider, &ref, "x", &contract->arena, &text, &err), err,
                  ERROR_UNSUPPORTED);
    if (!(contract->features & PROVIDER_TTL))
        MUST_FAIL(provider_extend(provider, &ref, 60, &err), err, ERROR_UNSUPPORTED);
    if (!(provider_caps(provider)->egress & EGRESS_RESTRICTED)) {
        struct provider_spec spec = {.egress = EGRESS_RESTRICTED};
        struct provider_sandbox sandbox;

        MUST_FAIL(provider_create(provider, &spec, &contract->arena, &sandbox, &err), err,
                  ERROR_UNSUPPORTED);
        MUST(strstr(err.message, "restricted"));
    }
}

static void check_create(struct contract *contract)
{
    const struct pair labels[] = {{STR(LABEL), str_of(contract->key)},
                                  {STR("exo.sandbox.key"), STR("conversation:c 1&x=y:s")}};
    const struct pair env[] = {{STR("CONTRACT_VAR"), STR("of the sandbox")}};
    struct provider_spec spec = {.image = contract->image,
                                 .labels = labels,
                                 .label_count = 2,
                                 .env = env,
                                 .env_count = 1,
                                 .egress = EGRESS_ALLOW_ALL,
                                 .pause_at_ttl = (contract->features & PROVIDER_PAUSE) != 0,
                                 .ttl_s = 600};
    struct error err = {0};

    MUST_OK(contract_create(contract, &spec, &contract->ref, &err), err);
    MUST(contract->ref.id.len > 0);
}

static void check_get(struct contract *contract)
{
    struct provider_sandbox sandbox;
    struct error err = {0};

    MUST_OK(provider_get(contract->provider, &contract->ref, &contract->arena, &sandbox, &err),
            err);
    MUST(str_eq(sandbox.id, contract->ref.id));
    MUST_INT(sandbox.state, PROVIDER_RUNNING);
    MUST(sandbox.label_count >= 2);
}

static void check_find(struct contract *contract)
{
    struct pair labels[] = {{STR(LABEL), str_of(contract->key)},
                            {STR("exo.sandbox.key"), STR("conversation:c 1&x=y:s")}};
    struct provider_sandbox *found;
    struct error err = {0};
    size_t count;

    if (!(contract->features & PROVIDER_FIND)) {
        MUST_FAIL(provider_find(contract->provider,
                                &(struct provider_query){.team_id = contract->team_id,
                                                         .labels = labels,
                                                         .label_count = 2},
                                &contract->arena, &found, &count, &err),
                  err, ERROR_UNSUPPORTED);
        return;
    }
    MUST_OK(provider_find(contract->provider,
                          &(struct provider_query){
                              .team_id = contract->team_id, .labels = labels, .label_count = 2},
                          &contract->arena, &found, &count, &err),
            err);
    MUST_INT(count, 1);
    MUST(str_eq(found[0].id, contract->ref.id));
    MUST_INT(found[0].state, PROVIDER_RUNNING);
    MUST(found[0].started_at_us > 0);
    labels[1].value = STR("conversation:c 1&x=y:t");
    MUST_OK(provider_find(contract->provider,
                          &(struct provider_query){
                              .team_id = contract->team_id, .labels = labels, .label_count = 2},
                          &contract->arena, &found, &count, &err),
            err);
    MUST_INT(count, 0);
}

static void check_connect(struct contract *contract)
{
    struct provider_sandbox sandbox;
    struct error err = {0};

    MUST_OK(
        provider_connect(contract->provider, &contract->ref, 600, &contract->arena, &sandbox, &err),
        err);
    MUST(str_eq(sandbox.id, contract->ref.id));
    MUST_INT(sandbox.state, PROVIDER_RUNNING);
    if (contract->features & PROVIDER_TTL)
        MUST_OK(provider_extend(contract->provider, &contract->ref, 900, &err), err);
}

static void check_exec(struct contract *contract)
{
    auto_result struct contract_result result = {0}, quiet = {0};
    struct error err = {0};

    MUST_OK(contract_sh(contract, "echo out; echo err >&2; exit 7", &result, &err), err);
    MUST(result.started);
    MUST_INT(result.exit_code, 7);
    MUST(!result.timed_out);
    MUST_STR(buf_str(&result.out), "out\n");
    MUST_STR(buf_str(&result.errors), "err\n");
    MUST_OK(contract_run(contract,
                         &(struct provider_command){
                             .argv = (const char *const[]){"/bin/sh", "-c", "true", NULL}},
                         &quiet, &err),
            err);
    MUST_INT(quiet.exit_code, 0);
    MUST_INT(quiet.out.len, 0);
}

/* Arguments reach the program as they are. */
static void check_arguments(struct contract *contract)
{
    const char *argv[] = {
        "/bin/sh", "-c", "printf '<%s>' \"$@\"", "sh", "a b", "", "$HOME", "\"q\" 'q'",
        "l1\nl2",  NULL};
    auto_result struct contract_result result = {0};
    struct error err = {0};

    MUST_OK(contract_run(contract, &(struct provider_command){.argv = argv}, &result, &err), err);
    MUST_STR(buf_str(&result.out), "<a b><><$HOME><\"q\" 'q'><l1\nl2>");
}

static void check_large_output(struct contract *contract)
{
    auto_result struct contract_result result = {0};
    struct error err = {0};

    MUST_OK(contract_sh(contract,
                        "head -c 3000000 /dev/zero | tr '\\0' x; head -c 100000 /dev/zero "
                        "| tr '\\0' y >&2",
                        &result, &err),
            err);
    MUST_INT(result.out.len, 3000000);
    MUST_INT(result.errors.len, 100000);
    for (size_t i = 0; i < result.out.len; i++)
        MUST(result.out.p[i] == 'x');
}

static void check_binary_output(struct contract *contract)
{
    auto_result struct contract_result result = {0};
    struct error err = {0};

    MUST_OK(contract_sh(contract, "printf '\\000\\377\\303\\001'", &result, &err), err);
    MUST_INT(result.out.len, 4);
    MUST(memcmp(result.out.p, "\0\377\303\1", 4) == 0);
}

static void check_env_cwd(struct contract *contract)
{
    const struct pair env[] = {{STR("MINE"), STR("a \"b\" $c")}};
    const char *argv[] = {"/bin/sh", "-c", "pwd; echo \"$MINE\"; echo \"$CONTRACT_VAR\"", NULL};
    auto_result struct contract_result result = {0};
    struct error err = {0};

    MUST_OK(contract_run(
                contract,
                &(struct provider_command){.argv = argv, .env = env, .env_count = 1, .cwd = "/tmp"},
                &result, &err),
            err);
    MUST_STR(buf_str(&result.out), "/tmp\na \"b\" $c\nof the sandbox\n");
}

static void check_stdin(struct contract *contract)
{
    const char *argv[] = {"/bin/cat", NULL};
    auto_result struct contract_result result = {0};
    struct provider_process *process;
    struct error err = {0};

    buf_init(&result.out, 65536);
    buf_init(&result.errors, 65536);
    MUST_OK(provider_start(contract->provider, &contract->ref,
                           &(struct provider_command){.argv = argv, .open_stdin = true}, &process,
                           &err),
            err);
    MUST_OK(provider_process_input(process, STR("one\n"), &err), err);
    MUST_OK(provider_process_input(process, STR("two"), &err), err);
    MUST_OK(provider_process_close_stdin(process, &err), err);
    MUST_OK(contract_collect(process, &result, &err), err);
    provider_process_free(process);
    MUST_STR(buf_str(&result.out), "one\ntwo");
    MUST_INT(result.exit_code, 0);
}

static void check_no_stdin(struct contract *contract)
{
    auto_result struct contract_result result = {0};
    struct error err = {0};

    MUST_OK(contract_sh(contract, "cat; echo end", &result, &err), err);
    MUST_STR(buf_str(&result.out), "end\n");
}

static void check_timeout(struct contract *contract)
{
    const char *argv[] = {"/bin/sh", "-c", "echo begun; sleep 50; echo late", NULL};
    auto_result struct contract_result result = {0};
    int64_t begun_ms = clock_mono_ms();
    struct error err = {0};

    MUST_OK(contract_run(contract, &(struct provider_command){.argv = argv, .timeout_ms = 1500},
                         &result, &err),
            err);
    MUST(result.timed_out);
    MUST(result.exit_code != 0);
    MUST_STR(buf_str(&result.out), "begun\n");
    MUST(clock_mono_ms() - begun_ms < 20000);
}

static void check_signal(struct contract *contract)
{
    static const int signals[] = {SIGKILL, SIGTERM};
    const char *argv[] = {"/bin/sleep", "50", NULL};
    struct error err = {0};

    for (size_t i = 0; i < 2; i++) {
        auto_result struct contract_result result = {0};
        struct provider_process *process;

        buf_init(&result.out, 4096);
        MUST_OK(provider_start(contract->provider, &contract->ref,
                               &(struct provider_command){.argv = argv}, &process, &err),
                err);
        MUST_OK(provider_process_signal(process, signals[i], &err), err);
        MUST_OK(contract_collect(process, &result, &err), err);
        provider_process_free(process);
        MUST_INT(result.exit_code, 128 + signals[i]);
    }
}

static void cancel_soon(void *arg)
{
    (void)usleep(200000);
    provider_process_cancel(arg);
}

static void check_cancel_attach(struct contract *contract)
{
    const char *argv[] = {"/bin/sh", "-c", "sleep 3; echo still; exit 5", NULL};
    auto_result struct contract_result result = {0};
    struct provider_process *process;
    struct provider_event event;
    struct error err = {0};
    struct thread thread = {0};
    int r;

    buf_init(&result.out, 4096);
    MUST_OK(provider_start(contract->provider, &contract->ref,
                           &(struct provider_command){.argv = argv, .tag = "contract-tag"},
                           &process, &err),
            err);
    MUST_OK(thread_start(&thread, "cancel", THREAD_STACK_DEFAULT, cancel_soon, process, &err), err);
    do
        r = provider_process_next(process, 20000, &event, &err);
    while (r == 1 && event.kind == PROVIDER_STARTED);
    thread_join(&thread);
    MUST_INT(r, -1);
    MUST_INT(err.code, ERROR_CONFLICT);
    provider_process_free(process);
    if (provider_attach(contract->provider, &contract->ref, "contract-tag", 0, &process, &err) <
        0) {
        MUST_INT(err.code, ERROR_UNSUPPORTED);
        contract_skip("cannot attach to a process");
        return;
    }
    MUST_OK(contract_collect(process, &result, &err), err);
    provider_process_free(process);
    MUST_INT(result.exit_code, 5);
    MUST_FAIL(provider_attach(contract->provider, &contract->ref, "no-such-tag", 0, &process, &err),
              err, ERROR_NOT_FOUND);
}

/* By somebody who reads only when the descriptor says so, or its time has come. */
static void check_wait(struct contract *contract)
{
    const char *argv[] = {"/bin/sh", "-c", "sleep 1; echo late; sleep 1; exit 4", NULL};
    int64_t end_ms = clock_mono_ms() + 30000;
    struct provider_process *process;
    struct provider_event event = {0};
    struct error err = {0};
    int r = 1, turns = 0;

    MUST_OK(provider_start(contract->provider, &contract->ref,
                           &(struct provider_command){.argv = argv}, &process, &err),
            err);
    while (r >= 0 && (r == 0 || event.kind != PROVIDER_EXITED) && clock_mono_ms() < end_ms) {
        r = provider_process_next(process, 0, &event, &err);
        if (r == 0) {
            struct provider_wait wait = provider_process_wait(process);
            struct pollfd fd = {.fd = wait.fd, .events = POLLIN};

            (void)poll(&fd, 1, (int)(wait.ms < 60000 ? wait.ms : 60000));
            turns++;
        }
    }
    provider_process_free(process);
    MUST_OK(r, err);
    MUST(clock_mono_ms() < end_ms);
    MUST_INT(event.exit_code, 4);
    MUST(turns < 500);
}

/* Reads until the text has come. */
static bool wait_for(struct provider_process *process, const char *text, struct buf *seen)
{
    int64_t end_ms = clock_mono_ms() + 20000;
    struct provider_event event;
    struct error err;

    while (clock_mono_ms() < end_ms) {
        int r = provider_process_next(process, 500, &event, &err);

        if (r < 0 || (r == 1 && event.kind == PROVIDER_EXITED))
            break;
        if (r == 1 && event.kind != PROVIDER_STARTED)
            (void)buf_add_str(seen, event.data);
        if (str_find_str(buf_str(seen), str_of(text)) >= 0)
            return true;
    }
    return false;
}

static void check_pty(struct contract *contract)
{
    const char *argv[] = {"/bin/sh", NULL};
    struct provider_command command = {
        .argv = argv, .pty = true, .cols = 100, .rows = 30, .open_stdin = true};
    auto_result struct contract_result result = {0};
    struct provider_process *process;
    struct error err = {0};

    if (!(contract->features & PROVIDER_PTY)) {
        MUST_FAIL(provider_start(contract->provider, &contract->ref, &command, &process, &err), err,
                  ERROR_UNSUPPORTED);
        return;
    }
    buf_init(&result.out, 65536);
    MUST_OK(provider_start(contract->provider, &contract->ref, &command, &process, &err), err);
    MUST_OK(provider_process_input(process, STR("stty size; echo is-$((40+2))\n"), &err), err);
    MUST(wait_for(process, "is-42", &result.out));
    MUST(str_find_str(buf_str(&result.out), STR("30 100")) >= 0);
    MUST_OK(provider_process_resize(process, 132, 50, &err), err);
    MUST_OK(provider_process_input(process, STR("stty size; echo then-$((40+3))\n"), &err), err);
    MUST(wait_for(process, "then-43", &result.out));
    MUST(str_find_str(buf_str(&result.out), STR("50 132")) >= 0);
    MUST_OK(provider_process_input(process, STR("exit 9\n"), &err), err);
    MUST_OK(contract_collect(process, &result, &err), err);
    MUST_INT(result.exit_code, 9);
    provider_process_free(process);
}

/* Somebody else goes on where the first one has left. */
static void check_pty_attach(struct contract *contract)
{
    const char *argv[] = {"/bin/sh", NULL};
    struct provider_command command = {.argv = argv,
                                       .pty = true,
                                       .cols = 80,
                                       .rows = 24,
                                       .open_stdin = true,
                                       .tag = "contract-pty"};
    auto_result struct contract_result result = {0};
    struct provider_process *process;
    struct error err = {0};

    if (!(contract->features & PROVIDER_PTY)) {
        contract_skip("no terminal");
        return;
    }
    buf_init(&result.out, 65536);
    MUST_OK(provider_start(contract->provider, &contract->ref, &command, &process, &err), err);
    provider_process_free(process);
    if (provider_attach(contract->provider, &contract->ref, "contract-pty", 0, &process, &err) <
        0) {
        MUST_INT(err.code, ERROR_UNSUPPORTED);
        contract_skip("cannot attach to a process");
        return;
    }
    MUST_OK(provider_process_input(process, STR("echo it-is-$((40+4))\n"), &err), err);
    MUST(wait_for(process, "it-is-44", &result.out));
    MUST_OK(provider_process_input(process, STR("exit 6\n"), &err), err);
    MUST_OK(contract_collect(process, &result, &err), err);
    MUST_INT(result.exit_code, 6);
    provider_process_free(process);
}

/* A command that is not there is an answer, by an exit code or by an error, never success. */
static void check_no_command(struct contract *contract)
{
    const char *argv[] = {"/no/such/program", NULL};
    auto_result struct contract_result result = {0}, missing = {0};
    struct error err = {0};

    if (contract_run(contract, &(struct provider_command){.argv = argv}, &result, &err) == 0)
        MUST(result.exit_code != 0);
    else
        MUST_INT(err.code, ERROR_INVALID);
    argv[0] = "/bin/true";
    err = (struct error){0};
    if (contract_run(contract, &(struct provider_command){.argv = argv, .cwd = "/no/such/dir"},
                     &missing, &err) == 0)
        MUST(missing.exit_code != 0);
    else
        MUST_INT(err.code, ERROR_INVALID);
}

static void run_one(void *arg)
{
    auto_result struct contract_result result = {0};
    struct error err = {0};

    if (contract_sh(arg, "sleep 0.3; echo many", &result, &err) < 0 || result.exit_code != 0 ||
        !str_is(buf_str(&result.out), "many\n"))
        contract_fail(__FILE__, __LINE__, "one of many: %s", err.message);
}

static void check_parallel(struct contract *contract)
{
    struct thread threads[12] = {0};
    struct error err;

    for (size_t i = 0; i < 12; i++)
        MUST_OK(thread_start(&threads[i], "many", THREAD_STACK_DEFAULT, run_one, contract, &err),
                err);
    for (size_t i = 0; i < 12; i++)
        thread_join(&threads[i]);
}

const struct contract_check contract_checks[] = {
    {"check", check_check},
    {"unsupported is refused at once", check_unsupported},
    {"create", check_create},
    {"get", check_get},
    {"find by labels", check_find},
    {"connect to a running one", check_connect},
    {"exec: output and exit code", check_exec},
    {"exec: arguments as they are", check_arguments},
    {"exec: 3 MB of output", check_large_output},
    {"exec: bytes that are no text", check_binary_output},
    {"exec: variables and directory", check_env_cwd},
    {"exec: input", check_stdin},
    {"exec: no input", check_no_stdin},
    {"exec: timeout", check_timeout},
    {"exec: signals", check_signal},
    {"exec: cancel and attach", check_cancel_attach},
    {"exec: waited for elsewhere", check_wait},
    {"exec: terminal", check_pty},
    {"exec: attach to a terminal", check_pty_attach},
    {"exec: no such command", check_no_command},
    {"exec: many at once", check_parallel},
    {0},
};
