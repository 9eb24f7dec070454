#include "domain/sandbox/envd_run.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "domain/sandbox/sandbox_envd.h"

enum {
    TAIL_MAX = 2048,
    SHOWN_MAX = 160, /* of what it wrote, in a message */
};

int envd_run_start(struct sandboxes *all, const char *id, struct str text,
                   const struct pair *variable, int64_t timeout_ms, struct envd_run *run,
                   struct error *err)
{
    auto_free char *script = str_dup(text);
    const char *argv[] = {"/bin/bash", "-l", "-c", script, NULL};
    const struct envd_command command = {
        .argv = argv, .env = variable, .env_count = variable != NULL, .timeout_ms = timeout_ms};
    const struct envd_address address = sandboxes_envd(all, "", id, STR_NONE);

    buf_init(&run->tail, TAIL_MAX);
    return envd_start(&address, &command, &run->process, err);
}

static void add_output(struct buf *tail, struct str data)
{
    if (data.len > TAIL_MAX)
        data = str_skip(data, data.len - TAIL_MAX);
    if (tail->len + data.len > TAIL_MAX)
        buf_drop(tail, tail->len + data.len - TAIL_MAX);
    (void)buf_add_str(tail, data);
}

static void add_exit(struct envd_run *run, const struct envd_event *event)
{
    run->exited = true;
    run->exit_code = event->exit_code;
    run->out_of_memory = event->out_of_memory;
    if (!event->status.len || !str_copy(event->status, run->status, sizeof(run->status)))
        (void)snprintf(run->status, sizeof(run->status), "exit status %d", run->exit_code);
}

int envd_run_wait(struct envd_run *run, int64_t ms, struct error *err)
{
    int64_t until = clock_mono_ms() + ms, left = ms;
    struct envd_event event;

    while (!run->exited) {
        int r = envd_process_next(run->process, (uint32_t)(left > 0 ? left : 0), &event, err);

        if (r < 0)
            return -1;
        if (r > 0 && event.kind == ENVD_EXITED)
            add_exit(run, &event);
        else if (r > 0)
            add_output(&run->tail, event.data);
        left = until - clock_mono_ms();
        /* Also while there is always more to read. */
        if (!run->exited && (r == 0 || left < 0))
            return 0;
    }
    return 1;
}

void envd_run_done(struct envd_run *run)
{
    envd_process_free(run->process);
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
