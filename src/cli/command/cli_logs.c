/* logs: the server's log of a sandbox; with --network the connections it made or was refused; with --commands, or for
 * an execution, the output of commands that was kept. -f polls for new lines every half second, by the time of the
 * last one. */
#include <errno.h>
#include <poll.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "cli/command/cli_log.h"
#include "cli/command/cli_runtime.h"
#include "cli/command/commands.h"
#include "cli/core/cli_command.h"
#include "cli/core/cli_names.h"
#include "cli/core/cli_print.h"
#include "cli/core/cli_table.h"
#include "protocol/json/json_shape.h"

enum { LIMIT_DEFAULT = 100, LIMIT_MAX = 1000, AGAIN_MS = 500, SEEN_MAX = 4096 };

struct logs {
    struct cli *cli;
    const char *sandbox;
    bool network, commands, follow;
    size_t limit;
    json_t *seen;     /* of the follower: texts of the lines at the last moment */
    int64_t since_ms; /* that moment; 0: nothing was shown yet */
    bool ended;       /* the last line was the sandbox's end */
};

static json_t *read_logs(const struct logs *logs, struct error *err)
{
    auto_buf struct buf target = {0};
    auto_json json_t *answer = NULL;

    buf_init(&target, 1024);
    (void)buf_add_str(&target, STR("/v2/sandboxes/"));
    cli_escape(&target, logs->sandbox);
    (void)buf_printf(&target, "/logs?limit=%d&direction=%s", LIMIT_MAX,
                     logs->since_ms ? "forward" : "backward");
    if (logs->since_ms)
        (void)buf_printf(&target, "&cursor=%lld", (long long)logs->since_ms);
    if (cli_call(&logs->cli->server, "GET", target.p, NULL, &answer, NULL, err) < 0)
        return NULL;
    return json_incref(json_object_get(answer, "logs"));
}

static bool is_wanted(const struct logs *logs, const json_t *line)
{
    return !logs->network ||
           str_is(json_get_str(json_object_get(line, "fields"), "event"), "network");
}

/* The last ones, the oldest first. */
static json_t *choose(const struct logs *logs, const json_t *lines)
{
    json_t *chosen = json_array(), *line;
    size_t i;

    json_array_foreach (lines, i, line)
        if (is_wanted(logs, line) && json_array_size(chosen) < logs->limit)
            (void)json_array_insert(chosen, 0, line);
    return chosen;
}

static void print(const json_t *lines, bool network)
{
    static const struct cli_column all[] = {{"TIME", "timestamp"},
                                            {"LEVEL", "level"},
                                            {"EVENT", "fields.event"},
                                            {"MESSAGE", "message"},
                                            {NULL}};
    static const struct cli_column of_network[] = {
        {"TIME", "timestamp"},   {"VERDICT", "fields.verdict"}, {"PROTOCOL", "fields.protocol"},
        {"NAME", "fields.name"}, {"ADDRESS", "fields.address"}, {"PORT", "fields.port"},
        {"RULE", "fields.rule"}, {"REASON", "fields.reason"},   {NULL}};

    cli_print_rows(lines, network ? of_network : all);
}

/* A line of its own, without columns that wait for others. */
static void print_line(const struct logs *logs, const json_t *line)
{
    static const char *const all[] = {"timestamp", "level", "fields.event", "message", NULL};
    static const char *const of_network[] = {"timestamp",   "fields.verdict", "fields.protocol",
                                             "fields.name", "fields.address", "fields.port",
                                             "fields.rule", "fields.reason",  NULL};

    if (logs->cli->json) {
        cli_print_json(line);
        return;
    }
    for (const char *const *name = logs->network ? of_network : all; *name; name++) {
        auto_free char *text = cli_print_text(cli_print_member(line, *name));

        printf("%s%s", cli_defuse(text, false), name[1] ? "  " : "\n");
    }
}

/* Those of the last moment may come again: they are known by their text. */
static bool is_new(struct logs *logs, const json_t *line)
{
    auto_free char *text = json_text(line);
    int64_t at_us = 0;

    if (!clock_parse(json_get_str(line, "timestamp"), &at_us) || at_us / 1000 < logs->since_ms ||
        json_object_get(logs->seen, text))
        return false;
    if (at_us / 1000 > logs->since_ms || json_object_size(logs->seen) > SEEN_MAX)
        (void)json_object_clear(logs->seen);
    logs->since_ms = at_us / 1000;
    (void)json_object_set_new(logs->seen, text, json_true());
    return true;
}

