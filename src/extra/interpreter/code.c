/* How it works: the interpreter is reached as any port of the sandbox is, its answer read line by line. Lines that are collected are
 * bounded; what goes beyond is left out, and told. When we leave before the end, the interpreter interrupts the cell. */
#include "extra/interpreter/code.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "protocol/fetch/fetch.h"
#include "protocol/json/json_shape.h"
#include "runtime/core/runtime.h"
#include "runtime/run/run.h"
#include "runtime/sandbox/sandbox.h"

enum {
    PORT = 49999,
    TIMEOUT_MS = 300 * 1000, /* where the profile has none */
    HEAD_MS = 30 * 1000,
    LOOK_MS = 500, /* between two looks whether somebody still waits */
    READ_SIZE = 64 * 1024,
    LINE_MAX_BYTES = 64 * 1024 * 1024,
    KEEP_MAX = 32 * 1024 * 1024, /* of what is collected */
    HEADERS_MAX = 16,
};

struct running {
    const struct runtime_code *code;
    struct buf lines; /* what has come and is no whole line yet */
    json_t *results, *error;
    struct buf text[2];
    size_t kept;
    int64_t count, begun_ms;
    bool ended, stopped, timed_out, truncated;
};

/* ---- lines ---- */

static void keep_text(struct running *running, bool is_err, const json_t *line)
{
    struct str text = json_get_str(line, "text");

    running->kept += text.len;
    if (running->kept > KEEP_MAX)
        running->truncated = true;
    else
        (void)buf_add_str(&running->text[is_err], text);
}

static void keep_result(struct running *running, json_t *line, size_t size)
{
    running->kept += size;
    if (running->kept > KEEP_MAX) {
        running->truncated = true;
        return;
    }
    (void)json_object_del(line, "type");
    (void)json_array_append(running->results, line);
}

static void keep(struct running *running, json_t *line, size_t size)
{
    struct str type = json_get_str(line, "type");

    if (str_is(type, "stdout") || str_is(type, "stderr"))
        keep_text(running, str_is(type, "stderr"), line);
    else if (str_is(type, "result"))
        keep_result(running, line, size);
}

/* Errors, the count and the end are noted in any case. */
static int take_json(struct running *running, struct str text, struct error *err)
{
    auto_json json_t *line = NULL;
    struct str type;

    if (json_parse(text, &line, err) < 0)
        return error_prefix(err, "the interpreter's answer");
    type = json_get_str(line, "type");
    if (str_is(type, "keepalive"))
        return 0;
    if (str_is(type, "number_of_executions"))
        running->count = json_integer_value(json_object_get(line, "execution_count"));
    if (str_is(type, "end_of_execution"))
        running->ended = true;
    if (running->code->on_line)
        running->stopped = running->code->on_line(running->code->arg, text) != 0;
    else
        keep(running, line, text.len);
    if (str_is(type, "error") && !running->error) {
        (void)json_object_del(line, "type");
        running->error = json_incref(line);
    }
    return 0;
}

/* Memory for what is kept of it stays reserved. */
static int take_line(struct running *running, struct str text, struct error *err)
{
    size_t cost = json_cost(text), results = json_array_size(running->results);
    bool failed = running->error != NULL;
    int r;

    if (buf_account_reserve(cost, err) < 0)
        return -1;
    r = take_json(running, text, err);
    if (json_array_size(running->results) == results && failed == (running->error != NULL))
        buf_account_return(cost);
    for (int i = 0; r == 0 && i < 2; i++)
        if (running->text[i].refused)
            r = buf_refuse(&running->text[i], err);
    return r;
}

static int take_lines(struct running *running, struct error *err)
{
    struct str rest = buf_str(&running->lines);
    ptrdiff_t end;

    while (!running->ended && !running->stopped && (end = str_find(rest, '\n')) >= 0) {
        if (end > 0 && take_line(running, str_n(rest.p, (size_t)end), err) < 0)
            return -1;
        rest = str_skip(rest, (size_t)end + 1);
    }
    buf_drop(&running->lines, running->lines.len - rest.len);
    return 0;
}

/* ---- the stream ---- */

static int read_all(struct running *running, struct fetch_stream *stream, int64_t deadline_ms,
                    struct error *err)
{
    auto_free char *bytes = xmalloc(READ_SIZE);

    while (!running->ended && !running->stopped) {
        ssize_t n = fetch_read(stream, bytes, READ_SIZE, LOOK_MS, err);

        if (n == 0)
            return error_set(err, ERROR_UNAVAILABLE,
                             "the interpreter's answer ended before the cell did");
        if (n < 0 && err->code != ERROR_TIMEOUT)
            return -1;
        running->timed_out = n < 0 && clock_mono_ms() >= deadline_ms;
        if (running->timed_out)
            return 0;
        if (n < 0 && running->code->on_line)
            running->stopped = running->code->on_line(running->code->arg, STR_NONE) != 0;
        if (n > 0 && !buf_add(&running->lines, bytes, (size_t)n))
            return running->lines.refused
                       ? buf_refuse(&running->lines, err)
                       : error_set(err, ERROR_LIMIT, "a line of the answer is longer than %d MiB",
                                   LINE_MAX_BYTES >> 20);
        if (n > 0 && take_lines(running, err) < 0)
            return -1;
    }
    return 0;
}

