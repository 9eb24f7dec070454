/* Each sender has a thread with a connection to the server. What comes for it goes to the thread through a socket pair
 * that keeps datagrams apart, and is lost when that is full; answers go from the thread straight to the sender. A
 * sender from whom and to whom nothing came for a while is forgotten. */
#include "cli/command/cli_udp.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/list.h"
#include "base/thread.h"
#include "cli/core/cli_raw.h"

enum { SENDERS_MAX = 256, IDLE_MS = 60 * 1000, DATAGRAM_MAX = 65507, STACK_SIZE = 512 * 1024 };

struct cli_udp {
    const struct cli_server *server;
    const struct cli_sandbox *sandbox;
    uint16_t port;
    int fd;
    pthread_mutex_t lock; /* guards the list */
    struct list senders;
    size_t count;
};

struct sender {
    struct list node;
    struct cli_udp *udp;
    struct sockaddr_storage address;
    socklen_t size;
    int pair[2]; /* 0: we write, 1: the thread reads */
    char bytes[2 + DATAGRAM_MAX];
};

/* All whole datagrams that the server has sent. */
static void give_back(struct sender *sender, struct buf *body)
{
    struct str rest = buf_str(body);

    while (rest.len >= 2) {
        size_t len = (size_t)(unsigned char)rest.p[0] << 8 | (unsigned char)rest.p[1];

        if (rest.len < 2 + len)
            break;
        (void)sendto(sender->udp->fd, rest.p + 2, len, MSG_DONTWAIT,
                     (struct sockaddr *)&sender->address, sender->size);
        rest = str_skip(rest, 2 + len);
    }
    buf_drop(body, body->len - rest.len);
}

static int pass_on(struct sender *sender, struct http_call *stream, struct error *err)
{
    ssize_t n = recv(sender->pair[1], sender->bytes + 2, DATAGRAM_MAX, MSG_DONTWAIT);

    if (n < 0)
        return 0;
    sender->bytes[0] = (char)(n >> 8);
    sender->bytes[1] = (char)n;
    return http_call_send(stream, str_n(sender->bytes, 2 + (size_t)n), err);
}

/* Until nothing has come for a while. */
static int pump(struct sender *sender, struct http_call *stream, struct error *err)
{
    struct pollfd items[] = {{.fd = stream->fd, .events = POLLIN},
                             {.fd = sender->pair[1], .events = POLLIN}};

    for (;;) {
        int got = http_call_take(stream, err);

        if (got < 0)
            return -1;
        give_back(sender, &stream->body);
        if (got == 0)
            return 0;
        if (pass_on(sender, stream, err) < 0)
            return -1;
        if (got == HTTP_CALL_LATER && poll(items, 2, IDLE_MS) == 0)
            return 0;
    }
}

static void forget(struct sender *sender)
{
    struct cli_udp *udp = sender->udp;

    (void)pthread_mutex_lock(&udp->lock);
    list_remove(&sender->node);
    udp->count--;
    (void)close(sender->pair[0]);
    (void)close(sender->pair[1]);
    (void)pthread_mutex_unlock(&udp->lock);
    free(sender);
}

static void serve(void *arg)
{
    struct sender *sender = arg;
    struct cli_udp *udp = sender->udp;
    struct http_call stream = {.fd = -1};
    struct error err = {0};

    if (cli_raw_open(udp->server, udp->sandbox, udp->port, true, &stream, &err) < 0 ||
        pump(sender, &stream, &err) < 0)
        (void)fprintf(stderr, "quicksand: port %u/udp: %s\n", udp->port, err.message);
    http_call_done(&stream);
    forget(sender);
}

/* Under the lock. */
static struct sender *find(struct cli_udp *udp, const struct sockaddr_storage *address,
                           socklen_t size)
{
    struct list *node;

    list_for_each (node, &udp->senders) {
        struct sender *sender = container_of(node, struct sender, node);

        if (sender->size == size && memcmp(&sender->address, address, size) == 0)
            return sender;
    }
    return NULL;
}

/* Under the lock; NULL when there are too many. */
static struct sender *add(struct cli_udp *udp, const struct sockaddr_storage *address,
                          socklen_t size)
{
    struct sender *sender = xcalloc(1, sizeof(*sender));

    sender->udp = udp;
    sender->address = *address;
    sender->size = size;
    if (udp->count >= SENDERS_MAX ||
        socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sender->pair) < 0) {
        free(sender);
        return NULL;
    }
    list_push_back(&udp->senders, &sender->node);
    udp->count++;
    if (thread_start_detached("udp", STACK_SIZE, serve, sender, NULL) == 0)
        return sender;
    list_remove(&sender->node);
    udp->count--;
    (void)close(sender->pair[0]);
    (void)close(sender->pair[1]);
    free(sender);
    return NULL;
}

struct cli_udp *cli_udp_new(const struct cli_server *server, const struct cli_sandbox *sandbox,
                            uint16_t port, int fd)
{
    struct cli_udp *udp = xcalloc(1, sizeof(*udp));

    *udp = (struct cli_udp){.server = server, .sandbox = sandbox, .port = port, .fd = fd};
    (void)pthread_mutex_init(&udp->lock, NULL);
    list_init(&udp->senders);
    return udp;
}

void cli_udp_take(struct cli_udp *udp)
{
    char bytes[DATAGRAM_MAX];

    for (;;) {
        struct sockaddr_storage address = {0};
        socklen_t size = sizeof(address);
        ssize_t n = recvfrom(udp->fd, bytes, sizeof(bytes), MSG_DONTWAIT,
                             (struct sockaddr *)&address, &size);
        struct sender *sender;

        if (n < 0)
            return;
        (void)pthread_mutex_lock(&udp->lock);
        sender = find(udp, &address, size);
        if (!sender)
            sender = add(udp, &address, size);
        if (sender)
            (void)send(sender->pair[0], bytes, (size_t)n, MSG_DONTWAIT | MSG_NOSIGNAL);
        (void)pthread_mutex_unlock(&udp->lock);
    }
}
