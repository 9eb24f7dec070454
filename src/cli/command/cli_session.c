/* session: an agent at work in a sandbox. */
#include <stdlib.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "cli/command/commands.h"
#include "cli/core/cli_events.h"
#include "cli/core/cli_print.h"
#include "cli/core/cli_terminal.h"
#include "cli/core/cli_up.h"
#include "cli/core/cli_v1.h"
#include "protocol/json/json_shape.h"

enum { MESSAGE_MAX = 1024 * 1024 };

static const struct cli_command session_new, session_ls, session_show, session_send, session_tail,
    session_approve, session_interrupt, session_pause, session_resume, session_snapshot,
    session_push, session_history, session_pty, session_rm;

/* How the operands of every command begin. */
#define OPTIONS "[OPTION...]"

struct range {
    int least, most;
};
#define RANGE(from, to) ((struct range){from, to})

/* Operands, so many, and the server found. */
static int begin(struct cli *cli, const struct cli_command *command, const struct cli_option *table,
                 int argc, char **argv, struct range range, char ***out_operands, int *out_count)
{
    struct error err = {0};
    int rc = cli_args(cli, command, table, CLI_ARGS_ANYWHERE, argc, argv, out_operands, out_count);

    if (rc != CLI_ARGS_RUN)
        return rc;
    if (*out_count < range.least || *out_count > range.most)
        return str_is(str_of(command->operands), OPTIONS)
                   ? cli_usage(command, "takes no operand")
                   : cli_usage(command, "needs %s", command->operands + sizeof(OPTIONS));
    if (cli_connect(cli, &err) < 0)
        return cli_fail(&err);
    return CLI_ARGS_RUN;
}

static void print_session(const struct cli *cli, const json_t *session)
{
    auto_free char *reason = cli_print_str(session, "reason");

    if (cli->json)
        cli_print_json(session);
    else
        printf("%.*s %.*s%s%s\n", STR_ARG(json_get_str(session, "id")),
               STR_ARG(json_get_str(session, "state")), reason[0] ? ": " : "", reason);
}

/* Of an environment variable: what is in arguments can be seen by others. */
static int set_token(json_t *body, const char *variable, struct error *err)
{
    const char *value = variable ? getenv(variable) : NULL;

    if (variable && !value)
        return error_set(err, ERROR_INVALID, "--git-token-env: there is no variable '%s'",
                         variable);
    return cli_v1_set(body, "git_token", value, err);
}

/* ---- new ---- */

struct wanted {
    struct cli_up up;
    const char *agent, *sandbox, *repo, *branch, *permission, *mode, *checkpoint, *message, *token;
    bool detach, quiet;
};

static int new_session(struct cli *cli, const struct wanted *wanted)
{
    auto_json json_t *body = NULL, *session = NULL;
    struct error err = {0};
    int status;

    if (!wanted->agent)
        return cli_usage(&session_new, "--agent is needed");
    body = cli_up_body(&session_new, &wanted->up, &status);
    if (!body)
        return status;
    (void)json_object_set_new(body, "wait", json_boolean(!wanted->detach));
    if (cli_v1_set(body, "agent", wanted->agent, &err) < 0 ||
        cli_v1_set(body, "sandbox_id", wanted->sandbox, &err) < 0 ||
        cli_v1_set(body, "repo", wanted->repo, &err) < 0 ||
        cli_v1_set(body, "branch", wanted->branch, &err) < 0 ||
        cli_v1_set(body, "permission_mode", wanted->permission, &err) < 0 ||
        cli_v1_set(body, "mode", wanted->mode, &err) < 0 ||
        cli_v1_set(body, "checkpoint", wanted->checkpoint, &err) < 0 ||
        cli_v1_set(body, "message", wanted->message, &err) < 0 ||
        set_token(body, wanted->token, &err) < 0 || cli_connect(cli, &err) < 0 ||
        cli_v1(cli, "POST", cli_v1_path("sessions"), body, &session, &err) < 0)
        return cli_fail(&err);
    if (wanted->quiet)
        printf("%.*s\n", STR_ARG(json_get_str(session, "id")));
    else if (cli->json || !str_is(json_get_str(session, "state"), "failed"))
        print_session(cli, session);
    else
        printf("%.*s failed\n", STR_ARG(json_get_str(session, "id")));
    if (!str_is(json_get_str(session, "state"), "failed"))
        return CLI_OK;
    (void)error_set(&err, ERROR_UNAVAILABLE, "the session could not be provisioned: %.*s",
                    STR_ARG(json_get_str(session, "reason")));
    return cli_fail(&err);
}

