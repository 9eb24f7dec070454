/* key: API keys. They are in the server's database, not in its API: whoever may read the database
 * (root on the server's host) may make keys. */
#include <errno.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "cli/command/commands.h"
#include "cli/core/cli.h"
#include "cli/core/cli_command.h"
#include "cli/core/cli_print.h"
#include "cli/core/cli_table.h"
#include "domain/account/api_key.h"
#include "domain/account/team.h"
#include "protocol/json/json_shape.h"
#include "store/core/store.h"

/* Never makes one: the server would then find a database that is not its own. */
static int open_store(const struct cli *cli, struct store **out, struct error *err)
{
    auto_free char *path = xasprintf("%s/" CLI_STORE_FILE, cli->data_dir);

    if (access(path, F_OK) < 0)
        return error_set(err, ERROR_NOT_FOUND,
                         "there is no database at '%s' (%s): start the server once, or name its "
                         "data directory with --data or QUICKSAND_DATA",
                         path, strerror(errno));
    if (access(path, R_OK | W_OK) < 0)
        return error_set(err, ERROR_FORBIDDEN, "'%s' may not be written: use sudo", path);
    return store_open(path, out, err);
}

struct key_row {
    struct str id, name, mask, created_at, last_used_at, key, agent_id, sandbox_id;
};

static const struct json_field key_fields[] = {
    JSON_FIELD(struct key_row, id, "id", JSON_OMIT_EMPTY),
    JSON_FIELD(struct key_row, name, "name", 0),
    JSON_FIELD(struct key_row, mask, "mask", JSON_OMIT_EMPTY),
    JSON_FIELD(struct key_row, agent_id, "agentID", JSON_OMIT_EMPTY),
    JSON_FIELD(struct key_row, sandbox_id, "sandboxID", JSON_OMIT_EMPTY),
    JSON_FIELD(struct key_row, created_at, "createdAt", JSON_OMIT_EMPTY),
    JSON_FIELD(struct key_row, last_used_at, "lastUsedAt", JSON_OMIT_EMPTY),
    JSON_FIELD(struct key_row, key, "key", JSON_OMIT_EMPTY),
    JSON_END,
};

static void print_json(json_t *json_consume)
{
    auto_free char *text = json_text(json_consume);

    printf("%s\n", text);
    json_decref(json_consume);
}

static void print_keys_json(const struct store_key *keys, size_t count)
{
    json_t *array = json_array();

    for (size_t i = 0; i < count; i++) {
        char created_at[CLOCK_TEXT_SIZE], last_used_at[CLOCK_TEXT_SIZE];
        struct key_row row = {.id = keys[i].id, .name = keys[i].name, .mask = keys[i].mask};

        if (keys[i].agent_id.len)
            row.agent_id = keys[i].agent_id;
        if (keys[i].sandbox_id.len)
            row.sandbox_id = keys[i].sandbox_id;
        clock_format(keys[i].created_at_us, created_at);
        clock_format(keys[i].last_used_at_us, last_used_at);
        row.created_at = str_of(created_at);
        if (keys[i].last_used_at_us)
            row.last_used_at = str_of(last_used_at);
        (void)json_array_append_new(array, json_write(key_fields, &row));
    }
    print_json(array);
}

static void print_keys(const struct store_key *keys, size_t count)
{
    static const char *const columns[] = {"ID", "NAME", "KEY", "FOR", "AGE", "USED", NULL};
    struct cli_table *table = cli_table_new(columns);
    int64_t now_us = clock_wall_us();

    for (size_t i = 0; i < count; i++) {
        char age[CLI_AGE_SIZE], used[CLI_AGE_SIZE];

        cli_age(now_us - keys[i].created_at_us, age);
        cli_age(now_us - keys[i].last_used_at_us, used);
        cli_table_add(table, keys[i].id);
        cli_table_add(table, keys[i].name.len ? keys[i].name : STR("-"));
        cli_table_add(table, keys[i].mask);
        if (keys[i].sandbox_id.len)
            cli_table_addf(table, "sandbox %.*s", STR_ARG(keys[i].sandbox_id));
        else if (keys[i].agent_id.len)
            cli_table_addf(table, "agent %.*s", STR_ARG(keys[i].agent_id));
        else
            cli_table_add(table, STR("team"));
        cli_table_add(table, str_of(age));
        if (keys[i].last_used_at_us)
            cli_table_addf(table, "%s ago", used);
        else
            cli_table_add(table, STR("never"));
    }
    cli_table_print(table, stdout);
    cli_table_free(table);
}

struct key_scope {
    const char *agent, *sandbox, *role;
};

static int key_ls(struct cli *cli, struct store *store, const struct key_scope *scope,
                  char **operands, int count, struct error *err)
{
    auto_arena struct arena arena = {0};
    struct store_key *keys = NULL;
    size_t n = 0;

    (void)scope;
    (void)operands;
    (void)count;
    if (api_key_list(store, STR(TEAM_DEFAULT_ID), &arena, &keys, &n, err) < 0)
        return -1;
    if (cli->json)
        print_keys_json(keys, n);
    else
        print_keys(keys, n);
    return 0;
}

