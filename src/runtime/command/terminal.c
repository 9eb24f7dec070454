/* Terminals.
 *
 * A shell has one struct pty with two threads: the reader takes its output, keeps the last of it and
 * hands it to the viewer; the sender passes input on, so that who types never waits. Who views has a
 * struct terminal; the pty knows the one that views now. Somebody who comes back gets the kept
 * output first and takes the place of who was there before.
 *
 * What a viewer is told is told with `view` held, so that nothing comes after its leave returned. A
 * viewer that cannot take more makes the reader wait; the stream behind it fills up and the shell
 * blocks. The reader ends the sender and lets go of the shell; the pty is freed by the last of reader
 * and viewers, so that a viewer may go later than the runtime.
 *
 * A shell does not end with the runtime where the provider can attach to a process by its tag, which is the terminal's
 * id: the next runtime finds it by the id that its viewer kept. Only what was printed before is gone. */
#include "runtime/command/terminal_internal.h"

#include <signal.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/cond.h"
#include "base/list.h"
#include "base/log.h"
#include "base/thread.h"
#include "protocol/json/json_shape.h"
#include "runtime/command/command.h"
#include "runtime/core/event.h"
#include "runtime/sandbox/sandbox_parts.h"

#define TERMINAL_PREFIX "pty_"

enum {
    KEPT_MAX = 64 * 1024,
    INPUT_MAX = 1024 * 1024,
    GRACE_MS = 60 * 1000,
    STEP_MS = 1000,
    PER_TEAM_MAX = 64,
    STACK_SIZE = 512 * 1024,
};

struct terminals {
    pthread_mutex_t lock; /* guards the list */
    pthread_cond_t gone;
    struct list ptys; /* those whose reader runs */
};

struct pty {
    struct list link;
    struct runtime *runtime;
    struct arena arena; /* of the strings below */
    struct runtime_caller caller;
    char id[RUNTIME_ID_SIZE];
    struct str sandbox_id, session_id, agent_id, task_id;
    struct provider *provider;
    struct provider_ref ref;
    int64_t ttl_s;
    struct provider_process *process;
    struct thread sender;
    size_t holds; /* atomic */

    pthread_mutex_t view; /* guards what follows */
    pthread_cond_t view_changed;
    struct terminal *viewer; /* NULL = nobody */
    bool stalled, ended, closing;
    int64_t left_ms; /* when the last viewer went; monotonic */
    char *kept;
    size_t kept_len;

    pthread_mutex_t send; /* guards what follows */
    pthread_cond_t send_changed;
    struct buf input;
    uint16_t cols, rows; /* 0 = no change */
    bool send_ended;
};

struct terminal {
    struct pty *pty;
    struct terminal_viewer viewer;
};

/* ---- life ---- */

int terminals_open(struct runtime *runtime, struct error *err)
{
    struct terminals *all = runtime->terminals = xcalloc(1, sizeof(*all));

    (void)err;
    (void)pthread_mutex_init(&all->lock, NULL);
    (void)pthread_cond_init(&all->gone, NULL);
    list_init(&all->ptys);
    return 0;
}

static struct pty *pty_new(struct runtime *runtime, const struct runtime_caller *caller,
                           const struct terminal_request *request)
{
    struct pty *pty = xcalloc(1, sizeof(*pty));

    pty->runtime = runtime;
    pty->caller.team_id = arena_str(&pty->arena, caller->team_id);
    pty->caller.actor = arena_str(&pty->arena, caller->actor);
    pty->session_id = arena_str(&pty->arena, request->session_id);
    pty->kept = xmalloc(KEPT_MAX);
    pty->left_ms = clock_mono_ms();
    buf_init(&pty->input, INPUT_MAX);
    (void)pthread_mutex_init(&pty->view, NULL);
    (void)pthread_mutex_init(&pty->send, NULL);
    cond_init(&pty->view_changed);
    cond_init(&pty->send_changed);
    runtime_id(TERMINAL_PREFIX, pty->id);
    return pty;
}

