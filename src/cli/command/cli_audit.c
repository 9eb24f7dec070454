/* audit: who changed what, from the server's audit log, newest first. */
#include "base/cleanup.h"
#include "base/clock.h"
#include "cli/core/cli_internal.h"
#include "cli/core/cli_table.h"
#include "protocol/json/json_shape.h"

enum { PAGE = 100, LIMIT_DEFAULT = 50 };

struct audit_row {
    struct str at, team_id, team_name, key_id, key_name, agent_id, method, path, request_id;
    int64_t id, status;
};

static const struct json_field row_fields[] = {
    JSON_FIELD(struct audit_row, id, "id", JSON_REQUIRED),
    JSON_FIELD(struct audit_row, at, "timestamp", JSON_REQUIRED),
    JSON_FIELD(struct audit_row, team_id, "teamID", 0),
    JSON_FIELD(struct audit_row, team_name, "teamName", 0),
    JSON_FIELD(struct audit_row, key_id, "keyID", 0),
    JSON_FIELD(struct audit_row, key_name, "keyName", 0),
    JSON_FIELD(struct audit_row, agent_id, "agentID", 0),
    JSON_FIELD(struct audit_row, method, "method", 0),
    JSON_FIELD(struct audit_row, path, "path", 0),
    JSON_FIELD(struct audit_row, status, "status", 0),
    JSON_FIELD(struct audit_row, request_id, "requestID", 0),
    JSON_END,
};

/* The newest `limit` entries, page by page; NULL with err. */
static json_t *read_log(struct cli *cli, int64_t limit, bool all_teams, struct error *err)
{
    auto_json json_t *all = json_array();
    auto_buf struct buf target = {0}, next = {0};

    buf_init(&target, 1024);
    buf_init(&next, 256);
    do {
        int64_t left = limit - (int64_t)json_array_size(all);
        auto_json json_t *page = NULL;

        buf_clear(&target);
        (void)buf_printf(&target, "/audit?limit=%lld%s", (long long)(left < PAGE ? left : PAGE),
                         all_teams ? "&all=true" : "");
        if (next.len) {
            (void)buf_add_str(&target, STR("&nextToken="));
            cli_escape(&target, next.p);
        }
        if (cli_call(&cli->server, "GET", target.p, NULL, &page, &next, err) < 0)
            return NULL;
        (void)json_array_extend(all, page);
    } while (next.len && (int64_t)json_array_size(all) < limit);
    return json_incref(all);
}

static int print_rows(const json_t *all, bool all_teams, struct error *err)
{
    static const char *const columns[] = {"TIME", "KEY", "AGENT", "METHOD", "PATH", "STATUS", NULL};
    static const char *const with_team[] = {"TIME",   "TEAM", "KEY",    "AGENT",
                                            "METHOD", "PATH", "STATUS", NULL};
    struct cli_table *table = cli_table_new(all_teams ? with_team : columns);
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < json_array_size(all); i++) {
        struct audit_row row = {0};

        rc = json_read(row_fields, json_array_get(all, i), &row, err);
        if (rc < 0)
            break;
        cli_table_add(table, row.at);
        if (all_teams)
            cli_table_add(table, row.team_name.len ? row.team_name : row.team_id);
        cli_table_add(table, row.key_name.len ? row.key_name
                             : row.key_id.len ? row.key_id
                                              : STR("-"));
        cli_table_add(table, row.agent_id.len ? row.agent_id : STR("-"));
        cli_table_add(table, row.method);
        cli_table_add(table, row.path);
        cli_table_addf(table, "%lld", (long long)row.status);
    }
    if (rc == 0)
        cli_table_print(table, stdout);
    cli_table_free(table);
    return rc;
}

static int run_audit(struct cli *cli, int argc, char **argv)
{
    int64_t limit = LIMIT_DEFAULT;
    bool all_teams = false;
    const struct cli_option table[] = {
        {"limit", 'n', CLI_NUMBER, &limit, "N", "how many entries; 50 when not given"},
        {"all", 'a', CLI_FLAG, &all_teams, NULL, "of all teams (for keys of the default team)"},
        {.name = NULL},
    };
    auto_json json_t *all = NULL;
    struct error err = {0};
    char **operands;
    int count, rc = cli_args(cli, &cli_audit_command, table, CLI_ARGS_ANYWHERE, argc, argv,
                             &operands, &count);

    if (rc != CLI_ARGS_RUN)
        return rc;
    if (count)
        return cli_usage(&cli_audit_command, "takes no operand");
    if (limit < 1)
        return cli_usage(&cli_audit_command, "--limit must be at least 1");
    if (cli_connect(cli, &err) < 0)
        return cli_fail(&err);
    all = read_log(cli, limit, all_teams, &err);
    if (!all)
        return cli_fail(&err);
    if (cli->json) {
        auto_free char *text = json_text(all);

        printf("%s\n", text);
        return CLI_OK;
    }
    return print_rows(all, all_teams, &err) < 0 ? cli_fail(&err) : CLI_OK;
}

const struct cli_command cli_audit_command = {
    "audit", "",
    "Show who changed what, newest first.\nKEY is '-' for the key from the server's "
    "configuration.",
    run_audit};
