/* ls: the sandboxes as a table, as ids, as JSON, or each by a pattern; once, or again and again. */
#include <errno.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "cli/command/cli_runtime.h"
#include "cli/command/commands.h"
#include "cli/core/cli_command.h"
#include "cli/core/cli_ends.h"
#include "cli/core/cli_names.h"
#include "cli/core/cli_pattern.h"
#include "cli/core/cli_print.h"
#include "cli/core/cli_screen.h"
#include "cli/core/cli_table.h"
#include "protocol/json/json_shape.h"

#define TEAM_FILTER "team="

enum { WATCH_MS = 1000 };

struct ls {
    const char *state, *agent_id, *format;
    struct cli_list filters;
    bool quiet, all, watch;
};

static char *owner(const json_t *row)
{
    struct str task = json_get_str(row, "task_id");
    auto_free char *agent = cli_print_text(json_object_get(row, "agent_id"));

    return task.len ? xasprintf("%s/%.*s", agent, STR_ARG(task)) : xstrdup(agent);
}

static char *name(const json_t *row)
{
    return cli_print_text(json_object_get(json_object_get(row, "metadata"), "name"));
}

static char *ends(const json_t *row)
{
    char left[CLI_AGE_SIZE];
    int64_t end_us;

    if (!clock_parse(json_get_str(row, CLI_ENDS_AT), &end_us))
        return xstrdup("-");
    cli_age(end_us - clock_wall_us(), left);
    return xasprintf("in %s", left);
}

static char *ports(const json_t *row)
{
    const json_t *list = json_object_get(row, "ports");
    auto_buf struct buf out = {0};

    buf_init(&out, 1024);
    for (size_t i = 0; i < json_array_size(list); i++)
        (void)buf_printf(
            &out, "%s%lld", i ? "," : "",
            (long long)json_integer_value(json_object_get(json_array_get(list, i), "port")));
    return xstrdup(out.len ? out.p : "-");
}

/* Of a list with all columns, those that are wanted. */
static void print_table(const json_t *rows, bool with_team)
{
    static const struct cli_column all[] = {
        {"ID", "id"},
        {"TEAM", "team"},
        {"NAME", .text = name},
        {"KEY", "key"},
        {"TEMPLATE", "template"},
        {"STATE", "state"},
        {"ENDS", .text = ends},
        {"PORTS", .text = ports},
        {"PROVIDER", "provider"},
        {"OWNER", .text = owner},
        {"AGE", "created_at", .age = true},
    };
    enum { COUNT = sizeof(all) / sizeof(*all) };
    struct cli_column columns[COUNT + 1] = {{NULL}};
    size_t count = 0;

    for (size_t i = 0; i < COUNT; i++)
        if (with_team || strcmp(all[i].title, "TEAM") != 0)
            columns[count++] = all[i];
    cli_print_rows(rows, columns);
}

/* ---- which ---- */

static bool text_fits(const char *text, struct str value)
{
    if (value.len && value.p[value.len - 1] == '*')
        return str_starts(str_of(text), str_n(value.p, value.len - 1));
    return str_is(value, text);
}

/* "NAME=VALUE": a member of the row, or a label of it as metadata.NAME or label=NAME=VALUE, is this. VALUE may end
 * with '*'. A team is called by its name or its id. */
static bool fits(const json_t *row, const char *filter)
{
    struct str value = str_of(filter);
    auto_free char *name = str_dup(str_split(&value, '='));
    auto_free char *label = NULL, *text = NULL;

    if (strcmp(name, "label") == 0) {
        label = str_dup(str_split(&value, '='));
        text = cli_print_text(json_object_get(json_object_get(row, "metadata"), label));
        if (!value.p)
            return strcmp(text, "-") != 0;
    } else {
        text = cli_print_text(cli_print_member(row, name));
    }
    if (strcmp(name, "team") == 0 && str_eq(json_get_str(row, "team_id"), value))
        return true;
    return text_fits(text, value);
}

static bool fits_all(const json_t *row, const struct cli_list *filters)
{
    for (size_t i = 0; i < filters->count; i++)
        if (!fits(row, filters->items[i]))
            return false;
    return true;
}

/* The team that the server is asked for; "*" when a pattern says which ones. NULL: none is named. */
static const char *wanted_team(const struct cli_list *filters)
{
    for (size_t i = 0; i < filters->count; i++) {
        const char *value = filters->items[i] + strlen(TEAM_FILTER);

        if (str_starts(str_of(filters->items[i]), STR(TEAM_FILTER)))
            return strchr(value, '*') ? "*" : value;
    }
    return NULL;
}

