/* Connections that are read on their way, with programs that others wrote at both ends: curl and openssl as the
 * sandbox, nginx as the internet, microsocks and tinyproxy as a user's own proxies. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/process.h"
#include "base/test.h"
#include "egress/process/test/live_rig.h"
#include "protocol/json/json_shape.h"
#include "protocol/tls/tls_make.h"

static struct {
    char dir[64], ca_file[80];
    struct tls_made front, back; /* authorities: ours, and that of the internet */
    pid_t pids[4];
    int pid_count;
    uint16_t port, plain_port, wrong_port;
} site;

/* ---- files and programs ---- */

/* What a shell says to it. */
static struct str run(const char *command, int *out_status)
{
    static struct buf text;
    struct program program = {.name = "sh", .package = "dash", .args = {"-c", command}};
    struct error err;

    buf_done(&text);
    buf_init(&text, 65536);
    *out_status = program_run(&program, &text, &err);
    return buf_str(&text);
}

static void write_file(const char *name, struct str text)
{
    auto_free char *path = xasprintf("%s/%s", site.dir, name);
    FILE *file = fopen(path, "w");

    CHECK(file && fwrite(text.p, 1, text.len, file) == text.len && fclose(file) == 0);
}

static void run_program(char *const *argv)
{
    pid_t pid = fork();

    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)dup2(open("/dev/null", O_RDWR), STDOUT_FILENO);
        (void)execvp(argv[0], argv);
        _exit(127);
    }
    site.pids[site.pid_count++] = pid;
}

static bool reached(uint16_t port)
{
    struct sockaddr_in to = at(0x7f000001, port);
    auto_close int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    return connect(fd, (struct sockaddr *)&to, sizeof(to)) == 0;
}

/* A port for a program that binds it by number: below those that the kernel gives to others meanwhile, and others than those
 * of tests that run beside this one. */
static uint16_t free_port(void)
{
    enum { FIRST = 10000, COUNT = 20000, EACH = 8 };
    static unsigned taken;

    for (;;) {
        uint16_t port = (uint16_t)(FIRST + ((unsigned)getpid() * EACH + taken++) % COUNT);
        struct sockaddr_in name = at(INADDR_ANY, port);
        auto_close int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

        if (bind(fd, (struct sockaddr *)&name, sizeof(name)) == 0)
            return port;
        CHECK(errno == EADDRINUSE && taken < COUNT);
    }
}

static void make_certificate(const char *file, const char *name)
{
    const char *const names[] = {name, "localhost"};
    auto_buf struct buf both = {0};
    struct tls_made made = {0};

    OK(tls_make_certificate(&site.back, names, 2, 2, &made, &err));
    buf_init(&both, (size_t)2 * TLS_MAKE_SIZE);
    (void)buf_add_str(&both, buf_str(&made.certificate));
    (void)buf_add_str(&both, buf_str(&made.key));
    write_file(file, buf_str(&both));
    tls_made_done(&made);
}

static void write_nginx(void)
{
    auto_free char *text = xasprintf(
        "daemon off; master_process off; pid nginx.pid; error_log stderr crit; user root;\n"
        "events {}\n"
        "http { access_log off; client_body_temp_path t1; proxy_temp_path t2;\n"
        " fastcgi_temp_path t3; uwsgi_temp_path t4; scgi_temp_path t5; client_max_body_size 0;\n"
        " server { listen 0.0.0.0:%u ssl; listen 0.0.0.0:%u; ssl_certificate good.pem;\n"
        "  ssl_certificate_key good.pem; root files;\n"
        "  location / { return 200 \"$server_protocol|$http_authorization|$host|$server_addr|"
        "$http_x_mine\"; }\n"
        "  location /files/ { alias files/; dav_methods PUT; } }\n"
        " server { listen 0.0.0.0:%u ssl; ssl_certificate wrong.pem;\n"
        "  ssl_certificate_key wrong.pem; location / { return 200 reached; } } }\n",
        site.port, site.plain_port, site.wrong_port);

    write_file("nginx.conf", str_of(text));
}

