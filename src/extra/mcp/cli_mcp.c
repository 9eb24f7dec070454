/* mcp: MCP over standard input and output, for clients that start their servers as programs. A bridge: each line goes to the
 * server's /mcp as a request of its own, and what comes back is printed, one message a line. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/id.h"
#include "base/thread.h"
#include "cli/core/cli_command.h"
#include "extra/mcp/cli_mcp.h"
#include "protocol/json/json_shape.h"

enum {
    LINE_MAX_SIZE = 8 * 1024 * 1024,
    ANSWER_MAX = 64 * 1024 * 1024,
    AT_ONCE = 64, /* requests under way */
    SESSION_BYTES = 16,
    HEADERS_MAX = 8,
    NO_ANSWER = -32603,
    NO_JSON = -32700,
};

static const struct cli_command mcp_config;

struct bridge {
    const struct cli_server *server;
    char *target; /* "/mcp?..." */
    char *authorization;
    char session[SESSION_BYTES * 2 + 1];
    pthread_mutex_t lock; /* guards what follows, and standard output */
    pthread_cond_t changed;
    int running;
};

/* One line on its way, with a thread of its own. */
struct passage {
    struct bridge *bridge;
    char *line;
    json_t *message; /* an object */
};

/* Messages have no line ends inside. */
static void print_line(struct bridge *bridge, struct str text)
{
    static const char end = '\n';

    (void)pthread_mutex_lock(&bridge->lock);
    if (fd_write_full(STDOUT_FILENO, text.p, text.len) < 0 ||
        fd_write_full(STDOUT_FILENO, &end, 1) < 0)
        _exit(CLI_BROKEN_PIPE); /* nobody reads any more */
    (void)pthread_mutex_unlock(&bridge->lock);
}

static void print_error(struct bridge *bridge, json_t *id, int code, const char *message)
{
    auto_json json_t *answer = json_pack("{s:s, s:o, s:{s:i, s:o}}", "jsonrpc", "2.0", "id",
                                         id ? json_incref(id) : json_null(), "error", "code", code,
                                         "message", json_str(str_of(message)));
    auto_free char *text = json_text(answer);

    print_line(bridge, str_of(text));
}

/* ---- the request ---- */

/* What the stateless revision repeats in headers; others are not disturbed by it. */
static size_t message_headers(const json_t *message, struct pair *out)
{
    const json_t *params = json_object_get(message, "params");
    const json_t *meta = json_object_get(params, "_meta");
    struct str version = json_get_str(meta, "io.modelcontextprotocol/protocolVersion");
    struct str name = json_get_str(params, "name");
    size_t n = 0;

    if (!version.len)
        return 0;
    if (!name.len)
        name = json_get_str(params, "uri");
    out[n++] = (struct pair){STR("MCP-Protocol-Version"), version};
    out[n++] = (struct pair){STR("Mcp-Method"), json_get_str(message, "method")};
    if (name.len)
        out[n++] = (struct pair){STR("Mcp-Name"), name};
    return n;
}

static int ask(struct passage *passage, struct http_call *stream, struct error *err)
{
    struct bridge *bridge = passage->bridge;
    struct pair headers[HEADERS_MAX] = {
        {STR("Content-Type"), STR("application/json")},
        {STR("Accept"), STR("application/json, text/event-stream")},
        {STR("Authorization"), str_of(bridge->authorization)},
        {STR("Mcp-Session-Id"), str_of(bridge->session)},
    };
    struct http_call_request request = {.method = "POST",
                                        .target = bridge->target,
                                        .headers = headers,
                                        .body = str_of(passage->line),
                                        .after = HTTP_AFTER_CLOSE};

    request.header_count = 4 + message_headers(passage->message, headers + 4);
    return cli_stream_open(stream, &bridge->server->api, &request, 0, ANSWER_MAX, err);
}

/* ---- the answer ---- */

/* Prints the data of whole events and leaves the rest. */
static void print_events(struct bridge *bridge, struct buf *text, struct buf *data)
{
    const char *end;

    while (text->len && (end = memchr(text->p, '\n', text->len))) {
        size_t len = (size_t)(end - text->p);
        struct str line = str_trim(str_n(text->p, len));

        if (str_starts(line, STR("data:")))
            (void)buf_add_str(data, str_trim(str_skip(line, 5)));
        if (!line.len && data->len) {
            print_line(bridge, buf_str(data));
            buf_clear(data);
        }
        buf_drop(text, len + 1);
    }
}