static void pty_free(struct pty *pty)
{
    provider_process_free(pty->process);
    buf_done(&pty->input);
    free(pty->kept);
    (void)pthread_cond_destroy(&pty->view_changed);
    (void)pthread_cond_destroy(&pty->send_changed);
    (void)pthread_mutex_destroy(&pty->view);
    (void)pthread_mutex_destroy(&pty->send);
    arena_done(&pty->arena);
    free(pty);
}

static void pty_unref(struct pty *pty)
{
    if (__atomic_sub_fetch(&pty->holds, 1, __ATOMIC_ACQ_REL) == 0)
        pty_free(pty);
}

static void tell(struct pty *pty, const char *type, json_t *data)
{
    struct runtime_event event = {
        .type = str_of(type),
        .sandbox_id = pty->sandbox_id,
        .session_id = pty->session_id,
        .process_id = str_of(pty->id),
        .agent_id = pty->agent_id,
        .task_id = pty->task_id,
        .actor = pty->caller.actor,
        .data = data,
    };

    runtime_event_add(pty->runtime, &pty->caller, &event);
    json_decref(data);
}

/* ---- the reader ---- */

static void wait_view(struct pty *pty)
{
    (void)cond_wait_ms(&pty->view_changed, &pty->view, STEP_MS);
}

static void keep(struct pty *pty, struct str data)
{
    if (data.len > KEPT_MAX)
        data = str_skip(data, data.len - KEPT_MAX);
    if (pty->kept_len + data.len > KEPT_MAX) {
        size_t drop = pty->kept_len + data.len - KEPT_MAX;

        memmove(pty->kept, pty->kept + drop, pty->kept_len - drop);
        pty->kept_len -= drop;
    }
    memcpy(pty->kept + pty->kept_len, data.p, data.len);
    pty->kept_len += data.len;
}

/* With `view` held. */
static void show(struct pty *pty, struct str data)
{
    struct terminal *viewer = pty->viewer;

    if (viewer && data.len && !viewer->viewer.on_data(viewer->viewer.arg, data))
        pty->stalled = true;
}

static void output(struct pty *pty, struct str data)
{
    (void)pthread_mutex_lock(&pty->view);
    while (pty->viewer && pty->stalled && !pty->closing)
        wait_view(pty);
    keep(pty, data);
    show(pty, data);
    (void)pthread_mutex_unlock(&pty->view);
}

enum fate { GOES_ON, ENDS, IS_LET_GO };

/* A shell to which nobody came back in time ends. When the runtime closes, one that the next runtime can find again
 * is let go of, any other ends. */
static enum fate fate_of(struct pty *pty)
{
    bool abandoned, closing;

    (void)pthread_mutex_lock(&pty->view);
    closing = pty->closing;
    abandoned = !pty->viewer && clock_mono_ms() - pty->left_ms >= GRACE_MS;
    (void)pthread_mutex_unlock(&pty->view);
    if (closing && !abandoned && provider_can_attach(pty->provider))
        return IS_LET_GO;
    return closing || abandoned ? ENDS : GOES_ON;
}

static void keep_alive(struct pty *pty)
{
    bool viewed;

    (void)pthread_mutex_lock(&pty->view);
    viewed = pty->viewer != NULL;
    (void)pthread_mutex_unlock(&pty->view);
    if (!viewed)
        return;
    runtime_live_used(pty->runtime, pty->sandbox_id, 0, 0);
    runtime_use_extend(pty->runtime, pty->provider, &pty->ref, pty->sandbox_id, pty->ttl_s);
}

enum outcome { EXITED, LOST, LET_GO };

/* Until it ends. *out_code: the shell's; *why: it was lost. */
static enum outcome read_shell(struct pty *pty, int *out_code, struct error *why)
{
    struct provider_event event;
    struct error ignored;
    int64_t alive_ms = 0;
    enum fate fate;

