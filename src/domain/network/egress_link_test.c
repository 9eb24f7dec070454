/* The link against a stand-in for the egress process, which answers each line and can be taken away. */
#include "domain/network/egress_link.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/test.h"

#define POLICY STR("{\"allowOut\":[\"a.example\"]}")

static struct rig {
    char dir[32], path[64];
    int listener;
    struct egress_link *link;
} rig;

static void start(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    (void)snprintf(rig.dir, sizeof(rig.dir), "/tmp/egress-link-XXXXXX");
    CHECK(mkdtemp(rig.dir));
    (void)snprintf(rig.path, sizeof(rig.path), "%s/socket", rig.dir);
    CHECK(str_copy(str_of(rig.path), address.sun_path, sizeof(address.sun_path)));
    rig.listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(bind(rig.listener, (struct sockaddr *)&address, sizeof(address)) == 0);
    CHECK(listen(rig.listener, 4) == 0);
    rig.link = egress_link_open(rig.path);
}

static void stop(void)
{
    egress_link_close(rig.link);
    close_fd(&rig.listener);
    (void)unlink(rig.path);
    (void)rmdir(rig.dir);
}

static FILE *serve(void)
{
    struct timeval patience = {.tv_sec = 10};
    int fd = accept4(rig.listener, NULL, NULL, SOCK_CLOEXEC);

    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    return fdopen(fd, "r+");
}

static void expect(FILE *peer, const char *line)
{
    static char got[4096];

    CHECK(fgets(got, sizeof(got), peer) != NULL);
    got[strcspn(got, "\n")] = '\0';
    CHECK_STR(str_of(got), line);
}

static void say(FILE *peer, const char *line)
{
    CHECK(fd_write_full(fileno(peer), line, strlen(line)) == 0);
}

struct setting {
    pthread_t thread;
    struct error err;
    int result;
    bool done;
};

static void *set(void *arg)
{
    struct setting *setting = arg;

    setting->result = egress_link_set(rig.link, STR("ibox"), POLICY, 7, &setting->err);
    __atomic_store_n(&setting->done, true, __ATOMIC_SEQ_CST);
    return NULL;
}

#define SET                                                                                \
    "{\"set\":{\"address\":\"10.213.64.7\",\"id\":\"ibox\",\"team\":\"team\",\"group\":7," \
    "\"policy\":{\"allowOut\":["                                                           \
    "\"a."                                                                                 \
    "example\"]}}}"

TEST(what_runs_already_is_told_before_anything_else)
{
    FILE *peer;

    start();
    egress_link_box(rig.link, STR("team"), STR("ibox"), 0x0ad54007);
    egress_link_box(rig.link, STR("team"), STR("iother"), 0x0ad54008);
    OK(egress_link_set(rig.link, STR("ibox"), POLICY, 7, &err)); /* nobody is waited for yet */
    egress_link_start(rig.link);
    peer = serve();
    expect(peer, SET);
    expect(peer, "{\"synced\":true}");
    egress_link_box(rig.link, STR("team"), STR("ibox"), 0);
    expect(peer, "{\"drop\":{\"address\":\"10.213.64.7\",\"id\":\"ibox\"}}");
    FAILS(egress_link_set(rig.link, STR("ibox"), POLICY, 7, &err), ERROR_CONFLICT);
    (void)fclose(peer);
    stop();
}

TEST(the_authority_comes_first_and_may_be_refused)
{
    FILE *peer;

    start();
    egress_link_authority(rig.link, STR("cert\n"), STR("key"));
    egress_link_box(rig.link, STR("team"), STR("ibox"), 0x0ad54007);
    OK(egress_link_set(rig.link, STR("ibox"), POLICY, 7, &err));
    egress_link_start(rig.link);
    peer = serve();
    expect(peer, "{\"authority\":{\"certificate\":\"cert\\n\",\"key\":\"key\"}}");
    expect(peer, SET);
    expect(peer, "{\"synced\":true}");
    say(peer, "{\"ok\":1}\n{\"ok\":2}\n{\"ok\":3}\n");
    OK(egress_link_signs(rig.link, &err));
    (void)fclose(peer);
    peer = serve();
    expect(peer, "{\"authority\":{\"certificate\":\"cert\\n\",\"key\":\"key\"}}");
    say(peer, "{\"ok\":1,\"error\":\"unknown record\"}\n");
    WAIT_FOR(egress_link_signs(rig.link, &(struct error){0}) < 0);
    FAILS(egress_link_signs(rig.link, &err), ERROR_UNSUPPORTED, "unknown record");
    (void)fclose(peer);
    stop();
}