static int pass_events(struct passage *passage, struct http_call *stream, struct error *err)
{
    auto_buf struct buf data = {0};

    buf_init(&data, ANSWER_MAX);
    for (;;) {
        int r;

        print_events(passage->bridge, &stream->body, &data);
        r = stream->ended ? 0 : http_call_recv(stream, err);
        if (r <= 0) {
            print_events(passage->bridge, &stream->body, &data);
            return r;
        }
    }
}

static int pass_json(struct passage *passage, struct http_call *stream, struct error *err)
{
    auto_json json_t *answer = NULL;
    auto_free char *text = NULL;

    if (http_call_recv_all(stream, err) < 0)
        return -1;
    if (!stream->body.len && stream->status / 100 == 2)
        return 0;
    if (json_parse(buf_str(&stream->body), &answer, err) < 0)
        return error_set(err, ERROR_UNAVAILABLE, "the server's answer (%d) is no message",
                         stream->status);
    /* A request that was not let in has no id there. */
    if (json_is_null(json_object_get(answer, "id")) && json_object_get(passage->message, "id"))
        (void)json_object_set(answer, "id", json_object_get(passage->message, "id"));
    text = json_text(answer);
    print_line(passage->bridge, str_of(text));
    return 0;
}

static int pass(struct passage *passage, struct error *err)
{
    auto_call struct http_call stream = {.fd = -1};

    if (ask(passage, &stream, err) < 0 || http_call_recv_head(&stream, err) < 0)
        return -1;
    return str_starts(http_call_header(&stream, "Content-Type"), STR("text/event-stream"))
               ? pass_events(passage, &stream, err)
               : pass_json(passage, &stream, err);
}

static void run_passage(void *arg)
{
    struct passage *passage = arg;
    struct bridge *bridge = passage->bridge;
    json_t *id = json_object_get(passage->message, "id");
    struct error err = {0};

    if (pass(passage, &err) < 0) {
        if (id && json_object_get(passage->message, "method"))
            print_error(bridge, id, NO_ANSWER, err.message);
        else
            (void)cli_fail(&err);
    }
    json_decref(passage->message);
    free(passage->line);
    free(passage);
    (void)pthread_mutex_lock(&bridge->lock);
    bridge->running--;
    (void)pthread_cond_signal(&bridge->changed);
    (void)pthread_mutex_unlock(&bridge->lock);
}

/* ---- lines ---- */

static void wait_until(struct bridge *bridge, int most)
{
    (void)pthread_mutex_lock(&bridge->lock);
    while (bridge->running > most)
        (void)pthread_cond_wait(&bridge->changed, &bridge->lock);
    (void)pthread_mutex_unlock(&bridge->lock);
}

static void start(struct bridge *bridge, struct str line)
{
    struct passage *passage = xcalloc(1, sizeof(*passage));
    struct error err = {0};

    passage->bridge = bridge;
    passage->line = str_dup(line);
    if (json_parse(line, &passage->message, &err) < 0 || !json_is_object(passage->message)) {
        print_error(bridge, NULL, NO_JSON, err.code ? err.message : "a message is a JSON object");
        json_decref(passage->message);
        free(passage->line);
        free(passage);
        return;
    }
    wait_until(bridge, AT_ONCE - 1);
    (void)pthread_mutex_lock(&bridge->lock);
    bridge->running++;
    (void)pthread_mutex_unlock(&bridge->lock);
    if (thread_start_detached("message", THREAD_STACK_DEFAULT, run_passage, passage, NULL) < 0)
        run_passage(passage);
}

/* Whole lines of what came; the rest stays. A line that is too long is told and left out. */
static void take_lines(struct bridge *bridge, struct buf *text, bool *skipping)
{
    const char *end;

    while (text->len && (end = memchr(text->p, '\n', text->len))) {
        size_t len = (size_t)(end - text->p);
        struct str line = str_trim(str_n(text->p, len));

        if (!*skipping && line.len)
            start(bridge, line);
        *skipping = false;
        buf_drop(text, len + 1);
    }
    if (text->len > LINE_MAX_SIZE) {
        if (!*skipping)
            print_error(bridge, NULL, NO_JSON, "a line is longer than 8 MiB");
        *skipping = true;
        buf_clear(text);
    }
}

