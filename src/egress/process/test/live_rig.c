#include "egress/process/test/live_rig.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/test.h"
#include "protocol/json/json_shape.h"

#include "protocol/tls/tls_intercept.h"

struct rig rig;

struct sockaddr_in at(uint32_t address, uint16_t port)
{
    return (struct sockaddr_in){
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(address)};
}

int bound(int type, uint32_t address, uint16_t port, uint16_t *out_port)
{
    struct sockaddr_in name = at(address, port);
    socklen_t size = sizeof(name);
    int fd = socket(AF_INET, type | SOCK_CLOEXEC, 0), one = 1;

    CHECK(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) == 0);
    CHECK(bind(fd, (struct sockaddr *)&name, sizeof(name)) == 0);
    CHECK(type == SOCK_DGRAM || listen(fd, 128) == 0);
    CHECK(getsockname(fd, (struct sockaddr *)&name, &size) == 0);
    *out_port = ntohs(name.sin_port);
    return fd;
}

/* The same port for datagrams and connections: another one when somebody else has one of the two. */
static int bound_beside(uint32_t address, int *out_udp, uint16_t *out_port)
{
    for (int i = 0; i < 20; i++) {
        struct sockaddr_in name;
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;

        *out_udp = bound(SOCK_DGRAM, address, 0, out_port);
        name = at(address, *out_port);
        (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
        if (bind(fd, (struct sockaddr *)&name, sizeof(name)) == 0 && listen(fd, 128) == 0)
            return fd;
        (void)close(fd);
        (void)close(*out_udp);
    }
    test_fail(__FILE__, __LINE__, "no port is free for both");
}

static bool destination(int fd, struct sockaddr_in *out)
{
    (void)fd;
    *out = at(atomic_load(&rig.to), atomic_load(&rig.to_port));
    return true;
}

/* ---- the resolver behind: names say what they want ---- */

static size_t answer_to(struct str message, bool tcp, char *out, size_t size)
{
    struct dns_question question;
    struct dns_answer answer = {.ttl_s = 60};
    auto_buf struct buf text = {0};

    atomic_fetch_add(&rig.asked, 1);
    CHECK_INT(dns_read_question(message, &question), DNS_NO_ERROR);
    answer.addresses[answer.count++] = SERVER;
    if (str_starts(host_name_str(&question.name), STR("big.")))
        for (answer.count = 0; answer.count < 60; answer.count++)
            answer.addresses[answer.count] = SERVER + (uint32_t)answer.count;
    if (str_starts(host_name_str(&question.name), STR("none.")))
        answer = (struct dns_answer){.code = DNS_NO_NAME};
    if (str_starts(host_name_str(&question.name), STR("silent.")))
        return 0;
    buf_init(&text, DNS_MESSAGE_MAX);
    question.edns = false;
    CHECK(dns_write_answer(&text, &question, &answer, tcp ? DNS_MESSAGE_MAX : DNS_PLAIN_MAX));
    CHECK(text.len <= size);
    memcpy(out, text.p, text.len);
    return text.len;
}

static void answer_datagram(void)
{
    char in[2048], out[8192];
    struct sockaddr_in from;
    socklen_t size = sizeof(from);
    ssize_t got = recvfrom(rig.names_udp, in, sizeof(in), 0, (struct sockaddr *)&from, &size);
    size_t len;

    if (got <= 0)
        return;
    len = answer_to(str_n(in, (size_t)got), false, out, sizeof(out));
    if (len)
        (void)sendto(rig.names_udp, out, len, 0, (struct sockaddr *)&from, size);
}

static void answer_connection(void)
{
    auto_close int fd = accept4(rig.names_tcp, NULL, NULL, SOCK_CLOEXEC);
    char in[2048], out[8192];
    size_t len;

    if (fd_read_full(fd, in, 2) != 2)
        return;
    len = (size_t)(unsigned char)in[0] << 8 | (unsigned char)in[1];
    if (len > sizeof(in) || fd_read_full(fd, in, len) != (ssize_t)len)
        return;
    len = answer_to(str_n(in, len), true, out + 2, sizeof(out) - 2);
    out[0] = (char)(len >> 8);
    out[1] = (char)len;
    (void)fd_write_full(fd, out, len + 2);
}

static void *run_names(void *arg)
{
    for (;;) {
        struct pollfd fds[] = {{.fd = rig.names_udp, .events = POLLIN},
                               {.fd = rig.names_tcp, .events = POLLIN}};

        (void)poll(fds, 2, -1);
        if (fds[0].revents)
            answer_datagram();
        if (fds[1].revents)
            answer_connection();
    }
    return arg;
}

/* ---- the server's side ---- */

static void *run_loop(void *arg)
{
    loop_run(rig.loop);
    return arg;
}

static int listen_unix(struct sockaddr_un *out)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    socklen_t size = sizeof(*out);

    *out = (struct sockaddr_un){.sun_family = AF_UNIX};
    CHECK(bind(fd, (struct sockaddr *)out, sizeof(sa_family_t)) == 0 && listen(fd, 8) == 0);
    CHECK(getsockname(fd, (struct sockaddr *)out, &size) == 0);
    return fd;
}