TEST(a_policy_is_waited_for_also_when_the_process_starts_anew)
{
    struct setting setting = {0};
    FILE *peer;

    start();
    egress_link_start(rig.link);
    egress_link_box(rig.link, STR("team"), STR("ibox"), 0x0ad54007);
    peer = serve();
    expect(peer, "{\"synced\":true}");
    WAIT_FOR(egress_link_up(rig.link));
    CHECK(pthread_create(&setting.thread, NULL, set, &setting) == 0);
    expect(peer, SET);
    say(peer, "{\"ok\":1}\n"); /* of "synced" */
    CHECK(!__atomic_load_n(&setting.done, __ATOMIC_SEQ_CST));
    (void)fclose(peer);
    peer = serve();
    expect(peer, SET);
    expect(peer, "{\"synced\":true}");
    say(peer, "{\"ok\":1}\n{\"ok\":2}\n");
    expect(peer, SET); /* again, by who waits */
    say(peer, "{\"ok\":3}\n");
    (void)pthread_join(setting.thread, NULL);
    CHECK_INT(setting.result, 0);
    (void)fclose(peer);
    stop();
}

TEST(a_policy_that_is_refused_says_so)
{
    struct setting setting = {0};
    FILE *peer;

    start();
    egress_link_start(rig.link);
    egress_link_box(rig.link, STR("team"), STR("ibox"), 0x0ad54007);
    peer = serve();
    expect(peer, "{\"synced\":true}");
    say(peer, "{\"ok\":1}\n");
    WAIT_FOR(egress_link_up(rig.link));
    CHECK(pthread_create(&setting.thread, NULL, set, &setting) == 0);
    expect(peer, SET);
    say(peer, "{\"ok\":2,\"error\":\"too long\"}\n");
    (void)pthread_join(setting.thread, NULL);
    CHECK_INT(setting.result, -1);
    CHECK(strstr(setting.err.message, "too long") != NULL);
    (void)fclose(peer);
    stop();
}

TEST(a_policy_that_was_sent_ahead_is_not_sent_again)
{
    struct setting setting = {0};
    FILE *peer;

    start();
    egress_link_start(rig.link);
    egress_link_box(rig.link, STR("team"), STR("ibox"), 0x0ad54007);
    peer = serve();
    expect(peer, "{\"synced\":true}");
    say(peer, "{\"ok\":1}\n");
    WAIT_FOR(egress_link_up(rig.link));
    egress_link_ahead(rig.link, STR("ibox"), POLICY, 7);
    expect(peer, SET);
    CHECK(pthread_create(&setting.thread, NULL, set, &setting) == 0);
    say(peer, "{\"ok\":2}\n");
    (void)pthread_join(setting.thread, NULL);
    CHECK_INT(setting.result, 0);
    /* Of another group it is another one, and one that nobody waited for goes with its box. */
    egress_link_ahead(rig.link, STR("ibox"), POLICY, 8);
    CHECK(pthread_create(&setting.thread, NULL, set, &setting) == 0);
    expect(peer, "{\"set\":{\"address\":\"10.213.64.7\",\"id\":\"ibox\",\"team\":\"team\","
                 "\"group\":8,\"policy\":"
                 "{\"allowOut\":[\"a.example\"]}}}");
    expect(peer, SET);
    say(peer, "{\"ok\":3,\"error\":\"of nobody\"}\n{\"ok\":4}\n");
    (void)pthread_join(setting.thread, NULL);
    CHECK_INT(setting.result, 0);
    egress_link_ahead(rig.link, STR("ibox"), POLICY, 7);
    expect(peer, SET);
    egress_link_box(rig.link, STR("team"), STR("ibox"), 0);
    expect(peer, "{\"drop\":{\"address\":\"10.213.64.7\",\"id\":\"ibox\"}}");
    say(peer, "{\"ok\":5}\n{\"ok\":6}\n");
    (void)fclose(peer);
    stop();
}

TEST_TIMEOUT(without_the_process_there_is_an_error_in_time, 40)
{
    start();
    egress_link_start(rig.link);
    egress_link_box(rig.link, STR("team"), STR("ibox"), 0x0ad54007);
    FAILS(egress_link_set(rig.link, STR("ibox"), POLICY, 7, &err), ERROR_UNAVAILABLE,
          "egress process");
    stop();
}

TEST(records_become_lines_and_counts)
{
    auto_arena struct arena arena = {0};
    struct network_line lines[8];
    struct egress_usage usage = {0};
    FILE *peer;

    start();
    egress_link_box(rig.link, STR("team"), STR("ibox"), 0x0ad54007);
    egress_link_start(rig.link);
    peer = serve();
    say(peer, "{\"log\":{\"id\":\"ibox\",\"time\":5,\"name\":\"evil.example\",\"address\":\"1.2.3."
              "4\",\"port\":443,"
              "\"protocol\":\"tcp\",\"verdict\":\"denied\",\"rule\":\"0.0.0.0/"
              "0\",\"reason\":\"because\",\"lost\":0}}\n"
              "junk\n{\"log\":{}}\n{\"usage\":{\"id\":\"ibox\",\"connections\":3,\"sent\":9}}\n");
    WAIT_FOR(egress_link_total(rig.link, &usage) == 0 && usage.connections == 3);
    CHECK_INT(usage.sent, 9);
    CHECK_INT(network_log_read(egress_link_log(rig.link), STR("ibox"), &arena, lines, 8), 1);
    CHECK(lines[0].denied && lines[0].at_us == 5);
    CHECK_STR(lines[0].message, "denied tcp to evil.example at 1.2.3.4 port 443: because");
    CHECK(str_find_str(lines[0].fields, STR("\"rule\":\"0.0.0.0/0\"")) >= 0);
    CHECK(str_find_str(lines[0].fields, STR("ibox")) < 0);
    CHECK_INT(network_log_read(egress_link_log(rig.link), STR("iother"), &arena, lines, 8), 0);
    (void)fclose(peer);
    stop();
}

