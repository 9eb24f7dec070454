/* How it works: cells of a context wait in line. One is under way in its kernel; when its client leaves, the kernel is
 * interrupted, again and again, and ended when that does not help, so that the next cell is not stuck behind it. */
#include <errno.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/id.h"
#include "base/log.h"
#include "extra/interpreter/program/interpreter.h"

enum { INTERRUPT_AGAIN_MS = 1000, INTERRUPTS_MAX = 10, MESSAGE_MAX = 4 * BODY_MAX };

static void next_cell(struct context *context);

/* ---- what its kernel tells ---- */

static void on_ready(void *arg)
{
    struct context *context = arg;

    context->ready = true;
    next_cell(context);
}

static void on_output(enum kernel_pipe pipe, struct str bytes, void *arg)
{
    struct context *context = arg;

    if (context->running)
        cell_output(context->running, pipe, bytes);
}

static void on_cell_end(struct context *context)
{
    struct cell *cell = take_ptr(&context->running);

    context->busy = false;
    timer_stop(&context->interrupts);
    if (cell)
        cell_end(cell);
    next_cell(context);
}

/* Lines are the client's, of errors only the first. */
static void on_frame(char kind, enum frame_event event, struct str bytes, void *arg)
{
    struct context *context = arg;
    struct cell *cell = context->running;

    if (kind == 'd' && event == FRAME_END && context->busy)
        on_cell_end(context);
    if (kind != 'r' && kind != 'e')
        return;
    if (event == FRAME_BEGIN) {
        context->skip = !cell || (kind == 'e' && context->failed);
        context->failed = context->failed || kind == 'e';
    }
    if (context->skip || !cell)
        return;
    if (event == FRAME_BEGIN)
        cell_line_begin(cell);
    else if (event == FRAME_BODY)
        cell_line_bytes(cell, bytes);
    else
        cell_line_end(cell);
}

/* The cell that ran is told; the next one gets a new kernel. */
static void on_end(const char *why, void *arg)
{
    struct context *context = arg;
    struct cell *cell = take_ptr(&context->running);
    bool was_ready = context->ready;
    char value[300];

    (void)snprintf(value, sizeof(value), "%s; a new one takes its place, what was in it is gone",
                   why);
    context->kernel = NULL;
    context->lost = !context->busy;
    context->busy = context->ready = context->envs_known = false;
    context->count = 0;
    timer_stop(&context->interrupts);
    if (cell) {
        cell_error(cell, "UnexpectedEndOfExecution", value);
        cell_end(cell);
    } else {
        log_warn("interpreter", "context %s: %s", context->id, why);
    }
    if (was_ready || list_empty(&context->waiting)) {
        next_cell(context);
        return;
    }
    /* One that cannot even begin is not started for each cell that waits. */
    cell = container_of(list_pop_front(&context->waiting), struct cell, node);
    context->waiting_count--;
    cell_error(cell, "UnexpectedEndOfExecution", value);
    cell_end(cell);
    next_cell(context);
}

static const struct kernel_events events = {on_ready, on_output, on_frame, on_end};

/* ---- its cells ---- */

int context_boot(struct context *context, struct error *err)
{
    if (context->kernel)
        return 0;
    context->ready = context->envs_known = false;
    context->kernel =
        kernel_start(context->ip, context->language, context->cwd, &events, context, err);
    return context->kernel ? 0 : -1;
}

static void tell_loss(struct context *context, struct cell *cell)
{
    if (context->lost)
        cell_output(cell, KERNEL_STDERR,
                    STR("The kernel had ended after the last cell: this one is new, and what was "
                        "in it is gone.\n"));
    context->lost = false;
}

static void run(struct context *context, struct cell *cell)
{
    struct cell_text text = {.code = cell->code, .envs = cell->envs};
    json_t *globals = context->envs_known ? NULL : envs_fetch(context->ip->envd_port, cell->token);
    struct buf message;

    text.globals = globals;
    context->envs_known = context->envs_known || globals;
    buf_init(&message, MESSAGE_MAX);
    language_write(cell->language, &text, &message);
    json_decref(globals);
    context->running = cell;
    context->busy = true;
    context->failed = false;
    cell_number(cell, ++context->count);
    tell_loss(context, cell);
    kernel_send(context->kernel, &message);
}

static void next_cell(struct context *context)
{
    struct cell *cell;
    struct error err = {0};

    while (!context->busy && !list_empty(&context->waiting)) {
        if (context->kernel && !context->ready)
            return;
        if (!context->kernel && context_boot(context, &err) == 0)
            return;
        cell = container_of(list_pop_front(&context->waiting), struct cell, node);
        context->waiting_count--;
        if (context->kernel) {
            run(context, cell);
            return;
        }
        cell_error(cell, "UnexpectedEndOfExecution", err.message);
        cell_end(cell);
    }
}

