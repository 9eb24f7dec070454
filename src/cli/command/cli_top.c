/* top, and stats of sandboxes: processors, memory, disk and network as the server measured them last. */
#include "cli/command/cli_top.h"

#include <errno.h>
#include <poll.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/size.h"
#include "cli/command/cli_runtime.h"
#include "cli/command/commands.h"
#include "cli/core/cli_names.h"
#include "cli/core/cli_print.h"
#include "cli/core/cli_screen.h"
#include "cli/core/cli_v1.h"
#include "protocol/json/json_shape.h"

enum { AGAIN_MS = 1000, BATCH = 100 };

static json_int_t number(const json_t *row, const char *name)
{
    return json_integer_value(json_object_get(row, name));
}

/* "-" is what the provider does not know. */
static char *of(const json_t *row, const char *used, const char *total)
{
    char a[SIZE_TEXT], b[SIZE_TEXT];

    if (!json_object_get(row, used))
        return xstrdup("-");

    return xasprintf("%s / %s", size_text((uint64_t)number(row, used), a),
                     size_text((uint64_t)number(row, total), b));
}

static char *cpu(const json_t *row)
{
    if (!json_object_get(row, "cpuUsedPct"))
        return xstrdup("-");
    return xasprintf("%.1f %%", json_number_value(json_object_get(row, "cpuUsedPct")));
}

static char *memory(const json_t *row)
{
    return of(row, "memUsed", "memTotal");
}

static char *disk(const json_t *row)
{
    return of(row, "diskUsed", "diskTotal");
}

static char *network(const json_t *row)
{
    return of(row, "networkReceived", "networkSent");
}

static const struct cli_column columns[] = {
    {"ID", "id"},
    {"CPU", .text = cpu},
    {"CPUS", "cpuCount"},
    {"MEMORY", .text = memory},
    {"DISK", .text = disk},
    {"NETWORK IN / OUT", .text = network},
    {NULL},
};

/* Adds the measures of ids[from..] that are there. */
static int add_batch(struct cli *cli, const json_t *ids, size_t from, json_t *rows,
                     struct error *err)
{
    auto_json json_t *answer = NULL;
    auto_buf struct buf target = {0};
    const char *id;
    json_t *row;

    buf_init(&target, HTTP_URL_MAX);
    (void)buf_add_str(&target, STR("/sandboxes/metrics?sandbox_ids="));
    for (size_t i = from; i < json_array_size(ids) && i < from + BATCH; i++)
        (void)buf_printf(&target, "%s%s", i > from ? "," : "",
                         json_string_value(json_array_get(ids, i)));
    if (cli_call(&cli->server, "GET", target.p, NULL, &answer, NULL, err) < 0)
        return -1;
    json_object_foreach (json_object_get(answer, "sandboxes"), id, row) {
        (void)json_object_set_new(row, "id", json_string(id));
        (void)json_array_append(rows, row);
    }
    return 0;
}

static int busier(const void *a, const void *b)
{
    double of_a = json_number_value(json_object_get(*(json_t *const *)a, "cpuUsedPct"));
    double of_b = json_number_value(json_object_get(*(json_t *const *)b, "cpuUsedPct"));

    return (of_a < of_b) - (of_a > of_b);
}

static json_t *sorted(const json_t *rows)
{
    size_t count = json_array_size(rows);
    auto_free json_t **items = xcalloc(count + 1, sizeof(json_t *));
    json_t *out = json_array();

    for (size_t i = 0; i < count; i++)
        items[i] = json_array_get(rows, i);
    qsort(items, count, sizeof(json_t *), busier);
    for (size_t i = 0; i < count; i++)
        (void)json_array_append(out, items[i]);
    return out;
}

/* Those that run now. */
static json_t *running_ids(struct cli *cli, struct error *err)
{
    auto_json json_t *all = cli_sandboxes(cli, &(struct cli_wanted){.state = "running"}, err);
    json_t *ids, *row;
    size_t i;

    if (!all)
        return NULL;
    ids = json_array();
    json_array_foreach (all, i, row)
        if (str_starts(json_get_str(row, "id"), STR("i")))
            (void)json_array_append(ids, json_object_get(row, "id"));
    return ids;
}

