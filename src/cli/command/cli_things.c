/* volume, webhook, team: what a team has beside sandboxes, and teams themselves; rows of the E2B API and of the
 * operator's. Each is found by its id, the beginning of it, or its name. */
#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/size.h"
#include "cli/command/commands.h"
#include "cli/core/cli_command.h"
#include "cli/core/cli_each.h"
#include "cli/core/cli_print.h"
#include "cli/core/cli_v1.h"
#include "protocol/json/json_shape.h"

/* A kind of thing: where it is listed, and which member is its id. */
struct kind {
    const char *what;
    const char *target;
    const char *id;
    const struct cli_column *columns;
};

/* 0 or a missing limit is shown as it is. */
static char *limit_text(const json_t *row, const char *member)
{
    const json_t *limit = json_object_get(row, member);
    char text[SIZE_TEXT];

    return json_integer_value(limit) > 0
               ? xstrdup(size_text((uint64_t)json_integer_value(limit) << 20, text))
               : cli_print_text(limit);
}

static char *memory_limit(const json_t *row)
{
    return limit_text(row, "maxMemoryMB");
}

static char *disk_limit(const json_t *row)
{
    return limit_text(row, "maxDiskMB");
}

static const struct cli_column volume_columns[] = {{"NAME", "name"}, {"ID", "volumeID"}, {NULL}};
static const struct cli_column webhook_columns[] = {
    {"ID", "id"},
    {"NAME", "name"},
    {"URL", "url"},
    {"ENABLED", "enabled"},
    {"EVENTS", "events"},
    {"AGE", "createdAt", .age = true},
    {NULL},
};
static const struct cli_column team_columns[] = {
    {"NAME", "name"},
    {"ID", "teamID"},
    {"SANDBOXES", "maxSandboxes"},
    {"CPU", "maxCpu"},
    {"MEMORY", .text = memory_limit},
    {"DISK", .text = disk_limit},
    {"CREATES/MIN", "maxCreatesPerMinute"},
    {"BANNED", "banned"},
    {"AGE", "createdAt", .age = true},
    {NULL},
};

static const struct kind volumes = {"volume", "/volumes", "volumeID", volume_columns};
static const struct kind webhooks = {"webhook", "/events/webhooks", "id", webhook_columns};
static const struct kind teams = {"team", "/admin/teams", "teamID", team_columns};

static json_t *read_rows(struct cli *cli, const struct kind *kind, struct error *err)
{
    json_t *rows = NULL;

    if (cli_call(&cli->server, "GET", kind->target, NULL, &rows, NULL, err) < 0)
        return NULL;
    return rows;
}

/* The row that is called so. */
static const json_t *find_row(const json_t *rows, const struct kind *kind, const char *word,
                              struct error *err)
{
    const json_t *called = NULL, *begins = NULL;
    size_t i, count = 0;
    json_t *row;

    json_array_foreach (rows, i, row) {
        struct str id = json_get_str(row, kind->id);

        if (str_is(id, word) || str_is(json_get_str(row, "name"), word))
            called = row;
        if (word[0] && str_starts(id, str_of(word))) {
            begins = row;
            count++;
        }
    }
    if (called || count == 1)
        return called ? called : begins;
    (void)error_set(err, count ? ERROR_CONFLICT : ERROR_NOT_FOUND,
                    count ? "'%s' is the beginning of more than one %s's id"
                          : "there is no '%s': see 'quicksand %s ls'",
                    word, kind->what);
    return NULL;
}

/* "TARGET/ID" of what is called so; NULL with err. */
static char *find_target(struct cli *cli, const char *word, const void *arg, struct error *err)
{
    const struct kind *kind = arg;
    auto_json json_t *rows = read_rows(cli, kind, err);
    const json_t *row = rows ? find_row(rows, kind, word, err) : NULL;
    struct buf target;

    if (!row)
        return NULL;
    buf_init(&target, HTTP_URL_MAX);
    (void)buf_printf(&target, "%s/", kind->target);
    cli_escape(&target, json_string_value(json_object_get(row, kind->id)));
    return buf_take(&target);
}

static void print_one(const struct cli *cli, const struct kind *kind, const json_t *row)
{
    auto_free char *id = cli_print_str(row, kind->id);

    if (cli->json)
        cli_print_json(row);
    else
        printf("%s\n", id);
}

/* ---- verbs that all have ---- */

