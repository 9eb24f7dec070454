/* Commands in a container.
 *
 * How it works: the daemon tells no pid of the container's own numbering and has no call to signal a
 * process. So each command is begun by a few lines of shell that go to the directory, print a line
 * "MARK PID" to stderr and become the command by exec; that line is taken out of the stream before
 * anybody sees it, and MARK is also in the command's environment. A signal is a second command, by
 * the same user, that sends it to the process group PID. SIGKILL, and the end of the timeout, go to
 * the whole tree: everything that is in the session PID, or has MARK in its environment, or descends
 * from one that has, again and again until nothing is left. (What both starts a session of its own
 * and clears its environment after its parent has gone is only ended by killing the sandbox.)
 *
 * The streams are separate in the daemon, so stdout may overtake the line on stderr: it is kept back
 * until the line is there. */
#include "provider/docker/docker.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/id.h"
#include "protocol/json/json_shape.h"

enum {
    MARK_BYTES = 12,
    LINE_MAX = 4096,     /* of the first line, or of the daemon's reason for a failure */
    EARLY_MAX = 1 << 20, /* stdout that overtook it */
    BEGIN_MS = 60000,    /* for the first line */
    INPUT_MS = 30000,    /* for stdin that nobody reads */
    INPUT_LOOK_MS = 500, /* meanwhile: is the process still there? */
    HELPER_MS = 30000,   /* for the command that signals */
    QUIET_MS = 500,      /* silence after which the exit code is asked for */
    QUIET_MS_MAX = 16000,
    GRACE_MS = 200,        /* silence after the end: all has come */
    GRACE_TOTAL_MS = 1000, /* for descendants that go on printing */
    AFTER_KILL_MS = 10000,
    ARGV_MAX = 4096,
};

/* 1 MARK, 2 directory, 3 terminal size; no variables, they would change the command's environment. */
static const char begin_script[] = "if [ -n \"$2\" ]; then cd \"$2\" 2>/dev/null || { printf '%s "
                                   "cwd\\n' \"$1\" >&2; exit 126; }; fi\n"
                                   "[ -z \"$3\" ] || stty $3 2>/dev/null\n"
                                   "printf '%s %s\\n' \"$1\" \"$$\" >&2\n"
                                   "shift 3\n"
                                   "exec \"$@\"\n";

/* 1 signal, 2 PID. 44: it has ended. */
static const char group_script[] = "[ -d \"/proc/$2\" ] || exit 44\n"
                                   "kill \"-$1\" -- \"-$2\" 2>/dev/null || kill \"-$1\" \"$2\"\n";

/* 1 PID, 2 MARK. `read` in a loop, because a name in stat may have line breaks in it. */
static const char tree_script[] =
    "root=$1 mark=$2 round=0\n"
    "while [ $round -lt 50 ]; do\n"
    "  round=$((round + 1)) all=' ' more=1\n"
    "  for f in $(grep -lszF \"QUICKSAND_EXEC=$mark\" /proc/[0-9]*/environ); do\n"
    "    f=${f#/proc/}; all=\"$all${f%/environ} \"\n"
    "  done\n"
    "  while [ $more = 1 ]; do\n"
    "    more=0\n"
    "    for f in /proc/[0-9]*/stat; do\n"
    "      pid=${f#/proc/}; pid=${pid%/stat}\n"
    "      case $all in *\" $pid \"*) continue ;; esac\n"
    "      line=\n"
    "      { while read -r part; do line=\"$line $part\"; done <\"$f\"; } 2>/dev/null\n"
    "      [ -n \"$line\" ] || continue\n"
    "      set -- ${line##*) }\n"
    "      case $1 in Z | X) continue ;; esac\n"
    "      case $all in *\" $2 \"*) all=\"$all$pid \" more=1; continue ;; esac\n"
    "      [ \"$4\" != \"$root\" ] || { all=\"$all$pid \" more=1; }\n"
    "    done\n"
    "  done\n"
    "  [ \"$all\" != ' ' ] || exit 0\n"
    "  kill -9 $all 2>/dev/null\n"
    "done\n"
    "exit 1\n";

struct process {
    struct provider_process base;
    struct docker_stream stream;
    char *container, *user;
    char mark[2 * MARK_BYTES + 1];
    int wake_fd;
    atomic_bool cancelled;
    pthread_mutex_t write_lock;
    bool stdin_open, pty;
    uint32_t input_ms;
    atomic_bool finished;