/* As the interpreter answers to a language without a kernel; a context that is not there is 404, too. */
#define REFUSED_LANGUAGE "Failed to create context: "

/* Its words are for people already. */
static int refuse(struct fetch_stream *stream, struct error *err)
{
    int status = fetch_status(stream);
    struct error ignored = {0};
    char text[256];
    ssize_t n = fetch_read(stream, text, sizeof(text) - 1, HEAD_MS, &ignored);

    text[n > 0 ? n : 0] = '\0';
    if (status == 404 && str_starts(str_of(text), STR(REFUSED_LANGUAGE)))
        return error_set(err, ERROR_INVALID, "%s", text);
    if (status == 502 || status == 503)
        return error_set(err, ERROR_UNSUPPORTED,
                         "no interpreter answers in this sandbox: it needs the template "
                         "code-interpreter-v1, or one that is made of it");
    return error_set(err,
                     status == 404   ? ERROR_NOT_FOUND
                     : status == 429 ? ERROR_QUOTA
                                     : ERROR_INVALID,
                     "%s", text);
}

static char *body_of(const struct runtime_code *code)
{
    auto_json json_t *body = json_object();

    (void)json_object_set_new(body, "code", json_str(code->code));
    if (code->language.len)
        (void)json_object_set_new(body, "language", json_str(code->language));
    if (code->context_id.len)
        (void)json_object_set_new(body, "context_id", json_str(code->context_id));
    if (code->env)
        (void)json_object_set_new(body, "env_vars", json_deep_copy(code->env));
    return json_text(body);
}

static int run(struct runtime *runtime, const struct runtime_use *use,
               const struct provider_address *address, struct running *running, struct error *err)
{
    auto_free char *url = xasprintf("%.*s/execute", STR_ARG(address->local_url));
    auto_free char *body = body_of(running->code);
    struct pair headers[HEADERS_MAX] = {{STR("Content-Type"), STR("application/json")},
                                        {STR("X-Access-Token"), use->ref.token}};
    struct fetch_request request = {.method = "POST",
                                    .url = url,
                                    .headers = headers,
                                    .header_count = use->ref.token.len ? 2 : 1,
                                    .body = str_of(body),
                                    .timeout_ms = HEAD_MS,
                                    .reach = fetch_reach(address->public_only)};
    struct fetch_stream *stream = NULL;
    int64_t limit = running->code->timeout_ms ? running->code->timeout_ms
                    : use->timeout_s          ? use->timeout_s * 1000
                                              : TIMEOUT_MS;
    int r;

    for (size_t i = 0; i < address->header_count && request.header_count < HEADERS_MAX; i++)
        headers[request.header_count++] = address->headers[i];
    running->begun_ms = clock_mono_ms();
    if (fetch_open(runtime_fetch(runtime), &request, &stream, err) < 0)
        return -1;
    r = fetch_status(stream) == 200 ? read_all(running, stream, running->begun_ms + limit, err)
                                    : refuse(stream, err);
    fetch_close(stream);
    return r;
}

static json_t *outcome(struct running *running)
{
    json_t *out = json_object();

    if (!running->code->on_line) {
        (void)json_object_set(out, "results", running->results);
        (void)json_object_set_new(out, "stdout", json_str(buf_str(&running->text[0])));
        (void)json_object_set_new(out, "stderr", json_str(buf_str(&running->text[1])));
    }
    (void)json_object_set(out, "error", running->error ? running->error : json_null());
    (void)json_object_set_new(out, "execution_count", json_integer(running->count));
    (void)json_object_set_new(out, "duration_ms",
                              json_integer(clock_mono_ms() - running->begun_ms));
    (void)json_object_set_new(out, "timed_out", json_boolean(running->timed_out));
    (void)json_object_set_new(out, "truncated", json_boolean(running->truncated));
    return out;
}

int runtime_code(struct runtime *runtime, const struct runtime_caller *caller, struct str id,
                 const struct runtime_code *code, json_t **out, struct error *err)
{
    auto_arena struct arena arena = {0};
    struct running running = {.code = code, .results = json_array()};
    struct provider_address address;
    struct runtime_use use;
    int r = -1;

    buf_init_charged(&running.lines, LINE_MAX_BYTES);
    buf_init_charged(&running.text[0], KEEP_MAX);
    buf_init_charged(&running.text[1], KEEP_MAX);
    if (runtime_command_check_env(runtime, code->env, err) == 0 &&
        runtime_use(runtime, caller, id, PROVIDER_PORTS, &arena, &use, err) == 0 &&
        provider_address(use.provider, &use.ref, PORT, &arena, &address, err) == 0) {
        r = run(runtime, &use, &address, &running, err);
        runtime_live_used(runtime, use.sandbox.id, 1, 0);
    }
    if (r == 0)
        *out = outcome(&running);
    json_decref(running.results);
    json_decref(running.error);
    buf_done(&running.lines);
    buf_done(&running.text[0]);
    buf_done(&running.text[1]);
    return r;
}