/* One on another provider than the engine of this server, in the words of E2B's API. */
static int add_other(struct cli *cli, const char *id, json_t *rows, struct error *err)
{
    static const char *const names[][2] = {
        {"cpuUsedPct", "cpu_percent"},
        {"cpuCount", "cpu_count"},
        {"memUsed", "memory_used_bytes"},
        {"memTotal", "memory_total_bytes"},
        {"diskUsed", "disk_used_bytes"},
        {"diskTotal", "disk_total_bytes"},
        {"timestamp", "at"},
    };
    auto_json json_t *answer = NULL;
    json_t *row;

    if (cli_v1(cli, "GET", cli_v1_path("sandboxes", id, "metrics"), NULL, &answer, err) < 0)
        return -1;
    row = json_pack("{s:s}", "id", id);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (!json_is_null(json_object_get(answer, names[i][1])))
            (void)json_object_set(row, names[i][0], json_object_get(answer, names[i][1]));
    (void)json_array_append_new(rows, row);
    return 0;
}

static bool is_of_engine(const json_t *id)
{
    return str_starts(str_of(json_string_value(id)), STR("i"));
}

static int show(struct cli *cli, const json_t *named, struct error *err)
{
    auto_json json_t *ids = named ? json_array() : running_ids(cli, err), *rows = json_array();
    auto_json json_t *shown = NULL;
    json_t *id;
    size_t i;

    if (!ids)
        return -1;
    json_array_foreach (named, i, id)
        if (is_of_engine(id))
            (void)json_array_append(ids, id);
        else if (add_other(cli, json_string_value(id), rows, err) < 0)
            return -1;
    for (size_t from = 0; from < json_array_size(ids); from += BATCH)
        if (add_batch(cli, ids, from, rows, err) < 0)
            return -1;
    shown = sorted(rows);
    if (cli->json)
        cli_print_json(shown);
    else
        cli_print_rows(shown, columns);
    return fflush(stdout) == 0 ? 0 : error_set_errno(err, errno, "writing the table");
}

/* Until Ctrl-C, which is no failure. */
static int show_again(struct cli *cli, const json_t *named, struct error *err)
{
    auto_close int signal_fd = cli_runtime_signals();
    struct pollfd item = {.fd = signal_fd, .events = POLLIN};

    do {
        if (!cli->json)
            cli_screen_begin();
        if (show(cli, named, err) < 0)
            return -1;
    } while (poll(&item, 1, AGAIN_MS) == 0);
    return 0;
}

int cli_top(struct cli *cli, char **words, int count, bool watch)
{
    auto_json json_t *named = count ? json_array() : NULL;
    struct error err = {0};

    if (cli_connect(cli, &err) < 0)
        return cli_fail(&err);
    for (int i = 0; i < count; i++) {
        const char *id = cli_name_engine_id(cli, words[i], &err);
        struct cli_sandbox one = {0};

        if (!id || (*id == 'i' && cli_sandbox_get(&cli->server, id, &one, &err) < 0))
            return cli_fail(&err);
        cli_sandbox_done(&one);
        (void)json_array_append_new(named, json_string(id));
    }
    return (watch ? show_again : show)(cli, named, &err) < 0 ? cli_fail(&err) : CLI_OK;
}

static int run_top(struct cli *cli, int argc, char **argv)
{
    bool once = false;
    const struct cli_option table[] = {
        {"once", '1', CLI_FLAG, &once, NULL, "show it once, as without a terminal"},
        {.name = NULL},
    };
    char **operands;
    int count, rc = cli_args(cli, &cli_top_command, table, CLI_ARGS_ANYWHERE, argc, argv, &operands,
                             &count);

    if (rc != CLI_ARGS_RUN)
        return rc;
    return cli_top(cli, operands, count, !once && isatty(STDOUT_FILENO));
}

const struct cli_command cli_top_command = {
    "top", "[OPTION...] [SANDBOX...]",
    "Show what sandboxes use, the busiest first; on a terminal again and again until Ctrl-C.",
    run_top,
    .examples = "quicksand top\n"
                "quicksand top --once --json"};