    /* the reader's own */
    bool line_done, told_start, told_end, timed_out;
    struct buf line, early;
    bool early_out; /* handed out: forget it at the next call */
    int64_t pid;
    int64_t deadline_ms, killed_ms, exited_ms; /* 0 = none */
    int64_t quiet_since_ms, quiet_ms;
};

static struct process *process_of(struct provider_process *base)
{
    return (struct process *)base;
}

/* ---- signals ---- */

static int run_script(struct process *p, const char *script, const char *a, const char *b,
                      struct error *err)
{
    const char *const argv[] = {"/bin/sh", "-c", script, "sh", a, b, NULL};
    struct docker_exec exec = {.argv = argv, .user = p->user};
    auto_buf struct buf errors;
    int code;

    buf_init(&errors, LINE_MAX);
    if (docker_run(p->stream.docker, str_of(p->container), &exec, HELPER_MS, &errors, &errors,
                   &code, err) < 0)
        return -1;
    if (code == 44)
        return error_set(err, ERROR_NOT_FOUND, "%s: the process has ended", p->stream.docker->who);
    if (code != 0)
        return error_set(err, ERROR_CONFLICT, "%s: the signal was not delivered: %.*s",
                         p->stream.docker->who, STR_ARG(str_trim(buf_str(&errors))));
    return 0;
}

static int kill_tree(struct process *p, struct error *err)
{
    char pid[24];

    (void)snprintf(pid, sizeof(pid), "%lld", (long long)p->pid);
    return run_script(p, tree_script, pid, p->mark, err);
}

static int process_signal(struct provider_process *base, int signal, struct error *err)
{
    struct process *p = process_of(base);
    char number[16], pid[24];

    if (atomic_load(&p->finished))
        return error_set(err, ERROR_NOT_FOUND, "%s: the process has ended", p->stream.docker->who);
    if (signal < 1 || signal > 64 || p->pid <= 0)
        return error_set(err, ERROR_INVALID, "%s: signal %d cannot be sent", p->stream.docker->who,
                         signal);
    if (signal == SIGKILL)
        return kill_tree(p, err);
    (void)snprintf(number, sizeof(number), "%d", signal);
    (void)snprintf(pid, sizeof(pid), "%lld", (long long)p->pid);
    return run_script(p, group_script, number, pid, err);
}

/* ---- reading ---- */

/* What comes before the first line is complete. Returns what followed it. */
static struct str take_line(struct process *p, struct str piece)
{
    while (piece.len > 0 && !p->line_done) {
        char c = piece.p[0];

        piece = str_skip(piece, 1);
        if (c == '\n')
            p->line_done = true;
        else if (!buf_add_char(&p->line, c))
            break;
    }
    return piece;
}

static int parse_line(struct process *p, struct error *err)
{
    struct str rest = str_trim(buf_str(&p->line)), mark = str_split(&rest, ' ');

    if (str_is(mark, p->mark) && str_is(rest, "cwd"))
        return error_set(err, ERROR_INVALID, "%s: the working directory is not there",
                         p->stream.docker->who);
    if (!str_is(mark, p->mark) || !str_to_i64(rest, &p->pid) || p->pid <= 1)
        return error_set(err, ERROR_UNAVAILABLE, "%s: the command did not begin: %.*s",
                         p->stream.docker->who, (int)(p->line.len < 200 ? p->line.len : 200),
                         p->line.p ? p->line.p : "");
    return 0;
}

/* Until the first line is there. The daemon's own words (no such user, no shell) come the same way,
 * without a mark and on either stream. */
static int wait_for_line(struct process *p, struct error *err)
{
    int64_t deadline = clock_mono_ms() + BEGIN_MS;

    while (!p->line_done) {
        int64_t left = deadline - clock_mono_ms();
        enum docker_stream_kind kind;
        struct str piece;
        int got;

        if (left <= 0)
            return error_set(err, ERROR_TIMEOUT, "%s: the command did not begin within %d s",
                             p->stream.docker->who, BEGIN_MS / 1000);
        got = docker_stream_read(&p->stream, -1, (uint32_t)left, &kind, &piece, err);
        if (got < 0)
            return -1;
        if (got == 0 && p->stream.ended) {
            (void)buf_add_str(&p->line, str_n(p->early.p, p->early.len < 200 ? p->early.len : 200));
            break;
        }
        if (got == 0)
            continue;
        if (kind == DOCKER_STDOUT && !p->pty) {
            if (!buf_add_str(&p->early, piece))
                break;
            continue;
        }
        piece = take_line(p, piece);
        if (p->line_done)
            docker_stream_unread(&p->stream, piece.len);
        else if (piece.len > 0)
            break;
    }
    return parse_line(p, err);
}

