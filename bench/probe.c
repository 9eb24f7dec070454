/* Measures without a runtime of its own in the way: prints one number of microseconds per line.
 *
 *   probe spawn N ROOT UID CMD...        start CMD and wait for it, in ROOT ("/" = here) as UID
 *   probe create N PORT KEY [FIRST [TEMPLATE]]   POST /sandboxes, then DELETE untimed; FIRST runs are not counted
 *   probe fork N PORT KEY ID             POST /sandboxes/ID/fork, then DELETE of the child untimed
 *   probe burst N PORT KEY               N creates at once, each on a connection of its own, which is there before; the
 *                                        sandboxes stay
 *   probe hold N PORT KEY                POST /sandboxes and leave them; ids go to stderr
 *   probe run N PORT ID TOKEN CMD        one process.Process/Start through the proxy, to its end frame
 *
 * HTTP goes over one kept-alive connection to 127.0.0.1, as a client library would do it. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ANSWER_MAX = 1 << 20 };

static char answer[ANSWER_MAX];
static size_t answer_len;

static _Noreturn void die(const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    (void)vfprintf(stderr, fmt, args);
    va_end(args);
    (void)fprintf(stderr, ": %s\n", strerror(errno));
    exit(1);
}

static int64_t now_us(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static void report(int64_t begin)
{
    printf("%lld\n", (long long)(now_us() - begin));
}

static void measure_spawn(int count, char **argv)
{
    char *plain[] = {(char[]){"PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"},
                     (char[]){"HOME=/home/user"}, NULL};
    unsigned uid = (unsigned)strtoul(argv[1], NULL, 10);
    posix_spawn_file_actions_t actions;

    if (strcmp(argv[0], "/") != 0 && (chroot(argv[0]) < 0 || chdir("/") < 0))
        die("chroot %s", argv[0]);
    if (uid && (setgid(uid) < 0 || setuid(uid) < 0))
        die("setuid");
    (void)posix_spawn_file_actions_init(&actions);
    (void)posix_spawn_file_actions_addclose(&actions, 0);
    for (int i = 0; i < count; i++) {
        int64_t begin = now_us();
        int status;
        pid_t pid;

        errno = posix_spawnp(&pid, argv[2], &actions, NULL, argv + 2, plain);
        if (errno != 0 || waitpid(pid, &status, 0) != pid)
            die("spawn %s", argv[2]);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
            die("%s failed with status %d", argv[2], status);
        report(begin);
    }
}

static int dial(const char *port)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)strtoul(port, NULL, 10))};
    int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;

    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof(to)) < 0)
        die("connect to port %s", port);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    return fd;
}

static void send_all(int fd, const char *data, size_t len)
{
    while (len) {
        ssize_t n = write(fd, data, len);

        if (n <= 0)
            die("write");
        data += n;
        len -= (size_t)n;
    }
}

/* Is the answer in the buffer whole? By its length, or by its last chunk. */
static bool whole(void)
{
    const char *end = memmem(answer, answer_len, "\r\n\r\n", 4);
    const char *length = strcasestr(answer, "\r\ncontent-length:");

    if (!end)
        return false;
    if (length && length < end)
        return answer_len >= (size_t)(end + 4 - answer) + strtoul(length + 17, NULL, 10);
    if (strcasestr(answer, "\r\ntransfer-encoding: chunked"))
        return answer_len >= 5 && memcmp(answer + answer_len - 5, "0\r\n\r\n", 5) == 0;
    return true;
}

/* Sends one request, gets one answer; its status. */
static int exchange(int fd, const char *request, size_t len)
{
    send_all(fd, request, len);
    answer_len = 0;
    answer[0] = '\0';
    do {
        ssize_t n = read(fd, answer + answer_len, ANSWER_MAX - 1 - answer_len);

        if (n <= 0)
            die("connection closed after %zu bytes", answer_len);
        answer_len += (size_t)n;
        answer[answer_len] = '\0';
    } while (!whole());
    return (int)strtol(answer + 9, NULL, 10);
}

static size_t post(char request[1024], const char *path, const char *key, const char *body)
{
    return (size_t)snprintf(request, 1024,
                            "POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nX-API-KEY: %s\r\n"
                            "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
                            path, key, strlen(body), body);
}

static size_t post_create(char request[1024], const char *key, const char *template)
{
    char body[512];

    (void)snprintf(body, sizeof(body),
                   "{\"templateID\":\"%s\",\"timeout\":3600,\"secure\":true}", template);
    return post(request, "/sandboxes", key, body);
}

static void find_id(char id[64])
{
    const char *found = strstr(answer, "\"sandboxID\"");

    if (!found || sscanf(found, "\"sandboxID\" : \"%63[a-z0-9]", id) +
                          sscanf(found, "\"sandboxID\":\"%63[a-z0-9]", id) <
                      1)
        die("no id in %s", answer);
}

static void create(int fd, const char *key, const char *template, char id[64])
{
    char request[1024];

    if (exchange(fd, request, post_create(request, key, template)) != 201)
        die("create: %s", answer);
    find_id(id);
}

