#include "domain/sandbox/envd_run.h"

#include <poll.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/encode.h"
#include "domain/sandbox/sandbox_envd.h"
#include "domain/sandbox/sandbox_internal.h"
#include "protocol/json/json_shape.h"

enum {
    CONNECT_MS = 5000,
    START_MS = 20 * 1000,
    ANSWER_MAX = 4 * 1024 * 1024, /* that came at once */
    MESSAGE_MAX = 1024 * 1024,
    TAIL_MAX = 2048,
    USER_MAX = 128,
    SHOWN_MAX = 160, /* of what it wrote, in a message */
};

static const char *const bash[] = {"/bin/bash", "-l", "-c", NULL};

/* ---- what comes ---- */

static void add_output(struct envd_run *run, bool is_stderr, struct str base64)
{
    auto_buf struct buf data = {0};

    buf_init(&data, MESSAGE_MAX);
    if (!base64_decode(base64, &data) || data.len == 0)
        return;
    if (run->output)
        run->output(run->arg, is_stderr, buf_str(&data));
    if (run->tail.len + data.len > TAIL_MAX)
        buf_drop(&run->tail, run->tail.len + data.len - TAIL_MAX < run->tail.len
                                 ? run->tail.len + data.len - TAIL_MAX
                                 : run->tail.len);
    (void)buf_add_str(&run->tail, data.len > TAIL_MAX
                                      ? str_skip(buf_str(&data), data.len - TAIL_MAX)
                                      : buf_str(&data));
}

static void add_exit(struct envd_run *run, const json_t *end)
{
    struct str status = json_get_str(end, "status");
    const json_t *exited = json_object_get(end, "exited");

    run->exited = true;
    run->exit_code =
        json_is_false(exited) ? -1 : (int)json_integer_value(json_object_get(end, "exitCode"));
    if (!status.p || !str_copy(status, run->status, sizeof(run->status)))
        (void)snprintf(run->status, sizeof(run->status), "exit status %d", run->exit_code);
    run->out_of_memory = str_ends(json_get_str(end, "error"), STR(": out of memory"));
}

static void add_event(struct envd_run *run, const json_t *event)
{
    const json_t *start = json_object_get(event, "start"), *data = json_object_get(event, "data");
    const json_t *end = json_object_get(event, "end");
    struct str text;

    if (start)
        run->pid = json_integer_value(json_object_get(start, "pid"));
    if ((text = json_get_str(data, "stdout")).p)
        add_output(run, false, text);
    if ((text = json_get_str(data, "stderr")).p)
        add_output(run, true, text);
    if (end)
        add_exit(run, end);
}

/* The end frame: {} or {"error":{"code","message"}}. */
static void add_end(struct envd_run *run, const json_t *frame)
{
    const json_t *error = json_object_get(frame, "error");
    struct str code = json_get_str(error, "code"), message = json_get_str(error, "message");

    if (!error || run->exited)
        return;
    if (str_is(code, "deadline_exceeded")) {
        run->exited = run->timed_out = true;
        run->exit_code = -1;
        (void)snprintf(run->status, sizeof(run->status), "it took too long");
        return;
    }
    /* What it refuses is mostly the command's fault: no such user, no such directory. */
    (void)error_set(&run->why,
                    str_is(code, "internal") || str_is(code, "unavailable") ? ERROR_UNAVAILABLE
                                                                            : ERROR_INVALID,
                    "%.*s", (int)(message.len < SHOWN_MAX ? message.len : SHOWN_MAX),
                    message.p ? message.p : "envd refused it");
}

static int add_message(void *arg, uint8_t flags, struct str message)
{
    struct envd_run *run = arg;
    auto_json json_t *tree = NULL;
    struct error ignored;

    if (json_parse(message, &tree, &ignored) < 0)
        return error_set(&run->why, ERROR_UNAVAILABLE, "envd sent what is not JSON");
    if (flags & CONNECT_END)
        add_end(run, tree);
    else
        add_event(run, json_object_get(tree, "event"));
    return 0;
}

/* What is in the answer's body so far. */
static int decode(struct envd_run *run, struct error *err)
{
    int result = connect_decode(&run->decoder, buf_str(&run->call.body), add_message, run, err);

    buf_clear(&run->call.body);
    if (result < 0 || run->why.code) {
        if (run->why.code)
            *err = run->why;
        return -1;
    }
    return 0;
}

/* ---- asking ---- */

static char *request_text(const struct envd_command *command)
{
    const char *const *shell = command->shell ? command->shell : bash;
    auto_json json_t *request = json_object();
    json_t *process = json_object(), *args = json_array();

    (void)json_object_set_new(request, "process", process);
    (void)json_object_set_new(process, "cmd", json_string(shell[0]));
    for (size_t i = 1; shell[i]; i++)
        (void)json_array_append_new(args, json_string(shell[i]));
    (void)json_array_append_new(args, json_str(command->text));
    (void)json_object_set_new(process, "args", args);
    if (command->env)
        (void)json_object_set_new(process, "envs", json_deep_copy(command->env));
    if (command->cwd.len)
        (void)json_object_set_new(process, "cwd", json_str(command->cwd));
    (void)json_object_set_new(request, "stdin", json_false());
    return json_text(request);
}