static int finish(struct process *p, struct provider_event *out, struct error *err)
{
    int code = 0;

    if (docker_stream_wait(&p->stream, AFTER_KILL_MS, &code, err) < 0)
        return -1;
    p->told_end = true;
    atomic_store(&p->finished, true);
    *out = (struct provider_event){
        .kind = PROVIDER_EXITED, .exit_code = code, .timed_out = p->timed_out};
    return 1;
}

/* Its descendants may hold the streams open after it has ended: dockerd then keeps the connection.
 * So when nothing came for a while the exit code is asked for, ever more rarely. What it printed last
 * may still be on its way then. */
static int ask_when_quiet(struct process *p, struct error *err)
{
    int64_t now = clock_mono_ms();
    int code, got;

    if (now - p->quiet_since_ms < p->quiet_ms)
        return 0;
    if (p->exited_ms) {
        p->stream.ended = true;
        return 0;
    }
    got = docker_stream_exit(&p->stream, &code, err);
    /* A daemon that is slow to tell does not end the stream; one without the process does. */
    if (got < 0 && err->code == ERROR_NOT_FOUND)
        return -1;
    p->quiet_since_ms = clock_mono_ms();
    p->quiet_ms = p->quiet_ms * 2 < QUIET_MS_MAX ? p->quiet_ms * 2 : QUIET_MS_MAX;
    if (got > 0) {
        p->exited_ms = p->quiet_since_ms;
        p->quiet_ms = GRACE_MS;
    }
    return 0;
}

static int enforce_timeout(struct process *p, struct error *err)
{
    int64_t now = clock_mono_ms();

    if (p->killed_ms && now - p->killed_ms > AFTER_KILL_MS)
        return error_set(err, ERROR_TIMEOUT, "%s: the process outlives SIGKILL",
                         p->stream.docker->who);
    if (p->timed_out || !p->deadline_ms || now < p->deadline_ms)
        return 0;
    /* Tried again with the next call, e.g. after the sandbox was paused. */
    if (kill_tree(p, err) < 0)
        return error_prefix(err, "its time is over");
    p->timed_out = true;
    p->killed_ms = clock_mono_ms();
    p->quiet_ms = 0;
    return 0;
}

/* How long the next wait may be. */
static uint32_t slice(const struct process *p, int64_t until_ms)
{
    int64_t now = clock_mono_ms(), left = until_ms - now;
    int64_t quiet = p->quiet_since_ms + p->quiet_ms - now;

    if (left > quiet)
        left = quiet;
    if (p->deadline_ms && !p->timed_out && left > p->deadline_ms - now)
        left = p->deadline_ms - now;
    return left > 0 ? (uint32_t)left : 0;
}

static int next_piece(struct process *p, uint32_t timeout_ms, struct provider_event *out,
                      struct error *err)
{
    int64_t until = clock_mono_ms() + timeout_ms;
    enum docker_stream_kind kind;
    struct str piece;

    for (;;) {
        int got;

        if (enforce_timeout(p, err) < 0)
            return -1;
        got = docker_stream_read(&p->stream, p->wake_fd, slice(p, until), &kind, &piece, err);
        if (atomic_load(&p->cancelled))
            return error_set(err, ERROR_CONFLICT, "%s: cancelled", p->stream.docker->who);
        if (got < 0)
            return -1;
        if (got == 0 && p->stream.ended)
            return finish(p, out, err);
        if (got > 0) {
            p->quiet_since_ms = clock_mono_ms();
            p->quiet_ms = p->exited_ms ? GRACE_MS : QUIET_MS;
            if (p->exited_ms && p->quiet_since_ms - p->exited_ms > GRACE_TOTAL_MS)
                p->stream.ended = true;
            *out = (struct provider_event){
                .kind = kind == DOCKER_STDERR ? PROVIDER_STDERR : PROVIDER_STDOUT, .data = piece};
            return 1;
        }
        if (ask_when_quiet(p, err) < 0)
            return -1;
        if (!p->stream.ended && clock_mono_ms() >= until)
            return 0;
    }
}

