/* envd: envd inside a sandbox, its process 1. Serves HTTP on a socket the engine made and on a
 * TCP port inside, starts programs, moves files, and collects orphans. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "base/fd.h"
#include "base/log.h"
#include "envd/core/claim.h"
#include "envd/core/envd.h"
#include "envd/core/run_files.h"
#include "envd/process/process_tree.h"
#include "envd/process/spawn.h"
#include "envd/view/disk_use.h"
#include "envd/view/proc_files.h"
#include "envd/view/statfs_answer.h"
#include "protocol/loop/loop.h"

enum {
    CONNECTIONS_MAX = 4096,
    HEAD_TIMEOUT_MS = 60 * 1000,
    IDLE_TIMEOUT_MS = 640 * 1000, /* longer than any client's or proxy's own */
    BODY_TIMEOUT_MS = 600 * 1000,
    LISTEN_BACKLOG = 1024,
};

struct options {
    int listen_fd, fuse_fd;  /* -1: none */
    int token_fd, parent_fd; /* -1: none */
    int oom_fd;              /* -1: none */
    int disk_fd, statfs_fd;  /* -1: none */
    int claim_fd;            /* -1: none */
    uint64_t mem_bytes;
    uint16_t tcp_port; /* 0: none */
};

static bool parse_number(const char *text, uint64_t max, uint64_t *out)
{
    return str_to_u64(str_of(text), out) && *out <= max;
}

static bool parse_option(struct options *options, const char *name, const char *value)
{
    uint64_t number;

    if (!value)
        return false;
    if (strcmp(name, "--listen-fd") == 0 && parse_number(value, INT32_MAX, &number))
        options->listen_fd = (int)number;
    else if ((strcmp(name, "--fuse-fd") == 0 || strcmp(name, "--fuse") == 0) &&
             parse_number(value, INT32_MAX, &number))
        options->fuse_fd = (int)number;
    else if (strcmp(name, "--token-fd") == 0 && parse_number(value, INT32_MAX, &number))
        options->token_fd = (int)number;
    else if (strcmp(name, "--parent-fd") == 0 && parse_number(value, INT32_MAX, &number))
        options->parent_fd = (int)number;
    else if (strcmp(name, "--oom-fd") == 0 && parse_number(value, INT32_MAX, &number))
        options->oom_fd = (int)number;
    else if (strcmp(name, "--disk-fd") == 0 && parse_number(value, INT32_MAX, &number))
        options->disk_fd = (int)number;
    else if (strcmp(name, "--statfs-fd") == 0 && parse_number(value, INT32_MAX, &number))
        options->statfs_fd = (int)number;
    else if (strcmp(name, "--claim-fd") == 0 && parse_number(value, INT32_MAX, &number))
        options->claim_fd = (int)number;
    else if (strcmp(name, "--mem-bytes") == 0 && parse_number(value, UINT64_MAX, &number))
        options->mem_bytes = number;
    else if (strcmp(name, "--tcp-port") == 0 && parse_number(value, UINT16_MAX, &number))
        options->tcp_port = (uint16_t)number;
    else
        return false;
    return true;
}

static bool parse_options(int argc, char **argv, struct options *options)
{
    *options = (struct options){.listen_fd = -1,
                                .fuse_fd = -1,
                                .token_fd = -1,
                                .parent_fd = -1,
                                .oom_fd = -1,
                                .disk_fd = -1,
                                .statfs_fd = -1,
                                .claim_fd = -1};
    for (int i = 1; i < argc; i += 2)
        if (!parse_option(options, argv[i], argv[i + 1]))
            return false;
    return options->listen_fd >= 0 || options->tcp_port != 0;
}

/* Nothing envd holds may reach the programs it starts, and descriptors 0 to 2 must be taken:
 * those made later become a program's own. */
static void guard_descriptors(void)
{
    struct stat st;
    int fd;

    do
        fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    while (fd >= 0 && fd <= 2);
    if (fd > 2)
        (void)close(fd);
    (void)syscall(SYS_close_range, 3, ~0U, 4 /* CLOSE_RANGE_CLOEXEC */);
    /* Nobody may be reading the log pipe: then lines are lost, but envd goes on. */
    if (fstat(STDERR_FILENO, &st) == 0 && S_ISFIFO(st.st_mode))
        (void)fd_set_nonblocking(STDERR_FILENO, true);
}

/* Whoever started us may have left anything ignored or blocked, also the signals that the C library
 * keeps for itself and would not touch. All zero is SIG_DFL. */
static void set_signals(void)
{
    static const int ignored[] = {SIGPIPE, SIGTERM, SIGINT, SIGHUP};
    static const unsigned long standard[4];
    sigset_t none;

    for (int number = 1; number <= 64; number++)
        (void)syscall(SYS_rt_sigaction, number, standard, NULL, 8);
    for (size_t i = 0; i < sizeof(ignored) / sizeof(ignored[0]); i++)
        (void)signal(ignored[i], SIG_IGN);
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
}

static int listen_tcp(uint16_t port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), on = 1;

    if (fd < 0)
        return -errno;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (bind(fd, (struct sockaddr *)&address, sizeof(address)) != 0 ||
        listen(fd, LISTEN_BACKLOG) != 0) {
        int errnum = errno;

        (void)close(fd);
        return -errnum;
    }
    return fd;
}

