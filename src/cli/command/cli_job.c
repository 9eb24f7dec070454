/* job: commands that go on when nobody is connected. A job is found by its id alone: "-" stands for
 * its sandbox in the API. */
#include <fcntl.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "cli/command/commands.h"
#include "cli/core/cli_names.h"
#include "cli/core/cli_print.h"
#include "cli/core/cli_v1.h"
#include "protocol/json/json_shape.h"

enum { LOG_MAX = 4 * 1024 * 1024, WAIT_S = 60, EXIT_TIMED_OUT = 124 };

static const struct cli_command job_start, job_status, job_logs, job_stop, job_wait, job_ls;

static char *job_path(const char *id, const char *tail)
{
    return cli_v1_path("sandboxes", "-", "processes", id, tail);
}

/* One operand, and the server found. */
static int one_job(struct cli *cli, const struct cli_command *command,
                   const struct cli_option *table, int argc, char **argv, const char **out_id)
{
    struct error err = {0};
    char **operands;
    int count, rc = cli_args(cli, command, table, CLI_ARGS_ANYWHERE, argc, argv, &operands, &count);

    if (rc != CLI_ARGS_RUN)
        return rc;
    if (count != 1)
        return cli_usage(command, "needs one job");
    if (cli_connect(cli, &err) < 0)
        return cli_fail(&err);
    *out_id = operands[0];
    return CLI_ARGS_RUN;
}

/* ---- start ---- */

struct start {
    const char *cwd, *user, *callback, *token;
    struct cli_list env;
    int64_t timeout_s;
};

static json_t *start_body(const struct start *start, char *const *argv, int argc, const json_t *env,
                          struct error *err)
{
    auto_json json_t *body = json_pack("{s:b}", "background", 1), *callback = json_object();

    if (cli_v1_command(body, argv, argc, err) < 0 || cli_v1_set(body, "cwd", start->cwd, err) < 0 ||
        cli_v1_set(body, "user", start->user, err) < 0 ||
        cli_v1_set(callback, "url", start->callback, err) < 0 ||
        cli_v1_set(callback, "token", start->token, err) < 0)
        return NULL;
    if (start->callback)
        (void)json_object_set(body, "callback", callback);
    if (start->timeout_s)
        (void)json_object_set_new(body, "timeout", json_integer(start->timeout_s));
    if (json_object_size(env))
        (void)json_object_set_new(body, "env", json_deep_copy(env));
    return json_incref(body);
}

static int start_one(struct cli *cli, const struct start *start, char **operands, int count)
{
    auto_json json_t *env = NULL, *body = NULL, *answer = NULL;
    struct error err = {0};

    if (count < 2)
        return cli_usage(&job_start, "needs a sandbox and a command");
    if (start->token && !start->callback)
        return cli_usage(&job_start, "--token goes with --callback");
    env = cli_v1_pairs(&job_start, &start->env, "env", true);
    if (!env)
        return CLI_USAGE;
    body = start_body(start, operands + 1, count - 1, env, &err);
    if (!body || cli_connect_to(cli, operands, 1, &err) < 0 ||
        cli_v1(cli, "POST", cli_v1_path("sandboxes", operands[0], "execute"), body, &answer, &err) <
            0)
        return cli_fail(&err);
    cli_print_id(cli, answer);
    return CLI_OK;
}

static int run_job_start(struct cli *cli, int argc, char **argv)
{
    struct start start = {0};
    const struct cli_option table[] = {
        {"env", 'e', CLI_LIST, &start.env, "NAME[=VALUE]", "environment; may be repeated"},
        {"cwd", 'w', CLI_TEXT, &start.cwd, "DIR", "where the command starts"},
        {"user", 'u', CLI_TEXT, &start.user, "USER", "who runs it (user)"},
        {"timeout", 0, CLI_TIME, &start.timeout_s, "TIME", "how long it may take"},
        {"callback", 0, CLI_TEXT, &start.callback, "URL", "told when it has ended"},
        {"token", 0, CLI_TEXT, &start.token, "TOKEN", "sent along, as x-job-token"},
        {.name = NULL},
    };
    char **operands;
    int count,
        rc = cli_args(cli, &job_start, table, CLI_ARGS_ANYWHERE, argc, argv, &operands, &count);

    if (rc == CLI_ARGS_RUN)
        rc = start_one(cli, &start, operands, count);
    cli_list_done(&start.env);
    return rc;
}

