/* mcp-gateway: several MCP servers of a sandbox at one port.
 *
 *   mcp-gateway --config JSON [--port N]   installs and starts them, and serves; ends with 0 when all are ready
 *   mcp-gateway pull NAME...               while a template is built: what will be used
 *
 * The token that clients need is in the variable GATEWAY_ACCESS_TOKEN, and is kept for later ones in /etc/mcp-gateway/.token. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/process.h"
#include "extra/mcp/gateway/gateway.h"
#include "protocol/json/json_out.h"

enum { CONNECTIONS_MAX = 256, BACKLOG = 64, TIMEOUT_MS = 60 * 1000, IDLE_MS = 600 * 1000 };

#define SETTINGS "/etc/mcp-gateway"
#define LOG_FILE "/var/log/mcp-gateway.log"

static int failed(const struct error *err)
{
    (void)fprintf(stderr, "mcp-gateway: %s\n", err->message);
    return 1;
}

static int keep_token(const char *token, struct error *err)
{
    auto_close int fd = -1;

    if (mkdir(SETTINGS, 0755) != 0 && errno != EEXIST)
        return error_set_errno(err, errno, "make '" SETTINGS "'");
    (void)unlink(SETTINGS "/.token");
    fd = open(SETTINGS "/.token", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 || fd_write_full(fd, token, strlen(token)) < 0)
        return error_set_errno(err, errno, "write '" SETTINGS "/.token'");
    return 0;
}

static int listen_at(uint16_t port, struct error *err)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    auto_close int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int on = 1;

    if (fd < 0)
        return error_set_errno(err, errno, "socket");
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (bind(fd, (struct sockaddr *)&address, sizeof(address)) != 0 || listen(fd, BACKLOG) != 0)
        return error_set_errno(err, errno, "listen at port %u", port);
    return take_fd(&fd);
}

void gateway_tell(struct gateway *gateway, const char *what)
{
    const char *text = what ? what : "ok";

    if (gateway->told_fd < 0)
        return;
    (void)fd_write_full(gateway->told_fd, text, strlen(text));
    close_fd(&gateway->told_fd);
    if (what)
        _exit(1);
}

/* ---- serving, in the background ---- */

struct serving {
    const struct server_config *configs;
    size_t count;
    const char *token;
    int listen_fd, told[2];
};

static int serve(void *arg)
{
    static struct gateway gateway;
    struct http_server_config http = {.on_request = gateway_handle,
                                      .arg = &gateway,
                                      .max_connections = CONNECTIONS_MAX,
                                      .head_timeout_ms = TIMEOUT_MS,
                                      .idle_timeout_ms = IDLE_MS,
                                      .body_timeout_ms = TIMEOUT_MS};
    const struct serving *serving = arg;
    size_t count = serving->count;

    (void)close(serving->told[0]);
    (void)signal(SIGPIPE, SIG_IGN);
    gateway = (struct gateway){.token = str_of(serving->token),
                               .told_fd = serving->told[1],
                               .loop = loop_new(),
                               .count = count};
    list_init(&gateway.requests);
    if (http_server_listen(http_server_new(gateway.loop, &http), serving->listen_fd) < 0)
        gateway_tell(&gateway, "the port cannot be listened at");
    for (size_t i = 0; i < count; i++)
        gateway.servers[i] = server_new(&gateway, &serving->configs[i]);
    for (size_t i = 0; i < count; i++)
        server_start(gateway.servers[i]);
    if (!count)
        gateway_tell(&gateway, NULL);
    loop_run(gateway.loop);
    return 1;
}

/* What the one in the background says. */
static int await(int fd)
{
    char text[512];
    size_t len = 0;
    ssize_t n;

    while (len < sizeof(text) - 1 &&
           ((n = read(fd, text + len, sizeof(text) - 1 - len)) > 0 || (n < 0 && errno == EINTR)))
        len += n > 0 ? (size_t)n : 0;
    text[len] = '\0';
    if (strcmp(text, "ok") == 0)
        return 0;
    (void)fprintf(stderr, "mcp-gateway: %s\n", len ? text : "the gateway has ended; see " LOG_FILE);
    return 1;
}

static int start(struct serving *serving, uint16_t port, struct error *err)
{
    /* Nothing of who started us is held on to. */
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    int log = open(LOG_FILE, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0640);
    const struct process_spec spec = {.run = serve,
                                      .arg = serving,
                                      .fds = (int[]){null, null, log >= 0 ? log : null},
                                      .fd_count = 3,
                                      .session = true};
    pid_t pid;
    int r;

    serving->listen_fd = listen_at(port, err);
    if (serving->listen_fd < 0 || keep_token(serving->token, err) < 0)
        return failed(err);
    r = pipe2(serving->told, O_CLOEXEC) < 0 ? -errno : process_spawn(&spec, &pid);
    if (r < 0) {
        (void)error_set_errno(err, -r, "start the gateway");
        return failed(err);
    }
    (void)close(serving->told[1]);
    return await(serving->told[0]);
}

static int run(const char *config, uint16_t port)
{
    static struct server_config configs[GATEWAY_SERVERS_MAX];
    const char *token = getenv("GATEWAY_ACCESS_TOKEN");
    struct error err = {0};
    size_t count = 0;

    if (!token || !token[0]) {
        (void)error_set(&err, ERROR_INVALID, "GATEWAY_ACCESS_TOKEN is not set");
        return failed(&err);
    }
    if (config_read(str_of(config), configs, &count, &err) < 0)
        return failed(&err);
    for (size_t i = 0; i < count; i++)
        if (config_install(&configs[i], &err) < 0)
            return failed(&err);
    return start(&(struct serving){.configs = configs, .count = count, .token = token}, port, &err);
}

/* Entries of a template: those that need another vendor's image are refused here already. */
static int pull(char *const *names, int count)
{
    for (int i = 0; i < count; i++) {
        auto_buf struct buf text = {0};
        struct server_config config[GATEWAY_SERVERS_MAX] = {0};
        struct error err = {0};
        size_t n = 0;
        int r;

        buf_init(&text, SIZE_MAX);
        json_out_open(&text, NULL, '{');
        json_out_name(&text, str_of(names[i]));
        json_out_open(&text, NULL, '{');
        json_out_str(&text, "runCmd", STR("true"));
        json_out_close(&text, "}}");
        r = config_read(buf_str(&text), config, &n, &err);
        if (n)
            config_done(&config[0]);
        if (r < 0)
            return failed(&err);
    }
    return 0;
}

int main(int argc, char **argv)
{
    uint64_t port = GATEWAY_PORT;

    if (argc >= 3 && strcmp(argv[1], "pull") == 0)
        return pull(argv + 2, argc - 2);
    if ((argc == 3 || (argc == 5 && strcmp(argv[3], "--port") == 0 &&
                       str_to_u64(str_of(argv[4]), &port) && port && port <= UINT16_MAX)) &&
        strcmp(argv[1], "--config") == 0)
        return run(argv[2], (uint16_t)port);
    (void)fputs("usage: GATEWAY_ACCESS_TOKEN=... mcp-gateway --config JSON [--port N]\n"
                "       mcp-gateway pull NAME...\n",
                stderr);
    return 2;
}