static void start_site(void)
{
    char program[] = "nginx", p[] = "-p", c[] = "-c", conf[] = "nginx.conf";
    char *argv[] = {program, p, site.dir, c, conf, NULL};
    auto_free char *files = NULL;

    OK(tls_make_authority("example", &site.front, &err));
    OK(tls_make_authority("example", &site.back, &err));
    (void)snprintf(site.dir, sizeof(site.dir), "/tmp/egress-inside-XXXXXX");
    CHECK(mkdtemp(site.dir));
    files = xasprintf("%s/files", site.dir);
    CHECK(mkdir(files, 0755) == 0);
    write_file("front.pem", buf_str(&site.front.certificate));
    write_file("back.pem", buf_str(&site.back.certificate));
    make_certificate("good.pem", "a.example");
    make_certificate("wrong.pem", "other.example");
    site.port = free_port();
    site.plain_port = free_port();
    site.wrong_port = free_port();
    write_nginx();
    run_program(argv);
    WAIT_FOR(reached(site.port) && reached(site.wrong_port));
    (void)snprintf(site.ca_file, sizeof(site.ca_file), "%s/back.pem", site.dir);
    rig.ca_file = site.ca_file;
    atomic_store(&rig.to, SERVER);
    atomic_store(&rig.to_port, site.port);
}

static void stop_site(void)
{
    auto_free char *remove = xasprintf("rm -rf %s", site.dir);
    int status;

    for (int i = 0; i < site.pid_count; i++) {
        (void)kill(site.pids[i], SIGTERM);
        (void)waitpid(site.pids[i], NULL, 0);
    }
    tls_made_done(&site.front);
    tls_made_done(&site.back);
    (void)run(remove, &status);
}

static void tell_authority(void)
{
    auto_json json_t *record = json_pack("{s:{s:s,s:s}}", "authority", "certificate",
                                         site.front.certificate.p, "key", site.front.key.p);
    auto_free char *text = json_text(record), *line = xasprintf("%s\n", text);

    tell(line);
}

#define RULES(value)                                                                               \
    "\"rules\":{\"a.example\":[{\"transform\":{\"headers\":{\"Authorization\":\"" value "\"}}}], " \
    "\"localhost\":[{\"transform\":{\"headers\":{\"Authorization\":\"" value "\"}}}]}"
#define CLOSED \
    "\"allowOut\":[\"a.example\",\"*.b.example\",\"localhost\"],\"denyOut\":[\"0.0.0.0/0\"]"
#define RULED "{" CLOSED "," RULES("Bearer s") "}"

static void begin(const char *policy)
{
    start_site();
    start(NULL);
    tell_authority();
    set_policy(policy);
    CHECK_INT(ask("a.example", DNS_A).count, 1);
}

static void done(void)
{
    stop();
    stop_site();
}

/* ---- a sandbox ---- */

/* What curl gets from there. */
static struct str curl(const char *authority, const char *arguments, int want_status)
{
    auto_free char *command = xasprintf(
        "cd %s && curl -sS -m 15 --interface 127.0.0.7 --connect-to ::127.0.0.1:%u --cacert %s.pem "
        "%s 2>&1",
        site.dir, rig.tcp_port, authority, arguments);
    int status;
    struct str text = run(command, &status);

    if (status != want_status)
        test_fail(__FILE__, __LINE__, "curl %s ended with %d: %.*s", arguments, status,
                  STR_ARG(text));
    return text;
}

static void expect_has(struct str text, const char *part)
{
    if (str_find_str(text, str_of(part)) < 0)
        test_fail(__FILE__, __LINE__, "no '%s' in: %.*s", part, STR_ARG(text));
}

TEST(a_request_inside_tls_gets_its_header)
{
    begin(RULED);
    CHECK_STR(curl("front", "-H 'Authorization: mine' -H 'X-Mine: 1' https://a.example/", 0),
              "HTTP/1.1|Bearer s|a.example|127.0.0.100|1");
    expect_log("allowed", "a.example", "the name is allowed");
    /* HTTP/2 is not offered; several requests on one connection. */
    CHECK_STR(curl("front", "--http2 https://a.example/ https://a.example/", 0),
              "HTTP/1.1|Bearer s|a.example|127.0.0.100|HTTP/1.1|Bearer s|a.example|127.0.0.100|");
    atomic_store(&rig.to_port, site.plain_port);
    CHECK_STR(curl("front", "http://a.example/", 0), "HTTP/1.1|Bearer s|a.example|127.0.0.100|");
    done();
}

TEST(who_has_no_rule_is_not_read)
{
    begin("{" CLOSED ",\"rules\":{\"x.b.example\":[{\"transform\":{\"headers\":{\"A\":\"b\"}}}]}}");
    expect_has(curl("front", "https://a.example/", 60), "certificate");
    CHECK_STR(curl("back", "https://a.example/", 0), "HTTP/1.1||a.example|127.0.0.100|");
    done();
}