static int list(struct cli *cli, const struct cli_command *command, const struct kind *kind,
                int argc, char **argv)
{
    auto_json json_t *rows = NULL;
    struct error err = {0};
    char **operands;
    int count, rc = cli_args(cli, command, NULL, CLI_ARGS_ANYWHERE, argc, argv, &operands, &count);

    if (rc != CLI_ARGS_RUN)
        return rc;
    if (count)
        return cli_usage(command, "takes no operand");
    if (cli_connect(cli, &err) < 0 || !(rows = read_rows(cli, kind, &err)))
        return cli_fail(&err);
    if (cli->json)
        cli_print_json(rows);
    else
        cli_print_rows(rows, kind->columns);
    return CLI_OK;
}

/* ---- volume ---- */

static const struct cli_command volume_create, volume_ls, volume_rm;

static int run_volume_create(struct cli *cli, int argc, char **argv)
{
    auto_json json_t *body = json_object(), *answer = NULL;
    struct error err = {0};
    char **operands;
    int count,
        rc = cli_args(cli, &volume_create, NULL, CLI_ARGS_ANYWHERE, argc, argv, &operands, &count);

    if (rc != CLI_ARGS_RUN)
        return rc;
    if (count != 1)
        return cli_usage(&volume_create, "needs one name");
    if (cli_v1_set(body, "name", operands[0], &err) < 0 || cli_connect(cli, &err) < 0 ||
        cli_call(&cli->server, "POST", volumes.target, body, &answer, NULL, &err) < 0)
        return cli_fail(&err);
    print_one(cli, &volumes, answer);
    return CLI_OK;
}

static int run_volume_ls(struct cli *cli, int argc, char **argv)
{
    return list(cli, &volume_ls, &volumes, argc, argv);
}

static int run_volume_rm(struct cli *cli, int argc, char **argv)
{
    return cli_remove_each(cli, &volume_rm, volumes.what, find_target, &volumes, argc, argv);
}

static const struct cli_command volume_create = {
    "volume create", "[OPTION...] NAME", "Make a volume and print its id.", run_volume_create,
    .examples = "quicksand volume create data; quicksand create --volume data:/mnt/data"};
static const struct cli_command volume_ls = {"volume ls", "[OPTION...]", "List the volumes.",
                                             run_volume_ls, .examples = "quicksand volume ls"};
static const struct cli_command volume_rm = {"volume rm", "[OPTION...] VOLUME...",
                                             "Remove volumes, with all files in them.",
                                             run_volume_rm, .examples = "quicksand volume rm data"};
const struct cli_command cli_volume_command = {
    "volume", "create, ls, rm", "Files that several sandboxes mount and that outlive them.", NULL,
    (const struct cli_command *const[]){&volume_create, &volume_ls, &volume_rm, NULL}};

/* ---- webhook ---- */

static const struct cli_command webhook_add, webhook_ls, webhook_rm;

static int add_webhook(struct cli *cli, const char *url, const char *name, const char *secret_env,
                       const struct cli_list *events)
{
    const char *secret = secret_env ? getenv(secret_env) : NULL;
    auto_json json_t *body = json_object(), *answer = NULL;
    struct error err = {0};
    json_t *types;

    if (secret_env && !secret)
        return cli_usage(&webhook_add, "--secret-env %s: there is no such variable here",
                         secret_env);
    types = json_array();
    (void)json_object_set_new(body, "events", types);
    for (size_t i = 0; i < events->count; i++)
        (void)json_array_append_new(types,
                                    strchr(events->items[i], '.')
                                        ? json_string(events->items[i])
                                        : json_sprintf("sandbox.lifecycle.%s", events->items[i]));
    if (cli_v1_set(body, "url", url, &err) < 0 ||
        cli_v1_set(body, "name", name ? name : url, &err) < 0 ||
        cli_v1_set(body, "signatureSecret", secret, &err) < 0 || cli_connect(cli, &err) < 0 ||
        cli_call(&cli->server, "POST", webhooks.target, body, &answer, NULL, &err) < 0)
        return cli_fail(&err);
    print_one(cli, &webhooks, answer);
    return CLI_OK;
}