static int process_next(struct provider_process *base, uint32_t timeout_ms,
                        struct provider_event *out, struct error *err)
{
    struct process *p = process_of(base);

    if (atomic_load(&p->cancelled))
        return error_set(err, ERROR_CONFLICT, "%s: cancelled", p->stream.docker->who);
    if (p->told_end)
        return error_set(err, ERROR_CONFLICT, "%s: the process has ended", p->stream.docker->who);
    if (!p->told_start) {
        p->told_start = true;
        *out = (struct provider_event){.kind = PROVIDER_STARTED, .pid = p->pid};
        return 1;
    }
    if (p->early_out)
        buf_clear(&p->early);
    if (p->early.len > 0) {
        p->early_out = true;
        *out = (struct provider_event){.kind = PROVIDER_STDOUT, .data = buf_str(&p->early)};
        return 1;
    }
    return next_piece(p, timeout_ms, out, err);
}

static struct provider_wait process_wait(struct provider_process *base)
{
    struct process *p = process_of(base);

    return (struct provider_wait){.fd = p->stream.fd, .ms = slice(p, INT64_MAX)};
}

/* ---- writing ---- */

static int process_input(struct provider_process *base, struct str data, struct error *err)
{
    struct process *p = process_of(base);
    int64_t deadline = clock_mono_ms() + p->input_ms;
    int result = 0;

    (void)pthread_mutex_lock(&p->write_lock);
    if (!p->stdin_open)
        result = error_set(err, ERROR_CONFLICT, "%s: the process's input is closed",
                           p->stream.docker->who);
    while (result == 0 && data.len > 0) {
        ssize_t n = send(p->stream.fd, data.p, data.len, MSG_NOSIGNAL | MSG_DONTWAIT);
        int64_t left = deadline - clock_mono_ms();
        struct pollfd pfd = {.fd = p->stream.fd, .events = POLLOUT};

        if (n >= 0) {
            data = str_skip(data, (size_t)n);
        } else if (errno == EAGAIN && (atomic_load(&p->finished) || atomic_load(&p->cancelled))) {
            result =
                error_set(err, ERROR_NOT_FOUND, "%s: the process has ended", p->stream.docker->who);
        } else if (errno == EAGAIN && left > 0) {
            (void)poll(&pfd, 1, (int)(left < INPUT_LOOK_MS ? left : INPUT_LOOK_MS));
        } else if (errno == EAGAIN) {
            result = error_set(err, ERROR_TIMEOUT, "%s: the process does not read its input",
                               p->stream.docker->who);
        } else if (errno != EINTR) {
            result = error_set(err, ERROR_NOT_FOUND, "%s: the process's input is gone: %s",
                               p->stream.docker->who, strerror(errno));
        }
    }
    (void)pthread_mutex_unlock(&p->write_lock);
    return result;
}

static int process_close_stdin(struct provider_process *base, struct error *err)
{
    struct process *p = process_of(base);

    /* A terminal has no end of input but the key that says so. */
    if (p->pty)
        return process_input(base, STR("\x04"), err);
    (void)pthread_mutex_lock(&p->write_lock);
    if (p->stdin_open)
        (void)shutdown(p->stream.fd, SHUT_WR);
    p->stdin_open = false;
    (void)pthread_mutex_unlock(&p->write_lock);
    return 0;
}

static int process_resize(struct provider_process *base, uint16_t cols, uint16_t rows,
                          struct error *err)
{
    struct process *p = process_of(base);
    char path[224];

    if (!p->pty)
        return error_set(err, ERROR_CONFLICT, "%s: the process has no terminal",
                         p->stream.docker->who);
    (void)snprintf(path, sizeof(path), "/exec/%s/resize?h=%u&w=%u", p->stream.exec_id,
                   (unsigned)rows, (unsigned)cols);
    return docker_post(p->stream.docker, "POST", path, HELPER_MS, 0, err);
}

static void process_cancel(struct provider_process *base)
{
    struct process *p = process_of(base);
    uint64_t one = 1;

    atomic_store(&p->cancelled, true);
    (void)!write(p->wake_fd, &one, sizeof(one));
}