static int run_new(struct cli *cli, int argc, char **argv)
{
    struct wanted wanted = {0};
    struct cli_up *up = &wanted.up;
    const struct cli_option table[] = {
        {"agent", 'a', CLI_TEXT, &wanted.agent, "NAME", "claude, codex, opencode, ..., mock"},
        {"repo", 0, CLI_TEXT, &wanted.repo, "URL", "what it works on"},
        {"branch", 'b', CLI_TEXT, &wanted.branch, "NAME", "of that (its default)"},
        {"message", 0, CLI_TEXT, &wanted.message, "TEXT", "the first thing it is told"},
        {"profile", 'p', CLI_TEXT, &up->profile, "NAME", "what the sandbox is like"},
        {"provider", 0, CLI_TEXT, &up->provider, "NAME", "where the sandbox is"},
        {"template", 't', CLI_TEXT, &up->template_name, "NAME", "what the sandbox is made from"},
        {"sandbox", 0, CLI_TEXT, &wanted.sandbox, "ID", "one that is there already"},
        {"permission", 0, CLI_TEXT, &wanted.permission, "MODE", "ask, edit or bypass"},
        {"mode", 0, CLI_TEXT, &wanted.mode, "MODE", "of the agent (build)"},
        {"checkpoint", 0, CLI_TEXT, &wanted.checkpoint, "NAME",
         "the snapshot to begin from, or none"},
        {"env", 'e', CLI_LIST, &up->env, "NAME[=VALUE]", "environment; may be repeated"},
        {"git-token-env", 0, CLI_TEXT, &wanted.token, "NAME", "variable with git's token"},
        {"agent-id", 0, CLI_TEXT, &up->agent_id, "ID", "who owns it"},
        {"task-id", 0, CLI_TEXT, &up->task_id, "ID", "what it is for"},
        {"detach", 'd', CLI_FLAG, &wanted.detach, NULL, "do not wait until it is ready"},
        {"quiet", 'q', CLI_FLAG, &wanted.quiet, NULL, "print only the id"},
        {.name = NULL},
    };
    char **operands;
    int count,
        rc = cli_args(cli, &session_new, table, CLI_ARGS_ANYWHERE, argc, argv, &operands, &count);

    if (rc == CLI_ARGS_RUN)
        rc = count ? cli_usage(&session_new, "takes no operand") : new_session(cli, &wanted);
    cli_up_done(&wanted.up);
    return rc;
}

/* ---- ls, show, rm ---- */

static int run_ls(struct cli *cli, int argc, char **argv)
{
    static const struct cli_column columns[] = {
        {"ID", "id", false},         {"AGENT", "agent", false},   {"STATE", "state", false},
        {"REPO", "repo", false},     {"BRANCH", "branch", false}, {"SANDBOX", "sandbox_id", false},
        {"AGE", "created_at", true}, {NULL, NULL, false},
    };
    auto_json json_t *answer = NULL;
    struct error err = {0};
    char **operands;
    int count, rc = begin(cli, &session_ls, NULL, argc, argv, RANGE(0, 0), &operands, &count);

    if (rc != CLI_ARGS_RUN)
        return rc;
    if (cli_v1(cli, "GET", cli_v1_path("sessions"), NULL, &answer, &err) < 0)
        return cli_fail(&err);
    cli_print_list(cli, answer, "sessions", columns);
    return CLI_OK;
}

static int run_show(struct cli *cli, int argc, char **argv)
{
    auto_json json_t *session = NULL;
    struct error err = {0};
    char **operands;
    int count, rc = begin(cli, &session_show, NULL, argc, argv, RANGE(1, 1), &operands, &count);

    if (rc != CLI_ARGS_RUN)
        return rc;
    if (cli_v1(cli, "GET", cli_v1_path("sessions", operands[0]), NULL, &session, &err) < 0)
        return cli_fail(&err);
    if (cli->json)
        cli_print_json(session);
    else
        cli_print_members(session);
    return CLI_OK;
}

