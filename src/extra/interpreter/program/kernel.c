/* How it works: three descriptors are watched. Before a frame is told, what the pipes hold is read: a kernel has written it
 * before it sent the frame. A kernel has ended when its process has (the zygote or libuv tells), or when its socket is
 * closed and nobody has told for a while. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/size.h"
#include "extra/interpreter/program/interpreter.h"
#include "extra/interpreter/program/memory.h"

enum {
    SILENT_END_MS = 1000,
    SEND_MAX = 2 * BODY_MAX,
    CONTROL = 2, /* among the descriptors; the others are KERNEL_STDOUT and KERNEL_STDERR */
};

struct kernel {
    struct interpreter *ip;
    const struct kernel_events *events;
    void *arg;
    pid_t pid;
    uv_process_t *process; /* of those that no zygote forked */
    int fds[3];
    uv_poll_t *polls[3];
    struct frame_reader reader;
    struct buf out;
    uv_timer_t *silent_end;
    uint64_t memory_kills; /* of the sandbox, when it began */
    bool held, ended;
};

pid_t kernel_pid(const struct kernel *kernel)
{
    return kernel->pid;
}

static void freed(uv_handle_t *handle)
{
    free(handle);
}

static void stop_watching(struct kernel *kernel, int which)
{
    if (kernel->polls[which])
        uv_close((uv_handle_t *)take_ptr(&kernel->polls[which]), freed);
    close_fd(&kernel->fds[which]);
}

static void signal_group(const struct kernel *kernel, int number)
{
    if (kernel->pid > 1 && kill(-kernel->pid, number) != 0)
        (void)kill(kernel->pid, number);
}

void kernel_free(struct kernel *kernel)
{
    signal_group(kernel, SIGKILL);
    zygote_forget(kernel->ip, kernel);
    if (kernel->process) /* on_exit frees it */
        kernel->process->data = NULL;
    for (int i = 0; i < 3; i++)
        stop_watching(kernel, i);
    timer_stop(&kernel->silent_end);
    buf_done(&kernel->out);
    free(kernel);
}

/* ---- its end ---- */

static void describe_end(const struct kernel *kernel, int status, char *out, size_t size)
{
    char text[SIZE_TEXT];

    if (status >= 0 && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL &&
        memory_kills() > kernel->memory_kills)
        (void)snprintf(out, size,
                       "the kernel was ended because the sandbox has no more memory (%s)",
                       size_text(memory_limit_bytes(), text));
    else if (status >= 0 && WIFSIGNALED(status))
        (void)snprintf(out, size, "the kernel was ended by signal %d (%s)", WTERMSIG(status),
                       strsignal(WTERMSIG(status)));
    else if (status >= 0)
        (void)snprintf(out, size, "the kernel has ended with status %d", WEXITSTATUS(status));
    else
        (void)snprintf(out, size, "the kernel has ended");
}

/* status: of waitpid(), or -1 when nobody knows it. */
static void end(struct kernel *kernel, int status)
{
    char why[200];

    if (kernel->ended)
        return;
    kernel->ended = true;
    describe_end(kernel, status, why, sizeof(why));
    kernel->events->on_end(why, kernel->arg);
    kernel_free(kernel);
}

static void on_silent_end(uv_timer_t *timer)
{
    end(timer->data, -1);
}

/* ---- what it says ---- */

/* As much as the pipe holds now; false when it is closed. */
static bool read_pipe(struct kernel *kernel, int which, size_t most)
{
    char *bytes = loop_read_buffer(kernel->ip->loop);
    ssize_t n = read(kernel->fds[which], bytes, most < LOOP_READ_SIZE ? most : LOOP_READ_SIZE);

    if (n > 0)
        kernel->events->on_output((enum kernel_pipe)which, str_n(bytes, (size_t)n), kernel->arg);
    return n > 0 || (n < 0 && errno == EAGAIN);
}

static void drain_pipes(struct kernel *kernel)
{
    for (int which = 0; which < CONTROL; which++) {
        int waiting = 0;

        while (kernel->fds[which] >= 0 && ioctl(kernel->fds[which], FIONREAD, &waiting) == 0 &&
               waiting > 0 && read_pipe(kernel, which, (size_t)waiting) && waiting > LOOP_READ_SIZE)
            ;
    }
}

