/* One server: a process whose standard input and output carry one message a line. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "extra/mcp/gateway/gateway.h"
#include "extra/mcp/mcp_message.h"
#include "protocol/json/json_shape.h"

enum {
    SWEEP_MS = 1000,
    AGAIN_MS = 1000, /* until one that ended is started again ... */
    AGAIN_MAX = 5,   /* ... so often, unless it ran for a minute meanwhile */
    CALM_MS = 60 * 1000,
    PAGES_MAX = 64,                 /* of its list of tools */
    BACKLOG_MAX = 32 * 1024 * 1024, /* bytes that it does not take */
    JUNK_LOGGED = 20, /* of lines that are not messages: the log is the sandbox's disk */
};

struct server {
    struct gateway *gateway;
    struct server_config config;
    bool runs, ready;
    uv_process_t *process;
    uv_pipe_t *in, *out; /* its stdin and stdout */
    uv_timer_t timer;    /* sweeps, and starts it again */
    int64_t begun_ms, again_ms;
    int again;
    struct buf line;
    struct list asked;
    int64_t last_id;
    json_t *tools, *listing;           /* those that are told, and those that are being listed */
    size_t tools_bytes, listing_bytes; /* of both, as JSON */
    int pages;
    bool lists, changed; /* a list is asked for; it changed since then */
    unsigned junk;       /* lines that are not messages, since it was started */
};

const char *server_name(const struct server *server)
{
    return server->config.name;
}

json_t *server_tools(const struct server *server)
{
    return server->tools;
}

static void freed(uv_handle_t *handle)
{
    free(handle);
}

/* ---- requests ---- */

static void forget(struct asked *asked)
{
    list_remove(&asked->link);
    free(asked);
}

static void settle(struct asked *asked, json_t *answer, const char *why)
{
    void (*fn)(void *arg, json_t *answer, const char *why) = asked->on_answer;
    void *arg = asked->arg;

    forget(asked);
    fn(arg, answer, why);
}

static void fail_all(struct server *server, const char *why)
{
    while (!list_empty(&server->asked))
        settle(container_of(server->asked.next, struct asked, link), NULL, why);
}

struct writing {
    uv_write_t request;
    char *text;
};

static void written(uv_write_t *request, int status)
{
    struct writing *writing = (struct writing *)request;

    (void)status;
    free(writing->text);
    free(writing);
}

/* False when it does not take any more. */
static bool send_json(struct server *server, json_t *message_consume)
{
    auto_json json_t *message = message_consume;
    auto_free char *text = json_text(message);
    struct writing *writing;
    uv_buf_t part;

    if (!server->in || uv_stream_get_write_queue_size((uv_stream_t *)server->in) > BACKLOG_MAX)
        return false;
    writing = xcalloc(1, sizeof(*writing));
    writing->text = xasprintf("%s\n", text);
    part = uv_buf_init(writing->text, (unsigned)strlen(writing->text));
    if (uv_write(&writing->request, (uv_stream_t *)server->in, &part, 1, written) < 0)
        written(&writing->request, 0);
    return true;
}

static void notify(struct server *server, const char *method, json_t *params_consume)
{
    (void)send_json(server, json_pack("{s:s, s:s, s:o*}", "jsonrpc", "2.0", "method", method,
                                      "params", params_consume));
}

static size_t count_asked(const struct server *server)
{
    const struct list *node;
    size_t n = 0;

    list_for_each (node, &server->asked)
        n++;
    return n;
}

struct asked *server_ask(struct server *server, const char *method, json_t *params_consume,
                         const struct asked *request)
{
    struct asked *asked;

    if (!server->runs || count_asked(server) >= GATEWAY_ASKED_MAX) {
        json_decref(params_consume);
        return NULL;
    }
    asked = xcalloc(1, sizeof(*asked));
    *asked = *request;
    asked->server = server;
    asked->id = ++server->last_id;
    if (!asked->deadline_ms)
        asked->deadline_ms = clock_mono_ms() + GATEWAY_CALL_MS;
    list_push_back(&server->asked, &asked->link);
    if (asked->on_progress) {
        json_t *meta = json_object_get(params_consume, "_meta");

        if (!json_is_object(meta)) {
            meta = json_object();
            (void)json_object_set_new(params_consume, "_meta", meta);
        }
        (void)json_object_set_new(meta, "progressToken", json_integer(asked->id));
    }
    if (!send_json(server,
                   json_pack("{s:s, s:I, s:s, s:o}", "jsonrpc", "2.0", "id", (json_int_t)asked->id,
                             "method", method, "params", params_consume))) {
        forget(asked);
        return NULL;
    }
    return asked;
}

