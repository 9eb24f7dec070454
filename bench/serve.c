/* An HTTP server that costs as little as one can, to stand behind proxies: serve PORT. "/big" is 1 GiB, an upgrade is
 * granted and then silent, everything else is "ok". Connections are kept unless the request says otherwise. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum { FDS = 65536, HEAD_MAX = 4096, BLOCK = 256 * 1024 };

static struct conn {
    char head[HEAD_MAX];
    size_t len;
    int64_t left; /* of the big answer */
    bool close;
} *conns[FDS];
static int epoll_fd;
static char block[BLOCK];

static void watch(int fd, int op, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.fd = fd};

    (void)epoll_ctl(epoll_fd, op, fd, &event);
}

static void drop(int fd)
{
    (void)close(fd);
    free(conns[fd]);
    conns[fd] = NULL;
}

static void send_text(int fd, const char *text)
{
    (void)!write(fd, text, strlen(text));
}

static void send_big(int fd, struct conn *conn)
{
    while (conn->left > 0) {
        ssize_t n = write(fd, block, conn->left < BLOCK ? (size_t)conn->left : BLOCK);

        if (n < 0 && errno == EAGAIN) {
            watch(fd, EPOLL_CTL_MOD, EPOLLOUT);
            return;
        }
        if (n <= 0) {
            drop(fd);
            return;
        }
        conn->left -= n;
    }
    if (conn->close)
        drop(fd);
    else
        watch(fd, EPOLL_CTL_MOD, EPOLLIN);
}

static void answer(int fd, struct conn *conn)
{
    conn->close = strcasestr(conn->head, "\r\nconnection: close") || strstr(conn->head, " HTTP/1.0\r\n");
    if (strcasestr(conn->head, "\r\nupgrade: websocket")) {
        send_text(fd, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
    } else if (strncmp(conn->head, "GET /big ", 9) == 0) {
        conn->left = 1LL << 30;
        send_text(fd, "HTTP/1.1 200 OK\r\nContent-Length: 1073741824\r\n\r\n");
        send_big(fd, conn);
    } else {
        send_text(fd, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Type: text/plain\r\n\r\nok");
        if (conn->close)
            drop(fd);
    }
}

static void take(int fd, struct conn *conn)
{
    ssize_t n = read(fd, conn->head + conn->len, HEAD_MAX - 1 - conn->len);

    if (n < 0 && errno == EAGAIN)
        return;
    if (n <= 0 || conn->len + (size_t)n >= HEAD_MAX - 1) {
        drop(fd);
        return;
    }
    conn->len += (size_t)n;
    conn->head[conn->len] = '\0';
    if (strstr(conn->head, "\r\n\r\n")) {
        conn->len = 0;
        answer(fd, conn);
    }
}

static void take_all(int listener)
{
    int fd, one = 1;

    while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
        if (fd >= FDS) {
            (void)close(fd);
            continue;
        }
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
        conns[fd] = calloc(1, sizeof(struct conn));
        watch(fd, EPOLL_CTL_ADD, EPOLLIN);
    }
}

int main(int argc, char **argv)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), one = 1;
    struct rlimit limit;
    struct epoll_event events[256];

    (void)getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
    address.sin_port = htons((uint16_t)strtoul(argc > 1 ? argv[1] : "8000", NULL, 10));
    (void)setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (bind(listener, (struct sockaddr *)&address, sizeof(address)) < 0 || listen(listener, 4096) < 0) {
        perror("listen");
        return 1;
    }
    epoll_fd = epoll_create1(0);
    watch(listener, EPOLL_CTL_ADD, EPOLLIN);
    for (;;) {
        int n = epoll_wait(epoll_fd, events, 256, -1);

        for (int i = 0; i < n; i++) {
            int fd = events[i].data.fd;

            if (fd == listener)
                take_all(listener);
            else if (conns[fd] && events[i].events & EPOLLOUT)
                send_big(fd, conns[fd]);
            else if (conns[fd])
                take(fd, conns[fd]);
        }
    }
}
