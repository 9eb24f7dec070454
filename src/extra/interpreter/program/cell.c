/* How it works: lines for the client are collected in `lines` and sent together. Text of stdout and stderr is collected
 * before that: a print() of several writes is to be one line for the client. It is told when there is much of it, before each
 * result or error, at the end, and in any case after FLUSH_MS. A line that has not ended waits until its writer is silent
 * (cell_text_due()), and a character that is not whole for its rest.
 *
 * The number of the cell waits for what comes next, for the same time: most cells are over by then, and their
 * answer is one packet. */
#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "extra/interpreter/program/interpreter.h"
#include "protocol/json/json_out.h"
#include "protocol/json/json_shape.h"

enum {
    FLUSH_MS = 50,
    /* The begin of a line is sent after such a silence. A print() makes two writes, and between them the processor may be busy
     * with others: for most of 100 ms when a sandbox has used up its share. */
    SILENT_MS = 200,
    UNENDED_MS = 250, /* and in any case after this */
    KEEPALIVE_MS = 5000,
    TEXT_ENOUGH = 32 * 1024,
    TEXT_MAX = 1024 * 1024, /* a pipe gives less than that before it is told */
    LINES_MAX = 8 * 1024 * 1024,
};

struct cell *cell_new(struct http_exchange *ex, json_t *request_consume)
{
    struct cell *cell = xcalloc(1, sizeof(*cell));

    cell->ex = ex;
    cell->request = request_consume;
    cell->code = json_get_str(cell->request, "code");
    cell->envs = json_object_get(cell->request, "env_vars");
    cell->token = http_header(ex, "x-access-token");
    buf_init(&cell->lines, LINES_MAX);
    buf_init(&cell->text[KERNEL_STDOUT], TEXT_MAX);
    buf_init(&cell->text[KERNEL_STDERR], TEXT_MAX);
    return cell;
}

void cell_free(struct cell *cell)
{
    timer_stop(&cell->flush);
    timer_stop(&cell->keepalive);
    json_decref(cell->request);
    buf_done(&cell->lines);
    buf_done(&cell->text[0]);
    buf_done(&cell->text[1]);
    free(cell);
}

/* ---- sending ---- */

static void on_drain(struct http_exchange *ex, void *arg)
{
    struct cell *cell = arg;

    (void)ex;
    if (cell->context && cell->context->running == cell && cell->context->kernel)
        kernel_hold(cell->context->kernel, false);
}

static void send_lines(struct cell *cell)
{
    if (!cell->lines.len)
        return;
    cell->last_ms = clock_mono_ms();
    if (http_write(cell->ex, cell->lines.p, cell->lines.len) > HTTP_HIGH_WATER &&
        cell->context->running == cell && cell->context->kernel)
        kernel_hold(cell->context->kernel, true);
    buf_done(&cell->lines);
    buf_init(&cell->lines, LINES_MAX);
}

/* How much of the text is whole characters. Bytes that cannot become one are not waited for. */
static size_t whole_characters(struct str text)
{
    size_t len = text.len;

    for (size_t back = 1; back <= 3 && back <= len; back++) {
        unsigned char c = (unsigned char)text.p[len - back];
        size_t need = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : c >= 0xc0 ? 2 : 1;

        if ((c & 0xc0) == 0x80)
            continue;
        return need > back ? len - back : len;
    }
    return len;
}

size_t cell_text_due(struct str text, int64_t silent_ms, int64_t waited_ms)
{
    size_t len = text.len;

    if (silent_ms >= SILENT_MS || waited_ms >= UNENDED_MS)
        return whole_characters(text);
    while (len && text.p[len - 1] != '\n')
        len--;
    return len;
}

static void line_begin(struct cell *cell, const char *type)
{
    json_out_open(&cell->lines, NULL, '{');
    json_out_str(&cell->lines, "type", str_of(type));
}

static void line_end(struct cell *cell)
{
    json_out_close(&cell->lines, "}\n");
}

static void tell_text(struct cell *cell, enum kernel_pipe pipe, size_t len)
{
    struct buf *text = &cell->text[pipe];
    char time[CLOCK_TEXT_SIZE + sizeof("+00:00")];

    if (!len)
        return;
    clock_format(clock_wall_us(), time);
    memcpy(time + strlen(time) - 1, "+00:00", sizeof("+00:00")); /* clients want digits, not Z */
    line_begin(cell, pipe == KERNEL_STDOUT ? "stdout" : "stderr");
    json_out_str(&cell->lines, "text", str_n(text->p, len));
    json_out_str(&cell->lines, "timestamp", str_of(time));
    line_end(cell);
    buf_drop(text, len);
    cell->unended_ms[pipe] = cell->output_ms[pipe];
}

