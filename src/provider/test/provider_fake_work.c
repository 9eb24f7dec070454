/* Commands and files of the fake. A command's whole output is known when it starts; it is handed out
 * piece by piece, and the end waits for its delay, a signal or its timeout. */
#include <stdlib.h>
#include <time.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/cond.h"
#include "provider/test/provider_fake_internal.h"

struct fake_process {
    struct provider_process head;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct provider_fake_run run;
    struct buf input;
    int step; /* started, out, err, exited */
    int64_t ends_at_ms, times_out_at_ms;
    int signal;
    bool cancelled;
};

static struct fake_process *of(struct provider_process *process)
{
    return (struct fake_process *)(void *)process;
}

static void wait_until(struct fake_process *process, int64_t mono_ms)
{
    (void)cond_wait_until(&process->changed, &process->lock, mono_ms * 1000);
}

/* With the lock held: 1 = it has ended. */
static bool wait_end(struct fake_process *process, uint32_t timeout_ms)
{
    int64_t give_up = clock_mono_ms() + timeout_ms;

    for (;;) {
        int64_t now = clock_mono_ms(), next = give_up;

        if (process->cancelled || process->signal ||
            (!process->run.hangs && now >= process->ends_at_ms) ||
            (process->times_out_at_ms && now >= process->times_out_at_ms))
            return true;
        if (now >= give_up)
            return false;
        if (!process->run.hangs && process->ends_at_ms < next)
            next = process->ends_at_ms;
        if (process->times_out_at_ms && process->times_out_at_ms < next)
            next = process->times_out_at_ms;
        wait_until(process, next);
    }
}

static void tell_end(struct fake_process *process, struct provider_event *out)
{
    bool ended = !process->run.hangs && clock_mono_ms() >= process->ends_at_ms;

    *out = (struct provider_event){.kind = PROVIDER_EXITED, .exit_code = process->run.exit_code};
    if (process->signal) {
        out->exit_code = 128 + process->signal;
    } else if (!ended) {
        out->timed_out = true;
        out->exit_code = 137;
    }
}

static int process_next(struct provider_process *head, uint32_t timeout_ms,
                        struct provider_event *out, struct error *err)
{
    struct fake_process *process = of(head);
    struct buf *parts[] = {&process->run.out, &process->run.err};
    int r = 1;

    (void)pthread_mutex_lock(&process->lock);
    if (process->step == 0) {
        process->step = 1;
        *out = (struct provider_event){.kind = PROVIDER_STARTED, .pid = 4242};
    } else {
        while (process->step < 3 && parts[process->step - 1]->len == 0)
            process->step++;
        if (process->step < 3 && !process->cancelled) {
            *out = (struct provider_event){
                .kind = process->step == 1 ? PROVIDER_STDOUT : PROVIDER_STDERR,
                .data = buf_str(parts[process->step - 1]),
            };
            process->step++;
        } else if (!wait_end(process, timeout_ms)) {
            r = 0;
        } else if (process->cancelled) {
            r = error_set(err, ERROR_CONFLICT, "cancelled");
        } else {
            tell_end(process, out);
        }
    }
    (void)pthread_mutex_unlock(&process->lock);
    return r;
}

static struct provider_wait process_wait(struct provider_process *head)
{
    (void)head;
    return (struct provider_wait){.fd = -1, .ms = 10};
}

static int process_input(struct provider_process *head, struct str data, struct error *err)
{
    struct fake_process *process = of(head);
    bool ok;

    (void)pthread_mutex_lock(&process->lock);
    ok = buf_add_str(&process->input, data);
    (void)pthread_mutex_unlock(&process->lock);
    return ok ? 0 : error_set(err, ERROR_LIMIT, "too much input");
}

static int process_close_stdin(struct provider_process *head, struct error *err)
{
    (void)head;
    (void)err;
    return 0;
}

static int process_resize(struct provider_process *head, uint16_t cols, uint16_t rows,
                          struct error *err)
{
    (void)head;
    (void)cols;
    (void)rows;
    (void)err;
    return 0;
}

static int process_signal(struct provider_process *head, int signal, struct error *err)
{
    struct fake_process *process = of(head);

    (void)err;
    (void)pthread_mutex_lock(&process->lock);
    process->signal = signal;
    (void)pthread_cond_broadcast(&process->changed);
    (void)pthread_mutex_unlock(&process->lock);
    return 0;
}

static void process_cancel(struct provider_process *head)
{
    struct fake_process *process = of(head);

    (void)pthread_mutex_lock(&process->lock);
    process->cancelled = true;
    (void)pthread_cond_broadcast(&process->changed);
    (void)pthread_mutex_unlock(&process->lock);
}

static void process_free(struct provider_process *head)
{
    struct fake_process *process = of(head);

    buf_done(&process->run.out);
    buf_done(&process->run.err);
    buf_done(&process->input);
    (void)pthread_cond_destroy(&process->changed);
    (void)pthread_mutex_destroy(&process->lock);
    free(process);
}

static const struct provider_process_ops process_ops = {
    .next = process_next,
    .wait = process_wait,
    .input = process_input,
    .close_stdin = process_close_stdin,
    .resize = process_resize,
    .signal = process_signal,
    .cancel = process_cancel,
    .free = process_free,
};

static void run_default(const struct provider_command *command, struct provider_fake_run *out)
{
    for (size_t i = 0; command->argv[i]; i++)
        (void)buf_printf(&out->out, "%s%s", i ? " " : "", command->argv[i]);
    (void)buf_add_char(&out->out, '\n');
}