/* The frame's bytes are in a buffer of their own, as reading the pipes takes the loop's. False: it makes no sense. */
static bool take_frames(struct kernel *kernel, struct str bytes)
{
    for (;;) {
        struct str body = STR_NONE;
        enum frame_event event = frame_read(&kernel->reader, &bytes, &body);

        if (event == FRAME_MORE || event == FRAME_BAD)
            return event == FRAME_MORE;
        if (event == FRAME_BEGIN)
            drain_pipes(kernel);
        if (event == FRAME_BEGIN && kernel->reader.kind == 'k')
            kernel->events->on_ready(kernel->arg);
        else if (kernel->reader.kind != 'k')
            kernel->events->on_frame(kernel->reader.kind, event, body, kernel->arg);
        if (kernel->ended)
            return true;
    }
}

static void on_control_closed(struct kernel *kernel)
{
    stop_watching(kernel, CONTROL);
    signal_group(kernel, SIGKILL);
    if (!kernel->silent_end)
        kernel->silent_end = timer_start(kernel->ip->loop, SILENT_END_MS, 0, on_silent_end, kernel);
}

static void watch(struct kernel *kernel, int which);

static void write_control(struct kernel *kernel)
{
    ssize_t n = kernel->out.len ? send(kernel->fds[CONTROL], kernel->out.p, kernel->out.len,
                                       MSG_NOSIGNAL | MSG_DONTWAIT)
                                : 0;

    if (n > 0)
        buf_drop(&kernel->out, (size_t)n);
    if (!kernel->out.len) {
        buf_done(&kernel->out);
        buf_init(&kernel->out, SEND_MAX);
    }
    watch(kernel, CONTROL);
}

static void read_control(struct kernel *kernel)
{
    char bytes[16 * 1024];
    ssize_t n = recv(kernel->fds[CONTROL], bytes, sizeof(bytes), MSG_DONTWAIT);

    if (n < 0 && errno == EAGAIN)
        return;
    if (n <= 0 || !take_frames(kernel, str_n(bytes, (size_t)n)))
        on_control_closed(kernel);
}

static void on_control(uv_poll_t *poll, int status, int events)
{
    struct kernel *kernel = poll->data;

    if (status == 0 && (events & UV_WRITABLE))
        write_control(kernel);
    if (status != 0 || (events & UV_READABLE))
        read_control(kernel);
}

static void on_pipe(uv_poll_t *poll, int status, int events)
{
    struct kernel *kernel = poll->data;
    int which = poll == kernel->polls[KERNEL_STDOUT] ? KERNEL_STDOUT : KERNEL_STDERR;

    (void)events;
    if (status != 0 || !read_pipe(kernel, which, LOOP_READ_SIZE))
        stop_watching(kernel, which);
}

static void watch(struct kernel *kernel, int which)
{
    int wanted = UV_READABLE;

    if (which == CONTROL && kernel->out.len)
        wanted |= UV_WRITABLE;
    if (kernel->held)
        wanted &= ~UV_READABLE;
    if (!kernel->polls[which])
        return;
    if (wanted)
        (void)uv_poll_start(kernel->polls[which], wanted, which == CONTROL ? on_control : on_pipe);
    else
        (void)uv_poll_stop(kernel->polls[which]);
}

static void watch_all(struct kernel *kernel)
{
    for (int i = 0; i < 3; i++) {
        (void)fd_set_nonblocking(kernel->fds[i], true);
        kernel->polls[i] = xcalloc(1, sizeof(*kernel->polls[i]));
        kernel->polls[i]->data = kernel;
        (void)uv_poll_init(loop_uv(kernel->ip->loop), kernel->polls[i], kernel->fds[i]);
        watch(kernel, i);
    }
}

void kernel_hold(struct kernel *kernel, bool held)
{
    if (kernel->held == held)
        return;
    kernel->held = held;
    for (int i = 0; i < 3; i++)
        watch(kernel, i);
}

void kernel_send(struct kernel *kernel, struct buf *text_consume)
{
    buf_done(&kernel->out);
    kernel->out = *text_consume;
    *text_consume = (struct buf){0};
    if (kernel->fds[CONTROL] >= 0)
        write_control(kernel);
}

void kernel_interrupt(struct kernel *kernel)
{
    signal_group(kernel, SIGINT);
}

void kernel_kill(struct kernel *kernel)
{
    signal_group(kernel, SIGKILL);
    /* It may have been stopped, or wait for a client that reads nothing. */
    kernel_hold(kernel, false);
}