static void process_free(struct provider_process *base)
{
    struct process *p = process_of(base);

    docker_stream_close(&p->stream);
    close_fd(&p->wake_fd);
    (void)pthread_mutex_destroy(&p->write_lock);
    buf_done(&p->line);
    buf_done(&p->early);
    free(p->container);
    free(p->user);
    free(p);
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

/* ---- start ---- */

static int env_json(const struct docker *docker, const struct process *p,
                    const struct provider_command *command, json_t **out, struct error *err)
{
    auto_json json_t *list = json_array();

    for (size_t i = 0; i < command->env_count; i++) {
        struct str name = command->env[i].name, value = command->env[i].value;

        if (name.len == 0 || str_find(name, '=') >= 0 || str_find(name, '\0') >= 0 ||
            str_find(value, '\0') >= 0 || !str_valid_utf8(name) || !str_valid_utf8(value))
            return error_set(err, ERROR_INVALID,
                             "%s: variable '%.*s' cannot be passed on: not UTF-8, or '=' or NUL in "
                             "it",
                             docker->who, STR_ARG(name));
        (void)json_array_append_new(list, json_sprintf("%.*s=%.*s", STR_ARG(name), STR_ARG(value)));
    }
    (void)json_array_append_new(list, json_sprintf("QUICKSAND_EXEC=%s", p->mark));
    *out = take_ptr(&list);
    return 0;
}

static int begin(struct docker *docker, struct process *p, const struct provider_command *command,
                 struct error *err)
{
    const char *cwd = command->cwd ? command->cwd : "";
    char size[48] = "";
    auto_free const char **argv = NULL;
    auto_json json_t *env = NULL;
    struct docker_exec exec = {.user = p->user, .stdin_open = p->stdin_open, .tty = command->pty};
    size_t n = 0;

    while (n < ARGV_MAX && command->argv[n]) {
        if (!str_valid_utf8(str_of(command->argv[n])))
            return error_set(err, ERROR_INVALID, "%s: an argument is not UTF-8", docker->who);
        n++;
    }
    if (n == 0 || n == ARGV_MAX)
        return error_set(err, ERROR_INVALID, "%s: a command has 1..%d words", docker->who,
                         ARGV_MAX - 1);
    if (cwd[0] == '-')
        return error_set(err, ERROR_INVALID, "%s: the working directory '%s' is no path",
                         docker->who, cwd);
    if (command->pty)
        (void)snprintf(size, sizeof(size), "rows %u cols %u", command->rows ? command->rows : 40u,
                       command->cols ? command->cols : 120u);
    argv = xcalloc(n + 8, sizeof(*argv));
    memcpy(argv, (const char *[]){"/bin/sh", "-c", begin_script, "sh", p->mark, cwd, size},
           7 * sizeof(*argv));
    memcpy(argv + 7, command->argv, n * sizeof(*argv));
    exec.argv = argv;
    if (env_json(docker, p, command, &env, err) < 0)
        return -1;
    exec.env = env;
    if (docker_stream_open(docker, str_of(p->container), &exec, &p->stream, err) < 0)
        return -1;
    return wait_for_line(p, err);
}

int docker_start(struct provider *provider, const struct provider_ref *ref,
                 const struct provider_command *command, struct provider_process **out,
                 struct error *err)
{
    struct docker *docker = docker_of(provider);
    struct process *p;

    if (docker_check_id(docker, ref->id, err) < 0)
        return -1;
    p = xcalloc(1, sizeof(*p));
    p->base = (struct provider_process){&process_ops, provider->name};
    p->stream.fd = -1;
    p->container = str_dup(ref->id);
    p->user = command->user ? xstrdup(command->user) : NULL;
    p->stdin_open = command->open_stdin || command->pty;
    p->pty = command->pty;
    p->input_ms = command->input_ms ? command->input_ms : INPUT_MS;
    p->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    (void)pthread_mutex_init(&p->write_lock, NULL);
    buf_init(&p->line, LINE_MAX);
    buf_init(&p->early, EARLY_MAX);
    id_hex(p->mark, MARK_BYTES);
    if (p->wake_fd < 0 || begin(docker, p, command, err) < 0) {
        if (p->wake_fd < 0)
            (void)error_set_errno(err, errno, "eventfd");
        process_free(&p->base);
        return -1;
    }
    if (command->timeout_ms > 0)
        p->deadline_ms = clock_mono_ms() + command->timeout_ms;
    p->quiet_since_ms = clock_mono_ms();
    p->quiet_ms = QUIET_MS;
    *out = &p->base;
    return 0;
}