static int run_rm(struct cli *cli, int argc, char **argv)
{
    bool keep = false, force = false;
    const struct cli_option table[] = {
        {"keep-sandbox", 0, CLI_FLAG, &keep, NULL, "pause its sandbox instead of removing it"},
        {"force", 'f', CLI_FLAG, &force, NULL, "forget its sandbox when it cannot be reached"},
        {.name = NULL},
    };
    char **operands;
    int count, rc = begin(cli, &session_rm, table, argc, argv, RANGE(1, 1000), &operands, &count);

    if (rc != CLI_ARGS_RUN)
        return rc;
    return cli_v1_remove(cli, "sessions",
                         keep    ? "?keep_sandbox=true"
                         : force ? "?force=true"
                                 : NULL,
                         operands, count);
}

/* ---- send ---- */

/* Operands joined by blanks, or all of stdin. */
static int read_message(char **words, int count, struct buf *out, struct error *err)
{
    int rc;

    if (count == 1 && strcmp(words[0], "-") == 0) {
        rc = cli_v1_read_stdin(out);
        return rc < 0 ? error_set_errno(err, -rc, "reading the message") : 0;
    }
    for (int i = 0; i < count; i++)
        (void)buf_printf(out, "%s%s", i ? " " : "", words[i]);
    return out->overflowed ? error_set(err, ERROR_LIMIT, "the message is too long") : 0;
}

static int run_send(struct cli *cli, int argc, char **argv)
{
    auto_json json_t *body = json_object(), *session = NULL;
    auto_buf struct buf text = {0};
    struct error err = {0};
    char **operands;
    int count,
        rc = begin(cli, &session_send, NULL, argc, argv, RANGE(2, 100000), &operands, &count);

    if (rc != CLI_ARGS_RUN)
        return rc;
    buf_init(&text, MESSAGE_MAX);
    if (read_message(operands + 1, count - 1, &text, &err) < 0 ||
        cli_v1_set(body, "message", text.p, &err) < 0 ||
        cli_v1(cli, "POST", cli_v1_path("sessions", operands[0], "messages"), body, &session,
               &err) < 0)
        return cli_fail(&err);
    if (cli->json)
        cli_print_json(session);
    return CLI_OK;
}

/* ---- tail ---- */

struct tail {
    struct cli *cli;
    const char *id;
    struct cli_event_printer printer;
    bool follow;
    int status;
};

static bool ended(struct str state)
{
    return str_is(state, "completed") || str_is(state, "failed") || str_is(state, "canceled");
}

/* Something was told to it after this event: another turn. */
static bool goes_on(const struct tail *tail, const json_t *event)
{
    auto_free char *path = cli_v1_path("sessions", tail->id, "events");
    json_int_t id = json_integer_value(json_object_get(event, "id"));
    auto_json json_t *answer = NULL;
    struct error err = {0};

    return cli_v1(tail->cli, "GET",
                  xasprintf("%s?type=session.&limit=1&since=%lld", path, (long long)id), NULL,
                  &answer, &err) == 0 &&
           json_array_size(json_object_get(answer, "events")) > 0;
}

/* The beginning is told again to whoever comes late: an end in it is one only when it still holds, and
 * nothing followed it. */
static bool on_event(void *arg, const json_t *event)
{
    struct tail *tail = arg;
    struct str type = json_get_str(event, "type");
    auto_json json_t *session = NULL;
    struct error err = {0};

    cli_event_print(&tail->printer, event);
    if (ferror(stdout))
        return false;
    if (tail->follow || !str_starts(type, STR("session.")) || !ended(str_skip(type, 8)) ||
        goes_on(tail, event))
        return true;
    if (cli_v1(tail->cli, "GET", cli_v1_path("sessions", tail->id), NULL, &session, &err) < 0)
        return true;
    if (!ended(json_get_str(session, "state")))
        return true;
    tail->status = str_is(json_get_str(session, "state"), "completed") ? CLI_OK : CLI_FAILED;
    return false;
}

static int run_tail(struct cli *cli, int argc, char **argv)
{
    int64_t since = -1;
    struct tail tail = {.cli = cli};
    const struct cli_option table[] = {
        {"follow", 'f', CLI_FLAG, &tail.follow, NULL, "also behind its end"},
        {"since", 0, CLI_NUMBER, &since, "ID", "only what is behind this event"},
        {.name = NULL},
    };
    auto_free char *path = NULL;
    struct error err = {0};
    char **operands;
    int count, rc = begin(cli, &session_tail, table, argc, argv, RANGE(1, 1), &operands, &count);

    if (rc != CLI_ARGS_RUN)
        return rc;
    tail.id = operands[0];
    tail.printer.json = cli->json;
    path = cli_v1_path("sessions", operands[0], "stream");
    rc = cli_events_follow(cli, path, since, on_event, &tail, &err);
    if (tail.printer.in_text)
        printf("\n");
    return rc < 0 ? cli_fail(&err) : tail.status;
}

