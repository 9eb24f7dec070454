/* template: what sandboxes can be made from. */
#include "cli/command/cli_template.h"
#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/size.h"
#include "cli/build/follow.h"
#include "cli/command/commands.h"
#include "cli/core/cli_command.h"
#include "cli/core/cli_each.h"
#include "cli/core/cli_print.h"
#include "protocol/json/json_shape.h"

static char *name(const json_t *row)
{
    return cli_print_text(json_array_get(json_object_get(row, "aliases"), 0));
}

static char *mebibytes(const json_t *row, const char *member)
{
    char text[SIZE_TEXT];

    return xstrdup(
        size_text((uint64_t)json_integer_value(json_object_get(row, member)) << 20, text));
}

static char *memory(const json_t *row)
{
    return mebibytes(row, "memoryMB");
}

static char *disk(const json_t *row)
{
    return mebibytes(row, "diskSizeMB");
}

/* The platform's own base is not counted, and is all that some templates have. */
static char *size(const json_t *row)
{
    json_int_t bytes = json_integer_value(json_object_get(row, "layerBytes"));

    char text[SIZE_TEXT];

    return xstrdup(bytes ? size_text((uint64_t)bytes, text) : "-");
}

static char *for_whom(const json_t *row)
{
    return xstrdup(json_is_true(json_object_get(row, "public")) ? "all" : "team");
}

static const struct cli_column columns[] = {
    {"NAME", .text = name},
    {"ID", "templateID"},
    {"CPU", "cpuCount"},
    {"MEMORY", .text = memory},
    {"DISK", .text = disk},
    {"SIZE", .text = size},
    {"LAYERS", "layerCount"},
    {"FOR", .text = for_whom},
    {"BUILDS", "buildCount"},
    {"STATE", "buildStatus"},
    {"AGE", "createdAt", .age = true},
    {NULL},
};

static const struct cli_command ls_command, show_command, rm_command, tag_command, logs_command;

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
    else
        cli_print_rows(all, columns);
    return CLI_OK;
}

/* "/templates/ID" and what follows it. */
static char *target_of(const char *name, const char *rest)
{
    struct buf target;

    buf_init(&target, HTTP_URL_MAX);
    (void)buf_add_str(&target, STR("/templates/"));
    cli_escape(&target, name);
    (void)buf_add_str(&target, str_of(rest));
    return buf_take(&target);
}

static char *rm_target(struct cli *cli, const char *word, const void *arg, struct error *err)
{
    (void)cli;
    (void)arg;
    (void)err;
    return target_of(word, "");
}

static int run_rm(struct cli *cli, int argc, char **argv)
{
    return cli_remove_each(cli, &rm_command, "template", rm_target, NULL, argc, argv);
}

static const struct cli_column build_columns[] = {
    {"ID", "buildID"},
    {"STATE", "status"},
    {"CPU", "cpuCount"},
    {"MEMORY", .text = memory},
    {"AGE", "createdAt", .age = true},
    {NULL},
};

static const struct cli_column tag_columns[] = {
    {"TAG", "tag"},
    {"BUILD", "buildID"},
    {"AGE", "createdAt", .age = true},
    {NULL},
};

static int show(struct cli *cli, const char *name, struct error *err)
{
    auto_free char *target = target_of(name, ""), *tags_target = target_of(name, "/tags");
    auto_json json_t *template = NULL, *tags = NULL, *builds = NULL;

    if (cli_call(&cli->server, "GET", target, NULL, &template, NULL, err) < 0 ||
        cli_call(&cli->server, "GET", tags_target, NULL, &tags, NULL, err) < 0)
        return -1;
    if (cli->json) {
        (void)json_object_set(template, "tags", tags);
        cli_print_json(template);
        return 0;
    }
    builds = json_incref(json_object_get(template, "builds"));
    (void)json_object_del(template, "builds");
    cli_print_members(template);
    printf("\n");
    cli_print_rows(tags, tag_columns);
    printf("\n");
    cli_print_rows(builds, build_columns);
    return 0;
}

static int run_show(struct cli *cli, int argc, char **argv)
{
    struct error err = {0};
    char **operands;
    int count,
        rc = cli_args(cli, &show_command, NULL, CLI_ARGS_ANYWHERE, argc, argv, &operands, &count);

    if (rc != CLI_ARGS_RUN)
        return rc;
    if (count != 1)
        return cli_usage(&show_command, "needs one template");
    if (cli_connect(cli, &err) < 0 || show(cli, operands[0], &err) < 0)
        return cli_fail(&err);
    return CLI_OK;
}

