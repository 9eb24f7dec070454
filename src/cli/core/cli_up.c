/* up, pause, resume, url: sandboxes of the runtime. */
#include "cli/core/cli_up.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "cli/core/cli_print.h"
#include "cli/core/cli_v1.h"
#include "protocol/json/json_shape.h"

void cli_up_done(struct cli_up *up)
{
    cli_list_done(&up->env);
    cli_list_done(&up->metadata);
}

static int set_texts(const struct cli_up *up, json_t *body, struct error *err)
{
    if (cli_v1_set(body, "profile", up->profile, err) < 0 ||
        cli_v1_set(body, "provider", up->provider, err) < 0 ||
        cli_v1_set(body, "template", up->template_name, err) < 0 ||
        cli_v1_set(body, "agent_type", up->agent_type, err) < 0 ||
        cli_v1_set(body, "key", up->key, err) < 0 ||
        cli_v1_set(body, "agent_id", up->agent_id, err) < 0 ||
        cli_v1_set(body, "task_id", up->task_id, err) < 0 ||
        cli_v1_set(body, "snapshot", up->snapshot, err) < 0 ||
        cli_v1_set(body, "repo", up->repo, err) < 0 ||
        cli_v1_set(body, "branch", up->branch, err) < 0 ||
        cli_v1_set(body, "workspace_root", up->workspace_root, err) < 0)
        return -1;
    return 0;
}

static void set_limits(const struct cli_up *up, json_t *body)
{
    json_t *limits = json_object();

    if (up->cpu)
        (void)json_object_set_new(limits, "cpu", json_integer(up->cpu));
    if (up->memory_mb)
        (void)json_object_set_new(limits, "memoryMb", json_integer(up->memory_mb));
    if (up->disk_mb)
        (void)json_object_set_new(limits, "diskMb", json_integer(up->disk_mb));
    if (json_object_size(limits))
        (void)json_object_set(body, "limits", limits);
    json_decref(limits);
}

json_t *cli_up_body(const struct cli_command *command, const struct cli_up *up, int *out_status)
{
    auto_json json_t *body = json_object();
    auto_json json_t *env = cli_v1_pairs(command, &up->env, "env", true);
    auto_json json_t *metadata =
        env ? cli_v1_pairs(command, &up->metadata, "metadata", false) : NULL;
    struct error err = {0};

    *out_status = CLI_USAGE;
    if (!env || !metadata)
        return NULL;
    if (set_texts(up, body, &err) < 0) {
        *out_status = cli_fail(&err);
        return NULL;
    }
    if (up->network)
        (void)json_object_set_new(body, "network", json_pack("{s:s}", "mode", up->network));
    if (up->idle_s)
        (void)json_object_set_new(body, "lifecycle",
                                  json_pack("{s:I}", "idleTimeoutSeconds", (json_int_t)up->idle_s));
    if (up->timeout_s)
        (void)json_object_set_new(body, "timeout", json_integer(up->timeout_s));
    if (up->persistent)
        (void)json_object_set_new(body, "persistent", json_true());
    set_limits(up, body);
    if (json_object_size(env))
        (void)json_object_set(body, "env", env);
    if (json_object_size(metadata))
        (void)json_object_set(body, "metadata", metadata);
    return json_incref(body);
}

/* ---- up ---- */

static int up_one(struct cli *cli, const struct cli_up *up, bool quiet)
{
    auto_json json_t *body = NULL, *answer = NULL;
    struct error err = {0};
    struct str id, key;
    int status;

    body = cli_up_body(&cli_up_command, up, &status);
    if (!body)
        return status;
    if (cli_connect(cli, &err) < 0 ||
        cli_v1(cli, "POST", cli_v1_path("sandboxes"), body, &answer, &err) < 0)
        return cli_fail(&err);
    id = json_get_str(answer, "id");
    key = json_get_str(answer, "key");
    if (quiet)
        printf("%.*s\n", STR_ARG(id));
    else if (cli->json)
        cli_print_json(answer);
    else
        printf("%.*s %.*s on %.*s%s%.*s\n", STR_ARG(id), STR_ARG(json_get_str(answer, "tier")),
               STR_ARG(json_get_str(answer, "provider")), key.len ? ", key " : "", STR_ARG(key));
    return CLI_OK;
}

static int run_up(struct cli *cli, int argc, char **argv)
{
    struct cli_up up = {0};
    bool quiet = false;
    const struct cli_option table[] = {
        {"key", 'k', CLI_TEXT, &up.key, "KEY", "the same key gives the same sandbox"},
        {"profile", 'p', CLI_TEXT, &up.profile, "NAME", "what it is like"},
        {"provider", 0, CLI_TEXT, &up.provider, "NAME", "where it is"},
        {"template", 't', CLI_TEXT, &up.template_name, "NAME", "what it is made from"},
        {"agent", 0, CLI_TEXT, &up.agent_type, "TYPE", "the profile of this type of agent"},
        {"snapshot", 0, CLI_TEXT, &up.snapshot, "ID", "begins as this snapshot (or alias)"},
        {"env", 'e', CLI_LIST, &up.env, "NAME[=VALUE]", "environment; may be repeated"},
        {"metadata", 'm', CLI_LIST, &up.metadata, "NAME=VALUE", "a label; may be repeated"},
        {"agent-id", 0, CLI_TEXT, &up.agent_id, "ID", "who owns it"},
        {"task-id", 0, CLI_TEXT, &up.task_id, "ID", "what it is for"},
        {"persistent", 0, CLI_FLAG, &up.persistent, NULL, "paused when idle, never thrown away"},
        {"network", 0, CLI_TEXT, &up.network, "MODE", "allow-all, deny-all or restricted"},
        {"idle", 0, CLI_TIME, &up.idle_s, "TIME", "paused or ended after so long without use"},
        {"timeout", 0, CLI_TIME, &up.timeout_s, "TIME", "how long a command may take"},
        {"cpu", 0, CLI_NUMBER, &up.cpu, "N", "processors"},
        {"memory", 0, CLI_NUMBER, &up.memory_mb, "MB", "memory"},
        {"disk", 0, CLI_NUMBER, &up.disk_mb, "MB", "disk"},
        {"repo", 0, CLI_TEXT, &up.repo, "URL", "a repository, cloned into the workspace"},
        {"branch", 0, CLI_TEXT, &up.branch, "NAME", "of the repository"},
        {"workspace", 0, CLI_TEXT, &up.workspace_root, "DIR", "where commands start"},
        {"quiet", 'q', CLI_FLAG, &quiet, NULL, "print only the id"},
        {.name = NULL},
    };
    char **operands;
    int count, rc = cli_args(cli, &cli_up_command, table, CLI_ARGS_ANYWHERE, argc, argv, &operands,
                             &count);

    if (rc == CLI_ARGS_RUN)
        rc = count ? cli_usage(&cli_up_command, "takes no operand") : up_one(cli, &up, quiet);
    cli_up_done(&up);
    return rc;
}

