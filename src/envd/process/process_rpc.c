/* process.Process: what clients may ask about programs. */
#include <signal.h>

#include "base/cleanup.h"
#include "envd/core/envd.h"
#include "envd/core/journal.h"
#include "envd/process/process_command.h"
#include "envd/process/process_rpc.h"
#include "protocol/json/json_shape.h"
#include "protocol/rpc/connect.h"

enum {
    TTY_COLS = 80,
    TTY_ROWS = 24,
};

/* ---- selecting ---- */

struct selector {
    int64_t pid;
    struct str tag;
};

static const struct json_field selector_fields[] = {
    JSON_FIELD(struct selector, pid, "pid", 0),
    JSON_FIELD(struct selector, tag, "tag", 0),
    JSON_END,
};

static int read_selector(const json_t *message, struct selector *out, struct error *err)
{
    const json_t *process = json_object_get(message, "process");

    if (!process)
        return error_set(err, ERROR_INVALID, "'process' is missing");
    if (json_read(selector_fields, process, out, err) != 0)
        return error_prefix(err, "in 'process'");
    if (out->pid < 0 || out->pid > INT32_MAX || (out->pid == 0 && !out->tag.p))
        return error_set(err, ERROR_INVALID, "'process' needs a pid or a tag");
    return 0;
}

static int not_found(const struct selector *selector, struct error *err)
{
    if (selector->pid)
        return error_set(err, ERROR_NOT_FOUND, "process with pid %lld not found",
                         (long long)selector->pid);
    return error_set(err, ERROR_NOT_FOUND, "process with tag '%.*s' not found",
                     STR_ARG(selector->tag));
}

struct process *process_rpc_select(struct envd *envd, const json_t *message, struct error *err)
{
    struct selector selector = {0};
    struct process *process;

    if (read_selector(message, &selector, err) != 0)
        return NULL;
    process = process_find(&envd->processes, (pid_t)selector.pid, selector.tag);
    if (!process)
        (void)not_found(&selector, err);
    return process;
}

/* ---- streams ---- */

struct start_request {
    json_t *process, *pty;
    struct str tag;
    bool want_stdin;
};

static const struct json_field start_fields[] = {
    JSON_FIELD(struct start_request, process, "process", JSON_REQUIRED),
    JSON_FIELD(struct start_request, pty, "pty", 0),
    JSON_FIELD(struct start_request, tag, "tag", 0),
    JSON_FIELD(struct start_request, want_stdin, "stdin", 0),
    JSON_END,
};

struct tty_size {
    int64_t cols, rows;
};

static const struct json_field size_fields[] = {
    JSON_FIELD(struct tty_size, cols, "cols", 0),
    JSON_FIELD(struct tty_size, rows, "rows", 0),
    JSON_END,
};

static int read_size(const json_t *pty, uint16_t *cols, uint16_t *rows, struct error *err)
{
    struct tty_size size = {.cols = TTY_COLS, .rows = TTY_ROWS};
    const json_t *object = json_object_get(pty, "size");

    if (object && json_read(size_fields, object, &size, err) != 0)
        return error_prefix(err, "in 'size'");
    if (size.cols < 0 || size.cols > UINT16_MAX || size.rows < 0 || size.rows > UINT16_MAX)
        return error_set(err, ERROR_INVALID, "the tty size is out of range");
    *cols = (uint16_t)size.cols;
    *rows = (uint16_t)size.rows;
    return 0;
}

int process_rpc_start(struct call *call, struct error *err)
{
    struct start_request request = {.want_stdin = true};
    struct process_start start = {0};
    auto_command struct process_command command = {0};
    struct process *process;
    struct user user;

    if (call_user(call, &user, err) != 0 ||
        connect_timeout_ms(call->ex, &start.timeout_ms, err) != 0 ||
        json_read(start_fields, call->request, &request, err) != 0 ||
        process_command_prepare(&command, &call->envd->settings, &user, request.process, err) != 0)
        return -1;
    if (request.pty && read_size(request.pty, &start.cols, &start.rows, err) != 0)
        return -1;
    start.candidates = command.candidates;
    start.argv = command.argv;
    start.envp = command.env.items;
    start.cwd = command.cwd;
    start.user = &user;
    start.config = request.process;
    start.tag = request.tag;
    start.want_stdin = request.want_stdin;
    start.want_pty = request.pty != NULL;
    process = process_start(&call->envd->processes, &start, err);
    if (!process) {
        journal_not_started(request.process, err);
        return -1;
    }
    journal_started(request.process, user.name, process->pid);
    process_subscribe(
        process, call->ex,
        &(struct process_subscription){.starter = true, .keepalive_ms = call_keepalive_ms(call)});
    return 0;
}

