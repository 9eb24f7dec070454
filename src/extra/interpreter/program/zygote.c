/* The zygote: a Python that has loaded what takes long, and forks a kernel for each context. It is asked with the three
 * descriptors of the new kernel, and tells when it has loaded, and of each child's begin and end. When it dies, the next kernel starts another one;
 * kernels that live go on without it. */
#include <errno.h>
#include <signal.h>
#include <sys/socket.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/log.h"
#include "extra/interpreter/program/interpreter.h"
#include "protocol/json/json_shape.h"

enum { KERNELS_MAX = CONTEXTS_MAX * 2, NUMBERS_MAX = 32 };

struct zygote {
    struct interpreter *ip;
    uv_process_t *process;
    int control;
    uv_poll_t *poll;
    struct frame_reader reader;
    char numbers[NUMBERS_MAX + 1]; /* body of the frame that is being read */
    size_t numbers_len;
    bool loaded;
    /* In the order of asking; NULL: it was freed meanwhile. Those in front have a process. */
    struct kernel *kernels[KERNELS_MAX];
    pid_t pids[KERNELS_MAX]; /* 0: asked for */
    size_t count;
};

static void freed(uv_handle_t *handle)
{
    free(handle);
}

static void stop(struct zygote *zygote)
{
    if (zygote->poll)
        uv_close((uv_handle_t *)take_ptr(&zygote->poll), freed);
    close_fd(&zygote->control);
    if (zygote->process) {
        (void)uv_process_kill(zygote->process, SIGKILL);
        zygote->process->data = NULL;
    }
    zygote->ip->zygote = NULL;
    free(zygote);
}

static void forget(struct zygote *zygote, size_t at)
{
    zygote->count--;
    for (size_t i = at; i < zygote->count; i++) {
        zygote->kernels[i] = zygote->kernels[i + 1];
        zygote->pids[i] = zygote->pids[i + 1];
    }
}

static void on_forked(struct zygote *zygote, pid_t pid)
{
    for (size_t i = 0; i < zygote->count; i++) {
        if (zygote->pids[i])
            continue;
        zygote->pids[i] = pid;
        if (zygote->kernels[i])
            kernel_forked(zygote->kernels[i], pid);
        else if (pid > 1) /* nobody wants it any more */
            (void)kill(-pid, SIGKILL);
        return;
    }
}

static void on_ended(struct zygote *zygote, pid_t pid, int status)
{
    for (size_t i = 0; i < zygote->count; i++) {
        struct kernel *kernel = zygote->kernels[i];

        if (zygote->pids[i] != pid)
            continue;
        forget(zygote, i);
        if (kernel)
            kernel_exited(kernel, status);
        return;
    }
}

static void take_numbers(struct zygote *zygote)
{
    struct str rest = str_n(zygote->numbers, zygote->numbers_len), first = str_split(&rest, ' ');
    uint64_t pid, status;

    if (!str_to_u64(first, &pid) || pid > INT32_MAX)
        return;
    if (zygote->reader.kind == 'p')
        on_forked(zygote, (pid_t)pid);
    else if (zygote->reader.kind == 'w' && str_to_u64(rest, &status) && status <= INT32_MAX)
        on_ended(zygote, (pid_t)pid, (int)status);
}

static bool take_frames(struct zygote *zygote, struct str bytes)
{
    for (;;) {
        struct str body = STR_NONE;
        enum frame_event event = frame_read(&zygote->reader, &bytes, &body);

        if (event == FRAME_MORE || event == FRAME_BAD)
            return event == FRAME_MORE;
        if (event == FRAME_BEGIN)
            zygote->numbers_len = 0;
        if (event == FRAME_BODY && zygote->numbers_len + body.len > NUMBERS_MAX)
            return false;
        if (event == FRAME_BODY) {
            memcpy(zygote->numbers + zygote->numbers_len, body.p, body.len);
            zygote->numbers_len += body.len;
        }
        if (event == FRAME_END && zygote->reader.kind == 'l')
            zygote->loaded = true;
        else if (event == FRAME_END)
            take_numbers(zygote);
    }
}