static int run_webhook_add(struct cli *cli, int argc, char **argv)
{
    const char *name = NULL, *secret_env = NULL;
    struct cli_list events = {0};
    const struct cli_option table[] = {
        {"event", 'e', CLI_LIST, &events, "EVENT",
         "created, paused, resumed, killed, ...; may be repeated"},
        {"name", 0, CLI_TEXT, &name, "NAME", "what it is called (its address)"},
        {"secret-env", 0, CLI_TEXT, &secret_env, "NAME",
         "variable with the secret that deliveries are signed with"},
        {.name = NULL},
    };
    char **operands;
    int count,
        rc = cli_args(cli, &webhook_add, table, CLI_ARGS_ANYWHERE, argc, argv, &operands, &count);

    if (rc == CLI_ARGS_RUN && count != 1)
        rc = cli_usage(&webhook_add, "needs one URL");
    else if (rc == CLI_ARGS_RUN && events.count == 0)
        rc = cli_usage(&webhook_add, "needs an --event: what it is told of");
    else if (rc == CLI_ARGS_RUN && !secret_env)
        rc = cli_usage(&webhook_add, "needs --secret-env: the variable with its secret");
    else if (rc == CLI_ARGS_RUN)
        rc = add_webhook(cli, operands[0], name, secret_env, &events);
    cli_list_done(&events);
    return rc;
}

static int run_webhook_ls(struct cli *cli, int argc, char **argv)
{
    return list(cli, &webhook_ls, &webhooks, argc, argv);
}

static int run_webhook_rm(struct cli *cli, int argc, char **argv)
{
    return cli_remove_each(cli, &webhook_rm, webhooks.what, find_target, &webhooks, argc, argv);
}

static const struct cli_command webhook_add = {
    "webhook add", "[OPTION...] URL",
    "Have an address told what happens to the team's sandboxes, and print the webhook's id.",
    run_webhook_add,
    .examples =
        "quicksand webhook add https://ci.example/hook -e created -e killed --secret-env HOOK"};
static const struct cli_command webhook_ls = {"webhook ls", "[OPTION...]", "List the webhooks.",
                                              run_webhook_ls, .examples = "quicksand webhook ls"};
static const struct cli_command webhook_rm = {
    "webhook rm", "[OPTION...] WEBHOOK...", "Remove webhooks: nothing is told there any more.",
    run_webhook_rm, .examples = "quicksand webhook rm ci"};
const struct cli_command cli_webhook_command = {
    "webhook", "add, ls, rm", "Who is told what happens to sandboxes.", NULL,
    (const struct cli_command *const[]){&webhook_add, &webhook_ls, &webhook_rm, NULL}};

/* ---- team ---- */

static const struct cli_command team_create, team_ls, team_set, team_key;

/* -1: not given. */
struct limits {
    int64_t sandboxes, cpu, memory_mb, disk_mb, creates;
    bool ban, unban;
    const char *name;
};

static const struct limits no_limits = {-1, -1, -1, -1, -1, false, false, NULL};

static void set_limit(json_t *body, const char *name, int64_t value)
{
    if (value >= 0)
        (void)json_object_set_new(body, name, json_integer(value));
}

static int send_team(struct cli *cli, const char *method, const char *target,
                     const struct limits *limits, struct error *err)
{
    auto_json json_t *body = json_object(), *answer = NULL;

    set_limit(body, "maxSandboxes", limits->sandboxes);
    set_limit(body, "maxCpu", limits->cpu);
    set_limit(body, "maxMemoryMB", limits->memory_mb);
    set_limit(body, "maxDiskMB", limits->disk_mb);
    set_limit(body, "maxCreatesPerMinute", limits->creates);
    if (limits->ban || limits->unban)
        (void)json_object_set_new(body, "banned", json_boolean(limits->ban));
    if (cli_v1_set(body, "name", limits->name, err) < 0 ||
        cli_call(&cli->server, method, target, body, &answer, NULL, err) < 0)
        return cli_fail(err);
    print_one(cli, &teams, answer);
    return CLI_OK;
}

#define LIMIT_OPTIONS(limits)                                                        \
    {"max-sandboxes", 0, CLI_NUMBER, &(limits).sandboxes, "N", "sandboxes at once"}, \
        {"max-cpu", 0, CLI_NUMBER, &(limits).cpu, "N", "processors in all"},         \
        {"max-memory", 0, CLI_MB_MAX, &(limits).memory_mb, "SIZE", "memory in all"}, \
        {"max-disk", 0, CLI_MB_MAX, &(limits).disk_mb, "SIZE", "disk in all"},       \
    {                                                                                \
        "max-creates", 0, CLI_NUMBER, &(limits).creates, "N", "creates in a minute"  \
    }