static json_t *read_rows(struct cli *cli, const struct ls *ls, struct error *err)
{
    struct cli_wanted wanted = {.state = ls->state,
                                .agent_id = ls->agent_id,
                                .team = wanted_team(&ls->filters),
                                .ports = !ls->quiet};
    auto_json json_t *rows = cli_sandboxes(cli, &wanted, err), *gone = NULL;
    json_t *chosen, *row;
    size_t i;

    if (!rows)
        return NULL;
    if (ls->all && !ls->state) {
        wanted.state = "killed";
        gone = cli_sandboxes(cli, &wanted, err);
        if (!gone)
            return NULL;
        (void)json_array_extend(rows, gone);
    }
    chosen = json_array();
    json_array_foreach (rows, i, row)
        if (fits_all(row, &ls->filters))
            (void)json_array_append(chosen, row);
    if (!ls->quiet && cli_ends_add(cli, chosen, err) < 0) {
        json_decref(chosen);
        return NULL;
    }
    return chosen;
}

static void print_rows(const struct cli *cli, const struct ls *ls, const json_t *rows)
{
    json_t *row;
    size_t i;

    if (ls->quiet || ls->format) {
        json_array_foreach (rows, i, row) {
            auto_free char *line = cli_pattern_fill(ls->format ? ls->format : "{{.id}}", row);

            printf("%s\n", line);
        }
    } else if (cli->json) {
        cli_print_json(rows);
    } else {
        print_table(rows, wanted_team(&ls->filters) != NULL);
    }
}

static int list(struct cli *cli, const struct ls *ls, struct error *err)
{
    auto_json json_t *rows = read_rows(cli, ls, err);

    if (!rows)
        return -1;
    print_rows(cli, ls, rows);
    if (fflush(stdout) != 0)
        return error_set_errno(err, errno, "writing the list");
    return 0;
}

/* Until Ctrl-C, which is no failure. */
static int watch(struct cli *cli, const struct ls *ls, struct error *err)
{
    auto_close int signal_fd = cli_runtime_signals();
    struct pollfd item = {.fd = signal_fd, .events = POLLIN};

    do {
        cli_screen_begin();
        if (list(cli, ls, err) < 0)
            return -1;
        cli_screen_end();
    } while (poll(&item, 1, WATCH_MS) == 0);
    return 0;
}

static int check(const struct ls *ls)
{
    struct error err = {0};

    for (size_t i = 0; i < ls->filters.count; i++)
        if (!strchr(ls->filters.items[i], '=') || ls->filters.items[i][0] == '=')
            return cli_usage(&cli_ls_command, "--filter needs NAME=VALUE, not '%s'",
                             ls->filters.items[i]);
    if (ls->format && cli_pattern_check(ls->format, &err) < 0)
        return cli_usage(&cli_ls_command, "--format: %s", err.message);
    if (ls->format && ls->quiet)
        return cli_usage(&cli_ls_command, "--quiet and --format exclude each other");
    return CLI_ARGS_RUN;
}

static int run_ls(struct cli *cli, int argc, char **argv)
{
    struct ls ls = {0};
    const struct cli_option table[] = {
        {"state", 0, CLI_TEXT, &ls.state, "STATE", "only these: running, paused, killed, error"},
        {"agent-id", 0, CLI_TEXT, &ls.agent_id, "ID", "only those of this owner"},
        {"all", 'a', CLI_FLAG, &ls.all, NULL, "also those that are gone"},
        {"quiet", 'q', CLI_FLAG, &ls.quiet, NULL, "only ids"},
        {"filter", 'f', CLI_LIST, &ls.filters, "NAME=VALUE",
         "only those whose member is this (template=base, label=NAME=VALUE, key=ci-*); may be "
         "repeated; team=NAME or team=* (operators): those of other teams"},
        {"format", 0, CLI_TEXT, &ls.format, "PATTERN",
         "a line for each, like '{{.id}} {{.state}}'"},
        {"watch", 'w', CLI_FLAG, &ls.watch, NULL, "again every second, until Ctrl-C"},
        {.name = NULL},
    };
    struct error err = {0};
    char **operands;
    int count, rc = cli_args(cli, &cli_ls_command, table, CLI_ARGS_ANYWHERE, argc, argv, &operands,
                             &count);

    if (rc == CLI_ARGS_RUN)
        rc = count ? cli_usage(&cli_ls_command, "takes no operand") : check(&ls);
    if (rc == CLI_ARGS_RUN) {
        rc = cli_connect(cli, &err) < 0 ? -1
             : ls.watch                 ? watch(cli, &ls, &err)
                                        : list(cli, &ls, &err);
        rc = rc < 0 ? cli_fail(&err) : CLI_OK;
    }
    cli_list_done(&ls.filters);
    return rc;
}

const struct cli_command cli_ls_command = {
    "ls", "[OPTION...]",
    "List the sandboxes, whoever made them: this command, the API, or an SDK of E2B.\n"
    "Members are those of --json.",
    run_ls,
    .examples = "quicksand ls\n"
                "quicksand ls -q --filter template=base --filter label=owner=me\n"
                "quicksand ls -a --format '{{.id}} {{.state}} {{.metadata.owner}}'\n"
                "quicksand ls --filter 'team=*'\n"
                "quicksand ls -w"};