json_t *next_record(const char *kind)
{
    static char line[65536];

    while (fgets(line, sizeof(line), rig.records)) {
        json_t *json = NULL;

        OK(json_parse(str_of(line), &json, &err));
        if (json_object_get(json, kind))
            return json;
        json_decref(json);
    }
    test_fail(__FILE__, __LINE__, "no record '%s'", kind);
}

void tell(const char *line)
{
    auto_json json_t *answer = NULL;

    CHECK(fd_write_full(rig.server, line, strlen(line)) == 0);
    answer = next_record("ok");
    if (json_object_get(answer, "error"))
        test_fail(__FILE__, __LINE__, "%s", json_string_value(json_object_get(answer, "error")));
}

void set_policy(const char *policy)
{
    auto_free char *line =
        xasprintf("{\"set\":{\"address\":\"127.0.0.7\",\"id\":\"ibox\",\"policy\":%s}}\n", policy);

    tell(line);
}

void connect_server(const struct sockaddr_un *name)
{
    struct timeval patience = {.tv_sec = 10};

    rig.server = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(connect(rig.server, (const struct sockaddr *)name, sizeof(sa_family_t) + 6) == 0);
    (void)setsockopt(rig.server, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    rig.records = fdopen(rig.server, "r");
}

struct sockaddr_un channel_name;

void start(const char *policy)
{
    struct egress_config config = {
        .resolver_count = 1,
        .resolvers = {0x7f000001},
        .destination = destination,
        .flows_max = 1000,
    };

    int logs[2];

    CHECK(policy_ranges_add(&config.opened, STR("127.0.0.0/8"))); /* the internet of this test */
    rig.names_tcp = bound_beside(0x7f000001, &rig.names_udp, &rig.names_port);
    config.resolver_port = rig.names_port;
    config.tcp_fd = bound(SOCK_STREAM, 0x7f000001, 0, &rig.tcp_port);
    config.dns_tcp_fd = bound_beside(0x7f000001, &config.dns_fd, &rig.dns_port);
    (void)fd_set_nonblocking(config.tcp_fd, true);
    (void)fd_set_nonblocking(config.dns_fd, true);
    (void)fd_set_nonblocking(config.dns_tcp_fd, true);
    CHECK(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, logs) == 0);
    config.log_fd = logs[0];
    rig.log = logs[1];
    config.server_fd = listen_unix(&channel_name);
    OK(tls_trust_new(rig.ca_file, &config.trust, &err));
    rig.loop = loop_new();
    rig.egress = egress_new(rig.loop, &config);
    CHECK(pthread_create(&rig.names_thread, NULL, run_names, NULL) == 0);
    CHECK(pthread_create(&rig.thread, NULL, run_loop, NULL) == 0);
    connect_server(&channel_name);
    if (policy)
        set_policy(policy);
}