static int fake_start(struct provider *provider, const struct provider_ref *ref,
                      const struct provider_command *command, struct provider_process **out,
                      struct error *err)
{
    struct provider_fake *fake = fake_of(provider);
    struct fake_process *process;
    struct fake_machine *machine;

    if (fake_enter(fake, "start", err) < 0)
        return -1;
    (void)pthread_mutex_lock(&fake->lock);
    machine = fake_find(fake, ref->id, err);
    if (machine && machine->state != PROVIDER_RUNNING) {
        (void)error_set(err, ERROR_CONFLICT, "sandbox '%s' is paused", machine->id);
        machine = NULL;
    }
    (void)pthread_mutex_unlock(&fake->lock);
    if (!machine)
        return -1;
    process = xcalloc(1, sizeof(*process));
    process->head.ops = &process_ops;
    process->head.provider_name = provider->name;
    (void)pthread_mutex_init(&process->lock, NULL);
    cond_init(&process->changed);
    buf_init(&process->run.out, FAKE_FILE_MAX);
    buf_init(&process->run.err, FAKE_FILE_MAX);
    buf_init(&process->input, FAKE_FILE_MAX);
    if (fake->run)
        fake->run(fake->run_arg, command, &process->run);
    else
        run_default(command, &process->run);
    process->ends_at_ms = clock_mono_ms() + process->run.delay_ms;
    process->times_out_at_ms = command->timeout_ms ? clock_mono_ms() + command->timeout_ms : 0;
    *out = &process->head;
    return 0;
}

/* ---- files ---- */

static int fake_read(struct provider *provider, const struct provider_ref *ref, const char *path,
                     provider_sink_fn *sink, void *arg, struct error *err)
{
    struct provider_fake *fake = fake_of(provider);
    struct fake_machine *machine;
    struct buf *content = NULL, copy;
    int r = -1;

    if (fake_enter(fake, "read", err) < 0)
        return -1;
    buf_init(&copy, FAKE_FILE_MAX);
    (void)pthread_mutex_lock(&fake->lock);
    machine = fake_find(fake, ref->id, err);
    if (machine) {
        content = map_get(&machine->files, str_of(path));
        if (content)
            (void)buf_add_str(&copy, buf_str(content));
        else
            (void)error_set(err, ERROR_NOT_FOUND, "file '%s' not found", path);
    }
    (void)pthread_mutex_unlock(&fake->lock);
    if (content)
        r = sink(arg, buf_str(&copy)) < 0 ? error_set(err, ERROR_CONFLICT, "given up") : 0;
    buf_done(&copy);
    return r;
}

static int fake_write(struct provider *provider, const struct provider_ref *ref, const char *path,
                      provider_source_fn *source, void *arg, int64_t length, struct error *err)
{
    struct provider_fake *fake = fake_of(provider);
    struct buf *content, *old;
    struct fake_machine *machine;
    char piece[8192];
    ssize_t got;

    (void)length;
    if (fake_enter(fake, "write", err) < 0)
        return -1;
    content = xcalloc(1, sizeof(*content));
    buf_init(content, FAKE_FILE_MAX);
    while ((got = source(arg, piece, sizeof(piece))) > 0)
        (void)buf_add(content, piece, (size_t)got);
    (void)pthread_mutex_lock(&fake->lock);
    machine = got < 0 ? NULL : fake_find(fake, ref->id, err);
    old = machine ? map_put(&machine->files, str_of(path), content) : content;
    (void)pthread_mutex_unlock(&fake->lock);
    if (old)
        buf_done(old);
    free(old);
    if (got < 0)
        return error_set(err, ERROR_CONFLICT, "given up");
    return machine ? 0 : -1;
}

static int fake_list(struct provider *provider, const struct provider_ref *ref, const char *path,
                     struct arena *arena, struct provider_file **out, size_t *out_count,
                     struct error *err)
{
    struct provider_fake *fake = fake_of(provider);
    struct map_entry *entry;
    struct fake_machine *machine;

    if (fake_enter(fake, "list", err) < 0)
        return -1;
    (void)pthread_mutex_lock(&fake->lock);
    machine = fake_find(fake, ref->id, err);
    if (machine) {
        *out = arena_alloc(arena, (machine->files.count + 1) * sizeof(**out));
        *out_count = 0;
        map_for_each (&machine->files, entry) {
            struct str name = str_n(entry->key, entry->key_len);

            if (str_starts(name, str_of(path)))
                (*out)[(*out_count)++] =
                    (struct provider_file){.name = arena_str(arena, name),
                                           .path = arena_str(arena, name),
                                           .size = (int64_t)((struct buf *)entry->value)->len,
                                           .mode = 0644};
        }
    }
    (void)pthread_mutex_unlock(&fake->lock);
    return machine ? 0 : -1;
}

static int fake_remove(struct provider *provider, const struct provider_ref *ref, const char *path,
                       struct error *err)
{
    struct provider_fake *fake = fake_of(provider);
    struct buf *old = NULL;
    struct fake_machine *machine;

    if (fake_enter(fake, "remove", err) < 0)
        return -1;
    (void)pthread_mutex_lock(&fake->lock);
    machine = fake_find(fake, ref->id, err);
    if (machine) {
        old = map_remove(&machine->files, str_of(path));
        if (!old)
            (void)error_set(err, ERROR_NOT_FOUND, "file '%s' not found", path);
    }
    (void)pthread_mutex_unlock(&fake->lock);
    if (!old)
        return -1;
    buf_done(old);
    free(old);
    return 0;
}

void fake_work_ops(struct provider_ops *ops)
{
    ops->start = fake_start;
    ops->read = fake_read;
    ops->write = fake_write;
    ops->list = fake_list;
    ops->remove = fake_remove;
}