static void show_new(struct logs *logs, const json_t *lines)
{
    json_t *line;
    size_t i;

    json_array_foreach (lines, i, line) {
        if (!is_new(logs, line))
            continue;
        logs->ended = str_is(json_get_str(json_object_get(line, "fields"), "event"), "killed");
        if (is_wanted(logs, line))
            print_line(logs, line);
    }
}

/* Until Ctrl-C, or the sandbox's end. */
static int follow(struct logs *logs, struct error *err)
{
    auto_json json_t *seen = json_object(), *first = read_logs(logs, err), *begin = NULL;
    auto_close int signal_fd = -1;
    struct pollfd item = {.events = POLLIN};

    if (!first)
        return -1;
    item.fd = signal_fd = cli_runtime_signals();
    logs->seen = seen;
    begin = choose(logs, first);
    show_new(logs, begin);
    if (!logs->since_ms)
        logs->since_ms = clock_wall_us() / 1000;
    do {
        auto_json json_t *lines = read_logs(logs, err);

        if (!lines)
            return -1;
        show_new(logs, lines);
        if (fflush(stdout) != 0)
            return error_set_errno(err, errno, "writing the log");
    } while (!logs->ended && poll(&item, 1, AGAIN_MS) == 0);
    return 0;
}

static int show(struct logs *logs, struct error *err)
{
    auto_json json_t *all = read_logs(logs, err), *lines = NULL;

    if (!all)
        return -1;
    lines = choose(logs, all);
    if (logs->cli->json)
        cli_print_json(lines);
    else
        print(lines, logs->network);
    return 0;
}

static int run_logs(struct cli *cli, int argc, char **argv)
{
    /* `log` is what `logs --commands` was called once. */
    struct logs logs = {.cli = cli, .commands = strcmp(argv[0], "log") == 0};
    int64_t limit = LIMIT_DEFAULT;
    const struct cli_option table[] = {
        {"follow", 'f', CLI_FLAG, &logs.follow, NULL, "wait for more, until Ctrl-C"},
        {"network", 0, CLI_FLAG, &logs.network, NULL, "only what it reached, and what was refused"},
        {"commands", 0, CLI_FLAG, &logs.commands, NULL, "only commands whose output was kept"},
        {"limit", 'n', CLI_COUNT, &limit, "N", "how many lines, at most 1000; 100 when not given"},
        {.name = NULL},
    };
    struct error err = {0};
    bool is_execution;
    char **operands;
    int count, rc = cli_args(cli, &cli_logs_command, table, CLI_ARGS_ANYWHERE, argc, argv,
                             &operands, &count);

    if (rc != CLI_ARGS_RUN)
        return rc;
    if (count != 1 || limit < 1 || limit > LIMIT_MAX)
        return cli_usage(&cli_logs_command, count != 1 ? "needs one sandbox or one execution"
                                                       : "--limit must be from 1 to 1000");
    if (logs.commands && (logs.network || logs.follow))
        return cli_usage(&cli_logs_command, "--commands excludes --network and --follow");
    is_execution = strncmp(operands[0], "exe_", 4) == 0;
    if (is_execution || logs.commands) {
        if (cli_connect_to(cli, operands, is_execution ? 0 : 1, &err) < 0)
            return cli_fail(&err);
        return is_execution ? cli_log_show(cli, operands[0])
                            : cli_log_list(cli, operands[0], limit);
    }
    logs.limit = (size_t)limit;
    if (cli_connect(cli, &err) < 0 ||
        !(logs.sandbox = cli_name_engine_id(cli, operands[0], &err)) ||
        (logs.follow ? follow(&logs, &err) : show(&logs, &err)) < 0)
        return cli_fail(&err);
    return CLI_OK;
}

const struct cli_command cli_logs_command = {
    "logs", "[OPTION...] SANDBOX|EXECUTION",
    "Show the log of a sandbox, or the output of its commands.\n"
    "With --network: which names and addresses it reached, which were refused, and by which rule\n"
    "of its network policy. With -f lines come as they are made; with --json one object per line.\n"
    "With --commands: the commands whose output was kept, which 'exec --keep' or a profile asks\n"
    "for; their output outlives the sandbox, and 'logs EXECUTION' prints it.",
    run_logs,
    .examples = "quicksand logs -f i...\n"
                "quicksand logs --network i...\n"
                "quicksand exec --keep i... -- make test; quicksand logs --commands i...\n"
                "quicksand logs exe_..."};