static int ask(struct envd_run *run, const struct envd_command *command, struct error *err)
{
    auto_free char *text = request_text(command);
    auto_buf struct buf body = {0};
    char user[USER_MAX + 2], authorization[BASE64_LEN(USER_MAX + 2) + 8] = "Basic ", timeout[32];
    struct http_header headers[4] = {
        {STR("Content-Type"), STR("application/connect+json")},
        {STR("Connect-Protocol-Version"), STR("1")},
    };
    struct http_call_request request = {.method = "POST",
                                        .target = "/process.Process/Start",
                                        .headers = headers,
                                        .header_count = 2,
                                        .after = HTTP_AFTER_CLOSE};

    if (command->user.len > USER_MAX)
        return error_set(err, ERROR_INVALID, "the user's name is too long");
    if (command->user.len) {
        int len = snprintf(user, sizeof(user), "%.*s:", STR_ARG(command->user));

        base64_encode(authorization + 6, user, (size_t)len);
        authorization[6 + BASE64_LEN((size_t)len)] = '\0';
        headers[request.header_count++] =
            (struct http_header){STR("Authorization"), str_of(authorization)};
    }
    if (command->timeout_ms > 0) {
        (void)snprintf(timeout, sizeof(timeout), "%lld", (long long)command->timeout_ms);
        headers[request.header_count++] =
            (struct http_header){STR("Connect-Timeout-Ms"), str_of(timeout)};
    }
    buf_init(&body, CONNECT_MESSAGE_MAX);
    if (!connect_add(&body, 0, str_of(text)))
        return error_set(err, ERROR_INVALID, "the command is too long");
    request.body = buf_str(&body);
    return http_call_start(&run->call, &request, err);
}

/* Adds what comes until then; 0 when the answer is over. */
static int take(struct envd_run *run, int64_t until_ms, struct error *err)
{
    int result;

    while ((result = http_call_take(&run->call, err)) == HTTP_CALL_LATER) {
        struct pollfd wait = {.fd = run->call.fd, .events = POLLIN};
        int64_t left = until_ms - clock_mono_ms();

        if (left <= 0)
            return HTTP_CALL_LATER;
        (void)poll(&wait, 1, left < INT32_MAX ? (int)left : INT32_MAX);
    }
    if (result < 0)
        return -1;
    if (run->call.head_done && run->call.status != 200)
        return error_set(err, ERROR_INTERNAL, "envd answered %d", run->call.status);
    return decode(run, err) < 0 ? -1 : result;
}

int envd_run_start(struct engine *engine, const char *id, const struct envd_command *command,
                   struct envd_run *run, struct error *err)
{
    int64_t until = clock_mono_ms() + START_MS;
    int result = 1;

    run->call = (struct http_call){.fd = -1, .max = ANSWER_MAX, .deadline_ms = until};
    run->decoder.max = MESSAGE_MAX;
    buf_init(&run->tail, TAIL_MAX);
    run->call.fd = envd_connect(engine, id, CONNECT_MS, err);
    if (run->call.fd < 0 || ask(run, command, err) < 0)
        return -1;
    while (!run->pid && !run->exited && result == 1)
        result = take(run, until, err);
    if (result < 0)
        return -1;
    if (!run->pid && !run->exited)
        return error_set(err, result ? ERROR_TIMEOUT : ERROR_UNAVAILABLE,
                         "envd does not say whether it runs");
    return 0;
}

int envd_run_wait(struct envd_run *run, int64_t ms, struct error *err)
{
    int64_t until = clock_mono_ms() + ms;

    while (!run->exited) {
        int result = take(run, until, err);

        if (result < 0)
            return -1;
        if (result == 0 && !run->exited)
            return error_set(err, ERROR_UNAVAILABLE, "envd did not say how it ended");
        /* Also while there is always more to read. */
        if (!run->exited && clock_mono_ms() >= until)
            return 0;
    }
    return 1;
}

void envd_run_done(struct envd_run *run)
{
    http_call_done(&run->call);
    connect_decoder_done(&run->decoder);
    buf_done(&run->tail);
}

const char *envd_run_words(const struct envd_run *run, struct arena *arena)
{
    struct str tail = buf_str(&run->tail);
    char *text;

    while (tail.len && (tail.p[tail.len - 1] == '\n' || tail.p[tail.len - 1] == ' '))
        tail.len--;
    if (!tail.len)
        return arena_printf(arena, "%s%s", run->status,
                            run->out_of_memory ? " (out of memory)" : "");
    text = arena_printf(arena, "%s%s; the last that it wrote: '%.*s'", run->status,
                        run->out_of_memory ? " (out of memory)" : "",
                        (int)(tail.len < SHOWN_MAX ? tail.len : SHOWN_MAX),
                        tail.p + (tail.len < SHOWN_MAX ? 0 : tail.len - SHOWN_MAX));
    /* One line, of characters that a message may have. */
    for (char *p = text; *p; p++)
        if ((unsigned char)*p < ' ' || *p == 0x7f)
            *p = ' ';
    return text;
}
