/* ls, show, rm: sandboxes of the runtime and those only the engine knows, as one list. */
#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "cli/cli_internal.h"
#include "cli/cli_print.h"
#include "cli/cli_table.h"
#include "cli/cli_v1.h"
#include "json/json_shape.h"

enum { PAGES_MAX = 10000 };

struct row {
    struct str id, template_id, alias, state, started_at, end_at;
};

static const struct json_field row_fields[] = {
    JSON_FIELD(struct row, id, "sandboxID", JSON_REQUIRED),
    JSON_FIELD(struct row, template_id, "templateID", 0),
    JSON_FIELD(struct row, alias, "alias", 0),
    JSON_FIELD(struct row, state, "state", 0),
    JSON_FIELD(struct row, started_at, "startedAt", 0),
    JSON_FIELD(struct row, end_at, "endAt", 0),
    JSON_END,
};

struct runtime_row {
    struct str id, key, provider, image, state, agent_id, task_id, created_at, external_id;
};

static const struct json_field runtime_fields[] = {
    JSON_FIELD(struct runtime_row, id, "id", JSON_REQUIRED),
    JSON_FIELD(struct runtime_row, key, "key", 0),
    JSON_FIELD(struct runtime_row, provider, "provider", 0),
    JSON_FIELD(struct runtime_row, image, "template", 0),
    JSON_FIELD(struct runtime_row, state, "state", 0),
    JSON_FIELD(struct runtime_row, agent_id, "agent_id", 0),
    JSON_FIELD(struct runtime_row, task_id, "task_id", 0),
    JSON_FIELD(struct runtime_row, created_at, "created_at", 0),
    JSON_FIELD(struct runtime_row, external_id, "external_id", 0),
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

static struct str or_dash(struct str s)
{
    return s.len ? s : STR("-");
}

static void add_engine_row(struct cli_table *table, const struct row *row, int64_t now_us)
{
    char age[CLI_AGE_SIZE], left[CLI_AGE_SIZE];

    span_text(row->started_at, STR_NONE, now_us, age);
    span_text(STR_NONE, row->end_at, now_us, left);
    cli_table_add(table, row->id);
    cli_table_add(table, STR("-"));
    cli_table_add(table, STR("engine"));
    cli_table_add(table, row->alias.len ? row->alias : row->template_id);
    cli_table_add(table, row->state);
    cli_table_add(table, STR("-"));
    cli_table_add(table, str_of(age));
    cli_table_add(table, str_of(left));
}

static void add_runtime_row(struct cli_table *table, const struct runtime_row *row, int64_t now_us)
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
    cli_table_add(table, STR("-"));
}

static int print_all(const json_t *runtime, const json_t *engine, struct error *err)
{
    static const char *const columns[] = {"SANDBOX", "KEY", "PROVIDER", "TEMPLATE", "STATE",
                                          "OWNER",   "AGE", "LEFT",     NULL};
    struct cli_table *table = cli_table_new(columns);
    int64_t now_us = clock_wall_us();
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < json_array_size(runtime); i++) {
        struct runtime_row row = {0};

        rc = json_read(runtime_fields, json_array_get(runtime, i), &row, err);
        if (rc == 0)
            add_runtime_row(table, &row, now_us);
    }
    for (size_t i = 0; rc == 0 && i < json_array_size(engine); i++) {
        struct row row = {0};

        rc = json_read(row_fields, json_array_get(engine, i), &row, err);
        if (rc == 0)
            add_engine_row(table, &row, now_us);
    }
    if (rc == 0)
        cli_table_print(table, stdout);
    cli_table_free(table);
    return rc;
}

/* Takes out of the engine's what the runtime has listed. */
static void drop_known(const json_t *runtime, json_t *engine)
{
    auto_json json_t *known = json_object();
    size_t i = 0;

    for (size_t k = 0; k < json_array_size(runtime); k++) {
        auto_free char *id = str_dup(json_get_str(json_array_get(runtime, k), "external_id"));

        (void)json_object_set_new(known, id, json_true());
    }
    while (i < json_array_size(engine)) {
        auto_free char *id = str_dup(json_get_str(json_array_get(engine, i), "sandboxID"));

        if (json_object_get(known, id))
            (void)json_array_remove(engine, i);
        else
            i++;
    }
}

/* The runtime's; a server without one has none. */
static json_t *list_runtime(struct cli *cli, const char *state, const char *agent_id,
                            struct error *err)
{
    auto_buf struct buf path = {0};
    auto_json json_t *answer = NULL;

    buf_init(&path, HTTP_URL_MAX);
    (void)buf_add_str(&path, STR(CLI_V1 "/sandboxes?limit=1000"));
    if (state) {
        (void)buf_add_str(&path, STR("&state="));
        cli_escape(&path, state);
    }
    if (agent_id) {
        (void)buf_add_str(&path, STR("&agent_id="));
        cli_escape(&path, agent_id);
    }
    if (cli_v1(cli, "GET", buf_take(&path), NULL, &answer, err) < 0)
        return err->code == ERROR_NOT_FOUND ? json_array() : NULL;
    return json_incref(json_object_get(answer, "sandboxes"));
}

static int run_ls(struct cli *cli, int argc, char **argv)
{
    const char *state = NULL, *agent_id = NULL;
    const struct cli_option table[] = {
        {"state", 0, CLI_TEXT, &state, "STATE", "only these: running, paused, killed, error"},
        {"agent-id", 0, CLI_TEXT, &agent_id, "ID", "only those of this owner"},
        {.name = NULL},
    };
    auto_json json_t *runtime = NULL, *engine = NULL;
    struct error err = {0};
    char **operands;
    int count, rc = cli_args(cli, &cli_ls_command, table, CLI_ARGS_ANYWHERE, argc, argv, &operands,
                             &count);

    if (rc != CLI_ARGS_RUN)
        return rc;
    if (count)
        return cli_usage(&cli_ls_command, "takes no operand");
    if (cli_connect(cli, &err) < 0 || !(runtime = list_runtime(cli, state, agent_id, &err)))
        return cli_fail(&err);
    engine = state || agent_id ? json_array() : list_all(cli, &err);
    if (!engine)
        return cli_fail(&err);
    drop_known(runtime, engine);
    if (cli->json) {
        (void)json_array_extend(runtime, engine);
        cli_print_json(runtime);
    } else if (print_all(runtime, engine, &err) < 0) {
        return cli_fail(&err);
    }
    return CLI_OK;
}

const struct cli_command cli_ls_command = {
    "ls", "[OPTION...]",
    "List the sandboxes.\n"
    "Those of the runtime (sbx_...), then those that only the engine knows (i...).",
    run_ls};

/* query: for the runtime's, or "". */
static json_t *get_one(struct cli *cli, const char *method, const char *id, const char *query,
                       struct error *err)
{
    auto_buf struct buf target = {0};
    json_t *json = NULL;

    if (cli_v1_is_id(id)) {
        auto_free char *path = cli_v1_path("sandboxes", id);

        if (cli_v1(cli, method, xasprintf("%s%s", path, query), NULL, &json, err) < 0)
            return NULL;
        return json ? json : json_object();
    }
    buf_init(&target, HTTP_URL_MAX);
    (void)buf_add_str(&target, STR("/sandboxes/"));
    cli_escape(&target, id);
    if (cli_call(&cli->server, method, target.p, NULL, &json, NULL, err) < 0)
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
    if (cli_connect(cli, &err) < 0 || !(json = get_one(cli, "GET", operands[0], "", &err)))
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
            get_one(cli, "DELETE", operands[i], force ? "?force=true" : "", &err);

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