    for (;;) {
        int r = provider_process_next(pty->process, STEP_MS, &event, why);

        if (r < 0)
            return LOST;
        if (r > 0 && event.kind == PROVIDER_EXITED) {
            *out_code = event.exit_code;
            return EXITED;
        }
        if (r > 0 && (event.kind == PROVIDER_STDOUT || event.kind == PROVIDER_STDERR))
            output(pty, event.data);
        fate = fate_of(pty);
        if (fate == IS_LET_GO)
            return LET_GO;
        if (fate == ENDS) {
            (void)provider_process_signal(pty->process, SIGKILL, &ignored);
            *out_code = 128 + SIGKILL;
            return EXITED;
        }
        if (clock_mono_ms() - alive_ms >= STEP_MS) {
            alive_ms = clock_mono_ms();
            keep_alive(pty);
        }
    }
}

static void end_sender(struct pty *pty)
{
    (void)pthread_mutex_lock(&pty->send);
    pty->send_ended = true;
    (void)pthread_cond_broadcast(&pty->send_changed);
    (void)pthread_mutex_unlock(&pty->send);
    thread_join(&pty->sender);
}

/* Its viewer, and who would come back, are told. */
static void end_view(struct pty *pty, int code, const struct error *why)
{
    (void)pthread_mutex_lock(&pty->view);
    pty->ended = true;
    if (pty->viewer)
        pty->viewer->viewer.on_end(pty->viewer->viewer.arg, code, why);
    pty->viewer = NULL;
    (void)pthread_mutex_unlock(&pty->view);
}

static void delist(struct pty *pty)
{
    struct terminals *all = pty->runtime->terminals;

    (void)pthread_mutex_lock(&all->lock);
    list_remove(&pty->link);
    (void)pthread_cond_broadcast(&all->gone);
    (void)pthread_mutex_unlock(&all->lock);
}

static void reader(void *arg)
{
    struct pty *pty = arg;
    struct error why = {0};
    int code = 0;
    enum outcome outcome = read_shell(pty, &code, &why);

    if (outcome == LET_GO)
        (void)error_set(&why, ERROR_UNAVAILABLE, "the server is stopping");
    end_sender(pty);
    provider_process_free(take_ptr(&pty->process));
    end_view(pty, code, outcome == EXITED ? NULL : &why);
    if (outcome == LOST)
        tell(pty, "terminal.failed", json_pack("{s:o}", "message", json_str(str_of(why.message))));
    else if (outcome == EXITED)
        tell(pty, "terminal.closed", json_pack("{s:i}", "exit_code", code));
    delist(pty);
    pty_unref(pty);
}

/* ---- the sender ---- */

static void sender(void *arg)
{
    struct pty *pty = arg;
    struct buf sending;
    struct error ignored;

    buf_init(&sending, INPUT_MAX);
    (void)pthread_mutex_lock(&pty->send);
    for (;;) {
        uint16_t cols, rows;

        while (!pty->send_ended && !pty->input.len && !pty->cols)
            (void)pthread_cond_wait(&pty->send_changed, &pty->send);
        if (pty->send_ended)
            break;
        buf_clear(&sending);
        (void)buf_add_str(&sending, buf_str(&pty->input));
        buf_clear(&pty->input);
        cols = pty->cols;
        rows = pty->rows;
        pty->cols = 0;
        (void)pthread_mutex_unlock(&pty->send);
        if (cols)
            (void)provider_process_resize(pty->process, cols, rows, &ignored);
        if (sending.len)
            (void)provider_process_input(pty->process, buf_str(&sending), &ignored);
        (void)pthread_mutex_lock(&pty->send);
    }
    (void)pthread_mutex_unlock(&pty->send);
    buf_done(&sending);
}

/* ---- opening ---- */

static int start_shell(struct pty *pty, struct runtime_use *use,
                       const struct terminal_request *request, struct error *err)
{
    return terminal_start_shell(pty->runtime, &pty->caller, use, request, pty->id, &pty->arena,
                                &pty->process, err);
}

static int start_threads(struct pty *pty, struct error *err)
{
    if (thread_start(&pty->sender, "terminal-in", THREAD_STACK_DEFAULT, sender, pty, err) < 0)
        return -1;
    if (thread_start_detached("terminal-out", STACK_SIZE, reader, pty, err) == 0)
        return 0;
    end_sender(pty);
    return -1;
}