/* ---- approve ---- */

/* The last request that has no answer. */
static char *pending_request(struct cli *cli, const char *id, struct error *err)
{
    auto_free char *base = cli_v1_path("sessions", id, "events"), *found = NULL;
    auto_json json_t *answer = NULL;
    json_t *event;
    size_t i;

    if (cli_v1(cli, "GET", xasprintf("%s?type=permission.&limit=1000", base), NULL, &answer, err) <
        0)
        return NULL;
    json_array_foreach (json_object_get(answer, "events"), i, event) {
        struct str request = json_get_str(json_object_get(event, "data"), "request_id");

        if (str_is(json_get_str(event, "type"), "permission.requested")) {
            free(found);
            found = str_dup(request);
        } else if (found && str_is(request, found)) {
            free(found);
            found = NULL;
        }
    }
    if (!found)
        (void)error_set(err, ERROR_NOT_FOUND, "session '%s' asks for nothing", id);
    else
        return xstrdup(found);
    return NULL;
}

static int run_approve(struct cli *cli, int argc, char **argv)
{
    bool deny = false;
    const char *option = NULL;
    const struct cli_option table[] = {
        {"deny", 0, CLI_FLAG, &deny, NULL, "refuse it"},
        {"option", 0, CLI_TEXT, &option, "ID", "one of those it offers"},
        {.name = NULL},
    };
    auto_json json_t *body = NULL, *session = NULL;
    auto_free char *request = NULL;
    struct error err = {0};
    char **operands;
    int count, rc = begin(cli, &session_approve, table, argc, argv, RANGE(1, 2), &operands, &count);

    if (rc != CLI_ARGS_RUN)
        return rc;
    request = count == 2 ? xstrdup(operands[1]) : pending_request(cli, operands[0], &err);
    if (!request)
        return cli_fail(&err);
    body = json_pack("{s:b}", "allow", !deny);
    if (cli_v1_set(body, "request_id", request, &err) < 0 ||
        cli_v1_set(body, "option", option, &err) < 0 ||
        cli_v1(cli, "POST", cli_v1_path("sessions", operands[0], "approve"), body, &session, &err) <
            0)
        return cli_fail(&err);
    print_session(cli, session);
    return CLI_OK;
}

/* ---- interrupt, pause, resume ---- */

static int change(struct cli *cli, const struct cli_command *command, const char *verb, int argc,
                  char **argv)
{
    auto_json json_t *body = json_object(), *session = NULL;
    struct error err = {0};
    char **operands;
    int count, rc = begin(cli, command, NULL, argc, argv, RANGE(1, 1), &operands, &count);

    if (rc != CLI_ARGS_RUN)
        return rc;
    if (cli_v1(cli, "POST", cli_v1_path("sessions", operands[0], verb), body, &session, &err) < 0)
        return cli_fail(&err);
    print_session(cli, session);
    return CLI_OK;
}

static int run_interrupt(struct cli *cli, int argc, char **argv)
{
    return change(cli, &session_interrupt, "interrupt", argc, argv);
}

static int run_pause(struct cli *cli, int argc, char **argv)
{
    return change(cli, &session_pause, "pause", argc, argv);
}

static int run_resume(struct cli *cli, int argc, char **argv)
{
    return change(cli, &session_resume, "resume", argc, argv);
}

/* ---- snapshot, push, pty ---- */

static int run_snapshot(struct cli *cli, int argc, char **argv)
{
    const char *alias = NULL;
    const struct cli_option table[] = {
        {"alias", 0, CLI_TEXT, &alias, "NAME", "github/OWNER/REPO#BRANCH, or any name"},
        {.name = NULL},
    };
    auto_json json_t *body = json_object(), *snapshot = NULL;
    struct error err = {0};
    char **operands;
    int count,
        rc = begin(cli, &session_snapshot, table, argc, argv, RANGE(1, 1), &operands, &count);

    if (rc != CLI_ARGS_RUN)
        return rc;
    if (cli_v1_set(body, "alias", alias, &err) < 0 ||
        cli_v1(cli, "POST", cli_v1_path("sessions", operands[0], "snapshot"), body, &snapshot,
               &err) < 0)
        return cli_fail(&err);
    if (cli->json)
        cli_print_json(snapshot);
    else
        printf("%.*s %.*s\n", STR_ARG(json_get_str(snapshot, "id")),
               STR_ARG(json_get_str(snapshot, "alias")));
    return CLI_OK;
}