void server_cancel(struct asked *asked)
{
    notify(asked->server, "notifications/cancelled",
           json_pack("{s:I}", "requestId", (json_int_t)asked->id));
    forget(asked);
}

static struct asked *find_asked(struct server *server, const json_t *id)
{
    struct list *node;

    if (!json_is_integer(id))
        return NULL;
    list_for_each (node, &server->asked) {
        struct asked *asked = container_of(node, struct asked, link);

        if (asked->id == json_integer_value(id))
            return asked;
    }
    return NULL;
}

/* ---- its begin ---- */

static void end(struct server *server, const char *why);

static void list_tools(struct server *server, const char *cursor);

/* Is there room for one more tool, beside those of all other servers and those listed so far? */
static bool has_room(const struct server *server, size_t bytes)
{
    const struct gateway *gateway = server->gateway;
    size_t count = json_array_size(server->listing), all = server->listing_bytes;

    for (size_t i = 0; i < gateway->count; i++)
        if (gateway->servers[i] != server) {
            count += json_array_size(gateway->servers[i]->tools);
            all += gateway->servers[i]->tools_bytes;
        }
    return count < GATEWAY_TOOLS_MAX && all + bytes <= GATEWAY_TOOLS_BYTES_MAX;
}

/* Those that have a name and are not too large, as long as there is room. */
static void add_tools(struct server *server, json_t *tools)
{
    size_t i, left_out = 0;
    json_t *one;

    json_array_foreach (tools, i, one) {
        auto_free char *text = json_text(one);

        if (!json_get_str(one, "name").len || strlen(text) > GATEWAY_TOOL_SIZE_MAX)
            log_warn("gateway", "%s: a tool without a name, or of %zu bytes, is left out",
                     server->config.name, strlen(text));
        else if (!has_room(server, strlen(text)))
            left_out++;
        else if (json_array_append(server->listing, one) == 0)
            server->listing_bytes += strlen(text);
    }
    if (left_out)
        log_warn("gateway",
                 "%s: %zu tools are left out: all servers together may have %d, of %d MiB",
                 server->config.name, left_out, GATEWAY_TOOLS_MAX, GATEWAY_TOOLS_BYTES_MAX >> 20);
}

static void begin_listing(struct server *server);

static void on_listed(void *arg, json_t *answer, const char *why)
{
    struct server *server = arg;
    json_t *result = json_object_get(answer, "result");
    const char *cursor = json_string_value(json_object_get(result, "nextCursor"));

    if (!answer || !json_is_array(json_object_get(result, "tools"))) {
        end(server, why ? why : "it told no tools");
        return;
    }
    add_tools(server, json_object_get(result, "tools"));
    if (cursor && ++server->pages < PAGES_MAX) {
        list_tools(server, cursor);
        return;
    }
    json_decref(server->tools);
    server->tools = take_ptr(&server->listing);
    server->tools_bytes = server->listing_bytes;
    server->lists = false;
    log_info("gateway", "%s: %zu tools", server->config.name, json_array_size(server->tools));
    if (server->changed)
        begin_listing(server);
    if (server->ready)
        return;
    server->ready = true;
    if (++server->gateway->ready == server->gateway->count)
        gateway_tell(server->gateway, NULL);
}

static void list_tools(struct server *server, const char *cursor)
{
    server->lists =
        server_ask(server, "tools/list", json_pack("{s:s*}", "cursor", cursor),
                   &(struct asked){.on_answer = on_listed,
                                   .arg = server,
                                   .deadline_ms = clock_mono_ms() + GATEWAY_BEGIN_MS}) != NULL;
    server->changed = server->changed || !server->lists; /* it has too much to do: later */
}

/* One at a time: a server may claim changes as often as it likes. */
static void begin_listing(struct server *server)
{
    server->changed = server->lists;
    if (server->lists)
        return;
    json_decref(server->listing);
    server->listing = json_array();
    server->listing_bytes = 0;
    server->pages = 0;
    list_tools(server, NULL);
}