static void tell_texts(struct cell *cell)
{
    for (int pipe = KERNEL_STDOUT; pipe <= KERNEL_STDERR; pipe++)
        tell_text(cell, (enum kernel_pipe)pipe, whole_characters(buf_str(&cell->text[pipe])));
}

static void flush_soon(struct cell *cell);

static void on_flush(uv_timer_t *timer)
{
    struct cell *cell = timer->data;
    int64_t now = clock_mono_ms();
    bool waits = false;

    timer_stop(&cell->flush);
    for (int pipe = KERNEL_STDOUT; pipe <= KERNEL_STDERR; pipe++) {
        int64_t waited = now - cell->unended_ms[pipe];

        tell_text(cell, (enum kernel_pipe)pipe,
                  cell_text_due(buf_str(&cell->text[pipe]), now - cell->output_ms[pipe], waited));
        waits |= cell->text[pipe].len && waited < UNENDED_MS;
    }
    send_lines(cell);
    if (waits)
        flush_soon(cell);
}

static void flush_soon(struct cell *cell)
{
    if (!cell->flush)
        cell->flush = timer_start(cell->context->ip->loop, FLUSH_MS, 0, on_flush, cell);
}

static void on_keepalive(uv_timer_t *timer)
{
    struct cell *cell = timer->data;

    if (clock_mono_ms() - cell->last_ms < KEEPALIVE_MS)
        return;
    line_begin(cell, "keepalive");
    line_end(cell);
    send_lines(cell);
}

/* ---- its life ---- */

static void on_done(struct http_exchange *ex, void *arg)
{
    struct cell *cell = arg;

    (void)ex;
    if (cell->context)
        context_drop(cell->context, cell);
    cell_free(cell);
}

void cell_begin(struct cell *cell, struct context *context)
{
    static const struct pair headers[] = {
        {STR_INIT("content-type"), STR_INIT("application/x-ndjson")},
        {STR_INIT("cache-control"), STR_INIT("no-store")},
        {STR_INIT("access-control-allow-origin"), STR_INIT("*")},
    };

    cell->context = context;
    cell->last_ms = clock_mono_ms();
    cell->keepalive =
        timer_start(context->ip->loop, KEEPALIVE_MS, KEEPALIVE_MS / 2, on_keepalive, cell);
    http_on_done(cell->ex, on_done, cell);
    http_on_drain(cell->ex, on_drain, cell);
    http_begin(cell->ex, 200, headers, sizeof(headers) / sizeof(headers[0]), -1);
}

void cell_number(struct cell *cell, int64_t count)
{
    line_begin(cell, "number_of_executions");
    json_out_int(&cell->lines, "execution_count", count);
    line_end(cell);
    flush_soon(cell);
}

void cell_output(struct cell *cell, enum kernel_pipe pipe, struct str bytes)
{
    cell->output_ms[pipe] = clock_mono_ms();
    if (!cell->text[pipe].len)
        cell->unended_ms[pipe] = cell->output_ms[pipe];
    (void)buf_add_str(&cell->text[pipe], bytes);
    if (cell->text[pipe].len < TEXT_ENOUGH) {
        flush_soon(cell);
        return;
    }
    tell_text(cell, pipe, whole_characters(buf_str(&cell->text[pipe])));
    send_lines(cell);
}

void cell_line_begin(struct cell *cell)
{
    tell_texts(cell);
}

/* JSON has no line ends but between its parts: where a kernel made some, a blank means the same. */
void cell_line_bytes(struct cell *cell, struct str bytes)
{
    while (bytes.p) {
        (void)buf_add_str(&cell->lines, str_split(&bytes, '\n'));
        if (bytes.p)
            (void)buf_add_char(&cell->lines, ' ');
    }
    if (cell->lines.len >= TEXT_ENOUGH)
        send_lines(cell);
}

void cell_line_end(struct cell *cell)
{
    (void)buf_add_char(&cell->lines, '\n');
    flush_soon(cell);
}

void cell_error(struct cell *cell, const char *name, const char *value)
{
    cell_line_begin(cell);
    line_begin(cell, "error");
    json_out_str(&cell->lines, "name", str_of(name));
    json_out_str(&cell->lines, "value", str_of(value));
    json_out_str(&cell->lines, "traceback", str_of(value));
    line_end(cell);
}

void cell_end(struct cell *cell)
{
    struct http_exchange *ex = cell->ex;

    tell_text(cell, KERNEL_STDOUT, cell->text[KERNEL_STDOUT].len);
    tell_text(cell, KERNEL_STDERR, cell->text[KERNEL_STDERR].len);
    line_begin(cell, "end_of_execution");
    line_end(cell);
    send_lines(cell);
    timer_stop(&cell->flush);
    timer_stop(&cell->keepalive);
    cell->context = NULL;
    http_end(ex);
}