struct wanted_pull {
    const char *title, *text, *base;
    bool wanted, draft;
};

static int set_pull(json_t *body, const struct wanted_pull *pull, struct error *err)
{
    json_t *pr = json_pack("{s:b}", "draft", (int)pull->draft);

    if (!pull->wanted) {
        json_decref(pr);
        return 0;
    }
    (void)json_object_set_new(body, "pr", pr);
    return cli_v1_set(pr, "title", pull->title, err) < 0 ||
                   cli_v1_set(pr, "body", pull->text, err) < 0 ||
                   cli_v1_set(pr, "base", pull->base, err) < 0
               ? -1
               : 0;
}

static void print_pushed(const json_t *pushed)
{
    const json_t *pr = json_object_get(pushed, "pr");

    if (json_is_true(json_object_get(pushed, "nothing")))
        printf("nothing to push\n");
    else
        printf("%.*s %.*s\n", STR_ARG(json_get_str(pushed, "branch")),
               STR_ARG(json_get_str(pushed, "commit")));
    if (pr) {
        auto_free char *url = cli_print_str(pr, "url");

        printf("pull request %lld%s %s\n",
               (long long)json_integer_value(json_object_get(pr, "number")),
               json_is_true(json_object_get(pr, "existed")) ? " (open already)" : "", url);
    }
}

static int run_push(struct cli *cli, int argc, char **argv)
{
    const char *branch = NULL, *message = NULL, *token = NULL;
    struct wanted_pull pull = {0};
    bool force = false;
    const struct cli_option table[] = {
        {"branch", 'b', CLI_TEXT, &branch, "NAME",
         "branch to push to (task-ID of the task or session)"},
        {"message", 'm', CLI_TEXT, &message, "TEXT", "of the commit"},
        {"git-token-env", 0, CLI_TEXT, &token, "NAME", "variable with git's token"},
        {"force", 'f', CLI_FLAG, &force, NULL, "also when it is not a fast-forward"},
        {"pr", 0, CLI_FLAG, &pull.wanted, NULL, "open a pull request then"},
        {"title", 0, CLI_TEXT, &pull.title, "TEXT",
         "of the pull request (the message's first line)"},
        {"body", 0, CLI_TEXT, &pull.text, "TEXT", "of the pull request"},
        {"base", 0, CLI_TEXT, &pull.base, "BRANCH",
         "it is to go into (the session's, or the default)"},
        {"draft", 0, CLI_FLAG, &pull.draft, NULL, "it is not ready yet"},
        {.name = NULL},
    };
    auto_json json_t *body = NULL, *pushed = NULL;
    struct error err = {0};
    char **operands;
    int count, rc = begin(cli, &session_push, table, argc, argv, RANGE(1, 1), &operands, &count);

    if (rc != CLI_ARGS_RUN)
        return rc;
    if (!pull.wanted && (pull.title || pull.text || pull.base || pull.draft))
        return cli_usage(&session_push, "--title, --body, --base and --draft need --pr");
    body = json_pack("{s:b}", "force", (int)force);
    if (cli_v1_set(body, "branch", branch, &err) < 0 || set_pull(body, &pull, &err) < 0 ||
        cli_v1_set(body, "message", message, &err) < 0 || set_token(body, token, &err) < 0 ||
        cli_v1(cli, "POST", cli_v1_path("sessions", operands[0], "push"), body, &pushed, &err) < 0)
        return cli_fail(&err);
    if (cli->json)
        cli_print_json(pushed);
    else
        print_pushed(pushed);
    return CLI_OK;
}

static int run_history(struct cli *cli, int argc, char **argv)
{
    static const struct cli_column columns[] = {
        {"COMMIT", "commit", false},   {"AUTHOR", "author", false}, {"AGE", "at", true},
        {"SUBJECT", "subject", false}, {NULL, NULL, false},
    };
    int64_t limit = 20;
    const struct cli_option table[] = {
        {"limit", 'n', CLI_COUNT, &limit, "N", "how many commits (20)"},
        {.name = NULL},
    };
    auto_json json_t *history = NULL;
    auto_free char *path = NULL;
    struct error err = {0};
    char **operands;
    int count, rc = begin(cli, &session_history, table, argc, argv, RANGE(1, 1), &operands, &count);

    if (rc != CLI_ARGS_RUN)
        return rc;
    path = cli_v1_path("sessions", operands[0], "history");
    if (cli_v1(cli, "GET", xasprintf("%s?limit=%lld", path, (long long)limit), NULL, &history,
               &err) < 0)
        return cli_fail(&err);
    cli_print_list(cli, history, "commits", columns);
    return CLI_OK;
}