static int run_team_create(struct cli *cli, int argc, char **argv)
{
    struct limits limits = no_limits;
    const struct cli_option table[] = {LIMIT_OPTIONS(limits), {.name = NULL}};
    struct error err = {0};
    char **operands;
    int count,
        rc = cli_args(cli, &team_create, table, CLI_ARGS_ANYWHERE, argc, argv, &operands, &count);

    if (rc != CLI_ARGS_RUN)
        return rc;
    if (count != 1)
        return cli_usage(&team_create, "needs one name");
    if (cli_connect(cli, &err) < 0)
        return cli_fail(&err);
    limits.name = operands[0];
    return send_team(cli, "POST", teams.target, &limits, &err);
}

static int run_team_set(struct cli *cli, int argc, char **argv)
{
    struct limits limits = no_limits;
    const struct cli_option table[] = {
        LIMIT_OPTIONS(limits),
        {"name", 0, CLI_TEXT, &limits.name, "NAME", "another name"},
        {"ban", 0, CLI_FLAG, &limits.ban, NULL, "its API keys are refused"},
        {"unban", 0, CLI_FLAG, &limits.unban, NULL, "they are taken again"},
        {.name = NULL},
    };
    auto_free char *target = NULL;
    struct error err = {0};
    char **operands;
    int count,
        rc = cli_args(cli, &team_set, table, CLI_ARGS_ANYWHERE, argc, argv, &operands, &count);

    if (rc != CLI_ARGS_RUN)
        return rc;
    if (count != 1)
        return cli_usage(&team_set, "needs one team");
    if (limits.ban && limits.unban)
        return cli_usage(&team_set, "--ban and --unban exclude each other");
    if (cli_connect(cli, &err) < 0 || !(target = find_target(cli, operands[0], &teams, &err)))
        return cli_fail(&err);
    return send_team(cli, "PATCH", target, &limits, &err);
}

static int run_team_ls(struct cli *cli, int argc, char **argv)
{
    return list(cli, &team_ls, &teams, argc, argv);
}

static int run_team_key(struct cli *cli, int argc, char **argv)
{
    auto_json json_t *body = json_object(), *answer = NULL;
    auto_free char *target = NULL, *keys = NULL, *key = NULL;
    struct error err = {0};
    char **operands;
    int count,
        rc = cli_args(cli, &team_key, NULL, CLI_ARGS_ANYWHERE, argc, argv, &operands, &count);

    if (rc != CLI_ARGS_RUN)
        return rc;
    if (count != 2)
        return cli_usage(&team_key, "needs a team and a name for the key");
    if (cli_v1_set(body, "name", operands[1], &err) < 0 || cli_connect(cli, &err) < 0 ||
        !(target = find_target(cli, operands[0], &teams, &err)))
        return cli_fail(&err);
    keys = xasprintf("%s/api-keys", target);
    if (cli_call(&cli->server, "POST", keys, body, &answer, NULL, &err) < 0)
        return cli_fail(&err);
    key = cli_print_str(answer, "key");
    if (cli->json)
        cli_print_json(answer);
    else
        printf("%s\n", key);
    return CLI_OK;
}

static const struct cli_command team_create = {
    "team create", "[OPTION...] NAME", "Make a team and print its id.", run_team_create,
    .examples = "quicksand team create research --max-sandboxes 20 --max-memory 64g"};
static const struct cli_command team_ls = {"team ls", "[OPTION...]",
                                           "List the teams and their limits (0: none).",
                                           run_team_ls, .examples = "quicksand team ls"};
static const struct cli_command team_set = {"team set", "[OPTION...] TEAM",
                                            "Change a team; what is not given stays.", run_team_set,
                                            .examples = "quicksand team set research --max-cpu 32\n"
                                                        "quicksand team set research --ban"};
static const struct cli_command team_key = {
    "team key", "[OPTION...] TEAM NAME", "Make an API key of a team; it is shown this once.",
    run_team_key, .examples = "quicksand team key research laptop"};
const struct cli_command cli_team_command = {
    "team", "create, ls, set, key", "Who owns sandboxes, keys and limits (for the operator).", NULL,
    (const struct cli_command *const[]){&team_create, &team_ls, &team_set, &team_key, NULL}};