/* With the list's lock held. */
static struct pty *find_id(struct terminals *all, struct str id)
{
    struct list *pos;

    list_for_each (pos, &all->ptys)
        if (str_is(id, container_of(pos, struct pty, link)->id))
            return container_of(pos, struct pty, link);
    return NULL;
}

/* False: somebody else found the same shell in the meantime. */
static bool enlist(struct pty *pty)
{
    struct terminals *all = pty->runtime->terminals;
    bool first;

    (void)pthread_mutex_lock(&all->lock);
    first = !find_id(all, str_of(pty->id));
    if (first)
        list_push_back(&all->ptys, &pty->link);
    (void)pthread_mutex_unlock(&all->lock);
    return first;
}

/* Counts the team's; more than it may have is an error. */
static int check_count(struct runtime *runtime, const struct runtime_caller *caller,
                       struct error *err)
{
    struct list *pos;
    size_t count = 0;

    (void)pthread_mutex_lock(&runtime->terminals->lock);
    list_for_each (pos, &runtime->terminals->ptys)
        count += str_eq(container_of(pos, struct pty, link)->caller.team_id, caller->team_id);
    (void)pthread_mutex_unlock(&runtime->terminals->lock);
    if (count >= PER_TEAM_MAX)
        return error_set(err, ERROR_QUOTA, "%d terminals are open, as many as may be: close one",
                         PER_TEAM_MAX);
    return 0;
}

/* How a pty gets its shell: start_shell() or attach_shell(). */
typedef int begin_fn(struct pty *pty, struct runtime_use *use,
                     const struct terminal_request *request, struct error *err);

static int begin_in_sandbox(struct pty *pty, const struct runtime_caller *caller,
                            const struct terminal_request *request, begin_fn *begin,
                            struct error *err)
{
    struct runtime *runtime = pty->runtime;
    struct runtime_use use;

    if (json_array_size(runtime->config.settings->allow))
        return error_set(err, ERROR_FORBIDDEN,
                         "there are no terminals with a list of allowed commands"
                         " (commands.allow)");
    if (check_count(runtime, caller, err) < 0 ||
        runtime_use(runtime, caller, request->sandbox_id, PROVIDER_PTY, &pty->arena, &use, err) < 0)
        return -1;
    pty->sandbox_id = use.sandbox.id;
    pty->agent_id = use.sandbox.agent_id;
    pty->task_id = use.sandbox.task_id;
    pty->provider = use.provider;
    if (provider_caps(use.provider)->features & PROVIDER_TTL)
        pty->ttl_s = use.sandbox.adopted      ? 0
                     : use.sandbox.idle_s > 0 ? use.sandbox.idle_s
                                              : runtime->config.settings->sandbox_timeout_ms / 1000;
    if (begin(pty, &use, request, err) < 0)
        return -1;
    pty->ref = use.ref;
    return 0;
}

/* 1: the shell is on the list already. */
static int put_to_work(struct pty *pty, struct terminal *terminal, struct error *err)
{
    pty->viewer = terminal;
    pty->holds = 2; /* reader and viewer */
    if (!enlist(pty)) {
        pty_free(pty);
        return 1;
    }
    terminal->pty = pty;
    (void)pthread_mutex_lock(&pty->view);
    if (pty->viewer == terminal)
        show(pty, str_n(pty->kept, pty->kept_len));
    (void)pthread_mutex_unlock(&pty->view);
    if (start_threads(pty, err) == 0)
        return 0;
    (void)pthread_mutex_lock(&pty->view);
    if (pty->viewer == terminal)
        pty->viewer = NULL; /* is told by our result */
    (void)pthread_mutex_unlock(&pty->view);
    end_view(pty, 0, err);
    delist(pty);
    pty_unref(pty);
    pty_unref(pty);
    return -1;
}

static int open_new(struct runtime *runtime, const struct runtime_caller *caller,
                    const struct terminal_request *request, struct terminal *terminal,
                    struct error *err)
{
    struct pty *pty = pty_new(runtime, caller, request);

