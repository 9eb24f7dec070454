/* Both ends of connections that cost as little as they can, to measure what is between them. A connection begins with a TLS
 * hello of the name, of which nobody but a proxy reads more than one byte: whether an answer is wanted, or bytes without end.
 *
 *   reach serve PORT                              answers on every address
 *   reach rate ADDRESS PORT NAME COUNT WINDOW     COUNT connections with an answer, WINDOW at a time: how many per second
 *   reach stream ADDRESS PORT NAME SECONDS        one connection that is read from: MiB per second
 *   reach dns ADDRESS NAME SECONDS WINDOW         questions for an address, WINDOW under way: answers per second
 *   reach until ADDRESS PORT NAME SECONDS         the moment (seconds since 1970) of the last byte of a connection that
 *                                                 was there, and of the last new one that was answered */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    HELLO_MAX = 512,
    WISH_AT = 11, /* the first random byte of a hello */
    ANSWER = 'a',
    ENDLESS = 'e',
    DRIP = 'd',
    BLOCK = 256 * 1024,
    DNS_PORT = 53,
    DRIP_MS = 1,
};

static char block[BLOCK];

__attribute__((format(printf, 1, 2), noreturn)) static void die(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    (void)vfprintf(stderr, format, args);
    va_end(args);
    (void)fprintf(stderr, " (%s)\n", strerror(errno));
    exit(1);
}

static double now(clockid_t clock)
{
    struct timespec time;

    (void)clock_gettime(clock, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static long number(const char *text)
{
    return strtol(text, NULL, 10);
}

static struct sockaddr_in address_of(const char *host, long port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};

    if (inet_pton(AF_INET, host, &address.sin_addr) != 1)
        die("%s is no address", host);
    return address;
}

static size_t put(char *at, unsigned value, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        at[i] = (char)(value >> 8 * (bytes - 1 - i));
    return bytes;
}

/* A hello with a name and one suite. */
static size_t make_hello(char out[HELLO_MAX], const char *name, char wish)
{
    size_t len = strlen(name), at = 0;
    unsigned extensions = (unsigned)len + 9, body = 2 + 32 + 1 + 4 + 2 + 2 + extensions;

    memset(out, 0, HELLO_MAX);
    at += put(out + at, 0x160301, 3);
    at += put(out + at, body + 4, 2);
    at += put(out + at, 1, 1);
    at += put(out + at, body, 3);
    at += put(out + at, 0x0303, 2);
    out[at] = wish;
    at += 32;
    at += put(out + at, 0, 1);
    at += put(out + at, 0x00021301, 4);
    at += put(out + at, 0x0100, 2);
    at += put(out + at, extensions, 2);
    at += put(out + at, 0, 2);
    at += put(out + at, (unsigned)len + 5, 2);
    at += put(out + at, (unsigned)len + 3, 2);
    at += put(out + at, 0, 1);
    at += put(out + at, (unsigned)len, 2);
    memcpy(out + at, name, len);
    return at + len;
}

/* ---- the far end ---- */

static int epoll_fd;

static void watch(int fd, int op, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.fd = fd};

    (void)epoll_ctl(epoll_fd, op, fd, &event);
}

/* A process of its own for each of the few that want bytes. */
static void feed(int fd, char wish)
{
    if (fork() != 0)
        return;
    (void)fcntl(fd, F_SETFL, 0);
    while (write(fd, block, wish == DRIP ? 1 : BLOCK) > 0)
        if (wish == DRIP)
            (void)poll(NULL, 0, DRIP_MS);
    _exit(0);
}

static void serve_one(int fd)
{
    char hello[HELLO_MAX];
    ssize_t got = read(fd, hello, sizeof(hello));

    if (got < 0 && errno == EAGAIN)
        return;
    if (got > WISH_AT && hello[WISH_AT] == ANSWER)
        (void)!write(fd, "!", 1);
    else if (got > WISH_AT)
        feed(fd, hello[WISH_AT]);
    (void)close(fd);
}