/* Everything is given back: the sanitizers see what is not. */
void stop(void)
{
    loop_stop(rig.loop);
    (void)pthread_join(rig.thread, NULL);
    egress_free(rig.egress);
    loop_free(rig.loop);
    (void)fclose(rig.records);
}

/* ---- a sandbox ---- */

int dial(uint32_t from, uint16_t port)
{
    struct sockaddr_in near = at(from, 0), far = at(0x7f000001, port);
    struct timeval patience = {.tv_sec = 10};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    CHECK(bind(fd, (struct sockaddr *)&near, sizeof(near)) == 0);
    if (connect(fd, (struct sockaddr *)&far, sizeof(far)) < 0)
        test_fail(__FILE__, __LINE__, "connect to port %u: %s", port, strerror(errno));
    return fd;
}

static size_t question_for(const char *name, unsigned type, char *out, size_t size)
{
    struct dns_question question = {.type = (uint16_t)type};
    auto_buf struct buf text = {0};

    CHECK(host_name_set(&question.name, str_of(name)));
    buf_init(&text, size);
    CHECK(dns_write_question(&text, 0x4242, &question));
    memcpy(out, text.p, text.len);
    return text.len;
}

static struct dns_answer read_back(const char *name, unsigned type, const char *p, size_t len)
{
    struct dns_question question = {.type = (uint16_t)type};
    struct dns_answer answer;

    CHECK(host_name_set(&question.name, str_of(name)));
    CHECK(dns_read_answer(str_n(p, len), 0x4242, &question, &answer));
    return answer;
}

struct dns_answer ask(const char *name, unsigned type)
{
    struct sockaddr_in near = at(BOX, 0), far = at(0x7f000001, rig.dns_port);
    auto_close int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct timeval patience = {.tv_sec = 10};
    char message[8192];
    size_t len = question_for(name, type, message, sizeof(message));
    ssize_t got;

    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    CHECK(bind(fd, (struct sockaddr *)&near, sizeof(near)) == 0);
    CHECK(sendto(fd, message, len, 0, (struct sockaddr *)&far, sizeof(far)) == (ssize_t)len);
    got = recv(fd, message, sizeof(message), 0);
    CHECK(got > 0);
    return read_back(name, type, message, (size_t)got);
}

struct dns_answer ask_tcp(int fd, const char *name)
{
    char message[8192];
    size_t len = question_for(name, DNS_A, message + 2, sizeof(message) - 2);

    message[0] = (char)(len >> 8);
    message[1] = (char)len;
    CHECK(fd_write_full(fd, message, len + 2) == 0);
    CHECK(fd_read_full(fd, message, 2) == 2);
    len = (size_t)(unsigned char)message[0] << 8 | (unsigned char)message[1];
    CHECK(len <= sizeof(message) && fd_read_full(fd, message, len) == (ssize_t)len);
    return read_back(name, DNS_A, message, len);
}

/* ---- something on the internet ---- */

int listen_at(uint32_t address)
{
    uint16_t port;
    int fd = bound(SOCK_STREAM, address, 0, &port);

    atomic_store(&rig.to, address);
    atomic_store(&rig.to_port, port);
    return fd;
}

bool nobody_came(int fd)
{
    struct pollfd pfd = {.fd = fd, .events = POLLIN};

    return poll(&pfd, 1, 0) == 0;
}

void expect_log(const char *verdict, const char *name, const char *reason)
{
    auto_json json_t *record = next_record("log");
    const json_t *log = json_object_get(record, "log");
    char *text = json_text(log);

    if (!str_is(json_get_str(log, "verdict"), verdict) ||
        (name && !str_is(json_get_str(log, "name"), name)) ||
        str_find_str(json_get_str(log, "reason"), str_of(reason)) < 0)
        test_fail(__FILE__, __LINE__, "log is %s", text);
    free(text);
}

ssize_t read_some(int fd, char *out, size_t size)
{
    ssize_t got = recv(fd, out, size - 1, 0);

    out[got > 0 ? got : 0] = '\0';
    return got < 0 ? -errno : got;
}