static void on_initialized(void *arg, json_t *answer, const char *why)
{
    struct server *server = arg;

    if (!answer || !json_object_get(answer, "result")) {
        end(server, why ? why : "it refused to be initialised");
        return;
    }
    notify(server, "notifications/initialized", NULL);
    begin_listing(server);
}

static void initialize(struct server *server)
{
    (void)server_ask(server, "initialize",
                     json_pack("{s:s, s:{}, s:{s:s, s:s}}", "protocolVersion", MCP_VERSION_NEWEST,
                               "capabilities", "clientInfo", "name", "mcp-gateway", "version",
                               QUICKSAND_VERSION),
                     &(struct asked){.on_answer = on_initialized,
                                     .arg = server,
                                     .deadline_ms = clock_mono_ms() + GATEWAY_BEGIN_MS});
}

/* ---- what it sends ---- */

/* It asks us, its client: we are alive, and have nothing else to offer. */
static void answer_server(struct server *server, const struct mcp_message *message)
{
    if (str_is(message->method, "ping"))
        (void)send_json(
            server, json_pack("{s:s, s:O, s:{}}", "jsonrpc", "2.0", "id", message->id, "result"));
    else
        (void)send_json(server, json_pack("{s:s, s:O, s:{s:i, s:s}}", "jsonrpc", "2.0", "id",
                                          message->id, "error", "code", MCP_NO_METHOD, "message",
                                          "the gateway does not offer that"));
}

static void take_notice(struct server *server, const struct mcp_message *message)
{
    struct asked *asked;

    if (str_is(message->method, "notifications/tools/list_changed") && server->ready) {
        begin_listing(server);
        return;
    }
    if (!str_is(message->method, "notifications/progress"))
        return;
    asked = find_asked(server, json_object_get(message->params, "progressToken"));
    if (asked && asked->on_progress)
        asked->on_progress(asked->arg, message->params);
}

static void log_junk(struct server *server, const char *what)
{
    if (++server->junk <= JUNK_LOGGED)
        log_warn("gateway", "%s: %s%s", server->config.name, what,
                 server->junk == JUNK_LOGGED ? "; further ones are not logged" : "");
}

static void take_line(struct server *server, struct str line)
{
    struct mcp_message message;
    struct mcp_fault fault;
    struct asked *asked;

    if (mcp_message_parse(line, &message, &fault) < 0) {
        log_junk(server, "a line that is not a message");
    } else if (message.kind == MCP_NOTIFICATION) {
        take_notice(server, &message);
    } else if (message.kind == MCP_REQUEST) {
        answer_server(server, &message);
    } else {
        asked = find_asked(server, message.id);
        if (asked)
            settle(asked, message.tree, NULL);
        else
            log_junk(server, "an answer to nothing that was asked");
    }
    mcp_message_done(&message);
}

static void take_lines(struct server *server)
{
    struct str rest = buf_str(&server->line);
    ptrdiff_t end_of_line;

    while ((end_of_line = str_find(rest, '\n')) >= 0) {
        struct str line = str_trim(str_n(rest.p, (size_t)end_of_line));

        if (line.len)
            take_line(server, line);
        if (!server->runs) /* it was ended inside */
            return;
        rest = str_skip(rest, (size_t)end_of_line + 1);
    }
    buf_drop(&server->line, server->line.len - rest.len); /* once: lines may be many */
    if (server->line.len > GATEWAY_LINE_MAX)
        end(server, "it sent a line that is longer than 8 MiB");
}

static void on_alloc(uv_handle_t *handle, size_t size, uv_buf_t *out)
{
    struct server *server = handle->data;

    (void)size;
    *out = uv_buf_init(loop_read_buffer(server->gateway->loop), LOOP_READ_SIZE);
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *part)
{
    struct server *server = stream->data;

    if (n < 0) {
        end(server, "it has ended");
        return;
    }
    (void)buf_add(&server->line, part->base, (size_t)n);
    take_lines(server);
}

/* ---- its process ---- */

static void on_exit_of(uv_process_t *process, int64_t status, int signal)
{
    struct server *server = process->data;
    char why[80];

    if (server && server->process == process) {
        server->process = NULL;
        (void)snprintf(why, sizeof(why), "it has ended with status %d",
                       signal ? 128 + signal : (int)status);
        end(server, why);
    }
    uv_close((uv_handle_t *)process, freed);
}

static void close_pipe(uv_pipe_t **pipe)
{
    if (*pipe)
        uv_close((uv_handle_t *)*pipe, freed);
    *pipe = NULL;
}

