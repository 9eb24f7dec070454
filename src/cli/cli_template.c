/* template: what sandboxes can be made from. */
#include "base/cleanup.h"
#include "base/clock.h"
#include "cli/cli_internal.h"
#include "cli/cli_table.h"
#include "json/json_shape.h"

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

static int run_template(struct cli *cli, int argc, char **argv)
{
    auto_json json_t *all = NULL;
    struct error err = {0};
    char **operands;
    int count, rc = cli_args(cli, &cli_template_command, NULL, CLI_ARGS_ANYWHERE, argc, argv,
                             &operands, &count);

    if (rc != CLI_ARGS_RUN)
        return rc;
    if (count != 1 || strcmp(operands[0], "ls") != 0)
        return cli_usage(&cli_template_command, "knows 'ls'");
    if (cli_connect(cli, &err) < 0 ||
        cli_call(&cli->server, "GET", "/templates", NULL, &all, NULL, &err) < 0)
        return cli_fail(&err);
    if (cli->json) {
        auto_free char *text = json_text(all);

        printf("%s\n", text);
    } else if (print_rows(all, &err) < 0) {
        return cli_fail(&err);
    }
    return CLI_OK;
}

const struct cli_command cli_template_command = {
    "template", "ls", "List what sandboxes can be made from.", run_template};