TEST(an_open_policy_is_read_for_hosts_with_rules_only)
{
    begin("{" RULES("Bearer s") "}");
    CHECK_STR(curl("front", "https://a.example/", 0), "HTTP/1.1|Bearer s|a.example|127.0.0.100|");
    CHECK_STR(curl("back", "-k https://b.example/", 0), "HTTP/1.1||b.example|127.0.0.100|");
    /* An address that was not answered for the name gets no secret. */
    atomic_store(&rig.to, SERVER + 1);
    CHECK_STR(curl("back", "https://a.example/", 0), "HTTP/1.1||a.example|127.0.0.101|");
    atomic_store(&rig.to_port, site.plain_port);
    CHECK_STR(curl("back", "http://a.example/", 0), "HTTP/1.1||a.example|127.0.0.101|");
    done();
}

TEST(bodies_arrive_whole)
{
    int status;
    auto_free char *compare = NULL;

    begin(RULED);
    compare = xasprintf("cd %s && head -c 3000000 /dev/urandom > up", site.dir);
    (void)run(compare, &status);
    (void)curl("front", "-T up https://a.example/files/one", 0);
    (void)curl("front", "-T - https://a.example/files/two < up", 0);
    (void)curl("front", "-o down https://a.example/files/two", 0);
    free(compare);
    compare = xasprintf("cd %s && cmp up files/one && cmp up files/two && cmp up down", site.dir);
    (void)run(compare, &status);
    CHECK_INT(status, 0);
    done();
}

TEST(a_server_without_a_good_certificate_gets_nothing)
{
    struct str text;

    begin(RULED);
    atomic_store(&rig.to_port, site.wrong_port);
    text = curl("front", "-w ' %{http_code}' https://a.example/", 0);
    expect_has(text, "hostname mismatch");
    expect_has(text, " 502");
    expect_log("allowed", "a.example", "");
    expect_log("denied", "a.example", "no TLS with the server: hostname mismatch");
    atomic_store(&rig.to_port, site.plain_port);
    expect_has(curl("front", "https://a.example/", 0), "no TLS with the server");
    done();
}

TEST(an_authority_that_nobody_trusts_is_not_believed)
{
    begin(RULED);
    stop();
    rig.ca_file = NULL;
    start(NULL);
    tell_authority();
    set_policy(RULED);
    (void)ask("a.example", DNS_A);
    expect_has(curl("front", "https://a.example/", 0), "unable to get local issuer certificate");
    done();
}

TEST(a_request_for_another_host_than_its_connection_is_refused)
{
    struct str text;

    begin(RULED);
    text = curl("front", "-w ' %{http_code}' -H 'Host: x.b.example' https://a.example/", 0);
    expect_has(text, "another host than its TLS connection");
    expect_has(text, " 403");
    expect_log("allowed", "a.example", "");
    expect_log("denied", "a.example", "another host");
    expect_has(curl("front", "-X TRACE https://a.example/", 0), "TRACE");
    done();
}

TEST(the_host_of_a_request_inside_tls_is_recognized_in_every_spelling)
{
    static const char *const spellings[] = {"A.Example", "a.example.", "a.example:443",
                                            "A.EXAMPLE.:8443"};

    begin(RULED);
    for (size_t i = 0; i < sizeof(spellings) / sizeof(*spellings); i++) {
        auto_free char *arguments =
            xasprintf("-H 'Authorization: mine' -H 'Host: %s' https://a.example/", spellings[i]);

        expect_has(curl("front", arguments, 0), "HTTP/1.1|Bearer s|");
    }
    done();
}

/* Requests that the server could read as being for another host, or not as HTTP/1 at all. */
TEST(a_request_inside_tls_that_cannot_be_read_in_one_way_only_is_refused)
{
    static const char *const requests[] = {
        "GET https://x.b.example/ HTTP/1.1\\r\\nHost: a.example\\r\\n\\r\\n",
        "GET / HTTP/1.1\\r\\nHost: a.example\\r\\nHost: x.b.example\\r\\n\\r\\n",
        "GET / HTTP/1.1\\r\\n\\r\\n",
        "PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n",
    };
    int status;

    begin(RULED);
    for (size_t i = 0; i < sizeof(requests) / sizeof(*requests); i++) {
        auto_free char *command =
            xasprintf("printf '%s' | openssl s_client -quiet -connect 127.0.0.1:%u "
                      "-bind 127.0.0.7 -servername a.example 2>&1",
                      requests[i], rig.tcp_port);
        struct str text = run(command, &status);

        expect_has(text, "HTTP/1.1 403 ");
        CHECK(str_find_str(text, STR("Bearer")) < 0);
    }
    done();
}