static void serve(char **argv)
{
    struct sockaddr_in address = address_of("0.0.0.0", number(argv[0]));
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), one = 1;
    struct epoll_event events[256];

    (void)signal(SIGCHLD, SIG_IGN);
    (void)setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (bind(listener, (struct sockaddr *)&address, sizeof(address)) < 0 || listen(listener, 4096))
        die("listen");
    epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    watch(listener, EPOLL_CTL_ADD, EPOLLIN);
    for (;;) {
        int n = epoll_wait(epoll_fd, events, 256, -1), fd;

        for (int i = 0; i < n; i++) {
            if (events[i].data.fd != listener) {
                serve_one(events[i].data.fd);
                continue;
            }
            while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0)
                watch(fd, EPOLL_CTL_ADD, EPOLLIN);
        }
    }
}

/* ---- the near end ---- */

static int dial(const struct sockaddr_in *to, int flags)
{
    int fd = socket(AF_INET, SOCK_STREAM | flags, 0), one = 1;

    if (fd < 0)
        die("socket");
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    if (connect(fd, (const struct sockaddr *)to, sizeof(*to)) < 0 && errno != EINPROGRESS)
        die("connect");
    return fd;
}

static void begin_one(const struct sockaddr_in *to)
{
    watch(dial(to, SOCK_NONBLOCK), EPOLL_CTL_ADD, EPOLLOUT);
}

static void rate(char **argv)
{
    struct sockaddr_in to = address_of(argv[0], number(argv[1]));
    long count = number(argv[3]), window = number(argv[4]), begun = 0, done = 0;
    char hello[HELLO_MAX], answer[16];
    size_t len = make_hello(hello, argv[2], ANSWER);
    double began = now(CLOCK_MONOTONIC);
    struct epoll_event events[256];

    epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    for (; begun < window && begun < count; begun++)
        begin_one(&to);
    while (done < count) {
        int n = epoll_wait(epoll_fd, events, 256, 20000);

        if (n == 0)
            die("%ld of %ld connections, then nothing more", done, count);
        for (int i = 0; i < n; i++) {
            int fd = events[i].data.fd;

            if (events[i].events & EPOLLIN) {
                if (read(fd, answer, sizeof(answer)) != 1)
                    die("a connection after %ld", done);
                (void)close(fd);
                if (begun++ < count)
                    begin_one(&to);
                done++;
            } else if (write(fd, hello, len) == (ssize_t)len) {
                watch(fd, EPOLL_CTL_MOD, EPOLLIN);
            } else {
                die("a hello after %ld", done);
            }
        }
    }
    (void)printf("%f\n", (double)count / (now(CLOCK_MONOTONIC) - began));
}

static int open_stream(char **argv, char wish)
{
    struct sockaddr_in to = address_of(argv[0], number(argv[1]));
    char hello[HELLO_MAX];
    size_t len = make_hello(hello, argv[2], wish);
    int fd = dial(&to, 0);

    if (write(fd, hello, len) != (ssize_t)len)
        die("hello");
    return fd;
}

static void stream(char **argv)
{
    int fd = open_stream(argv, ENDLESS);
    double began = now(CLOCK_MONOTONIC), end = began + (double)number(argv[3]);
    uint64_t bytes = 0;

    while (now(CLOCK_MONOTONIC) < end) {
        ssize_t got = read(fd, block, BLOCK);

        if (got <= 0)
            die("the stream ended after %llu bytes", (unsigned long long)bytes);
        bytes += (uint64_t)got;
    }
    (void)printf("%f\n", (double)bytes / (now(CLOCK_MONOTONIC) - began) / (1 << 20));
}