const struct cli_command cli_up_command = {
    "up", "[OPTION...]",
    "Bring a sandbox up: the one with this key, or a new one.\n"
    "One that is paused is resumed; one that is gone is restored from its newest snapshot.",
    run_up,
    .examples = "quicksand up\n"
                "ID=$(quicksand up --key my-task -q)\n"
                "quicksand up --network deny-all --idle 30m -e TOKEN"};

/* ---- pause, resume ---- */

static int change(struct cli *cli, const char *id, bool pause, json_t **out, struct error *err)
{
    auto_json json_t *body = json_object();

    return cli_v1(cli, "POST", cli_v1_path("sandboxes", id, pause ? "pause" : "resume"), body, out,
                  err);
}

static int change_all(struct cli *cli, const struct cli_command *command, bool pause, int argc,
                      char **argv)
{
    auto_json json_t *all = json_array();
    struct error err = {0};
    char **operands;
    int count, status = CLI_OK;
    int rc = cli_args(cli, command, NULL, CLI_ARGS_ANYWHERE, argc, argv, &operands, &count);

    if (rc != CLI_ARGS_RUN)
        return rc;
    if (count == 0)
        return cli_usage(command, "needs a sandbox");
    if (cli_connect(cli, &err) < 0)
        return cli_fail(&err);
    for (int i = 0; i < count; i++) {
        auto_json json_t *answer = NULL;

        if (change(cli, operands[i], pause, &answer, &err) < 0) {
            status = cli_fail(&err);
            continue;
        }
        (void)json_array_append(all, answer);
        if (!cli->json)
            printf("%.*s %.*s\n", STR_ARG(json_get_str(answer, "id")),
                   STR_ARG(json_get_str(answer, "state")));
    }
    if (cli->json)
        cli_print_json(all);
    return status;
}

static int run_pause(struct cli *cli, int argc, char **argv)
{
    return change_all(cli, &cli_pause_command, true, argc, argv);
}

static int run_resume(struct cli *cli, int argc, char **argv)
{
    return change_all(cli, &cli_resume_command, false, argc, argv);
}

const struct cli_command cli_pause_command = {"pause", "[OPTION...] SANDBOX...",
                                              "Pause sandboxes; what is in them stays.", run_pause};
const struct cli_command cli_resume_command = {"resume", "[OPTION...] SANDBOX...",
                                               "Resume sandboxes.", run_resume};

/* ---- url ---- */

static int print_url(struct cli *cli, const char *id, const char *port)
{
    auto_json json_t *answer = NULL;
    struct error err = {0};
    struct str url;

    if (cli_connect(cli, &err) < 0 ||
        cli_v1(cli, "GET",
               port ? cli_v1_path("sandboxes", id, "ports", port) : cli_v1_path("sandboxes", id),
               NULL, &answer, &err) < 0)
        return cli_fail(&err);
    url = json_get_str(answer, port ? "url" : "cdp_url");
    if (!url.len) {
        (void)error_set(&err, ERROR_UNSUPPORTED, "sandbox '%s' is no browser", id);
        return cli_fail(&err);
    }
    if (cli->json && port)
        cli_print_json(answer);
    else if (cli->json)
        printf("{\"cdp_url\":\"%.*s\"}\n", STR_ARG(url));
    else
        printf("%.*s\n", STR_ARG(url));
    return CLI_OK;
}

static int run_url(struct cli *cli, int argc, char **argv)
{
    bool cdp = false;
    const struct cli_option table[] = {
        {"cdp", 0, CLI_FLAG, &cdp, NULL, "of a browser, by the Chrome DevTools protocol"},
        {.name = NULL},
    };
    char **operands;
    int count, rc = cli_args(cli, &cli_url_command, table, CLI_ARGS_ANYWHERE, argc, argv, &operands,
                             &count);

    if (rc != CLI_ARGS_RUN)
        return rc;
    if (count != (cdp ? 1 : 2))
        return cli_usage(&cli_url_command,
                         cdp ? "needs one sandbox" : "needs a sandbox and a port");
    return print_url(cli, operands[0], cdp ? NULL : operands[1]);
}

const struct cli_command cli_url_command = {"url", "[OPTION...] SANDBOX PORT | --cdp SANDBOX",
                                            "Tell where a port of a sandbox is reached.", run_url};
