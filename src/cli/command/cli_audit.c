/* audit: who changed what, from the server's audit log, newest first. */
#include "base/cleanup.h"
#include "cli/command/commands.h"
#include "cli/core/cli_command.h"
#include "cli/core/cli_print.h"
#include "protocol/json/json_shape.h"

enum { PAGE = 100, LIMIT_DEFAULT = 50 };

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

static char *either(const json_t *row, const char *member, const char *other)
{
    const json_t *value = json_object_get(row, member);

    return cli_print_text(json_string_length(value) ? value : json_object_get(row, other));
}

static char *team(const json_t *row)
{
    return either(row, "teamName", "teamID");
}

static char *key(const json_t *row)
{
    return either(row, "keyName", "keyID");
}

#define AFTER_TEAM                                                                      \
    {"KEY", .text = key}, {"AGENT", "agentID"}, {"METHOD", "method"}, {"PATH", "path"}, \
        {"STATUS", "status"},                                                           \
    {                                                                                   \
        NULL                                                                            \
    }

static void print_rows(const json_t *all, bool all_teams)
{
    static const struct cli_column columns[] = {{"TIME", "timestamp"}, AFTER_TEAM};
    static const struct cli_column with_team[] = {
        {"TIME", "timestamp"}, {"TEAM", .text = team}, AFTER_TEAM};

    cli_print_rows(all, all_teams ? with_team : columns);
}

static int run_audit(struct cli *cli, int argc, char **argv)
{
    int64_t limit = LIMIT_DEFAULT;
    bool all_teams = false;
    const struct cli_option table[] = {
        {"limit", 'n', CLI_COUNT, &limit, "N", "how many entries; 50 when not given"},
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
    print_rows(all, all_teams);
    return CLI_OK;
}

const struct cli_command cli_audit_command = {
    "audit", "",
    "Show who changed what, newest first.\nKEY is '-' for the key from the server's "
    "configuration.",
    run_audit,
    .examples = "quicksand audit\n"
                "quicksand audit --json"};
