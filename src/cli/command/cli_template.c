/* template: what sandboxes can be made from. */
#include "base/cleanup.h"
#include "base/clock.h"
#include "cli/core/cli_internal.h"
#include "cli/core/cli_print.h"
#include "cli/core/cli_table.h"
#include "protocol/json/json_shape.h"

struct row {
    struct str id, created_at;
    int64_t cpu_count, mem_mb, disk_mb;
    bool is_public;
    json_t *aliases;
};

static const struct json_field row_fields[] = {
    JSON_FIELD(struct row, id, "templateID", JSON_REQUIRED),
    JSON_FIELD(struct row, created_at, "createdAt", 0),
    JSON_FIELD(struct row, cpu_count, "cpuCount", 0),
    JSON_FIELD(struct row, mem_mb, "memoryMB", 0),
    JSON_FIELD(struct row, disk_mb, "diskSizeMB", 0),
    JSON_FIELD(struct row, is_public, "public", 0),
    JSON_FIELD(struct row, aliases, "aliases", 0),
    JSON_END,
};

static void add_row(struct cli_table *table, const struct row *row, int64_t now_us)
{
    const json_t *alias = json_array_get(row->aliases, 0);
    char age[CLI_AGE_SIZE] = "?";
    int64_t created_us;

    if (clock_parse(row->created_at, &created_us))
        cli_age(now_us - created_us, age);
    cli_table_add(table, json_is_string(alias) ? str_of(json_string_value(alias)) : STR("-"));
    cli_table_add(table, row->id);
    cli_table_addf(table, "%lld", (long long)row->cpu_count);
    cli_table_addf(table, "%lld MB", (long long)row->mem_mb);
    cli_table_addf(table, "%lld MB", (long long)row->disk_mb);
    cli_table_add(table, row->is_public ? STR("all") : STR("team"));
    cli_table_add(table, str_of(age));
}

static int print_rows(const json_t *all, struct error *err)
{
    static const char *const columns[] = {"NAME", "ID",  "CPU", "MEMORY",
                                          "DISK", "FOR", "AGE", NULL};
    struct cli_table *table = cli_table_new(columns);
    int64_t now_us = clock_wall_us();
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < json_array_size(all); i++) {
        struct row row = {0};

        rc = json_read(row_fields, json_array_get(all, i), &row, err);
        if (rc == 0)
            add_row(table, &row, now_us);
    }
    if (rc == 0)
        cli_table_print(table, stdout);
    cli_table_free(table);
    return rc;
}

static const struct cli_command ls_command, rm_command, build_command;

static int run_ls(struct cli *cli, int argc, char **argv)
{
    auto_json json_t *all = NULL;
    struct error err = {0};
    char **operands;
    int count,
        rc = cli_args(cli, &ls_command, NULL, CLI_ARGS_ANYWHERE, argc, argv, &operands, &count);

    if (rc != CLI_ARGS_RUN)
        return rc;
    if (count)
        return cli_usage(&ls_command, "takes no operand");
    if (cli_connect(cli, &err) < 0 ||
        cli_call(&cli->server, "GET", "/templates", NULL, &all, NULL, &err) < 0)
        return cli_fail(&err);
    if (cli->json)
        cli_print_json(all);
    else if (print_rows(all, &err) < 0)
        return cli_fail(&err);
    return CLI_OK;
}

static int run_rm(struct cli *cli, int argc, char **argv)
{
    auto_json json_t *removed = json_array();
    struct error err = {0};
    char **operands;
    int count, status = CLI_OK;
    int rc = cli_args(cli, &rm_command, NULL, CLI_ARGS_ANYWHERE, argc, argv, &operands, &count);

    if (rc != CLI_ARGS_RUN)
        return rc;
    if (count == 0)
        return cli_usage(&rm_command, "needs a template");
    if (cli_connect(cli, &err) < 0)
        return cli_fail(&err);
    for (int i = 0; i < count; i++) {
        auto_buf struct buf target = {0};

        buf_init(&target, HTTP_URL_MAX);
        (void)buf_add_str(&target, STR("/templates/"));
        cli_escape(&target, operands[i]);
        if (cli_call(&cli->server, "DELETE", target.p, NULL, NULL, NULL, &err) < 0) {
            status = cli_fail(&err);
            continue;
        }
        (void)json_array_append_new(removed, json_str(str_of(operands[i])));
        if (!cli->json)
            printf("%s\n", operands[i]);
    }
    if (cli->json)
        cli_print_json(removed);
    return status;
}

static int run_build(struct cli *cli, int argc, char **argv)
{
    (void)argc;
    (void)argv;
    if (cli->visit)
        return CLI_OK;
    (void)fprintf(stderr,
                  "quicksand: templates cannot be built yet; set one up with 'quicksand up' "
                  "and keep it with 'quicksand snapshot create'\n");
    return CLI_FAILED;
}

static const struct cli_command ls_command = {"template ls", "[OPTION...]", "List the templates.",
                                              run_ls};
static const struct cli_command rm_command = {"template rm", "[OPTION...] TEMPLATE...",
                                              "Remove templates.", run_rm};
static const struct cli_command build_command = {
    "template build", "NAME", "Not there yet: see 'snapshot create'.", run_build};
const struct cli_command cli_template_command = {
    "template", "ls, rm, build", "What sandboxes can be made from.", NULL,
    (const struct cli_command *const[]){&ls_command, &rm_command, &build_command, NULL}};