    if (begin_in_sandbox(pty, caller, request, start_shell, err) < 0) {
        if (pty->provider)
            tell(pty, "terminal.failed",
                 json_pack("{s:o}", "message", json_str(str_of(err->message))));
        pty_free(pty);
        return -1;
    }
    tell(pty, "terminal.opened", json_pack("{s:s}", "terminal_id", pty->id));
    return put_to_work(pty, terminal, err);
}

static int take_place(struct pty *pty, struct terminal *terminal)
{
    struct error why = {.code = ERROR_CONFLICT, .message = "the terminal was opened elsewhere"};

    (void)pthread_mutex_lock(&pty->view);
    if (pty->ended) {
        (void)pthread_mutex_unlock(&pty->view);
        return -1;
    }
    if (pty->viewer)
        pty->viewer->viewer.on_end(pty->viewer->viewer.arg, 0, &why);
    pty->viewer = terminal;
    pty->stalled = false;
    terminal->pty = pty;
    show(pty, str_n(pty->kept, pty->kept_len));
    (void)pthread_cond_broadcast(&pty->view_changed);
    (void)pthread_mutex_unlock(&pty->view);
    return 0;
}

static int has_ended(const struct terminal_request *request, struct error *err)
{
    return error_set(err, ERROR_NOT_FOUND, "terminal '%.*s' has ended: open a new one",
                     STR_ARG(request->terminal_id));
}

/* To one of this runtime's. */
static int come_back(struct runtime *runtime, const struct runtime_caller *caller,
                     const struct terminal_request *request, struct terminal *terminal)
{
    struct terminals *all = runtime->terminals;
    struct pty *found;

    (void)pthread_mutex_lock(&all->lock);
    found = find_id(all, request->terminal_id);
    if (found && !(str_eq(found->caller.team_id, caller->team_id) &&
                   str_eq(found->sandbox_id, request->sandbox_id) &&
                   (!caller->agent_id.p || str_eq(caller->agent_id, found->agent_id))))
        found = NULL;
    if (found)
        (void)__atomic_add_fetch(&found->holds, 1, __ATOMIC_ACQ_REL);
    (void)pthread_mutex_unlock(&all->lock);
    if (!found)
        return -1;
    if (take_place(found, terminal) == 0)
        return 0;
    pty_unref(found);
    return -1;
}

/* What is on the screen is not known here: a program draws it again when the size changes. */
static void ask_to_redraw(struct pty *pty, const struct terminal_request *request)
{
    struct error ignored;

    if (request->cols && request->rows > 1)
        (void)provider_process_resize(pty->process, request->cols, request->rows - 1, &ignored);
}

/* An envd that remembers how a process ended answers with that. */
static bool ended_before(struct pty *pty)
{
    struct provider_event event;
    struct error ignored;

    while (provider_process_next(pty->process, 0, &event, &ignored) > 0) {
        if (event.kind == PROVIDER_EXITED)
            return true;
        if (event.kind == PROVIDER_STDOUT || event.kind == PROVIDER_STDERR)
            keep(pty, event.data);
    }
    return false;
}

static int attach_shell(struct pty *pty, struct runtime_use *use,
                        const struct terminal_request *request, struct error *err)
{
    if (provider_attach(use->provider, &use->ref, pty->id, 0, &pty->process, err) < 0)
        return err->code == ERROR_NOT_FOUND ? has_ended(request, err)
                                            : error_prefix(err, "terminal '%s'", pty->id);
    if (ended_before(pty))
        return has_ended(request, err);
    ask_to_redraw(pty, request);
    return 0;
}

/* To a shell that a runtime before this one opened, or whose stream broke: its tag is the terminal's id. */
static int find_again(struct runtime *runtime, const struct runtime_caller *caller,
                      const struct terminal_request *request, struct terminal *terminal,
                      struct error *err)
{
    struct str id = request->terminal_id;
    struct pty *pty;
    int r;