static void delete_sandbox(int fd, const char *key, const char *id)
{
    char request[512];
    int len = snprintf(request, sizeof(request),
                       "DELETE /sandboxes/%s HTTP/1.1\r\nHost: 127.0.0.1\r\nX-API-KEY: %s\r\n\r\n",
                       id, key);

    if (exchange(fd, request, (size_t)len) != 204)
        die("delete: %s", answer);
}

static void measure_create(int count, char **argv)
{
    int fd = dial(argv[0]), skip = argv[2] ? (int)strtol(argv[2], NULL, 10) : 0;
    const char *template = argv[2] && argv[3] ? argv[3] : "base";
    char id[64];

    for (int i = 0; i < count + skip; i++) {
        int64_t begin = now_us();

        create(fd, argv[1], template, id);
        if (i >= skip)
            report(begin);
        delete_sandbox(fd, argv[1], id);
    }
}

static void measure_fork(int count, char **argv)
{
    char path[128], request[1024], id[64];
    int fd = dial(argv[0]);

    (void)snprintf(path, sizeof(path), "/sandboxes/%s/fork", argv[2]);
    for (int i = 0; i < count; i++) {
        int64_t begin = now_us();

        if (exchange(fd, request, post(request, path, argv[1], "{\"count\":1,\"timeout\":600}")) !=
            201)
            die("fork: %s", answer);
        report(begin);
        find_id(id);
        delete_sandbox(fd, argv[1], id);
    }
}

/* Answers are small: each comes in one piece. */
static void measure_burst(int count, char **argv)
{
    struct pollfd *fds = calloc((size_t)count, sizeof(*fds));
    char request[1024], reply[16384];
    size_t len = post_create(request, argv[1], "base");
    int64_t begin;

    for (int i = 0; i < count; i++)
        fds[i] = (struct pollfd){.fd = dial(argv[0]), .events = POLLIN};
    begin = now_us();
    for (int i = 0; i < count; i++)
        send_all(fds[i].fd, request, len);
    for (int left = count; left > 0;) {
        if (poll(fds, (nfds_t)count, 30000) <= 0)
            die("%d without an answer", left);
        for (int i = 0; i < count; i++) {
            if (!fds[i].revents)
                continue;
            if (read(fds[i].fd, reply, sizeof(reply)) < 12 || memcmp(reply + 9, "201", 3) != 0)
                die("create: %.400s", reply);
            report(begin);
            fds[i].fd = -1;
            left--;
        }
    }
    free(fds);
}

static void measure_hold(int count, char **argv)
{
    int fd = dial(argv[0]);
    char id[64];

    for (int i = 0; i < count; i++) {
        int64_t begin = now_us();

        create(fd, argv[1], "base", id);
        report(begin);
        (void)fprintf(stderr, "%s\n", id);
    }
}

static void measure_run(int count, char **argv)
{
    char body[1024], request[2048];
    int fd = dial(argv[0]), len, body_len;

    body_len = snprintf(
        body + 5, sizeof(body) - 5,
        "{\"process\":{\"cmd\":\"/bin/bash\",\"args\":[\"-l\",\"-c\",\"%s\"]},\"stdin\":false}",
        argv[3]);
    body[0] = 0;
    body[1] = body[2] = 0;
    body[3] = (char)(body_len >> 8);
    body[4] = (char)body_len;
    len = snprintf(
        request, sizeof(request),
        "POST /process.Process/Start HTTP/1.1\r\nHost: 127.0.0.1\r\nE2b-Sandbox-Id: "
        "%s\r\nE2b-Sandbox-Port: 49983\r\n"
        "X-Access-Token: %s\r\nContent-Type: application/connect+json\r\nConnect-Protocol-Version: "
        "1\r\nContent-Length: %d\r\n\r\n",
        argv[1], argv[2], body_len + 5);
    memcpy(request + len, body, (size_t)body_len + 5);
    for (int i = 0; i < count; i++) {
        int64_t begin = now_us();

        if (exchange(fd, request, (size_t)(len + body_len + 5)) != 200 ||
            !memmem(answer, answer_len, "\"end\"", 5))
            die("run: %.*s", (int)answer_len, answer);
        report(begin);
    }
}

int main(int argc, char **argv)
{
    const char *what = argc > 2 ? argv[1] : "";
    int count = argc > 2 ? (int)strtol(argv[2], NULL, 10) : 0;

    if (strcmp(what, "spawn") == 0 && argc > 5)
        measure_spawn(count, argv + 3);
    else if (strcmp(what, "create") == 0 && argc > 4)
        measure_create(count, argv + 3);
    else if (strcmp(what, "fork") == 0 && argc > 5)
        measure_fork(count, argv + 3);
    else if (strcmp(what, "burst") == 0 && argc > 4)
        measure_burst(count, argv + 3);
    else if (strcmp(what, "hold") == 0 && argc > 4)
        measure_hold(count, argv + 3);
    else if (strcmp(what, "run") == 0 && argc > 6)
        measure_run(count, argv + 3);
    else
        return 2;
    return 0;
}