static void on_control(uv_poll_t *poll, int status, int events)
{
    struct zygote *zygote = poll->data;
    char bytes[1024];
    ssize_t n = recv(zygote->control, bytes, sizeof(bytes), MSG_DONTWAIT);

    (void)status;
    (void)events;
    if (n < 0 && errno == EAGAIN)
        return;
    if (n > 0 && take_frames(zygote, str_n(bytes, (size_t)n)))
        return;
    log_warn("interpreter", "the process that forks kernels of Python has gone");
    stop(zygote);
}

static void on_exit_status(uv_process_t *process, int64_t status, int number)
{
    struct zygote *zygote = process->data;

    log_warn("interpreter",
             "the process that forks kernels of Python has ended: status %lld, signal %d",
             (long long)status, number);
    uv_close((uv_handle_t *)process, freed);
    if (zygote) {
        zygote->process = NULL;
        stop(zygote);
    }
}

static int spawn(struct zygote *zygote, int theirs, struct error *err)
{
    char python[] = "python3";
    auto_free char *script = xasprintf("%s/python.py", zygote->ip->kernels);
    char *argv[] = {python, script, NULL};
    uv_stdio_container_t stdio[4] = {
        {.flags = UV_IGNORE},
        {.flags = UV_INHERIT_FD, .data.fd = STDERR_FILENO},
        {.flags = UV_INHERIT_FD, .data.fd = STDERR_FILENO},
        {.flags = UV_INHERIT_FD, .data.fd = theirs},
    };
    uv_process_options_t options = {.exit_cb = on_exit_status,
                                    .file = python,
                                    .args = argv,
                                    .cwd = zygote->ip->home,
                                    .flags = UV_PROCESS_DETACHED,
                                    .stdio = stdio,
                                    .stdio_count = 4};
    int rc;

    zygote->process = xcalloc(1, sizeof(*zygote->process));
    zygote->process->data = zygote;
    rc = uv_spawn(loop_uv(zygote->ip->loop), zygote->process, &options);
    if (rc == 0)
        return 0;
    uv_close((uv_handle_t *)take_ptr(&zygote->process), freed);
    return error_set(err, ERROR_INTERNAL, "'python3' cannot be started: %s", uv_strerror(rc));
}

int zygote_start(struct interpreter *ip, struct error *err)
{
    struct zygote *zygote = xcalloc(1, sizeof(*zygote));
    int pair[2], rc;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) {
        free(zygote);
        return error_set_errno(err, errno, "socketpair");
    }
    zygote->ip = ip;
    zygote->control = pair[0];
    ip->zygote = zygote;
    rc = spawn(zygote, pair[1], err);
    (void)close(pair[1]);
    if (rc < 0) {
        stop(zygote);
        return -1;
    }
    zygote->poll = xcalloc(1, sizeof(*zygote->poll));
    zygote->poll->data = zygote;
    (void)uv_poll_init(loop_uv(ip->loop), zygote->poll, zygote->control);
    (void)uv_poll_start(zygote->poll, UV_READABLE, on_control);
    return 0;
}

bool zygote_loads(const struct interpreter *ip)
{
    return ip->zygote && !ip->zygote->loaded;
}

int zygote_fork(struct interpreter *ip, struct kernel *kernel, const char *cwd, const int fds[3],
                struct error *err)
{
    struct zygote *zygote;
    int rc;

    if (!ip->zygote && zygote_start(ip, err) < 0)
        return -1;
    zygote = ip->zygote;
    if (zygote->count == KERNELS_MAX)
        return error_set(err, ERROR_QUOTA, "too many kernels are being started");
    rc = fd_send(zygote->control, cwd, strlen(cwd) + 1, fds, 3);
    if (rc < 0)
        return error_set_errno(err, -rc, "the process that forks kernels of Python");
    zygote->kernels[zygote->count] = kernel;
    zygote->pids[zygote->count++] = 0;
    return 0;
}

void zygote_forget(struct interpreter *ip, const struct kernel *kernel)
{
    if (!ip->zygote)
        return;
    for (size_t i = 0; i < ip->zygote->count; i++)
        if (ip->zygote->kernels[i] == kernel)
            ip->zygote->kernels[i] = NULL;
}