    if (come_back(runtime, caller, request, terminal) == 0)
        return 0;
    if (!str_starts(id, STR(TERMINAL_PREFIX)) || id.len >= RUNTIME_ID_SIZE)
        return has_ended(request, err);
    pty = pty_new(runtime, caller, request);
    (void)snprintf(pty->id, sizeof(pty->id), "%.*s", STR_ARG(id));
    if (begin_in_sandbox(pty, caller, request, attach_shell, err) < 0) {
        pty_free(pty);
        return -1;
    }
    r = put_to_work(pty, terminal, err);
    if (r > 0)
        r = come_back(runtime, caller, request, terminal) < 0 ? has_ended(request, err) : 0;
    return r;
}

int terminal_open(struct runtime *runtime, const struct runtime_caller *caller,
                  const struct terminal_request *request, const struct terminal_viewer *viewer,
                  char out_id[RUNTIME_ID_SIZE], struct terminal **out, struct error *err)
{
    struct terminal *terminal = xcalloc(1, sizeof(*terminal));
    bool back = request->terminal_id.p != NULL;

    terminal->viewer = *viewer;
    if ((back ? find_again : open_new)(runtime, caller, request, terminal, err) < 0) {
        free(terminal);
        return -1;
    }
    memcpy(out_id, terminal->pty->id, RUNTIME_ID_SIZE);
    if (back && request->cols && request->rows)
        terminal_resize(terminal, request->cols, request->rows);
    *out = terminal;
    return 0;
}

/* ---- viewing ---- */

void terminal_input(struct terminal *terminal, struct str data)
{
    struct pty *pty = terminal->pty;

    (void)pthread_mutex_lock(&pty->send);
    if (!buf_add_str(&pty->input, data))
        log_info("runtime", "terminal=%s takes no input: %zu bytes dropped", pty->id, data.len);
    (void)pthread_cond_broadcast(&pty->send_changed);
    (void)pthread_mutex_unlock(&pty->send);
}

void terminal_resize(struct terminal *terminal, uint16_t cols, uint16_t rows)
{
    struct pty *pty = terminal->pty;

    (void)pthread_mutex_lock(&pty->send);
    pty->cols = cols;
    pty->rows = rows;
    (void)pthread_cond_broadcast(&pty->send_changed);
    (void)pthread_mutex_unlock(&pty->send);
}

void terminal_resume(struct terminal *terminal)
{
    struct pty *pty = terminal->pty;

    (void)pthread_mutex_lock(&pty->view);
    if (pty->viewer == terminal)
        pty->stalled = false;
    (void)pthread_cond_broadcast(&pty->view_changed);
    (void)pthread_mutex_unlock(&pty->view);
}

void terminal_leave(struct terminal *terminal)
{
    struct pty *pty = terminal->pty;

    (void)pthread_mutex_lock(&pty->view);
    if (pty->viewer == terminal) {
        pty->viewer = NULL;
        pty->stalled = false;
        pty->left_ms = clock_mono_ms();
    }
    (void)pthread_cond_broadcast(&pty->view_changed);
    (void)pthread_mutex_unlock(&pty->view);
    free(terminal);
    pty_unref(pty);
}

/* Shells that the next runtime finds again go on, others end. */
void terminals_close(struct runtime *runtime)
{
    struct terminals *all = runtime->terminals;
    struct list *pos;

    if (!all)
        return;
    (void)pthread_mutex_lock(&all->lock);
    list_for_each (pos, &all->ptys) {
        struct pty *pty = container_of(pos, struct pty, link);

        (void)pthread_mutex_lock(&pty->view);
        pty->closing = true;
        (void)pthread_cond_broadcast(&pty->view_changed);
        (void)pthread_mutex_unlock(&pty->view);
    }
    while (!list_empty(&all->ptys))
        (void)pthread_cond_wait(&all->gone, &all->lock);
    (void)pthread_mutex_unlock(&all->lock);
    (void)pthread_cond_destroy(&all->gone);
    (void)pthread_mutex_destroy(&all->lock);
    free(all);
    runtime->terminals = NULL;
}