TEST(a_client_that_does_not_agree_is_in_the_log)
{
    auto_free char *command = NULL;
    int status;

    begin(RULED);
    (void)curl("back", "https://a.example/", 60);
    expect_log("allowed", "a.example", "");
    expect_log("denied", "a.example", "no TLS with the sandbox: ");
    command = xasprintf("openssl s_client -connect 127.0.0.1:%u -bind 127.0.0.7 -servername "
                        "a.example -alpn h2 </dev/null 2>&1",
                        rig.tcp_port);
    expect_has(run(command, &status), "no application protocol");
    expect_log("allowed", "a.example", "");
    expect_log("denied", "a.example", "no TLS with the sandbox: ");
    done();
}

TEST(without_an_authority_nothing_is_read)
{
    start_site();
    start(RULED);
    (void)ask("a.example", DNS_A);
    (void)curl("front", "https://a.example/", 35);
    expect_log("allowed", "a.example", "");
    expect_log("denied", "a.example", "no authority");
    done();
}

/* ---- plain HTTP, with the test at both ends ---- */

#define GET        "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n"
#define GOT(value) "GET / HTTP/1.1\r\nHost: a.example\r\nAuthorization: " value "\r\n\r\n"

static void expect_read(int fd, const char *want)
{
    char text[1024];

    CHECK(fd_read_full(fd, text, strlen(want)) == (ssize_t)strlen(want));
    CHECK_STR(str_n(text, strlen(want)), want);
}

static void say(int fd, const char *text)
{
    CHECK(fd_write_full(fd, text, strlen(text)) == 0);
}

static void begin_plain(const char *policy, int *fd, int *came)
{
    int listener;

    start(policy);
    (void)ask("a.example", DNS_A);
    listener = listen_at(SERVER);
    *fd = dial(BOX, rig.tcp_port);
    say(*fd, GET);
    *came = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
}

TEST(a_change_of_a_rule_holds_for_the_next_request)
{
    char text[16];
    int fd, came;

    begin_plain(RULED, &fd, &came);
    expect_read(came, GOT("Bearer s"));
    say(came, "HTTP/1.1 204 x\r\n\r\n");
    expect_read(fd, "HTTP/1.1 204 x\r\n\r\n");
    set_policy("{" CLOSED "," RULES("new") "}");
    say(fd, GET);
    expect_read(came, GOT("new"));
    set_policy("{" CLOSED "}");
    say(fd, GET);
    expect_read(came, GET);
    set_policy("{" CLOSED ",\"egressProxy\":{\"address\":\"127.0.0.1:1\"}}");
    CHECK(read_some(fd, text, sizeof(text)) <= 0);
    (void)close(fd);
    (void)close(came);
    stop();
}

TEST(a_rule_that_comes_cuts_what_is_not_read)
{
    char text[256];
    int fd, came;

    begin_plain("{" CLOSED "}", &fd, &came);
    expect_read(came, GET);
    set_policy(RULED);
    CHECK_INT(read_some(fd, text, sizeof(text)), -ECONNRESET);
    (void)close(fd);
    (void)close(came);
    stop();
}