int context_run(struct context *context, struct cell *cell, struct error *err)
{
    if (context->waiting_count == CELLS_WAITING_MAX)
        return error_set(err, ERROR_QUOTA, "%d cells wait for context %s already",
                         CELLS_WAITING_MAX, context->id);
    cell_begin(cell, context);
    list_push_back(&context->waiting, &cell->node);
    context->waiting_count++;
    next_cell(context);
    return 0;
}

static void on_interrupt_again(uv_timer_t *timer)
{
    struct context *context = timer->data;

    if (++context->interrupt_count < INTERRUPTS_MAX) {
        kernel_interrupt(context->kernel);
        return;
    }
    timer_stop(&context->interrupts);
    log_warn("interpreter", "context %s: a cell that nobody waits for does not end", context->id);
    kernel_kill(context->kernel);
}

void context_drop(struct context *context, struct cell *cell)
{
    if (context->running != cell) {
        list_remove(&cell->node);
        context->waiting_count--;
        return;
    }
    context->running = NULL;
    kernel_hold(context->kernel, false);
    kernel_interrupt(context->kernel);
    context->interrupt_count = 0;
    timer_stop(&context->interrupts);
    context->interrupts = timer_start(context->ip->loop, INTERRUPT_AGAIN_MS, INTERRUPT_AGAIN_MS,
                                      on_interrupt_again, context);
}

/* ---- their begin and end ---- */

static int check_cwd(const char *cwd, struct error *err)
{
    struct stat st;

    if (stat(cwd, &st) != 0)
        return error_set(err, ERROR_INVALID, "Failed to create context: cwd '%s': %s", cwd,
                         strerror(errno));
    if (!S_ISDIR(st.st_mode))
        return error_set(err, ERROR_INVALID, "Failed to create context: cwd '%s' is no directory",
                         cwd);
    return 0;
}

struct context *context_new(struct interpreter *ip, const struct language *language, struct str cwd,
                            struct error *err)
{
    struct context *context;

    if (ip->context_count == CONTEXTS_MAX) {
        error_set(err, ERROR_QUOTA, "Failed to create context: there are %d already", CONTEXTS_MAX);
        return NULL;
    }
    context = xcalloc(1, sizeof(*context));
    if (!str_copy(cwd.len ? cwd : str_of(ip->home), context->cwd, sizeof(context->cwd))) {
        error_set(err, ERROR_INVALID, "Failed to create context: cwd is no path");
        free(context);
        return NULL;
    }
    if (check_cwd(context->cwd, err) < 0) {
        free(context);
        return NULL;
    }
    context->ip = ip;
    context->language = language;
    id_uuid(context->id);
    list_init(&context->waiting);
    list_push_back(&ip->contexts, &context->node);
    ip->context_count++;
    return context;
}

struct context *context_find(struct interpreter *ip, struct str id)
{
    struct list *at;

    list_for_each (at, &ip->contexts) {
        struct context *context = container_of(at, struct context, node);

        if (str_is(id, context->id))
            return context;
    }
    return NULL;
}

struct context *context_default(struct interpreter *ip, const struct language *language,
                                struct error *err)
{
    struct context *made;
    struct list *at;

    list_for_each (at, &ip->contexts) {
        struct context *context = container_of(at, struct context, node);

        if (context->is_default && strcmp(context->language->kernel, language->kernel) == 0)
            return context;
    }
    made = context_new(ip, language, STR_NONE, err);
    if (made)
        made->is_default = true;
    return made;
}

/* Those that wait are told, and the one that runs. */
static void end_cells(struct context *context, const char *name, const char *value)
{
    struct cell *cell = take_ptr(&context->running);
    struct list *node;

    if (cell) {
        cell_error(cell, name, value);
        cell_end(cell);
    }
    while ((node = list_pop_front(&context->waiting))) {
        cell = container_of(node, struct cell, node);
        context->waiting_count--;
        cell_error(cell, name, value);
        cell_end(cell);
    }
}

static void drop_kernel(struct context *context)
{
    timer_stop(&context->interrupts);
    if (context->kernel)
        kernel_free(take_ptr(&context->kernel));
    context->busy = context->ready = context->lost = false;
    context->count = 0;
}

int context_restart(struct context *context, struct error *err)
{
    drop_kernel(context);
    end_cells(context, "ContextRestarting", "the context was restarted while the cell ran");
    return context_boot(context, err);
}

void context_remove(struct context *context)
{
    drop_kernel(context);
    end_cells(context, "ExecutionAborted", "the context was removed");
    list_remove(&context->node);
    context->ip->context_count--;
    free(context);
}