/* ---- its begin ---- */

void kernel_forked(struct kernel *kernel, pid_t pid)
{
    kernel->pid = pid;
}

void kernel_exited(struct kernel *kernel, int status)
{
    /* The group may have others in it, who are not to outlive their kernel. */
    signal_group(kernel, SIGKILL);
    kernel->pid = 0;
    drain_pipes(kernel);
    end(kernel, status);
}

static void on_exit_status(uv_process_t *process, int64_t status, int number)
{
    struct kernel *kernel = process->data;

    uv_close((uv_handle_t *)process, freed);
    if (!kernel)
        return;
    kernel->process = NULL;
    kernel_exited(kernel, number ? number : (int)((status & 0xff) << 8));
}

/* Of what the interpreter itself has, theirs. The shell has its socket as its input. */
static int spawn(struct kernel *kernel, const struct language *language, const char *cwd,
                 const int theirs[3], struct error *err)
{
    char *argv[LANGUAGE_ARGS_MAX] = {0};
    uv_stdio_container_t stdio[4] = {
        {.flags = UV_IGNORE},
        {.flags = UV_INHERIT_FD, .data.fd = theirs[KERNEL_STDOUT]},
        {.flags = UV_INHERIT_FD, .data.fd = theirs[KERNEL_STDERR]},
        {.flags = UV_INHERIT_FD, .data.fd = theirs[CONTROL]},
    };
    uv_process_options_t options = {.exit_cb = on_exit_status,
                                    .args = argv,
                                    .cwd = cwd,
                                    .flags = UV_PROCESS_DETACHED,
                                    .stdio = stdio,
                                    .stdio_count = 4};
    int rc;

    if (language->way == KERNEL_SHELL) {
        stdio[0] = stdio[3];
        options.stdio_count = 3;
    }
    for (size_t i = 0; language->argv[i]; i++)
        argv[i] = language_path(language->argv[i], kernel->ip->kernels);
    options.file = argv[0];
    kernel->process = xcalloc(1, sizeof(*kernel->process));
    kernel->process->data = kernel;
    rc = uv_spawn(loop_uv(kernel->ip->loop), kernel->process, &options);
    for (size_t i = 0; argv[i]; i++)
        free(argv[i]);
    if (rc == 0) {
        kernel->pid = kernel->process->pid;
        return 0;
    }
    uv_close((uv_handle_t *)take_ptr(&kernel->process), freed);
    return error_set(err, ERROR_INTERNAL, "'%s' cannot be started in '%s': %s", language->argv[0],
                     cwd, uv_strerror(rc));
}

static int make_ends(int ours[3], int theirs[3], struct error *err)
{
    int pair[2];

    for (int i = 0; i < CONTROL; i++) {
        if (pipe2(pair, O_CLOEXEC) != 0)
            return error_set_errno(err, errno, "pipe");
        ours[i] = pair[0];
        theirs[i] = pair[1];
    }
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
        return error_set_errno(err, errno, "socketpair");
    ours[CONTROL] = pair[0];
    theirs[CONTROL] = pair[1];
    return 0;
}

static int start(struct kernel *kernel, const struct language *language, const char *cwd,
                 struct error *err)
{
    int theirs[3] = {-1, -1, -1}, rc;

    rc = make_ends(kernel->fds, theirs, err);
    if (rc == 0) {
        int order[3] = {theirs[CONTROL], theirs[KERNEL_STDOUT], theirs[KERNEL_STDERR]};

        rc = language->way == KERNEL_FORKED ? zygote_fork(kernel->ip, kernel, cwd, order, err)
                                            : spawn(kernel, language, cwd, theirs, err);
    }
    for (int i = 0; i < 3; i++)
        close_fd(&theirs[i]);
    return rc;
}

struct kernel *kernel_start(struct interpreter *ip, const struct language *language,
                            const char *cwd, const struct kernel_events *events, void *arg,
                            struct error *err)
{
    struct kernel *kernel = xcalloc(1, sizeof(*kernel));

    kernel->ip = ip;
    kernel->events = events;
    kernel->arg = arg;
    kernel->memory_kills = memory_kills();
    for (int i = 0; i < 3; i++)
        kernel->fds[i] = -1;
    buf_init(&kernel->out, SEND_MAX);
    if (start(kernel, language, cwd, err) < 0) {
        kernel_free(kernel);
        return NULL;
    }
    watch_all(kernel);
    return kernel;
}
