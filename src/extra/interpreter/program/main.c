/* interpreter: runs code inside a sandbox.
 *
 *   interpreter serve [--port N] [--kernels DIR] [--home DIR] [--envd-port N]
 *   interpreter ready [--port N]     ends with 0 when one serves here; for a box of the warm pool, once Python is loaded
 *   interpreter install DIR          writes the scripts of its kernels there
 *
 * serve watches over a child that does the work, and starts another one when that dies. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/process.h"
#include "extra/interpreter/program/interpreter.h"
#include "extra/interpreter/program/kernel_scripts.h"
#include "protocol/http/http_call.h"

/* Set by the server in boxes of its warm pool. */
#define AHEAD "QUICKSAND_AHEAD"

enum {
    CONNECTIONS_MAX = 1024,
    HEAD_TIMEOUT_MS = 60 * 1000,
    IDLE_TIMEOUT_MS = 640 * 1000,
    BODY_TIMEOUT_MS = 600 * 1000,
    LISTEN_BACKLOG = 256,
    AGAIN_S = 1,
    READY_TIMEOUT_MS = 2000,
    ENVD_PORT = 49983,
};

struct options {
    uint16_t port, envd_port;
    const char *kernels, *home;
};

static bool parse_port(const char *text, uint16_t *out)
{
    uint64_t number;

    if (!str_to_u64(str_of(text), &number) || !number || number > UINT16_MAX)
        return false;
    *out = (uint16_t)number;
    return true;
}

static bool parse_options(int argc, char **argv, struct options *options)
{
    for (int i = 0; i < argc; i += 2) {
        if (i + 1 == argc)
            return false;
        if (strcmp(argv[i], "--kernels") == 0)
            options->kernels = argv[i + 1];
        else if (strcmp(argv[i], "--home") == 0)
            options->home = argv[i + 1];
        else if (!(strcmp(argv[i], "--port") == 0 && parse_port(argv[i + 1], &options->port)) &&
                 !(strcmp(argv[i], "--envd-port") == 0 &&
                   parse_port(argv[i + 1], &options->envd_port)))
            return false;
    }
    return true;
}

/* ---- serve ---- */

static int listen_tcp(uint16_t port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    auto_close int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int on = 1;

    if (fd < 0)
        return -errno;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (bind(fd, (struct sockaddr *)&address, sizeof(address)) != 0 ||
        listen(fd, LISTEN_BACKLOG) != 0)
        return -errno;
    return take_fd(&fd);
}

/* Both are there from the start. Their kernels begin with their first cells: one of Python is forked in a few milliseconds, and takes
 * memory as long as it waits. */
static int make_contexts(struct interpreter *ip, struct error *err)
{
    if (!context_default(ip, language_find(STR("python")), err) ||
        !context_default(ip, language_find(STR("javascript")), err))
        return -1;
    return zygote_start(ip, err);
}

static int work(void *arg)
{
    const struct options *options = arg;
    static struct interpreter ip;
    struct http_server_config config = {
        .on_request = interpreter_handle,
        .arg = &ip,
        .max_connections = CONNECTIONS_MAX,
        .head_timeout_ms = HEAD_TIMEOUT_MS,
        .idle_timeout_ms = IDLE_TIMEOUT_MS,
        .body_timeout_ms = BODY_TIMEOUT_MS,
    };
    struct error err = {0};
    int fd = listen_tcp(options->port), rc = fd;

    ip = (struct interpreter){
        .kernels = options->kernels, .home = options->home, .envd_port = options->envd_port};
    list_init(&ip.contexts);
    ip.loop = loop_new();
    if (fd >= 0)
        rc = http_server_listen(http_server_new(ip.loop, &config), fd);
    if (rc < 0) {
        log_error("interpreter", "cannot listen on port %u: %s", options->port, strerror(-rc));
        return 1;
    }
    if (make_contexts(&ip, &err) < 0) {
        log_error("interpreter", "%s", err.message);
        return 1;
    }
    loop_run(ip.loop);
    return 1;
}

/* The child ends with us: it holds the port. */
static _Noreturn void serve(struct options *options)
{
    (void)signal(SIGPIPE, SIG_IGN);
    (void)setenv("MPLBACKEND", "module://matplotlib_inline.backend_inline", 0);
    for (;;) {
        int status = process_run(
            &(struct process_spec){.run = work, .arg = options, .end_with_parent = true}, 0);

        log_error("interpreter", "ended with status %d; starting again", status);
        (void)sleep(AGAIN_S);
    }
}

/* ---- ready ---- */

static int ready(const struct options *options)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons(options->port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct http_call_request request = {
        .method = "GET", .target = "/health", .after = HTTP_AFTER_CLOSE};
    auto_close int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    auto_buf struct buf body = {0};
    struct error err = {0};
    int status = 0;

    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)) != 0 ||
        fd_set_nonblocking(fd, true) < 0 ||
        http_call_whole(fd, &request, READY_TIMEOUT_MS, 1024, &status, &body, &err) < 0)
        return 1;
    /* It serves while Python is being loaded: the first cell waits for that. Who waits for a sandbox gets it at once. */
    return status == 200 || (status == 503 && !getenv(AHEAD)) ? 0 : 1;
}

/* ---- install ---- */

static int write_script(const char *dir, const struct kernel_script *script)
{
    auto_free char *path = xasprintf("%s/%s", dir, script->name);
    auto_close int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

    if (fd >= 0 && fd_write_full(fd, script->text, script->length) == 0)
        return 0;
    (void)fprintf(stderr, "interpreter: cannot write '%s': %s\n", path, strerror(errno));
    return 1;
}

static int install(const char *dir)
{
    int rc = 0;

    if (mkdir(dir, 0755) != 0 && errno != EEXIST) {
        (void)fprintf(stderr, "interpreter: cannot make '%s': %s\n", dir, strerror(errno));
        return 1;
    }
    for (const struct kernel_script *at = kernel_scripts; at->name && rc == 0; at++)
        rc = write_script(dir, at);
    return rc;
}

int main(int argc, char **argv)
{
    struct options options = {.port = INTERPRETER_PORT,
                              .envd_port = ENVD_PORT,
                              .kernels = INTERPRETER_KERNELS,
                              .home = INTERPRETER_HOME};
    const char *command = argc > 1 ? argv[1] : "";

    if (strcmp(command, "install") == 0 && argc == 3)
        return install(argv[2]);
    if (strcmp(command, "serve") == 0 && parse_options(argc - 2, argv + 2, &options))
        serve(&options);
    if (strcmp(command, "ready") == 0 && parse_options(argc - 2, argv + 2, &options))
        return ready(&options);
    (void)fputs("usage: interpreter serve [--port N] [--kernels DIR] [--home DIR] [--envd-port N]\n"
                "       interpreter ready [--port N]\n"
                "       interpreter install DIR\n",
                stderr);
    return 2;
}
