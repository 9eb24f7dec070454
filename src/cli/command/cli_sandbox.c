/* ls, show, rm. */
#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "cli/core/cli_internal.h"
#include "cli/core/cli_print.h"
#include "cli/core/cli_table.h"
#include "cli/core/cli_v1.h"
#include "protocol/json/json_shape.h"

struct row {
    struct str id, key, provider, image, state, agent_id, task_id, created_at, external_id;
};

static const struct json_field row_fields[] = {
    JSON_FIELD(struct row, id, "id", JSON_REQUIRED),
    JSON_FIELD(struct row, key, "key", 0),
    JSON_FIELD(struct row, provider, "provider", 0),
    JSON_FIELD(struct row, image, "template", 0),
    JSON_FIELD(struct row, state, "state", 0),
    JSON_FIELD(struct row, agent_id, "agent_id", 0),
    JSON_FIELD(struct row, task_id, "task_id", 0),
    JSON_FIELD(struct row, created_at, "created_at", 0),
    JSON_FIELD(struct row, external_id, "external_id", 0),
    JSON_END,
};

static void span_text(struct str from, struct str to, int64_t now_us, char out[CLI_AGE_SIZE])
{
    int64_t from_us = now_us, to_us = now_us;

    if ((from.p && !clock_parse(from, &from_us)) || (to.p && !clock_parse(to, &to_us)))
        (void)snprintf(out, CLI_AGE_SIZE, "?");
    else
        cli_age(to_us - from_us, out);
}

static struct str or_dash(struct str s)
{
    return s.len ? s : STR("-");
}

static void add_row(struct cli_table *table, const struct row *row, int64_t now_us)
{
    char age[CLI_AGE_SIZE];

    span_text(row->created_at, STR_NONE, now_us, age);
    cli_table_add(table, row->id);
    cli_table_add(table, or_dash(row->key));
    cli_table_add(table, or_dash(row->provider));
    cli_table_add(table, or_dash(row->image));
    cli_table_add(table, or_dash(row->state));
    if (row->task_id.len)
        cli_table_addf(table, "%.*s/%.*s", STR_ARG(or_dash(row->agent_id)), STR_ARG(row->task_id));
    else
        cli_table_add(table, or_dash(row->agent_id));
    cli_table_add(table, str_of(age));
}

static int print_all(const json_t *sandboxes, struct error *err)
{
    static const char *const columns[] = {"SANDBOX", "KEY",   "PROVIDER", "TEMPLATE",
                                          "STATE",   "OWNER", "AGE",      NULL};
    struct cli_table *table = cli_table_new(columns);
    int64_t now_us = clock_wall_us();
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < json_array_size(sandboxes); i++) {
        struct row row = {0};

        rc = json_read(row_fields, json_array_get(sandboxes, i), &row, err);
        if (rc == 0)
            add_row(table, &row, now_us);
    }
    if (rc == 0)
        cli_table_print(table, stdout);
    cli_table_free(table);
    return rc;
}

enum { PAGE = 1000 };

/* before_us: made before; 0 = any. */
static json_t *list_page(struct cli *cli, const char *state, const char *agent_id,
                         int64_t before_us, struct error *err)
{
    auto_buf struct buf path = {0};
    auto_json json_t *answer = NULL;

    buf_init(&path, HTTP_URL_MAX);
    (void)buf_printf(&path, CLI_V1 "/sandboxes?limit=%d", PAGE);
    if (before_us)
        (void)buf_printf(&path, "&before=%lld", (long long)before_us);
    if (state) {
        (void)buf_add_str(&path, STR("&state="));
        cli_escape(&path, state);
    }
    if (agent_id) {
        (void)buf_add_str(&path, STR("&agent_id="));
        cli_escape(&path, agent_id);
    }
    if (cli_v1(cli, "GET", buf_take(&path), NULL, &answer, err) < 0)
        return NULL;
    return json_incref(json_object_get(answer, "sandboxes"));
}

/* Those that are new go to the end of all; how many. */
static size_t add_new(json_t *all, json_t *known, const json_t *page)
{
    size_t added = 0;

    for (size_t i = 0; i < json_array_size(page); i++) {
        json_t *one = json_array_get(page, i);
        const char *id = json_string_value(json_object_get(one, "id"));

        if (!id || json_object_get(known, id))
            continue;
        (void)json_object_set_new(known, id, json_true());
        (void)json_array_append(all, one);
        added++;
    }
    return added;
}

