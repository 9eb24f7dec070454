/* ls, show, rm. */
#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "cli/cli_internal.h"
#include "cli/cli_table.h"
#include "json/json_shape.h"

enum { PAGES_MAX = 10000 };

struct row {
    struct str id, template_id, alias, state, started_at, end_at;
    int64_t cpu_count, mem_mb;
    json_t *metadata;
};

static const struct json_field row_fields[] = {
    JSON_FIELD(struct row, id, "sandboxID", JSON_REQUIRED),
    JSON_FIELD(struct row, template_id, "templateID", 0),
    JSON_FIELD(struct row, alias, "alias", 0),
    JSON_FIELD(struct row, state, "state", 0),
    JSON_FIELD(struct row, started_at, "startedAt", 0),
    JSON_FIELD(struct row, end_at, "endAt", 0),
    JSON_FIELD(struct row, cpu_count, "cpuCount", 0),
    JSON_FIELD(struct row, mem_mb, "memoryMB", 0),
    JSON_FIELD(struct row, metadata, "metadata", 0),
    JSON_END,
};

/* All pages in one array, or NULL with err. */
static json_t *list_all(struct cli *cli, struct error *err)
{
    auto_json json_t *all = json_array();
    auto_buf struct buf target = {0}, next = {0};

    buf_init(&target, HTTP_URL_MAX);
    buf_init(&next, HTTP_URL_MAX);
    for (int i = 0; i < PAGES_MAX; i++) {
        auto_json json_t *page = NULL;

        buf_clear(&target);
        (void)buf_add_str(&target, STR("/v2/sandboxes?limit=100"));
        if (next.len) {
            (void)buf_add_str(&target, STR("&nextToken="));
            cli_escape(&target, next.p);
        }
        if (cli_call(&cli->server, "GET", target.p, NULL, &page, &next, err) < 0)
            return NULL;
        (void)json_array_extend(all, page);
        if (!next.len)
            break;
    }
    return json_incref(all);
}

static void span_text(struct str from, struct str to, int64_t now_us, char out[CLI_AGE_SIZE])
{
    int64_t from_us = now_us, to_us = now_us;

    if ((from.p && !clock_parse(from, &from_us)) || (to.p && !clock_parse(to, &to_us)))
        (void)snprintf(out, CLI_AGE_SIZE, "?");
    else
        cli_age(to_us - from_us, out);
}

static void add_row(struct cli_table *table, const struct row *row, int64_t now_us)
{
    auto_free char *metadata = json_object_size(row->metadata) ? json_text(row->metadata) : NULL;
    char age[CLI_AGE_SIZE], left[CLI_AGE_SIZE];

    span_text(row->started_at, STR_NONE, now_us, age);
    span_text(STR_NONE, row->end_at, now_us, left);
    cli_table_add(table, row->id);
    cli_table_add(table, row->alias.len ? row->alias : row->template_id);
    cli_table_add(table, row->state);
    cli_table_add(table, str_of(age));
    cli_table_add(table, str_of(left));
    cli_table_addf(table, "%lld", (long long)row->cpu_count);
    cli_table_addf(table, "%lld MB", (long long)row->mem_mb);
    cli_table_add(table, metadata ? str_of(metadata) : STR("-"));
}