static int run_pty(struct cli *cli, int argc, char **argv)
{
    auto_free char *path = NULL;
    char **operands;
    int count, rc = begin(cli, &session_pty, NULL, argc, argv, RANGE(1, 1), &operands, &count);

    if (rc != CLI_ARGS_RUN)
        return rc;
    path = cli_v1_path("sessions", operands[0], "terminal");
    return cli_terminal_run(cli, path, NULL);
}

static const struct cli_command session_new = {
    "session new", "[OPTION...]",
    "Begin a session: a sandbox, the repository in it, the agent.\n"
    "Waits until it is ready and prints its id and state.",
    run_new,
    .examples =
        "quicksand session new --agent mock\n"
        "quicksand session new -a claude -e ANTHROPIC_API_KEY --repo https://github.com/o/r.git "
        "--message 'fix the tests'"};
static const struct cli_command session_ls = {"session ls", "[OPTION...]", "List sessions.", run_ls,
                                              .examples = "quicksand session ls"};
static const struct cli_command session_show = {"session show", "[OPTION...] SESSION",
                                                "Show everything about a session.", run_show,
                                                .examples = "quicksand session show ses_..."};
static const struct cli_command session_send = {
    "session send", "[OPTION...] SESSION TEXT...", "Tell the agent something ('-' is stdin).",
    run_send, .examples = "quicksand session send ses_... fix the failing test"};
static const struct cli_command session_tail = {"session tail", "[OPTION...] SESSION",
                                                "Show what the agent does, until it is done.\n"
                                                "Exit status 1 when it failed or was canceled.",
                                                run_tail,
                                                .examples = "quicksand session tail ses_..."};
static const struct cli_command session_approve = {
    "session approve", "[OPTION...] SESSION [REQUEST]",
    "Grant what the agent asks for (the last, unless it is named).", run_approve,
    .examples = "quicksand session approve ses_...\n"
                "quicksand session approve ses_... --deny"};
static const struct cli_command session_interrupt = {
    "session interrupt", "[OPTION...] SESSION", "Stop what the agent does now.", run_interrupt,
    .examples = "quicksand session interrupt ses_..."};
static const struct cli_command session_pause = {"session pause", "[OPTION...] SESSION",
                                                 "Pause a session; messages wait.", run_pause,
                                                 .examples = "quicksand session pause ses_..."};
static const struct cli_command session_resume = {"session resume", "[OPTION...] SESSION",
                                                  "Resume a session.", run_resume,
                                                  .examples = "quicksand session resume ses_..."};
static const struct cli_command session_snapshot = {
    "session snapshot", "[OPTION...] SESSION", "Keep its sandbox as a checkpoint.", run_snapshot,
    .examples = "quicksand session snapshot ses_... --alias half-done"};
static const struct cli_command session_push = {
    "session push", "[OPTION...] SESSION",
    "Commit and push what the agent did; with --pr, open a pull request.\n"
    "Without a change it prints 'nothing to push', pushes nothing and ends with status 0.",
    run_push, .examples = "quicksand session push ses_... -b fix --pr"};
static const struct cli_command session_history = {
    "session history", "[OPTION...] SESSION", "List the commits of its repository, newest first.",
    run_history, .examples = "quicksand session history ses_... -n 5"};
static const struct cli_command session_pty = {"session pty", "[OPTION...] SESSION",
                                               "Open a terminal in its sandbox.", run_pty,
                                               .examples = "quicksand session pty ses_..."};
static const struct cli_command session_rm = {"session rm", "[OPTION...] SESSION...",
                                              "End sessions and remove their sandboxes.", run_rm,
                                              .examples = "quicksand session rm ses_..."};
const struct cli_command cli_session_command = {
    "session",
    "new, ls, show, send, tail, approve, interrupt, pause, resume, snapshot, push, history, pty, "
    "rm",
    "Agents at work in sandboxes.", NULL,
    (const struct cli_command *const[]){
        &session_new, &session_ls, &session_show, &session_send, &session_tail, &session_approve,
        &session_interrupt, &session_pause, &session_resume, &session_snapshot, &session_push,
        &session_history, &session_pty, &session_rm, NULL}};
