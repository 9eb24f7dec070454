/* up, pause, resume, url: sandboxes of the runtime. */
#include "cli/core/cli_up.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "cli/core/cli_each.h"
#include "cli/core/cli_names.h"
#include "cli/core/cli_print.h"
#include "cli/core/cli_v1.h"
#include "protocol/json/json_shape.h"

void cli_up_done(struct cli_up *up)
{
    cli_list_done(&up->env);
    cli_list_done(&up->env_files);
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

static void set_lifecycle(const struct cli_up *up, json_t *body)
{
    json_t *lifecycle = json_object();

    if (up->idle_s)
        (void)json_object_set_new(lifecycle, "idleTimeoutSeconds", json_integer(up->idle_s));
    if (up->expire_s)
        (void)json_object_set_new(lifecycle, "expireAfterSeconds", json_integer(up->expire_s));
    if (up->lifetime_s)
        (void)json_object_set_new(lifecycle, "maxLifetimeSeconds", json_integer(up->lifetime_s));
    if (json_object_size(lifecycle))
        (void)json_object_set(body, "lifecycle", lifecycle);
    json_decref(lifecycle);
}

static void set_network(const struct cli_up *up, json_t *body)
{
    struct str rest = str_of(up->peers), network = str_split(&rest, '/');
    json_t *object, *peers;

    if (!up->network && !up->peers)
        return;
    object = json_object();
    if (up->network)
        (void)json_object_set_new(object, "mode", json_string(up->network));
    if (up->peers) {
        peers = json_pack("{s:o}", "network", json_str(network));
        if (rest.p)
            (void)json_object_set_new(peers, "name", json_str(rest));
        (void)json_object_set_new(object, "peers", peers);
    }
    (void)json_object_set_new(body, "network", object);
}

json_t *cli_up_body(const struct cli_command *command, const struct cli_up *up, int *out_status)
{
    auto_json json_t *body = json_object();
    auto_json json_t *env = cli_v1_pairs(command, &up->env, "env", true);
    auto_json json_t *metadata =
        env ? cli_v1_pairs(command, &up->metadata, "metadata", false) : NULL;
    struct error err = {0};

    *out_status = CLI_USAGE;
    if (!env || !metadata || cli_v1_env_files(command, &up->env_files, env) < 0)
        return NULL;
    if (set_texts(up, body, &err) < 0) {
        *out_status = cli_fail(&err);
        return NULL;
    }
    set_network(up, body);
    set_lifecycle(up, body);
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

/* What the answer says of the sandbox that had the key before. */
static void print_previous(const json_t *answer)
{
    const json_t *previous = json_object_get(answer, "previous");
    struct str id = json_get_str(previous, "id"), key = json_get_str(answer, "key");
    struct str why = json_get_str(previous, "reason"), at = json_get_str(previous, "ended_at");
    bool restored = str_is(json_get_str(answer, "tier"), "restored");

    if (!id.len)
        return;
    if (str_is(json_get_str(previous, "files"), "kept"))
        (void)fprintf(stderr,
                      "quicksand: note: sandbox %.*s with key '%.*s' has other settings (template,"
                      " network, limits, ...) and is kept; this one is new\n",
                      STR_ARG(id), STR_ARG(key));
    else
        (void)fprintf(stderr,
                      "quicksand: warning: the files of the previous sandbox with key '%.*s' (%.*s)"
                      " are gone%s, since %.*s: %.*s\n",
                      STR_ARG(key), STR_ARG(id), restored ? " except those in its snapshot" : "",
                      STR_ARG(at.len ? at : STR("an unknown time")),
                      STR_ARG(why.len ? why : STR("the reason is not known")));
}

static void print_up(FILE *out, const json_t *answer)
{
    struct str key = json_get_str(answer, "key");

    (void)fprintf(out, "%.*s %.*s on %.*s%s%.*s\n", STR_ARG(json_get_str(answer, "id")),
                  STR_ARG(json_get_str(answer, "tier")), STR_ARG(json_get_str(answer, "provider")),
                  key.len ? ", key " : "", STR_ARG(key));
}

static int up_one(struct cli *cli, const struct cli_up *up, bool quiet)
{
    auto_json json_t *body = NULL, *answer = NULL;
    struct error err = {0};
    int status;

    body = cli_up_body(&cli_up_command, up, &status);
    if (!body)
        return status;
    if (cli_connect(cli, &err) < 0 ||
        cli_v1(cli, "POST", cli_v1_path("sandboxes"), body, &answer, &err) < 0)
        return cli_fail(&err);
    if (quiet)
        printf("%.*s\n", STR_ARG(json_get_str(answer, "id")));
    else if (cli->json)
        cli_print_json(answer);
    print_up(quiet || cli->json ? stderr : stdout, answer);
    (void)fflush(stdout);
    print_previous(answer);
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
        {"env-file", 0, CLI_LIST, &up.env_files, "FILE", "environment, a NAME=VALUE on each line"},
        {"metadata", 'm', CLI_LIST, &up.metadata, "NAME=VALUE", "a label; may be repeated"},
        {"agent-id", 0, CLI_TEXT, &up.agent_id, "ID", "who owns it"},
        {"task-id", 0, CLI_TEXT, &up.task_id, "ID", "what it is for"},
        {"persistent", 0, CLI_FLAG, &up.persistent, NULL, "paused when idle, as with a key"},
        {"network", 0, CLI_TEXT, &up.network, "MODE", "allow-all, deny-all or restricted"},
        {"peers", 0, CLI_TEXT, &up.peers, "NETWORK[/NAME]",
         "in this private network, under this name"},
        {"idle", 0, CLI_TIME, &up.idle_s, "TIME",
         "paused after so long without use; deleted, if it has no key"},
        {"expire-after", 0, CLI_TIME, &up.expire_s, "TIME",
         "deleted with its files after so long without use"},
        {"max-lifetime", 0, CLI_TIME, &up.lifetime_s, "TIME", "deleted so long after its creation"},
        {"timeout", 0, CLI_TIME, &up.timeout_s, "TIME", "how long a command may take"},
        {"cpu", 0, CLI_COUNT, &up.cpu, "N", "processors"},
        {"memory", 0, CLI_MB, &up.memory_mb, "SIZE", "memory: 512, 512m or 2g"},
        {"disk", 0, CLI_MB, &up.disk_mb, "SIZE", "disk: 2048, 2048m or 2g"},
        {"repo", 0, CLI_TEXT, &up.repo, "URL", "a repository, cloned into the workspace"},
        {"branch", 0, CLI_TEXT, &up.branch, "NAME", "of the repository"},
        {"workspace", 0, CLI_TEXT, &up.workspace_root, "DIR", "where commands start"},
        {"quiet", 'q', CLI_FLAG, &quiet, NULL,
         "print only the id (and on standard error what was done)"},
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
    "Bring up the sandbox of a key, the same one each time: resumed, restored or created.\n"
    "A paused one is resumed; one that is gone is restored from its newest snapshot. Without a\n"
    "key it is a new one. The files of a sandbox with a key stay until it is deleted, unless\n"
    "--expire-after, --max-lifetime or the server's retention_days say otherwise. 'run' deletes "
    "its\n"
    "sandbox when the command ends; 'create' always makes a new one, which ends at its timeout.",
    run_up,
    .examples = "quicksand up\n"
                "ID=$(quicksand up --key my-task -q)\n"
                "quicksand up --network deny-all --idle 30m -e TOKEN\n"
                "quicksand up --key db --peers shop/db"};

/* ---- pause, resume ---- */

/* arg: "pause" or "resume". */
static json_t *change(struct cli *cli, const char *word, const void *arg, struct error *err)
{
    auto_json json_t *body = json_object();
    const char *id = cli_name_id(cli, word, err);
    json_t *answer = NULL;

    if (!id || cli_v1(cli, "POST", cli_v1_path("sandboxes", id, arg), body, &answer, err) < 0)
        return NULL;
    if (!cli->json)
        printf("%.*s %.*s\n", STR_ARG(json_get_str(answer, "id")),
               STR_ARG(json_get_str(answer, "state")));
    return answer;
}

static int run_pause(struct cli *cli, int argc, char **argv)
{
    return cli_each(cli, &cli_pause_command, "sandbox", change, "pause", argc, argv);
}

static int run_resume(struct cli *cli, int argc, char **argv)
{
    return cli_each(cli, &cli_resume_command, "sandbox", change, "resume", argc, argv);
}

const struct cli_command cli_pause_command = {"pause", "[OPTION...] SANDBOX...",
                                              "Pause sandboxes; what is in them stays.", run_pause,
                                              .examples = "quicksand pause i..."};
const struct cli_command cli_resume_command = {"resume", "[OPTION...] SANDBOX...",
                                               "Resume sandboxes.", run_resume,
                                               .examples = "quicksand resume i..."};

/* ---- url ---- */

static bool is_here(const char *host)
{
    return strcmp(host, "localhost") == 0 || strcmp(host, "::1") == 0 ||
           str_starts(str_of(host), STR("127.")) || str_ends(str_of(host), STR(".localhost"));
}

/* A server without a domain tells names below localhost, which lead to it from its own host only; from elsewhere it is
 * asked by its own address and headers. What a request needs besides its address goes to stderr. */
static void print_address(const struct cli *cli, const json_t *answer)
{
    static const char *const names[] = {"E2b-Sandbox-Id", "E2b-Sandbox-Port",
                                        "E2b-Traffic-Access-Token"};
    const struct cli_url *api = &cli->server.sandboxes;
    const json_t *headers = json_object_get(answer, "headers");
    struct str url = json_get_str(answer, "url");
    bool far = str_find_str(url, STR(".localhost")) >= 0 && !is_here(api->host);

    if (far)
        printf("%s://%s%s%s:%u\n", api->tls ? "https" : "http", strchr(api->host, ':') ? "[" : "",
               api->host, strchr(api->host, ':') ? "]" : "", api->port);
    else
        printf("%.*s\n", STR_ARG(url));
    (void)fflush(stdout);
    for (size_t i = far ? 0 : 2; i < sizeof(names) / sizeof(names[0]); i++) {
        struct str value = json_get_str(headers, names[i]);

        if (value.len)
            (void)fprintf(stderr, "with the header %s: %.*s\n", names[i], STR_ARG(value));
    }
}

static int print_url(struct cli *cli, char *id, const char *port)
{
    auto_json json_t *answer = NULL;
    struct error err = {0};
    struct str url;

    if (cli_connect_to(cli, &id, 1, &err) < 0 ||
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
        cli_print_json_new(json_pack("{s:o}", "cdp_url", json_str(url)));
    else if (port)
        print_address(cli, answer);
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
                                            "Tell where a port of a sandbox is reached.", run_url,
                                            .examples = "quicksand url i... 8080"};