/* All pages in one array, or NULL with err. */
static json_t *list_all(struct cli *cli, const char *state, const char *agent_id, struct error *err)
{
    auto_json json_t *all = json_array(), *known = json_object();
    int64_t before_us = 0;

    for (;;) {
        auto_json json_t *page = list_page(cli, state, agent_id, before_us, err);
        size_t count = json_array_size(page);

        if (!page)
            return NULL;
        /* Several may be made in one moment: that one is asked for again. */
        if (add_new(all, known, page) == 0 || count < PAGE ||
            !clock_parse(json_get_str(json_array_get(page, count - 1), "created_at"), &before_us))
            return json_incref(all);
        before_us++;
    }
}

static int run_ls(struct cli *cli, int argc, char **argv)
{
    const char *state = NULL, *agent_id = NULL;
    const struct cli_option table[] = {
        {"state", 0, CLI_TEXT, &state, "STATE", "only these: running, paused, killed, error"},
        {"agent-id", 0, CLI_TEXT, &agent_id, "ID", "only those of this owner"},
        {.name = NULL},
    };
    auto_json json_t *sandboxes = NULL;
    struct error err = {0};
    char **operands;
    int count, rc = cli_args(cli, &cli_ls_command, table, CLI_ARGS_ANYWHERE, argc, argv, &operands,
                             &count);

    if (rc != CLI_ARGS_RUN)
        return rc;
    if (count)
        return cli_usage(&cli_ls_command, "takes no operand");
    if (cli_connect(cli, &err) < 0 || !(sandboxes = list_all(cli, state, agent_id, &err)))
        return cli_fail(&err);
    if (cli->json)
        cli_print_json(sandboxes);
    else if (print_all(sandboxes, &err) < 0)
        return cli_fail(&err);
    return CLI_OK;
}

const struct cli_command cli_ls_command = {
    "ls", "[OPTION...]",
    "List the sandboxes, whoever made them: this command, the API, or an SDK of E2B.", run_ls};

/* query: "?...", or "". */
static json_t *call_one(struct cli *cli, const char *method, const char *id, const char *query,
                        struct error *err)
{
    auto_free char *path = cli_v1_path("sandboxes", id);
    json_t *json = NULL;

    if (cli_v1(cli, method, xasprintf("%s%s", path, query), NULL, &json, err) < 0)
        return NULL;
    return json ? json : json_object();
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
    if (cli_connect(cli, &err) < 0 || !(json = call_one(cli, "GET", operands[0], "", &err)))
        return cli_fail(&err);
    if (cli->json)
        cli_print_json(json);
    else
        cli_print_members(json);
    return CLI_OK;
}

const struct cli_command cli_show_command = {"show", "[OPTION...] SANDBOX",
                                             "Show everything about a sandbox.", run_show};

static int run_rm(struct cli *cli, int argc, char **argv)
{
    auto_json json_t *removed = json_array();
    struct error err = {0};
    bool force = false;
    const struct cli_option table[] = {
        {"force", 'f', CLI_FLAG, &force, NULL, "forget it when its machine cannot be reached"},
        {.name = NULL},
    };
    char **operands;
    int count, status = CLI_OK;
    int rc =
        cli_args(cli, &cli_rm_command, table, CLI_ARGS_ANYWHERE, argc, argv, &operands, &count);

    if (rc != CLI_ARGS_RUN)
        return rc;
    if (count == 0)
        return cli_usage(&cli_rm_command, "needs a sandbox");
    if (cli_connect(cli, &err) < 0)
        return cli_fail(&err);
    for (int i = 0; i < count; i++) {
        auto_json json_t *json =
            call_one(cli, "DELETE", operands[i], force ? "?force=true" : "", &err);

        if (!json) {
            status = cli_fail(&err);
            continue;
        }
        cli_v1_warn_forgotten(operands[i], json);
        (void)json_array_append_new(removed, json_str(str_of(operands[i])));
        if (!cli->json)
            printf("%s\n", operands[i]);
    }
    if (cli->json)
        cli_print_json(removed);
    return status;
}

const struct cli_command cli_rm_command = {
    "rm", "[OPTION...] SANDBOX...",
    "Remove sandboxes, with everything in them.\n"
    "One whose provider is gone, or does not answer, stays in the list until it is removed with\n"
    "--force; whatever it was there is then left alone.",
    run_rm};
