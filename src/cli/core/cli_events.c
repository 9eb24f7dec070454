/* events: what happens, as it happens. Server-sent events are read line by line; each has its id, so
 * that nothing is lost or told twice when the connection is made again. */
#include "cli/core/cli_events.h"

#include <time.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "cli/core/cli_print.h"
#include "cli/core/cli_table.h"
#include "cli/core/cli_v1.h"
#include "protocol/json/json_shape.h"

enum {
    EVENT_MAX = 16 * 1024 * 1024,
    SILENCE_MS = 90 * 1000, /* a heartbeat comes every 30 s */
    AGAIN_MS = 1000,
    TRIES = 30,
};

/* ---- following ---- */

struct following {
    cli_event_fn *on_event;
    void *arg;
    int64_t last; /* id; -1 = none yet */
    struct buf rest, data;
    bool done, heard;
    bool found; /* a server has answered once */
};

static void end_event(struct following *following)
{
    auto_json json_t *json = NULL;
    struct error ignored = {0};

    if (!following->data.len)
        return;
    if (json_parse(buf_str(&following->data), &json, &ignored) == 0) {
        const json_t *id = json_object_get(json, "id");

        if (json_is_integer(id))
            following->last = json_integer_value(id);
        following->heard = true;
        following->done = !following->on_event(following->arg, json);
    }
    buf_clear(&following->data);
}

static void take_line(struct following *following, struct str line)
{
    if (line.len && line.p[line.len - 1] == '\r')
        line.len--;
    if (!line.len) {
        end_event(following);
        return;
    }
    if (str_starts(line, STR("data:"))) {
        line = str_skip(line, 5);
        if (line.len && line.p[0] == ' ')
            line = str_skip(line, 1);
        if (following->data.len)
            (void)buf_add_char(&following->data, '\n');
        (void)buf_add_str(&following->data, line);
    }
}

static int take(struct following *following, struct buf *bytes, struct error *err)
{
    struct str text;
    ptrdiff_t end;

    (void)buf_add_str(&following->rest, buf_str(bytes));
    buf_clear(bytes);
    if (following->rest.overflowed || following->data.overflowed)
        return error_set(err, ERROR_LIMIT, "an event is too long");
    text = buf_str(&following->rest);
    while (!following->done && (end = str_find(text, '\n')) >= 0) {
        take_line(following, str_n(text.p, (size_t)end));
        text = str_skip(text, (size_t)end + 1);
    }
    buf_drop(&following->rest, following->rest.len - text.len);
    return 0;
}

/* One connection; 0 when it ended or on_event gave up. */
static int follow_once(struct cli *cli, const char *path, struct following *following,
                       struct error *err)
{
    auto_call struct http_call stream = {.fd = -1};
    auto_free char *target = following->last < 0
                                 ? xstrdup(path)
                                 : xasprintf("%s%csince=%lld", path, strchr(path, '?') ? '&' : '?',
                                             (long long)following->last);
    int rc;

    if (cli_v1_open(cli, target, "text/event-stream", SILENCE_MS, EVENT_MAX, &stream, err) < 0)
        return -1;
    following->found = true;
    buf_clear(&following->rest);
    buf_clear(&following->data);
    do {
        if (take(following, &stream.body, err) < 0)
            return -1;
        rc = following->done ? 0 : http_call_recv(&stream, err);
    } while (rc > 0 || (stream.body.len && !following->done));
    return rc;
}

int cli_events_follow(struct cli *cli, const char *path, int64_t since, cli_event_fn *on_event,
                      void *arg, struct error *err)
{
    struct following following = {.on_event = on_event, .arg = arg, .last = since};
    int rc = -1;

    buf_init(&following.rest, EVENT_MAX);
    buf_init(&following.data, EVENT_MAX);
    for (int tries = 0; tries < TRIES; tries++) {
        following.heard = false;
        rc = follow_once(cli, path, &following, err);
        if (following.done)
            break;
        /* Only a broken connection is tried again: a refusal stays one. */
        if (!following.found ||
            (rc < 0 && err->code != ERROR_UNAVAILABLE && err->code != ERROR_TIMEOUT))
            break;
        if (following.heard)
            tries = 0;
        (void)nanosleep(&(struct timespec){.tv_sec = AGAIN_MS / 1000}, NULL);
    }
    buf_done(&following.rest);
    buf_done(&following.data);
    return following.done ? 0 : rc;
}

/* ---- printing ---- */

static bool print_piece(struct cli_event_printer *printer, const json_t *event)
{
    struct str type = json_get_str(event, "type");
    struct str text =
        json_get_str(json_object_get(json_object_get(event, "data"), "content"), "text");

    auto_free char *safe = NULL;

    if (!str_ends(type, STR("message_chunk")) || !text.len)
        return false;
    safe = cli_defuse(str_dup(text), true);
    printf("%s", safe);
    printer->in_text = text.p[text.len - 1] != '\n';
    return true;
}

/* What is said as it is, else "name=value name=value". */
static char *data_text(const json_t *data)
{
    struct str said = json_get_str(data, "text");
    struct buf out;
    const char *name;
    json_t *value;

    if (said.len && json_object_size(data) == 1)
        return cli_defuse(str_dup(said), true);
    buf_init(&out, EVENT_MAX);
    json_object_foreach ((json_t *)(uintptr_t)data, name, value) {
        auto_free char *text =
            json_is_string(value) ? xstrdup(json_string_value(value)) : json_text(value);

        (void)buf_printf(&out, "%s%s=%s", out.len ? " " : "", name, text);
    }
    return cli_defuse(out.len ? buf_take(&out) : xstrdup(""), false);
}