static int print_rows(const json_t *all, struct error *err)
{
    static const char *const columns[] = {"SANDBOX", "TEMPLATE", "STATE",    "AGE", "LEFT",
                                          "CPU",     "MEMORY",   "METADATA", NULL};
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

static void print_json(const json_t *json)
{
    auto_free char *text = json_text(json);

    printf("%s\n", text);
}

static int run_ls(struct cli *cli, int argc, char **argv)
{
    auto_json json_t *all = NULL;
    struct error err = {0};
    char **operands;
    int count,
        rc = cli_args(cli, &cli_ls_command, NULL, CLI_ARGS_ANYWHERE, argc, argv, &operands, &count);

    if (rc != CLI_ARGS_RUN)
        return rc;
    if (count)
        return cli_usage(&cli_ls_command, "takes no operand");
    if (cli_connect(cli, &err) < 0 || !(all = list_all(cli, &err)))
        return cli_fail(&err);
    if (cli->json)
        print_json(all);
    else if (print_rows(all, &err) < 0)
        return cli_fail(&err);
    return CLI_OK;
}

const struct cli_command cli_ls_command = {"ls", "[OPTION...]", "List the sandboxes.", run_ls};

static json_t *get_one(struct cli *cli, const char *method, const char *id, struct error *err)
{
    auto_buf struct buf target = {0};
    json_t *json = NULL;

    buf_init(&target, HTTP_URL_MAX);
    (void)buf_add_str(&target, STR("/sandboxes/"));
    cli_escape(&target, id);
    if (cli_call(&cli->server, method, target.p, NULL, &json, NULL, err) < 0)
        return NULL;
    return json ? json : json_object();
}

/* One line per member; the token is left to --json. */
static void print_members(const json_t *json)
{
    static const char *const columns[] = {"FIELD", "VALUE", NULL};
    struct cli_table *table = cli_table_new(columns);

    for (void *at = json_object_iter((json_t *)(uintptr_t)json); at;
         at = json_object_iter_next((json_t *)(uintptr_t)json, at)) {
        const json_t *value = json_object_iter_value(at);
        auto_free char *text = json_text(value);

        if (strcmp(json_object_iter_key(at), "envdAccessToken") == 0)
            continue;
        cli_table_add(table, str_of(json_object_iter_key(at)));
        if (json_is_string(value))
            cli_table_add(table, str_n(json_string_value(value), json_string_length(value)));
        else
            cli_table_add(table, json_is_null(value) ? STR("-") : str_of(text));
    }
    cli_table_print(table, stdout);
    cli_table_free(table);
}

static int run_show(struct cli *cli, int argc, char **argv)
{
    auto_json json_t *json = NULL;
    struct error err = {0};
    char **operands;
    int count, rc = cli_args(cli, &cli_show_command, NULL, CLI_ARGS_ANYWHERE, argc, argv, &operands,
                             &count);

    if (rc != CLI_ARGS_RUN)
        return rc;
    if (count != 1)
        return cli_usage(&cli_show_command, "needs one sandbox");
    if (cli_connect(cli, &err) < 0 || !(json = get_one(cli, "GET", operands[0], &err)))
        return cli_fail(&err);
    if (cli->json)
        print_json(json);
    else
        print_members(json);
    return CLI_OK;
}

const struct cli_command cli_show_command = {"show", "[OPTION...] SANDBOX",
                                             "Show everything about a sandbox.", run_show};

static int run_rm(struct cli *cli, int argc, char **argv)
{
    auto_json json_t *removed = json_array();
    struct error err = {0};
    char **operands;
    int count, status = CLI_OK;
    int rc = cli_args(cli, &cli_rm_command, NULL, CLI_ARGS_ANYWHERE, argc, argv, &operands, &count);

    if (rc != CLI_ARGS_RUN)
        return rc;
    if (count == 0)
        return cli_usage(&cli_rm_command, "needs a sandbox");
    if (cli_connect(cli, &err) < 0)
        return cli_fail(&err);
    for (int i = 0; i < count; i++) {
        auto_json json_t *json = get_one(cli, "DELETE", operands[i], &err);

        if (!json) {
            status = cli_fail(&err);
            continue;
        }
        (void)json_array_append_new(removed, json_str(str_of(operands[i])));
        if (!cli->json)
            printf("%s\n", operands[i]);
    }
    if (cli->json)
        print_json(removed);
    return status;
}

const struct cli_command cli_rm_command = {"rm", "[OPTION...] SANDBOX...",
                                           "Remove sandboxes, with everything in them.", run_rm};
