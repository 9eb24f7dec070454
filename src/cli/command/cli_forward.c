/* forward: ports of this machine that lead into a sandbox. Each connection has a thread and a connection to the
 * server of its own; when there are as many as there may be, further ones wait to be accepted. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/thread.h"
#include "cli/command/cli_runtime.h"
#include "cli/command/cli_udp.h"
#include "cli/command/commands.h"
#include "cli/core/cli_command.h"
#include "cli/core/cli_names.h"
#include "cli/core/cli_raw.h"

enum { PORTS_MAX = 32, CONNECTIONS_MAX = 1024, STACK_SIZE = 256 * 1024, BACKLOG = 128 };

struct forward {
    struct cli *cli;
    struct cli_sandbox sandbox;
    const char *bind;
    struct port {
        int fd;
        uint16_t local, inside;
        struct cli_udp *udp; /* of a UDP port */
        bool is_udp;
    } ports[PORTS_MAX];
    size_t count;
    atomic_size_t open;
};

struct connection {
    struct forward *forward;
    uint16_t port;
    int fd;
};

static void serve(void *arg)
{
    struct connection *connection = arg;
    struct forward *forward = connection->forward;
    struct http_call stream = {.fd = -1};
    struct error err = {0};

    if (cli_raw_open(&forward->cli->server, &forward->sandbox, connection->port, false, &stream,
                     &err) < 0 ||
        cli_raw_pump(&stream, connection->fd, connection->fd, &err) < 0)
        (void)fprintf(stderr, "quicksand: port %u: %s\n", connection->port, err.message);
    http_call_done(&stream);
    (void)close(connection->fd);
    free(connection);
    atomic_fetch_sub(&forward->open, 1);
}