void cli_event_print(struct cli_event_printer *printer, const json_t *event)
{
    static const char *const subjects[] = {"session", "sandbox", "process", NULL};
    const json_t *data = json_object_get(event, "data");
    auto_free char *text = json_object_size(data) ? data_text(data) : NULL;
    auto_free char *type = cli_print_str(event, "type"), *subject = NULL;
    struct str ts = json_get_str(event, "ts");

    if (printer->json) {
        cli_print_json(event);
        (void)fflush(stdout);
        return;
    }
    if (!print_piece(printer, event)) {
        for (size_t i = 0; subjects[i] && !subject; i++)
            if (json_get_str(event, subjects[i]).len)
                subject = cli_print_str(event, subjects[i]);
        if (ts.len > 19)
            ts.len = 19;
        printf("%s%.*s %s%s%s%s%s\n", printer->in_text ? "\n" : "", STR_ARG(ts), type,
               subject ? " " : "", subject ? subject : "", text ? " " : "", text ? text : "");
        printer->in_text = false;
    }
    (void)fflush(stdout);
}

static bool on_event(void *arg, const json_t *event)
{
    cli_event_print(arg, event);
    return !ferror(stdout);
}

/* ---- events ---- */

/* An event's id, or how long ago. */
static bool read_since(const char *text, int64_t *out)
{
    int64_t seconds;

    if (str_to_i64(str_of(text), out))
        return *out >= 0;
    if (!cli_time_parse(text, &seconds))
        return false;
    *out = clock_wall_us() - seconds * 1000000;
    return true;
}

static int list(struct cli *cli, const char *path, int64_t since, int64_t limit)
{
    struct cli_event_printer printer = {.json = cli->json};
    auto_json json_t *answer = NULL;
    struct error err = {0};
    char from[40] = "";
    json_t *event;
    size_t i;

    if (since >= 0)
        (void)snprintf(from, sizeof(from), "&since=%lld", (long long)since);
    if (cli_v1(cli, "GET",
               xasprintf("%s%cformat=json&limit=%lld%s", path, strchr(path, '?') ? '&' : '?',
                         (long long)limit, from),
               NULL, &answer, &err) < 0)
        return cli_fail(&err);
    json_array_foreach (json_object_get(answer, "events"), i, event)
        cli_event_print(&printer, event);
    return CLI_OK;
}

static char *filter_path(const char *const values[][2])
{
    struct buf path;
    char between = '?';

    buf_init(&path, HTTP_URL_MAX);
    (void)buf_add_str(&path, STR(CLI_V1 "/events"));
    for (; (*values)[0]; values++) {
        if (!(*values)[1])
            continue;
        (void)buf_printf(&path, "%c%s=", between, (*values)[0]);
        cli_escape(&path, (*values)[1]);
        between = '&';
    }
    return buf_take(&path);
}

static int run_events(struct cli *cli, int argc, char **argv)
{
    const char *since_text = NULL, *sandbox = NULL, *session = NULL, *type = NULL, *agent = NULL;
    bool follow = false;
    int64_t since = -1, limit = 100;
    const struct cli_option table[] = {
        {"follow", 'f', CLI_FLAG, &follow, NULL, "wait for more"},
        {"since", 0, CLI_TEXT, &since_text, "ID|TIME", "behind this event, or the last 10m, 24h"},
        {"sandbox", 0, CLI_TEXT, &sandbox, "ID", "only of this sandbox"},
        {"session", 0, CLI_TEXT, &session, "ID", "only of this session"},
        {"agent-id", 0, CLI_TEXT, &agent, "ID", "only of this owner"},
        {"type", 0, CLI_TEXT, &type, "TYPE", "only these: sandbox.created, or git. for all of git"},
        {"limit", 'n', CLI_NUMBER, &limit, "N",
         "so many, the newest unless --since is given (100)"},
        {.name = NULL},
    };
    struct cli_event_printer printer = {0};
    auto_free char *path = NULL;
    struct error err = {0};
    char **operands;
    int count, rc = cli_args(cli, &cli_events_command, table, CLI_ARGS_ANYWHERE, argc, argv,
                             &operands, &count);

    if (rc != CLI_ARGS_RUN)
        return rc;
    if (count)
        return cli_usage(&cli_events_command, "takes no operand");
    if (since_text && !read_since(since_text, &since))
        return cli_usage(&cli_events_command, "--since needs an event's id or a time like 10m");
    if (cli_connect(cli, &err) < 0)
        return cli_fail(&err);
    path = filter_path((const char *const[][2]){{"sandbox_id", sandbox},
                                                {"session_id", session},
                                                {"agent_id", agent},
                                                {"type", type},
                                                {NULL, NULL}});
    if (!follow)
        return list(cli, path, since, limit);
    printer.json = cli->json;
    return cli_events_follow(cli, path, since, on_event, &printer, &err) < 0 ? cli_fail(&err)
                                                                             : CLI_OK;
}

const struct cli_command cli_events_command = {
    "events", "[OPTION...]",
    "Show what happened last, or (-f) what happens.\n"
    "With --json one object per line.",
    run_events,
    .examples = "quicksand events -n 20 --sandbox i...\n"
                "quicksand events -f --type sandbox. --json | jq .type"};