TEST(the_log_of_a_sandbox_is_bounded)
{
    struct network_log *log = network_log_new();
    auto_arena struct arena arena = {0};
    struct network_line *lines = arena_alloc(&arena, (NETWORK_LOG_LINES + 1) * sizeof(*lines));
    char long_text[NETWORK_LOG_TEXT + 2];

    for (int64_t i = 0; i < NETWORK_LOG_LINES + 10; i++)
        network_log_add(
            log, STR("a"),
            &(struct network_line){.at_us = i, .message = STR("m"), .fields = STR("{}")});
    memset(long_text, 'x', sizeof(long_text) - 1);
    long_text[sizeof(long_text) - 1] = '\0';
    network_log_add(log, STR("a"),
                    &(struct network_line){.message = str_of(long_text), .fields = STR("{}")});
    CHECK_INT(network_log_read(log, STR("a"), &arena, lines, NETWORK_LOG_LINES + 1),
              NETWORK_LOG_LINES);
    CHECK_INT(lines[0].at_us, 10);
    CHECK_INT(lines[NETWORK_LOG_LINES - 1].at_us, NETWORK_LOG_LINES + 9);
    network_log_free(log);
}

static struct network_line lines[NETWORK_LOG_LINES];

static size_t read_log(struct arena *arena, const char *id)
{
    return network_log_read(egress_link_log(rig.link), str_of(id), arena, lines, NETWORK_LOG_LINES);
}

#define REFUSED(source, time, address, why)                                            \
    "{\"refused\":{\"source\":\"" source "\",\"time\":" time ",\"address\":\"" address \
    "\",\"port\":443,\"protocol\":\"tcp\",\"why\":\"" why "\"}}\n"
#define LATE "9000000000000000"

TEST(packets_that_were_refused_are_in_the_log_of_who_has_the_address_with_the_rule)
{
    static const struct box_network network = {
        .mode = NETWORK_OPEN,
        .allow_count = 1,
        .deny_count = 3,
        .ranges = {{0x01010101, 32}, {0xc6330000, 16}, {0xc6336407, 32}, {0xc6336400, 24}}};
    auto_arena struct arena arena = {0};
    FILE *peer;

    start();
    egress_link_start(rig.link);
    egress_link_box(rig.link, STR("team"), STR("iold"), 0x0ad54007);
    egress_link_box(rig.link, STR("team"), STR("ibox"),
                    0x0ad54007); /* before the other is known to have gone */
    egress_link_box(rig.link, STR("team"), STR("iold"), 0);
    egress_link_rules(rig.link, STR("ibox"), &network);
    peer = serve();
    say(peer, REFUSED("10.213.64.7", "1", "9.9.9.9", "range")); /* of who had the address before */
    say(peer, REFUSED("10.213.64.9", LATE, "9.9.9.9", "range"));
    say(peer, "{\"refused\":{}}\n{\"refused\":[1]}\n");
    say(peer, REFUSED("10.213.64.7", LATE, "198.51.100.7", "denied"));
    say(peer, REFUSED("10.213.64.7", LATE, "198.51.100.8", "denied"));
    say(peer, REFUSED("10.213.64.7", LATE, "8.8.8.8", "closed"));
    say(peer, REFUSED("10.213.64.7", LATE, "10.0.0.1", "range"));
    WAIT_FOR(read_log(&arena, "ibox") == 4);
    CHECK(str_find_str(lines[0].fields, STR("\"rule\":\"198.51.100.7\"")) > 0);
    CHECK(str_find_str(lines[1].fields, STR("\"rule\":\"198.51.100.0/24\"")) > 0);
    CHECK(str_find_str(lines[2].fields, STR("\"rule\":\"0.0.0.0/0\"")) > 0);
    CHECK_STR(lines[3].message,
              "denied tcp to 10.0.0.1 port 443: the address is not of the internet");
    CHECK(lines[3].denied && lines[3].at_us == 9000000000000000);
    CHECK_INT(read_log(&arena, "iold"), 0);
    (void)fclose(peer);
    stop();
}