static int run_bridge(struct bridge *bridge)
{
    enum { PIECE = 64 * 1024 };
    auto_buf struct buf text = {0};
    bool skipping = false;
    ssize_t n;

    buf_init(&text, LINE_MAX_SIZE + 2 * PIECE);
    for (;;) {
        char *to = buf_reserve(&text, PIECE);

        n = to ? read(STDIN_FILENO, to, PIECE) : 0;
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        buf_grew(&text, (size_t)n);
        take_lines(bridge, &text, &skipping);
    }
    wait_until(bridge, 0);
    return n < 0 ? CLI_FAILED : CLI_OK;
}

static void add_query(struct buf *target, const char *name, const char *value)
{
    if (!value)
        return;
    (void)buf_printf(target, "%c%s=", strchr(target->p, '?') ? '&' : '?', name);
    cli_escape(target, value);
}

char *cli_mcp_target(const struct cli_mcp_place *place)
{
    struct buf target;

    buf_init(&target, HTTP_URL_MAX);
    (void)buf_add_str(&target, STR("/mcp"));
    add_query(&target, "key", place->key);
    add_query(&target, "profile", place->profile);
    add_query(&target, "template", place->template);
    return buf_take(&target);
}

static int serve(struct cli *cli, const struct cli_mcp_place *place)
{
    static struct bridge bridge = {.lock = PTHREAD_MUTEX_INITIALIZER,
                                   .changed = PTHREAD_COND_INITIALIZER};
    struct error err = {0};
    int status;

    if (cli_connect(cli, &err) < 0)
        return cli_fail(&err);
    bridge.server = &cli->server;
    bridge.target = cli_mcp_target(place);
    bridge.authorization = xasprintf("Bearer %s", cli->server.key ? cli->server.key : "");
    id_hex(bridge.session, SESSION_BYTES);
    status = run_bridge(&bridge);
    free(bridge.target);
    free(bridge.authorization);
    return status;
}

static int read_place(struct cli *cli, const struct cli_command *command, int argc, char **argv,
                      struct cli_mcp_place *out, char ***out_operands, int *out_count)
{
    const struct cli_option table[] = {
        {"key", 0, CLI_TEXT, &out->key, "NAME", "another sandbox of your own, by this name"},
        {"template", 0, CLI_TEXT, &out->template, "NAME", "what your sandbox starts from"},
        {"profile", 0, CLI_TEXT, &out->profile, "NAME", "its profile"},
        {.name = NULL},
    };

    return cli_args(cli, command, table, CLI_ARGS_ANYWHERE, argc, argv, out_operands, out_count);
}

static int run_config(struct cli *cli, int argc, char **argv)
{
    struct cli_mcp_place place = {0};
    char **operands;
    int count, rc = read_place(cli, &mcp_config, argc, argv, &place, &operands, &count);

    if (rc != CLI_ARGS_RUN)
        return rc;
    if (count != 1)
        return cli_usage(&mcp_config, "needs a client: %s", cli_mcp_clients());
    if (!cli_mcp_client_known(operands[0]))
        return cli_usage(&mcp_config, "knows no client '%s', but %s", operands[0],
                         cli_mcp_clients());
    return cli_mcp_config(cli, operands[0], &place);
}

static int run_mcp(struct cli *cli, int argc, char **argv)
{
    struct cli_mcp_place place = {0};
    char **operands;
    int count, rc;

    if (argc > 1 && strcmp(argv[1], "config") == 0)
        return run_config(cli, argc - 1, argv + 1);
    rc = read_place(cli, &cli_mcp_command, argc, argv, &place, &operands, &count);
    if (rc != CLI_ARGS_RUN)
        return rc;
    if (count)
        return cli_usage(&cli_mcp_command, "takes no operand but 'config CLIENT'");
    return serve(cli, &place);
}

static const struct cli_command mcp_config = {
    .name = "mcp config",
    .operands = "CLIENT",
    .help = "what to paste so that an assistant uses this server",
    .run = run_config,
    .examples = "quicksand mcp config claude-code\nquicksand mcp config cursor --key my-project\n",
};

const struct cli_command cli_mcp_command = {
    .name = "mcp",
    .operands = "[config CLIENT]",
    .help = "MCP over stdin and stdout, for assistants that start programs",
    .run = run_mcp,
    .examples = "quicksand mcp config claude-code\nquicksand mcp --key my-project\n",
};