/* Takes the descriptor (or the negative errno of not having got one). */
static void serve(struct envd *envd, struct envd_door *door, int fd, const char *what)
{
    struct http_server_config config = {
        .on_request = endpoints_handle,
        .arg = door,
        .max_connections = CONNECTIONS_MAX,
        .head_timeout_ms = HEAD_TIMEOUT_MS,
        .idle_timeout_ms = IDLE_TIMEOUT_MS,
        .body_timeout_ms = BODY_TIMEOUT_MS,
    };
    int r = fd;

    door->envd = envd;
    if (fd >= 0)
        r = http_server_listen(http_server_new(envd->loop, &config), fd);
    if (r < 0)
        log_error("envd", "cannot listen on %s: %s", what, strerror(-r));
}

static void on_child_signal(uv_signal_t *signal, int number)
{
    (void)number;
    process_table_reap(signal->data);
}

static void watch_children(struct envd *envd, uv_signal_t *signal)
{
    (void)uv_signal_init(loop_uv(envd->loop), signal);
    signal->data = &envd->processes;
    (void)uv_signal_start(signal, on_child_signal, SIGCHLD);
    /* Started outside of a pid namespace of its own (tests), orphans must still come here. */
    if (getpid() != 1 && prctl(PR_SET_CHILD_SUBREAPER, 1) != 0)
        log_warn("envd", "cannot become a subreaper: errno %d", errno);
}

static void start_statfs(int fd)
{
    int r = fd >= 0 ? statfs_answer_start(fd) : 0;

    if (r != 0)
        log_error("envd", "cannot answer statfs: %s", strerror(-r));
}

/* Outside of a sandbox, whoever started envd holds the other end of a pipe: when it goes, so does
 * envd with all it has started. */
static void on_parent(uv_poll_t *poll, int status, int events)
{
    (void)poll;
    (void)status;
    (void)events;
    process_tree_kill_below(getpid());
    _exit(0);
}

static void watch_parent(struct envd *envd, uv_poll_t *poll, int fd)
{
    if (uv_poll_init(loop_uv(envd->loop), poll, fd) != 0 ||
        uv_poll_start(poll, UV_READABLE | UV_DISCONNECT, on_parent) != 0)
        log_error("envd", "cannot watch for the end of the parent");
}

/* All that can be read is the token; nobody may connect without it. */
static bool read_token(struct settings *settings, int fd)
{
    ssize_t n = fd_read_full(fd, settings->token, sizeof(settings->token));

    (void)close(fd);
    if (n > 0 && (size_t)n < sizeof(settings->token) && !memchr(settings->token, '\0', (size_t)n))
        return true;
    log_error("envd", "the token cannot be read");
    return false;
}

static void set_defaults(struct settings *settings)
{
    struct error err;

    memcpy(settings->default_user, geteuid() == 0 ? "root" : USER_SELF, 5);
    (void)env_set(&settings->internal, STR("E2B_SANDBOX"), STR("true"), &err);
    /* Not where tests run. */
    if (getpid() != 1)
        return;
    settings->run_dir = RUN_FILES_DIR;
    if (run_files_write(RUN_FILES_DIR, ".E2B_SANDBOX", STR("true"), 0444, &err) != 0)
        log_error("envd", "%s", err.message);
}

int main(int argc, char **argv)
{
    static struct envd envd;
    static struct envd_door control = {.control = true}, guest;
    static uv_signal_t child_signal;
    static uv_poll_t parent;
    struct options options;

    guard_descriptors();
    set_signals();
    if (!parse_options(argc, argv, &options)) {
        (void)fputs("usage: envd --listen-fd FD [--fuse-fd FD] [--mem-bytes N] [--tcp-port PORT]\n"
                    "            [--token-fd FD] [--parent-fd FD] [--oom-fd FD] [--disk-fd FD]\n"
                    "            [--statfs-fd FD] [--claim-fd FD]\n",
                    stderr);
        return 2;
    }
    spawn_read_limits();
    spawn_set_oom_fd(options.oom_fd);
    if (options.claim_fd >= 0)
        claim_init(options.claim_fd, options.disk_fd);
    else
        disk_use_init(options.disk_fd);
    start_statfs(options.statfs_fd);
    envd.loop = loop_new();
    envd.mem_bytes = options.mem_bytes;
    /* From the start: later, programs inside may have used up all processes they may have. */
    envd.workers = workers_new(1, ENVD_REMOVALS_MAX);
    set_defaults(&envd.settings);
    if (options.token_fd >= 0 && !read_token(&envd.settings, options.token_fd))
        return 1;
    metrics_init();
    lease_start(&envd);
    process_table_init(&envd.processes, envd.loop);
    map_init(&envd.watchers.polled);
    watch_children(&envd, &child_signal);
    if (options.parent_fd >= 0)
        watch_parent(&envd, &parent, options.parent_fd);
    if (options.fuse_fd >= 0) {
        int r = proc_files_start(envd.loop, options.fuse_fd, options.mem_bytes);

        if (r != 0)
            log_error("envd", "cannot serve files of /proc: %s", uv_strerror(r));
    }
    if (options.listen_fd >= 0)
        serve(&envd, &control, options.listen_fd, "the engine's socket");
    if (options.tcp_port)
        serve(&envd, &guest, listen_tcp(options.tcp_port), "the TCP port");
    loop_run(envd.loop);
    log_error("envd", "the loop has ended");
    return 1;
}
