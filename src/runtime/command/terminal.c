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
 * and viewers, so that a viewer may go later than the runtime. */
#include "runtime/command/terminal.h"

#include <signal.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/cond.h"
#include "base/list.h"
#include "base/log.h"
#include "protocol/json/json_shape.h"
#include "runtime/core/event.h"
#include "runtime/sandbox/sandbox_internal.h"

enum {
    KEPT_MAX = 64 * 1024,
    INPUT_MAX = 1024 * 1024,
    GRACE_MS = 60 * 1000,
    STEP_MS = 1000,
    PER_TEAM_MAX = 64,
    COLS_DEFAULT = 120,
    ROWS_DEFAULT = 40,
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
    pthread_t sender;
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
    runtime_id("pty_", pty->id);
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

/* Nobody came back in time, or the runtime closes. */
static bool abandoned(struct pty *pty)
{
    bool result;

    (void)pthread_mutex_lock(&pty->view);
    result = pty->closing || (!pty->viewer && clock_mono_ms() - pty->left_ms >= GRACE_MS);
    (void)pthread_mutex_unlock(&pty->view);
    return result;
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

/* Returns why it was lost, or NULL; *out_code: the shell's. */
static const struct error *read_shell(struct pty *pty, int *out_code, struct error *why)
{
    struct provider_event event;
    struct error ignored;
    int64_t alive_ms = 0;

    for (;;) {
        int r = provider_process_next(pty->process, STEP_MS, &event, why);

        if (r < 0)
            return why;
        if (r > 0 && event.kind == PROVIDER_EXITED) {
            *out_code = event.exit_code;
            return NULL;
        }
        if (r > 0 && (event.kind == PROVIDER_STDOUT || event.kind == PROVIDER_STDERR))
            output(pty, event.data);
        if (abandoned(pty)) {
            (void)provider_process_signal(pty->process, SIGKILL, &ignored);
            *out_code = 128 + SIGKILL;
            return NULL;
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
    (void)pthread_join(pty->sender, NULL);
}

static void end(struct pty *pty, int code, const struct error *why)
{
    struct terminals *all = pty->runtime->terminals;

    end_sender(pty);
    provider_process_free(take_ptr(&pty->process));
    (void)pthread_mutex_lock(&pty->view);
    pty->ended = true;
    if (pty->viewer)
        pty->viewer->viewer.on_end(pty->viewer->viewer.arg, code, why);
    pty->viewer = NULL;
    (void)pthread_mutex_unlock(&pty->view);
    if (why)
        tell(pty, "terminal.failed", json_pack("{s:o}", "message", json_str(str_of(why->message))));
    else
        tell(pty, "terminal.closed", json_pack("{s:i}", "exit_code", code));
    (void)pthread_mutex_lock(&all->lock);
    list_remove(&pty->link);
    (void)pthread_cond_broadcast(&all->gone);
    (void)pthread_mutex_unlock(&all->lock);
}

static void *reader(void *arg)
{
    struct pty *pty = arg;
    struct error problem = {0};
    int code = 0;
    const struct error *why = read_shell(pty, &code, &problem);

    end(pty, code, why);
    pty_unref(pty);
    return NULL;
}

/* ---- the sender ---- */

static void *sender(void *arg)
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
    return NULL;
}

/* ---- opening ---- */

static int parse_strings(struct str text, const char *name, json_type type, json_t **out,
                         struct error *err)
{
    const char *key;
    json_t *item;
    size_t i;

    if (json_parse(text, out, err) < 0)
        return error_prefix(err, "'%s'", name);
    if (json_typeof(*out) != type || (type == JSON_ARRAY && !json_array_size(*out)))
        return error_set(err, ERROR_INVALID, "'%s' must be a JSON %s of strings", name,
                         type == JSON_ARRAY ? "array" : "object");
    json_array_foreach (*out, i, item)
        if (!json_is_string(item))
            return error_set(err, ERROR_INVALID, "'%s' has a word that is no string", name);
    json_object_foreach (*out, key, item)
        if (!json_is_string(item))
            return error_set(err, ERROR_INVALID, "'%s': '%s' is no string", name, key);
    return 0;
}

int terminal_request_check(const struct terminal_request *request, struct error *err)
{
    auto_json json_t *argv = NULL, *env = NULL;

    if (request->argv.len && parse_strings(request->argv, "argv", JSON_ARRAY, &argv, err) < 0)
        return -1;
    return request->env.len ? parse_strings(request->env, "env", JSON_OBJECT, &env, err) : 0;
}

/* The words of the request's command; NULL: it asks for a shell. */
static const char *const *words_of(const struct terminal_request *request, struct arena *arena)
{
    auto_json json_t *argv = NULL;
    struct error ignored;
    const char **words;
    json_t *word;
    size_t i;

    if (!request->argv.len || parse_strings(request->argv, "argv", JSON_ARRAY, &argv, &ignored) < 0)
        return NULL;
    words = arena_alloc(arena, (json_array_size(argv) + 1) * sizeof(*words));
    json_array_foreach (argv, i, word)
        words[i] = arena_str(arena, str_of(json_string_value(word))).p;
    words[json_array_size(argv)] = NULL;
    return words;
}

static json_t *env_of(const struct terminal_request *request)
{
    json_t *env = NULL;
    struct error ignored;

    if (!request->env.len || parse_strings(request->env, "env", JSON_OBJECT, &env, &ignored) < 0) {
        json_decref(env);
        env = json_object();
    }
    if (!json_object_get(env, "TERM"))
        (void)json_object_set_new(env, "TERM", json_string("xterm-256color"));
    return env;
}

static int start_shell(struct pty *pty, struct runtime_use *use,
                       const struct terminal_request *request, struct error *err)
{
    struct runtime *runtime = pty->runtime;
    auto_arena struct arena arena = {0};
    auto_json json_t *shell_env = env_of(request);
    struct runtime_command probe = {.command = STR("true")};
    const char *const *line = NULL;
    const char *bash[] = {"bash", "-i", "-l", NULL}, *sh[] = {"/bin/sh", "-i", NULL};
    struct provider_command command = {
        .cwd = arena_str(&arena, request->cwd.len ? request->cwd : use->workspace_root).p,
        .user = request->user.len ? arena_str(&arena, request->user).p : NULL,
        .tag = pty->id,
        .open_stdin = true,
        .pty = true,
        .cols = request->cols ? request->cols : COLS_DEFAULT,
        .rows = request->rows ? request->rows : ROWS_DEFAULT,
    };
    int r;

    /* The words of a line say which shell there is. */
    if (runtime_command_argv(runtime, use->provider, &use->ref, use->sandbox.image, &probe, &arena,
                             &line, err) < 0 ||
        runtime_command_env(shell_env, use->env, &arena, &command.env, &command.env_count, err) < 0)
        return -1;
    command.argv = words_of(request, &arena);
    if (!command.argv)
        command.argv = strcmp(line[0], "bash") == 0 ? bash : sh;
    r = provider_start(use->provider, &use->ref, &command, &pty->process, err);
    if (r < 0 && runtime_use_recover(runtime, &pty->caller, use, &pty->arena, err) > 0)
        r = provider_start(use->provider, &use->ref, &command, &pty->process, err);
    return r;
}

static int start_threads(struct pty *pty, struct error *err)
{
    struct terminals *all = pty->runtime->terminals;
    pthread_attr_t attr;
    pthread_t thread;
    int r = 0;

    if (pthread_create(&pty->sender, NULL, sender, pty) != 0)
        return error_set(err, ERROR_INTERNAL, "no thread for a terminal");
    pty->holds = 2; /* reader and viewer */
    (void)pthread_attr_init(&attr);
    (void)pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    (void)pthread_attr_setstacksize(&attr, STACK_SIZE);
    (void)pthread_mutex_lock(&all->lock);
    list_push_back(&all->ptys, &pty->link);
    (void)pthread_mutex_unlock(&all->lock);
    if (pthread_create(&thread, &attr, reader, pty) != 0) {
        (void)pthread_mutex_lock(&all->lock);
        list_remove(&pty->link);
        (void)pthread_mutex_unlock(&all->lock);
        end_sender(pty);
        r = error_set(err, ERROR_INTERNAL, "no thread for a terminal");
    }
    (void)pthread_attr_destroy(&attr);
    return r;
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

static int open_new(struct runtime *runtime, const struct runtime_caller *caller,
                    const struct terminal_request *request, struct terminal *terminal,
                    struct error *err)
{
    struct pty *pty;
    struct runtime_use use;

    if (json_array_size(runtime->config.settings->allow))
        return error_set(err, ERROR_FORBIDDEN,
                         "there are no terminals with a list of allowed commands"
                         " (commands.allow)");
    pty = pty_new(runtime, caller, request);

    if (check_count(runtime, caller, err) < 0 ||
        runtime_use(runtime, caller, request->sandbox_id, PROVIDER_PTY, &pty->arena, &use, err) <
            0) {
        pty_free(pty);
        return -1;
    }
    pty->sandbox_id = use.sandbox.id;
    pty->agent_id = use.sandbox.agent_id;
    pty->task_id = use.sandbox.task_id;
    pty->provider = use.provider;
    if (provider_caps(use.provider)->features & PROVIDER_TTL)
        pty->ttl_s = use.sandbox.adopted      ? 0
                     : use.sandbox.idle_s > 0 ? use.sandbox.idle_s
                                              : runtime->config.settings->sandbox_timeout_ms / 1000;
    if (start_shell(pty, &use, request, err) < 0) {
        tell(pty, "terminal.failed", json_pack("{s:o}", "message", json_str(str_of(err->message))));
        pty_free(pty);
        return -1;
    }
    pty->ref = use.ref;
    pty->viewer = terminal;
    terminal->pty = pty;
    tell(pty, "terminal.opened", json_pack("{s:s}", "terminal_id", pty->id));
    if (start_threads(pty, err) < 0) {
        pty_free(pty);
        return -1;
    }
    return 0;
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

static int come_back(struct runtime *runtime, const struct runtime_caller *caller,
                     const struct terminal_request *request, struct terminal *terminal,
                     struct error *err)
{
    struct terminals *all = runtime->terminals;
    struct pty *found = NULL;
    struct list *pos;

    (void)pthread_mutex_lock(&all->lock);
    list_for_each (pos, &all->ptys) {
        struct pty *pty = container_of(pos, struct pty, link);

        if (str_is(request->terminal_id, pty->id) && str_eq(pty->caller.team_id, caller->team_id) &&
            str_eq(pty->sandbox_id, request->sandbox_id) &&
            (!caller->agent_id.p || str_eq(caller->agent_id, pty->agent_id)))
            found = pty;
    }
    if (found)
        (void)__atomic_add_fetch(&found->holds, 1, __ATOMIC_ACQ_REL);
    (void)pthread_mutex_unlock(&all->lock);
    if (found && take_place(found, terminal) == 0)
        return 0;
    if (found)
        pty_unref(found);
    return error_set(err, ERROR_NOT_FOUND, "terminal '%.*s' has ended: open a new one",
                     STR_ARG(request->terminal_id));
}

int terminal_open(struct runtime *runtime, const struct runtime_caller *caller,
                  const struct terminal_request *request, const struct terminal_viewer *viewer,
                  char out_id[RUNTIME_ID_SIZE], struct terminal **out, struct error *err)
{
    struct terminal *terminal = xcalloc(1, sizeof(*terminal));
    bool back = request->terminal_id.p != NULL;

    terminal->viewer = *viewer;
    if ((back ? come_back : open_new)(runtime, caller, request, terminal, err) < 0) {
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

/* Shells nobody could come back to are ended. */
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