/* It is gone, or not to be listened to any more. */
static void end(struct server *server, const char *why)
{
    char told[256];

    if (!server->runs)
        return;
    server->runs = false;
    (void)snprintf(told, sizeof(told), "the MCP server '%.100s' does not work: %s",
                   server->config.name, why);
    log_warn("gateway", "%s", told);
    if (server->process) {
        server->process->data = NULL;
        (void)kill(-server->process->pid, SIGKILL);
        server->process = NULL;
    }
    close_pipe(&server->in);
    close_pipe(&server->out);
    buf_clear(&server->line);
    fail_all(server, told);
    if (!server->ready)
        gateway_tell(server->gateway, told);
    if (clock_mono_ms() - server->begun_ms > CALM_MS)
        server->again = 0;
    server->again_ms = ++server->again <= AGAIN_MAX ? clock_mono_ms() + AGAIN_MS : 0;
}

static uv_pipe_t *new_pipe(struct server *server)
{
    uv_pipe_t *pipe = xcalloc(1, sizeof(*pipe));

    (void)uv_pipe_init(loop_uv(server->gateway->loop), pipe, 0);
    pipe->data = server;
    return pipe;
}

void server_start(struct server *server)
{
    char shell[] = "/bin/bash", flag[] = "-c";
    char *argv[] = {shell, flag, server->config.run, NULL};
    char **environment = config_environment(server->config.envs);
    uv_stdio_container_t stdio[3] = {{.flags = UV_CREATE_PIPE | UV_READABLE_PIPE},
                                     {.flags = UV_CREATE_PIPE | UV_WRITABLE_PIPE},
                                     {.flags = UV_INHERIT_FD, .data.fd = 2}};
    uv_process_options_t options = {.exit_cb = on_exit_of,
                                    .file = shell,
                                    .args = argv,
                                    .env = environment,
                                    .cwd = server->config.cwd,
                                    .flags = UV_PROCESS_DETACHED,
                                    .stdio_count = 3,
                                    .stdio = stdio};
    int r;

    server->again_ms = 0;
    server->lists = server->changed = false;
    server->junk = 0;
    server->begun_ms = clock_mono_ms();
    server->runs = true;
    server->in = new_pipe(server);
    server->out = new_pipe(server);
    server->process = xcalloc(1, sizeof(*server->process));
    server->process->data = server;
    stdio[0].data.stream = (uv_stream_t *)server->in;
    stdio[1].data.stream = (uv_stream_t *)server->out;
    r = uv_spawn(loop_uv(server->gateway->loop), server->process, &options);
    config_environment_free(environment);
    if (r < 0) {
        uv_close((uv_handle_t *)take_ptr(&server->process), freed);
        end(server, uv_strerror(r));
        return;
    }
    (void)uv_read_start((uv_stream_t *)server->out, on_alloc, on_read);
    initialize(server);
}

static struct asked *find_late(const struct server *server, int64_t now)
{
    struct list *node;

    list_for_each (node, &server->asked) {
        struct asked *asked = container_of(node, struct asked, link);

        if (asked->deadline_ms < now)
            return asked;
    }
    return NULL;
}

/* Requests that took too long; and one that ended begins again. */
static void on_sweep(uv_timer_t *timer)
{
    struct server *server = timer->data;
    int64_t now = clock_mono_ms();
    struct asked *late;

    /* From the front each time: others may go with one that is settled. */
    while ((late = find_late(server, now))) {
        notify(server, "notifications/cancelled",
               json_pack("{s:I}", "requestId", (json_int_t)late->id));
        settle(late, NULL, "it took too long to answer");
    }
    if (server->runs && server->changed && !server->lists)
        begin_listing(server);
    if (server->again_ms && server->again_ms < now)
        server_start(server);
}

struct server *server_new(struct gateway *gateway, const struct server_config *config)
{
    struct server *server = xcalloc(1, sizeof(*server));

    server->gateway = gateway;
    server->config = *config;
    list_init(&server->asked);
    buf_init(&server->line, GATEWAY_LINE_MAX + 2 * LOOP_READ_SIZE);
    (void)uv_timer_init(loop_uv(gateway->loop), &server->timer);
    server->timer.data = server;
    (void)uv_timer_start(&server->timer, on_sweep, SWEEP_MS, SWEEP_MS);
    return server;
}