/* ---- status, wait, stop ---- */

/* One that runs stands still while its sandbox is paused. */
static char *shown_state(const json_t *job)
{
    bool paused = str_is(json_get_str(job, "state"), "running") &&
                  str_is(json_get_str(job, "sandbox_state"), "paused");

    return cli_print_text(json_object_get(job, paused ? "sandbox_state" : "state"));
}

static void print_job(const struct cli *cli, const json_t *job)
{
    const json_t *code = json_object_get(job, "exit_code");
    auto_free char *error = cli_print_str(job, "error"), *state = shown_state(job);

    if (cli->json) {
        cli_print_json(job);
        return;
    }
    printf("%.*s %s", STR_ARG(json_get_str(job, "id")), state);
    if (json_is_integer(code))
        printf(" %lld", (long long)json_integer_value(code));
    printf("%s%s\n", error[0] ? ": " : "", error);
}

static int run_job_status(struct cli *cli, int argc, char **argv)
{
    auto_json json_t *job = NULL;
    struct error err = {0};
    const char *id = NULL;
    int rc = one_job(cli, &job_status, NULL, argc, argv, &id);

    if (rc != CLI_ARGS_RUN)
        return rc;
    if (cli_v1(cli, "GET", job_path(id, NULL), NULL, &job, &err) < 0)
        return cli_fail(&err);
    print_job(cli, job);
    return CLI_OK;
}

static int run_job_stop(struct cli *cli, int argc, char **argv)
{
    auto_json json_t *job = NULL, *body = json_object();
    struct error err = {0};
    const char *id = NULL;
    int rc = one_job(cli, &job_stop, NULL, argc, argv, &id);

    if (rc != CLI_ARGS_RUN)
        return rc;
    if (cli_v1(cli, "POST", job_path(id, "stop"), body, &job, &err) < 0)
        return cli_fail(&err);
    print_job(cli, job);
    return CLI_OK;
}

static int run_job_wait(struct cli *cli, int argc, char **argv)
{
    int64_t timeout_s = 0, end_ms;
    const struct cli_option table[] = {
        {"timeout", 0, CLI_TIME, &timeout_s, "TIME", "give up after so long (exit status 124)"},
        {.name = NULL},
    };
    struct error err = {0};
    const char *id = NULL;
    int rc = one_job(cli, &job_wait, table, argc, argv, &id);

    if (rc != CLI_ARGS_RUN)
        return rc;
    end_ms = clock_mono_ms() + timeout_s * 1000;
    for (;;) {
        auto_free char *path = job_path(id, NULL);
        auto_json json_t *job = NULL;
        int64_t left_s = timeout_s ? (end_ms - clock_mono_ms() + 999) / 1000 : WAIT_S;

        left_s = left_s < 0 ? 0 : left_s > WAIT_S ? WAIT_S : left_s;
        if (cli_v1(cli, "GET", xasprintf("%s?wait=%d", path, (int)left_s), NULL, &job, &err) < 0)
            return cli_fail(&err);
        if (!str_is(json_get_str(job, "state"), "running")) {
            const json_t *code = json_object_get(job, "exit_code");

            if (cli->json)
                cli_print_json(job);
            return json_is_integer(code) ? (int)json_integer_value(code) & 0xff : CLI_FAILED;
        }
        if (timeout_s && clock_mono_ms() >= end_ms)
            return EXIT_TIMED_OUT;
    }
}

/* ---- logs ---- */

/* Writes what there is, from *cursor on. */
static int copy_logs(struct cli *cli, const char *id, bool follow, int64_t *cursor,
                     struct error *err)
{
    auto_call struct http_call stream = {.fd = -1};
    auto_free char *base = job_path(id, "logs"),
                   *path = xasprintf("%s?after=%lld&follow=%s", base, (long long)*cursor,
                                     follow ? "true" : "false");
    int rc;