static int run_tag(struct cli *cli, int argc, char **argv)
{
    bool remove = false;
    const struct cli_option table[] = {
        {"rm", 0, CLI_FLAG, &remove, NULL, "take the tags away"},
        {.name = NULL},
    };
    auto_json json_t *body = NULL, *answer = NULL, *tags = json_array();
    struct error err = {0};
    char **operands;
    int count,
        rc = cli_args(cli, &tag_command, table, CLI_ARGS_ANYWHERE, argc, argv, &operands, &count);

    if (rc != CLI_ARGS_RUN)
        return rc;
    if (count < 2)
        return cli_usage(&tag_command, "needs a template and a tag");
    for (int i = 1; i < count; i++)
        (void)json_array_append_new(tags, json_str(str_of(operands[i])));
    body = json_pack("{s:o,s:O}", remove ? "name" : "target", json_str(str_of(operands[0])), "tags",
                     tags);
    if (cli_connect(cli, &err) < 0 || cli_call(&cli->server, remove ? "DELETE" : "POST",
                                               "/templates/tags", body, &answer, NULL, &err) < 0)
        return cli_fail(&err);
    if (cli->json)
        cli_print_json(answer);
    return CLI_OK;
}

/* The newest build, however it ended. */
static int newest_build(struct cli *cli, const char *name, json_t **out, struct error *err)
{
    auto_free char *target = target_of(name, "");

    if (cli_call(&cli->server, "GET", target, NULL, out, NULL, err) < 0)
        return -1;
    if (json_array_size(json_object_get(*out, "builds")))
        return 0;
    return error_set(err, ERROR_NOT_FOUND, "template '%s' has no build", name);
}

static int print_logs(struct cli *cli, const char *template_id, const char *build_id,
                      struct error *err)
{
    for (size_t offset = 0, count = 1; count;) {
        auto_json json_t *page = NULL;
        const json_t *entries;

        if (follow_page(cli, template_id, build_id, offset, &page, err) < 0)
            return -1;
        entries = json_object_get(page, "logEntries");
        count = json_array_size(entries);
        offset += count;
        for (size_t i = 0; i < count; i++) {
            auto_free char *line = cli->json ? json_text(json_array_get(entries, i))
                                             : cli_print_str(json_array_get(entries, i), "message");

            printf("%s\n", line);
        }
    }
    return 0;
}

static int run_logs(struct cli *cli, int argc, char **argv)
{
    bool follow = false;
    const struct cli_option table[] = {
        {"follow", 'f', CLI_FLAG, &follow, NULL, "until the build has ended"},
        {.name = NULL},
    };
    auto_json json_t *template = NULL;
    auto_free char *id = NULL, *build_id = NULL;
    struct error err = {0};
    char **operands;
    int count,
        rc = cli_args(cli, &logs_command, table, CLI_ARGS_ANYWHERE, argc, argv, &operands, &count);

    if (rc != CLI_ARGS_RUN)
        return rc;
    if (count < 1 || count > 2)
        return cli_usage(&logs_command, "needs a template, and may have one of its builds");
    if (cli_connect(cli, &err) < 0 || newest_build(cli, operands[0], &template, &err) < 0)
        return cli_fail(&err);
    id = str_dup(json_get_str(template, "templateID"));
    build_id = count == 2 ? xstrdup(operands[1])
                          : str_dup(json_get_str(
                                json_array_get(json_object_get(template, "builds"), 0), "buildID"));
    if (follow) {
        struct follow log = {.cli = cli, .template_id = id, .build_id = build_id};

        rc = follow_build(&log, &err);
        json_decref(log.status);
        return rc < 0 ? cli_fail(&err) : rc;
    }
    return print_logs(cli, id, build_id, &err) < 0 ? cli_fail(&err) : CLI_OK;
}

static const struct cli_command ls_command = {"template ls", "[OPTION...]", "List the templates.",
                                              run_ls, .examples = "quicksand template ls"};
static const struct cli_command show_command = {
    "template show", "[OPTION...] TEMPLATE", "Show a template, its tags and its builds.", run_show,
    .examples = "quicksand template show mine"};
static const struct cli_command rm_command = {"template rm", "[OPTION...] TEMPLATE...",
                                              "Remove templates.", run_rm,
                                              .examples = "quicksand template rm mine"};
static const struct cli_command tag_command = {
    "template tag", "[OPTION...] TEMPLATE[:TAG] TAG...",
    "Give the build that a tag names further tags.", run_tag,
    .examples = "quicksand template tag my-app stable v1.2\n"
                "quicksand template tag --rm my-app v1.1"};
static const struct cli_command logs_command = {"template logs", "[OPTION...] TEMPLATE [BUILD]",
                                                "Show the log of a build (the newest).", run_logs,
                                                .examples = "quicksand template logs -f mine"};
const struct cli_command cli_template_command = {
    "template", "build, ls, show, rm, tag, logs, push, pull, export, import",
    "What sandboxes can be made from.", NULL,
    (const struct cli_command *const[]){
        &cli_template_build, &ls_command, &show_command, &rm_command, &tag_command, &logs_command,
        &cli_template_push, &cli_template_pull, &cli_template_export, &cli_template_import, NULL}};