/* X-Quicksand-Replay: "1" for all that is kept, "from=N" for what comes behind the first N bytes of
 * the output. */
static int read_replay(const struct http_exchange *ex, struct process_replay *out,
                       struct error *err)
{
    struct str text = http_header(ex, "x-quicksand-replay");

    out->wanted = text.len > 0 && !str_is(text, "0");
    if (!out->wanted || str_is(text, "1"))
        return 0;
    if (str_starts(text, STR("from=")) && str_to_u64(str_skip(text, 5), &out->from))
        return 0;
    return error_set(err, ERROR_INVALID, "X-Quicksand-Replay must be 1 or from=N");
}

/* A late Connect: what there is to say about a program that is gone. */
static int replay_end(struct http_exchange *ex, const struct process_finished *finished,
                      const struct process_replay *replay, struct error *err)
{
    const struct proto_message *format = connect_format(ex);
    auto_buf struct buf events = {0};

    buf_init(&events, PROCESS_REPLAY_MAX + 1024);
    process_event_start(&events, format, finished->pid);
    if (process_output_replay(&finished->ring, replay, format != NULL, &events, err) != 0)
        return -1;
    process_event_end(&events, format, finished->status, finished->out_of_memory);
    connect_begin(ex);
    http_write(ex, events.p, events.len);
    connect_finish(ex, NULL);
    return 0;
}

int process_rpc_connect(struct call *call, struct error *err)
{
    struct process_subscription subscription = {.keepalive_ms = call_keepalive_ms(call)};
    const struct process_finished *finished;
    struct selector selector = {0};
    struct process *process;

    if (read_selector(call->request, &selector, err) != 0 ||
        connect_timeout_ms(call->ex, &subscription.timeout_ms, err) != 0 ||
        read_replay(call->ex, &subscription.replay, err) != 0)
        return -1;
    process = process_find(&call->envd->processes, (pid_t)selector.pid, selector.tag);
    if (process) {
        process_subscribe(process, call->ex, &subscription);
        return 0;
    }
    finished = process_find_finished(&call->envd->processes, (pid_t)selector.pid, selector.tag);
    if (!finished)
        return not_found(&selector, err);
    return replay_end(call->ex, finished, &subscription.replay, err);
}

/* ---- unary calls ---- */

int process_rpc_list(struct call *call, struct error *err)
{
    auto_json json_t *answer = json_object();
    json_t *items = json_array();
    auto_free char *text = NULL;
    struct list *pos;

    (void)err;
    json_object_set_new(answer, "processes", items);
    list_for_each (pos, &call->envd->processes.live) {
        struct process *process = container_of(pos, struct process, link);
        json_t *item;

        if (process->exited)
            continue;
        item = json_object();
        json_object_set(item, "config", process->config);
        json_object_set_new(item, "pid", json_integer(process->pid));
        if (process->tag)
            json_object_set_new(item, "tag", json_str(str_of(process->tag)));
        json_array_append_new(items, item);
    }
    text = json_text(answer);
    connect_reply(call->ex, str_of(text));
    return 0;
}

int process_rpc_send_signal(struct call *call, struct error *err)
{
    const json_t *value = json_object_get(call->request, "signal");
    struct process *process = process_rpc_select(call->envd, call->request, err);
    int signal = 0;

    if (!process)
        return -1;
    if (json_integer_value(value) == SIGKILL ||
        str_is(json_get_str(call->request, "signal"), "SIGNAL_SIGKILL"))
        signal = SIGKILL;
    else if (json_integer_value(value) == SIGTERM ||
             str_is(json_get_str(call->request, "signal"), "SIGNAL_SIGTERM"))
        signal = SIGTERM;
    else
        return error_set(err, ERROR_UNSUPPORTED, "invalid signal");
    if (process_signal(process, signal, err) != 0)
        return -1;
    if (signal == SIGKILL)
        process_answer_when_gone(process, call->ex);
    else
        connect_reply(call->ex, STR("{}"));
    return 0;
}

int process_rpc_close_stdin(struct call *call, struct error *err)
{
    struct process *process = process_rpc_select(call->envd, call->request, err);

    if (!process || process_input_end(process, err) != 0)
        return -1;
    connect_reply(call->ex, STR("{}"));
    return 0;
}

int process_rpc_update(struct call *call, struct error *err)
{
    struct process *process = process_rpc_select(call->envd, call->request, err);
    const json_t *pty = json_object_get(call->request, "pty");
    uint16_t cols = 0, rows = 0;

    if (!process)
        return -1;
    if (pty &&
        (read_size(pty, &cols, &rows, err) != 0 || process_resize(process, cols, rows, err) != 0))
        return -1;
    connect_reply(call->ex, STR("{}"));
    return 0;
}