static void start(struct forward *forward, const struct port *port)
{
    struct connection *connection = xcalloc(1, sizeof(*connection));
    int one = 1;

    *connection = (struct connection){
        .forward = forward,
        .port = port->inside,
        .fd = accept4(port->fd, NULL, NULL, SOCK_CLOEXEC),
    };
    if (connection->fd < 0) {
        free(connection);
        return;
    }
    (void)setsockopt(connection->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    atomic_fetch_add(&forward->open, 1);
    if (thread_start_detached("forward", STACK_SIZE, serve, connection, NULL) < 0) {
        atomic_fetch_sub(&forward->open, 1);
        (void)close(connection->fd);
        free(connection);
    }
}

/* "[LOCAL:]PORT[/udp]"; LOCAL 0 = any that is free. */
static bool parse_port(const char *text, struct port *out)
{
    struct str protocol = str_of(text), rest = str_split(&protocol, '/');
    struct str first = str_split(&rest, ':');
    uint64_t local, inside;

    if (protocol.p && !str_is(protocol, "udp") && !str_is(protocol, "tcp"))
        return false;
    if (!str_to_u64(first, &local) || local > UINT16_MAX)
        return false;
    inside = local;
    if (rest.p && !str_to_u64(rest, &inside))
        return false;
    if (inside < 1 || inside > UINT16_MAX)
        return false;
    *out = (struct port){.fd = -1,
                         .local = (uint16_t)local,
                         .inside = (uint16_t)inside,
                         .is_udp = str_is(protocol, "udp")};
    return true;
}

static int make_socket(const char *bind_to, const struct port *port,
                       struct sockaddr_storage *address, socklen_t *size, struct error *err)
{
    struct sockaddr_in *v4 = (struct sockaddr_in *)address;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)address;

    *address = (struct sockaddr_storage){0};
    if (inet_pton(AF_INET, bind_to, &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        v4->sin_port = htons(port->local);
        *size = sizeof(*v4);
    } else if (inet_pton(AF_INET6, bind_to, &v6->sin6_addr) == 1) {
        v6->sin6_family = AF_INET6;
        v6->sin6_port = htons(port->local);
        *size = sizeof(*v6);
    } else {
        return error_set(err, ERROR_INVALID, "'%.100s' is no address of this machine", bind_to);
    }
    return socket(address->ss_family,
                  (port->is_udp ? SOCK_DGRAM : SOCK_STREAM) | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

static int listen_at(const char *bind_to, struct port *port, struct error *err)
{
    struct sockaddr_storage address;
    socklen_t size = 0;
    auto_close int fd = make_socket(bind_to, port, &address, &size, err);
    int one = 1;

    if (fd < 0)
        return err->code ? -1 : error_set_errno(err, errno, "socket");
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (bind(fd, (struct sockaddr *)&address, size) < 0 ||
        (!port->is_udp && listen(fd, BACKLOG) < 0))
        return error_set_errno(err, errno, "port %u of %s (give another one as LOCAL:%u)",
                               port->local, bind_to, port->inside);
    (void)getsockname(fd, (struct sockaddr *)&address, &size);
    /* Both families have their port at the same place. */
    port->local = ntohs(((struct sockaddr_in *)&address)->sin_port);
    port->fd = take_fd(&fd);
    return 0;
}

/* Until a signal. */
static void accept_all(struct forward *forward, int signal_fd)
{
    enum { FULL_MS = 50 };
    struct pollfd items[PORTS_MAX + 1] = {{.fd = signal_fd, .events = POLLIN}};

    for (;;) {
        bool full = atomic_load(&forward->open) >= CONNECTIONS_MAX;

        for (size_t i = 0; i < forward->count; i++)
            items[i + 1] =
                (struct pollfd){.fd = full ? -1 : forward->ports[i].fd, .events = POLLIN};
        if (poll(items, forward->count + 1, full ? FULL_MS : -1) < 0 && errno != EINTR)
            return;
        if (items[0].revents)
            return;
        for (size_t i = 0; i < forward->count; i++) {
            if (!items[i + 1].revents)
                continue;
            if (forward->ports[i].udp)
                cli_udp_take(forward->ports[i].udp);
            else
                start(forward, &forward->ports[i]);
        }
    }
}

static int forward_all(struct forward *forward, const char *name, struct error *err)
{
    auto_close int signal_fd = -1;
    const char *id;

    if (cli_connect(forward->cli, err) < 0 || !(id = cli_name_engine_id(forward->cli, name, err)) ||
        cli_sandbox_get(&forward->cli->server, id, &forward->sandbox, err) < 0)
        return -1;
    for (size_t i = 0; i < forward->count; i++) {
        if (listen_at(forward->bind, &forward->ports[i], err) < 0)
            return -1;
    }
    signal_fd = cli_runtime_signals();
    for (size_t i = 0; i < forward->count; i++) {
        struct port *port = &forward->ports[i];

        if (port->is_udp)
            port->udp =
                cli_udp_new(&forward->cli->server, &forward->sandbox, port->inside, port->fd);
    }
    for (size_t i = 0; i < forward->count; i++)
        printf("%s%s%s:%u -> %u%s\n", strchr(forward->bind, ':') ? "[" : "", forward->bind,
               strchr(forward->bind, ':') ? "]" : "", forward->ports[i].local,
               forward->ports[i].inside, forward->ports[i].is_udp ? "/udp" : "");
    (void)fflush(stdout);
    accept_all(forward, signal_fd);
    return 0;
}

static int run_forward(struct cli *cli, int argc, char **argv)
{
    struct forward forward = {.cli = cli, .bind = "127.0.0.1"};
    const struct cli_option table[] = {
        {"bind", 'b', CLI_TEXT, &forward.bind, "ADDRESS", "listen here (127.0.0.1)"},
        {.name = NULL},
    };
    struct error err = {0};
    char **operands;
    int count, rc = cli_args(cli, &cli_forward_command, table, CLI_ARGS_ANYWHERE, argc, argv,
                             &operands, &count);

    if (rc != CLI_ARGS_RUN)
        return rc;
    if (count < 2 || count > PORTS_MAX + 1)
        return cli_usage(&cli_forward_command, "needs a sandbox and 1 to %d ports", PORTS_MAX);
    for (int i = 1; i < count; i++) {
        if (!parse_port(operands[i], &forward.ports[forward.count++]))
            return cli_usage(&cli_forward_command, "'%s' is no [LOCAL:]PORT[/udp]", operands[i]);
    }
    rc = forward_all(&forward, operands[0], &err);
    /* Threads that still pass something on end with the process, and what they use with them. */
    return rc < 0 ? cli_fail(&err) : CLI_OK;
}

const struct cli_command cli_forward_command = {
    "forward", "[OPTION...] SANDBOX [LOCAL:]PORT[/udp]...",
    "Make ports of a sandbox ports of this machine, until Ctrl-C.\n"
    "LOCAL is where it listens here: the same number when it is not given, any that is free when "
    "it is 0.\n"
    "Where each port is reached is printed.",
    run_forward,
    .examples = "quicksand forward SANDBOX 5432\n"
                "quicksand forward SANDBOX 8080:80 0:6379 5353:53/udp"};