static int key_new(struct cli *cli, struct store *store, const struct key_scope *scope,
                   char **operands, int count, struct error *err)
{
    auto_arena struct arena arena = {0};
    struct key_row row = {.name = str_of(operands[0]),
                          .agent_id = str_of(scope->agent),
                          .sandbox_id = str_of(scope->sandbox)};
    struct api_key_wanted wanted = {.team_id = STR(TEAM_DEFAULT_ID),
                                    .name = row.name,
                                    .agent_id = row.agent_id,
                                    .sandbox_id = row.sandbox_id};
    struct store_key made = {0};
    char key[API_KEY_SIZE];

    (void)count;
    /* Whoever can open the store is the operator. */
    if (api_role_give(API_ROLE_FULL, wanted.team_id, str_of(scope->role), &wanted.role, err) < 0)
        return error_prefix(err, "--role");
    if (api_key_new(store, &wanted, &arena, &made, key, err) < 0)
        return -1;
    row.id = made.id;
    row.key = str_of(key);
    if (cli->json)
        print_json(json_write(key_fields, &row));
    else
        printf("%s\n", key);
    return 0;
}

static int key_rm(struct cli *cli, struct store *store, const struct key_scope *scope,
                  char **operands, int count, struct error *err)
{
    (void)cli;
    (void)scope;
    for (int i = 0; i < count; i++)
        if (api_key_delete(store, STR(TEAM_DEFAULT_ID), str_of(operands[i]), err) < 0)
            return error_prefix(err, "key '%s'", operands[i]);
    return 0;
}

static const struct cli_command ls_command, new_command, rm_command, saved_command;

typedef int key_fn(struct cli *cli, struct store *store, const struct key_scope *scope,
                   char **operands, int count, struct error *err);

static int run_verb(struct cli *cli, const struct cli_command *command, key_fn *run, int least,
                    int most, int argc, char **argv)
{
    struct key_scope scope = {0};
    const struct cli_option table[] = {
        {"data", 0, CLI_TEXT, &cli->data_dir, "DIR", "the server's data directory"},
        {run == key_new ? "agent" : NULL, 0, CLI_TEXT, &scope.agent, "ID",
         "it acts as this agent, whatever a request says"},
        {"sandbox", 0, CLI_TEXT, &scope.sandbox, "ID",
         "it may use this sandbox and nothing else, and ends with it"},
        {"role", 0, CLI_TEXT, &scope.role, "ROLE", "operator (default), member, viewer or metrics"},
        {.name = NULL},
    };
    auto_store struct store *store = NULL;
    struct error err = {0};
    char **operands;
    int count, rc = cli_args(cli, command, table, CLI_ARGS_ANYWHERE, argc, argv, &operands, &count);

    if (rc != CLI_ARGS_RUN)
        return rc;
    if (count < least || count > most)
        return cli_usage(command, most == 0   ? "takes no operand"
                                  : most == 1 ? "needs one name"
                                              : "needs the id of a key");
    if (open_store(cli, &store, &err) < 0 || run(cli, store, &scope, operands, count, &err) < 0)
        return cli_fail(&err);
    return CLI_OK;
}

static int run_ls(struct cli *cli, int argc, char **argv)
{
    return run_verb(cli, &ls_command, key_ls, 0, 0, argc, argv);
}

static int run_new(struct cli *cli, int argc, char **argv)
{
    return run_verb(cli, &new_command, key_new, 1, 1, argc, argv);
}

static int run_rm(struct cli *cli, int argc, char **argv)
{
    return run_verb(cli, &rm_command, key_rm, 1, 1000, argc, argv);
}

static int run_saved(struct cli *cli, int argc, char **argv)
{
    struct error err = {0};
    char **operands;
    int count,
        rc = cli_args(cli, &saved_command, NULL, CLI_ARGS_ANYWHERE, argc, argv, &operands, &count);

    if (rc != CLI_ARGS_RUN)
        return rc;
    if (count)
        return cli_usage(&saved_command, "takes no operand");
    if (cli_connect(cli, &err) < 0)
        return cli_fail(&err);
    if (cli->json)
        cli_print_json_new(json_pack("{s:s}", "key", cli->server.key));
    else
        printf("%s\n", cli->server.key);
    return CLI_OK;
}

static const struct cli_command saved_command = {
    "key saved", "[OPTION...]",
    "Print the key that commands here use: that of the environment or of ~/" CLI_CREDENTIALS ".",
    run_saved, .examples = "quicksand key saved"};
static const struct cli_command ls_command = {"key ls", "[OPTION...]", "List API keys.", run_ls,
                                              .examples = "quicksand key ls"};
static const struct cli_command new_command = {
    "key new", "[OPTION...] NAME", "Make an API key and print it, once; only its hash is kept.",
    run_new,
    .examples = "quicksand key new laptop\n"
                "quicksand key new prometheus --role metrics"};
static const struct cli_command rm_command = {"key rm", "[OPTION...] ID...", "Remove API keys.",
                                              run_rm, .examples = "quicksand key rm ID"};
const struct cli_command cli_key_command = {
    "key", "ls, new, rm, saved", "API keys (as root, on the server's host).", NULL,
    (const struct cli_command *const[]){&ls_command, &new_command, &rm_command, &saved_command,
                                        NULL}};