static size_t make_question(char out[HELLO_MAX], const char *name)
{
    size_t at = 12;

    memset(out, 0, HELLO_MAX);
    (void)put(out + 2, 0x0100, 2);
    (void)put(out + 4, 1, 2);
    while (*name) {
        size_t label = strcspn(name, ".");

        at += put(out + at, (unsigned)label, 1);
        memcpy(out + at, name, label);
        at += label;
        name += label + (name[label] == '.');
    }
    at += put(out + at, 0, 1);
    return at + put(out + at, 0x00010001, 4);
}

static void dns(char **argv)
{
    struct sockaddr_in to = address_of(argv[0], DNS_PORT);
    long window = number(argv[3]), done = 0, lost = 0;
    char question[HELLO_MAX], answer[HELLO_MAX];
    size_t len = make_question(question, argv[1]);
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    struct timeval patience = {.tv_sec = 1};
    double began, end;

    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    if (connect(fd, (struct sockaddr *)&to, sizeof(to)) < 0)
        die("connect");
    began = now(CLOCK_MONOTONIC);
    end = began + (double)number(argv[2]);
    for (long i = 0; i < window; i++)
        (void)!write(fd, question, len);
    while (now(CLOCK_MONOTONIC) < end) {
        ssize_t got = read(fd, answer, sizeof(answer));

        if (got < 0 && ++lost > 3)
            die("no answers after %ld", done);
        if (got >= 0 && ((answer[3] & 15) != 0 || answer[7] == 0))
            die("not answered, code %d", answer[3] & 15);
        done += got >= 0;
        (void)put(question, (unsigned)done, 2);
        (void)!write(fd, question, len);
    }
    (void)printf("%f\n", (double)done / (now(CLOCK_MONOTONIC) - began));
}

/* Whether a new connection is answered. */
static bool answers(const struct sockaddr_in *to, const char *hello, size_t len)
{
    struct timeval patience = {.tv_usec = 200000};
    char answer = 0;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    bool good;

    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
    good = connect(fd, (const struct sockaddr *)to, sizeof(*to)) == 0 &&
           write(fd, hello, len) == (ssize_t)len && read(fd, &answer, 1) == 1 && answer == '!';
    (void)close(fd);
    return good;
}

/* Bytes of the open one are read by a process of its own, so that neither waits for the other. */
static void until(char **argv)
{
    struct sockaddr_in to = address_of(argv[0], number(argv[1]));
    double end = now(CLOCK_REALTIME) + (double)number(argv[3]), last = 0, last_new = 0;
    char hello[HELLO_MAX];
    size_t len = make_hello(hello, argv[2], ANSWER);
    int fd = open_stream(argv, DRIP);

    if (fork() == 0) {
        while (now(CLOCK_REALTIME) < end) {
            struct pollfd ready = {.fd = fd, .events = POLLIN};

            if (poll(&ready, 1, 100) == 0)
                continue;
            if (read(fd, block, BLOCK) <= 0)
                break;
            last = now(CLOCK_REALTIME);
        }
        (void)printf("open %f\n", last);
        exit(0);
    }
    while (now(CLOCK_REALTIME) < end) {
        if (answers(&to, hello, len))
            last_new = now(CLOCK_REALTIME);
        (void)poll(NULL, 0, DRIP_MS);
    }
    (void)printf("new %f\n", last_new);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int args;
        void (*run)(char **argv);
    } modes[] = {{"serve", 1, serve},
                 {"rate", 5, rate},
                 {"stream", 4, stream},
                 {"dns", 4, dns},
                 {"until", 4, until}};
    struct rlimit limit;

    (void)signal(SIGPIPE, SIG_IGN);
    (void)getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
    for (size_t i = 0; argc > 1 && i < sizeof(modes) / sizeof(*modes); i++)
        if (strcmp(argv[1], modes[i].name) == 0 && argc >= 2 + modes[i].args) {
            modes[i].run(argv + 2);
            return 0;
        }
    (void)fprintf(stderr, "usage: reach serve|rate|stream|dns|until ...\n");
    return 2;
}