    if (cli_v1_open(cli, path, NULL, 0, LOG_MAX, &stream, err) < 0)
        return -1;
    do {
        int written = fd_write_full(STDOUT_FILENO, stream.body.p, stream.body.len);

        if (written < 0)
            return error_set_errno(err, -written, "writing the log");
        *cursor += (int64_t)stream.body.len;
        buf_clear(&stream.body);
        rc = http_call_recv(&stream, err);
    } while (rc > 0 || stream.body.len);
    return rc;
}

static int run_job_logs(struct cli *cli, int argc, char **argv)
{
    bool follow = false;
    int64_t cursor = 0;
    const struct cli_option table[] = {
        {"follow", 'f', CLI_FLAG, &follow, NULL, "go on until the job has ended"},
        {"after", 0, CLI_NUMBER, &cursor, "BYTES", "leave out so much of its beginning"},
        {.name = NULL},
    };
    struct error err = {0};
    const char *id = NULL;
    int rc = one_job(cli, &job_logs, table, argc, argv, &id);

    if (rc != CLI_ARGS_RUN)
        return rc;
    for (;;) {
        auto_json json_t *job = NULL;
        int64_t before = cursor;

        if (copy_logs(cli, id, follow, &cursor, &err) < 0)
            return cli_fail(&err);
        if (!follow)
            return CLI_OK;
        /* The answer has a limit and the server may be restarted: on from there. */
        if (cli_v1(cli, "GET", job_path(id, NULL), NULL, &job, &err) < 0)
            return cli_fail(&err);
        if (!str_is(json_get_str(job, "state"), "running") && cursor == before)
            return CLI_OK;
    }
}

/* ---- ls ---- */

static int run_job_ls(struct cli *cli, int argc, char **argv)
{
    static const struct cli_column columns[] = {
        {"ID", "id", false},
        {"SANDBOX", "sandbox_id", false},
        {"STATE", .text = shown_state},
        {"EXIT", "exit_code", false},
        {"AGE", "started_at", true},
        {"COMMAND", "command", false},
        {NULL, NULL, false},
    };
    auto_json json_t *answer = NULL;
    struct error err = {0};
    char **operands;
    int count, rc = cli_args(cli, &job_ls, NULL, CLI_ARGS_ANYWHERE, argc, argv, &operands, &count);

    if (rc != CLI_ARGS_RUN)
        return rc;
    if (count > 1)
        return cli_usage(&job_ls, "takes one sandbox, or none for all");
    if (cli_connect_to(cli, operands, count, &err) < 0 ||
        cli_v1(cli, "GET", cli_v1_path("sandboxes", count ? operands[0] : "-", "processes"), NULL,
               &answer, &err) < 0)
        return cli_fail(&err);
    cli_print_list(cli, answer, "processes", columns);
    return CLI_OK;
}

static const struct cli_command job_start = {
    "job start", "[OPTION...] SANDBOX -- COMMAND [ARG...]",
    "Start a command in the background and print the job's id.", run_job_start,
    .examples = "J=$(quicksand job start i... -- ./train.sh); quicksand job logs -f $J\n"
                "quicksand job start i... --callback https://ci.example/done -- make test"};
static const struct cli_command job_status = {"job status", "[OPTION...] JOB",
                                              "Tell how a job is doing.", run_job_status,
                                              .examples = "quicksand job status job_..."};
static const struct cli_command job_logs = {"job logs", "[OPTION...] JOB",
                                            "Print what a job has written.", run_job_logs,
                                            .examples = "quicksand job logs -f job_..."};
static const struct cli_command job_stop = {"job stop", "[OPTION...] JOB",
                                            "End a job, with all its processes.", run_job_stop,
                                            .examples = "quicksand job stop job_..."};
static const struct cli_command job_wait = {
    "job wait", "[OPTION...] JOB", "Wait for the end of a job.\nThe exit status is the job's.",
    run_job_wait, .examples = "quicksand job wait --timeout 10m job_..."};
static const struct cli_command job_ls = {"job ls", "[OPTION...] [SANDBOX]", "List jobs.",
                                          run_job_ls,
                                          .examples = "quicksand job ls\n"
                                                      "quicksand job ls i..."};
const struct cli_command cli_job_command = {
    "job", "start, status, logs, stop, wait, ls", "Commands in the background.", NULL,
    (const struct cli_command *const[]){&job_start, &job_status, &job_logs, &job_stop, &job_wait,
                                        &job_ls, NULL}};