TEST(a_websocket_is_passed_on_untouched)
{
    static const char switched[] = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n";
    char text[1024];
    int fd, came;

    begin_plain(RULED, &fd, &came);
    expect_read(came, GOT("Bearer s"));
    say(came, "HTTP/1.1 200 x\r\nContent-Length: 2\r\n\r\nok");
    say(fd, "GET /s HTTP/1.1\r\nHost: a.example\r\nConnection: Upgrade\r\nUpgrade: "
            "websocket\r\n\r\n" GET);
    expect_read(came, "GET /s HTTP/1.1\r\nHost: a.example\r\nAuthorization: Bearer "
                      "s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
    for (size_t i = 0; i < sizeof(switched) - 1; i++)
        CHECK(fd_write_full(came, switched + i, 1) == 0);
    expect_read(came, GET); /* not a request any more, whatever it looks like */
    say(came, "hello");
    expect_read(fd, "HTTP/1.1 200 x\r\nContent-Length: 2\r\n\r\nok");
    expect_read(fd, switched);
    expect_read(fd, "hello");
    say(fd, GET);
    expect_read(came, GET);
    (void)close(came);
    CHECK_INT(read_some(fd, text, sizeof(text)), 0);
    (void)close(fd);
    stop();
}

TEST(a_smuggled_request_is_refused)
{
    char text[2048];
    int fd, came;

    begin_plain(RULED, &fd, &came);
    expect_read(came, GOT("Bearer s"));
    say(fd, "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 40\r\nTransfer-Encoding: "
            "chunked\r\n\r\n0\r\n\r\n" GET);
    CHECK(read_some(came, text, sizeof(text)) <= 0);
    expect_log("allowed", "a.example", "");
    expect_log("denied", "a.example", "ambiguous body length");
    (void)close(fd);
    (void)close(came);
    stop();
}

/* ---- proxies ---- */

static void begin_proxied(const char *scheme, uint16_t port, const char *credentials)
{
    auto_free char *policy = xasprintf(
        "{" CLOSED "," RULES("Bearer s") ",\"egressProxy\":{\"address\":\"%s127.0.0.1:%u\""
                                         "%s}}",
        scheme, port, credentials);

    set_policy(policy);
    CHECK_INT(ask("localhost", DNS_A).count, 1);
    WAIT_FOR(reached(port));
}

/* The proxy is told the name and looks it up itself: so the server sees another address of its own. */
#define THROUGH "HTTP/1.1|Bearer s|localhost|127.0.0.1|"

TEST(a_socks_proxy_is_gone_through)
{
    uint16_t port = free_port();
    char program[] = "microsocks", i[] = "-i", here[] = "127.0.0.1", p[] = "-p", u[] = "-u",
         user[] = "me", w[] = "-P", secret[] = "pw";
    auto_free char *number = xasprintf("%u", port);
    char *argv[] = {program, i, here, p, number, u, user, w, secret, NULL};

    begin(RULED);
    run_program(argv);
    begin_proxied("", port, ",\"username\":\"me\",\"password\":\"pw\"");
    CHECK_STR(curl("front", "https://localhost/", 0), THROUGH);
    CHECK_STR(curl("front", "-N https://localhost/ https://localhost/", 0), THROUGH THROUGH);
    begin_proxied("", port, ",\"username\":\"me\",\"password\":\"no\"");
    expect_has(curl("front", "https://localhost/", 0), "refuses the credentials");
    begin_proxied("", port, "");
    expect_has(curl("front", "https://localhost/", 0), "credentials");
    done();
}

TEST(an_http_proxy_is_gone_through)
{
    uint16_t port = free_port();
    char program[] = "tinyproxy", d[] = "-d", c[] = "-c", conf[128];
    auto_free char *text = xasprintf(
        "Port %u\nListen 127.0.0.1\nTimeout 20\nBasicAuth me pw\nLogLevel Critical\n", port);
    char *argv[] = {program, d, c, conf, NULL};

    begin(RULED);
    write_file("tiny.conf", str_of(text));
    (void)snprintf(conf, sizeof(conf), "%s/tiny.conf", site.dir);
    run_program(argv);
    begin_proxied("http://", port, ",\"username\":\"me\",\"password\":\"pw\"");
    CHECK_STR(curl("front", "https://localhost/", 0), THROUGH);
    /* Not read, but gone through all the same. */
    atomic_store(&rig.to_port, site.plain_port);
    CHECK_STR(curl("front", "http://localhost/", 0), THROUGH);
    begin_proxied("http://", port, "");
    expect_has(curl("front", "http://localhost/", 0), "credentials");
    done();
}

TEST(without_its_proxy_nothing_is_reached)
{
    char text[2048];
    int listener, fd;

    start("{\"egressProxy\":{\"address\":\"127.0.0.1:1\"}}");
    listener = listen_at(SERVER);
    fd = dial(BOX, rig.tcp_port);
    CHECK_INT(read_some(fd, text, sizeof(text)), -ECONNRESET);
    expect_log("allowed", NULL, "");
    expect_log("denied", NULL, "the egress proxy cannot be reached: Connection refused");
    CHECK(nobody_came(listener));
    (void)close(fd);
    set_policy("{\"egressProxy\":{\"address\":\"none.proxy.example:1080\"}}");
    fd = dial(BOX, rig.tcp_port);
    CHECK_INT(read_some(fd, text, sizeof(text)), -ECONNRESET);
    expect_log("allowed", NULL, "");
    expect_log("denied", NULL, "the egress proxy's name is not known");
    (void)close(fd);
    stop();
}
