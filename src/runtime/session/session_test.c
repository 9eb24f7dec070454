/* The parts of sessions that need no sandbox: names, classes, permissions, the stream of events. */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/test.h"
#include "protocol/json/json_shape.h"
#include "runtime/session/pull.h"
#include "runtime/session/session_internal.h"

TEST(repository_urls)
{
    static const char *const good[] = {
        "https://github.com/o/r",
        "https://github.com/o/r.git",
        "http://127.0.0.1:8080/r.git",
        "ssh://git@host/o/r",
        "git://127.0.0.1/r",
        "git@github.com:o/r.git",
        "file:///srv/r",
        "/srv/git/r.git",
    };
    static const char *const bad[] = {
        "",          "-u",        "--upload-pack=x", "ext::sh -c id",  "https://",
        "ext::sh",   "host:path", "https://x/$(id)", "https://x/a b",  "a\nb@h:x",
        "ftp://x/y", "fd::7",     "git@host::x",     "https://x/`id`", "javascript:1",
    };

    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
        CHECK(repo_valid(str_of(good[i])));
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        CHECK(!repo_valid(str_of(bad[i])));
}

TEST(branch_names)
{
    static const char *const bad[] = {"",     "-x",   "/x",  "x/",  ".x",     "x.",
                                      "a..b", "a//b", "a b", "a;b", "x.lock", "a~1"};

    CHECK(repo_branch_valid(STR("main")));
    CHECK(repo_branch_valid(STR("task-12/fix_it.v2")));
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        CHECK(!repo_branch_valid(str_of(bad[i])));
}

TEST(aliases_and_folders)
{
    static const struct {
        const char *repo, *branch, *alias, *folder;
    } rows[] = {
        {"https://github.com/own/rep.git", "dev", "github/own/rep#dev", "rep"},
        {"git@github.com:own/rep.git", "", "github/own/rep#main", "rep"},
        {"https://git.example/a/b/c/", "x", "git/git.example/a/b/c#x", "c"},
        {"git@git.example:own/rep.git", "", "git/git.example/own/rep#main", "rep"},
        {"/srv/git/rep.git", "", "git/srv/git/rep#main", "rep"},
        /* Names do not stand for the host they are at. */
        {"https://evil.example/github.com/own/rep", "", "git/evil.example/github.com/own/rep#main",
         "rep"},
        {"https://github.com@evil.example/own/rep", "", "git/evil.example/own/rep#main", "rep"},
        {"https://github.com.evil.example/own/rep", "", "git/github.com.evil.example/own/rep#main",
         "rep"},
        {"git://127.0.0.1/rep", "", "git/127.0.0.1/rep#main", "rep"},
        {"", "", "", "repo"},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        auto_arena struct arena arena = {0};
        struct str alias, folder;

        session_alias(str_of(rows[i].repo), str_of(rows[i].branch), &arena, &alias);
        repo_folder(str_of(rows[i].repo), &arena, &folder);
        CHECK(str_is(alias, rows[i].alias));
        CHECK(str_is(folder, rows[i].folder));
    }
}

TEST(where_a_pull_request_goes)
{
    static const struct {
        const char *repo, *host, *owner, *name;
        bool deep;
    } rows[] = {
        {"https://github.com/own/rep.git", "github.com", "own", "rep", false},
        {"https://GitHub.com:443/own/rep/", "github.com", "own", "rep", false},
        {"git@github.com:own/rep.git", "github.com", "own", "rep", false},
        {"git@github.com:/own/rep", "github.com", "own", "rep", false},
        {"ssh://git@git.example:2222/own/rep.git", "git.example", "own", "rep", false},
        {"http://127.0.0.1:3000/own/rep", "127.0.0.1:3000", "own", "rep", false},
        {"http://git.example:80/own/r.e-p_1", "git.example", "own", "r.e-p_1", false},
        {"https://git.example:80/own/rep", "git.example:80", "own", "rep", false},
        {"https://git.example/sub/own/rep", "git.example", "own", "rep", true},
        {"https://user:pass@git.example/own/rep", "git.example", "own", "rep", false},
        /* Names do not stand for the host they are at. */
        {"https://github.com@evil.example/own/rep", "evil.example", "own", "rep", false},
        {"https://evil.example/github.com/own/rep", "evil.example", "own", "rep", true},
        {"https://github.com.evil.example/own/rep", "github.com.evil.example", "own", "rep", false},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        auto_arena struct arena arena = {0};
        struct pull_place place;

        CHECK(pull_place_of(str_of(rows[i].repo), &arena, &place));
        CHECK_STR(place.host, rows[i].host);
        CHECK_STR(place.owner, rows[i].owner);
        CHECK_STR(place.name, rows[i].name);
        CHECK(place.deep == rows[i].deep);
    }
}

TEST(where_no_pull_request_goes)
{
    static const char *const bad[] = {
        "",
        "origin",
        "/srv/git/own/rep.git",
        "file:///srv/own/rep",
        "git://github.com/own/rep",
        "https://github.com",
        "https://github.com/",
        "https://github.com/rep",
        "https://github.com/own/",
        "https://github.com/own/.git",
        "https://github.com//rep",
        "https://github.com/own//rep",
        "https://github.com/own/../rep",
        "https://github.com/./rep",
        "https://github.com/own/..",
        "https://github.com/own/...git",
        "https://github.com/own/%2e%2e",
        "https://github.com/own/rep?x=/a/b",
        "https://github.com/own/rep#x",
        "https://github.com/-own/rep",
        "https://github.com\\@evil.example/own/rep",
        "https://a@github.com@evil.example/own/rep",
        "https://evil.example:80@github.com:x/own/rep",
        "https://github.com:0/own/rep",
        "https://github.com:65536/own/rep",
        "https://github.com:/own/rep",
        "https://github.com./own/rep",
        "https://.github.com/own/rep",
        "https:///own/rep",
        "https://git hub.com/own/rep",
        "https://[::1]/own/rep",
        "github.com:own/rep",
        "@github.com:own/rep",
        "git@github.com:rep",
        "git@github.com:../own/..",
        "git@github.com::own/rep",
        "a@b@github.com:own/rep",
        "ext::https://github.com/own/rep",
        "https://github.com/own/rep\r\nx: y",
    };
    auto_arena struct arena arena = {0};
    struct pull_place place;

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        if (pull_place_of(str_of(bad[i]), &arena, &place))
            test_fail(__FILE__, __LINE__, "'%s' was taken", bad[i]);
    CHECK(!pull_place_of(STR("https://github.com/own/r\0p"), &arena, &place));
    CHECK(!pull_place_of(STR_NONE, &arena, &place));
}

TEST(what_a_push_failed_of)
{
    CHECK_STR(str_of(session_push_class(STR("fatal: Authentication failed for 'https://x'"))),
              "auth");
    CHECK_STR(str_of(session_push_class(STR("! [rejected] a -> a (non-fast-forward)"))),
              "remote-rejected");
    CHECK_STR(str_of(session_push_class(STR("error: src refspec HEAD does not match any"))),
              "no-commits");
    CHECK_STR(str_of(session_push_class(STR("ssh: connect to host: Connection refused"))),
              "unknown");
}

TEST(what_may_be_done_without_asking)
{
    static const struct {
        enum permission permission;
        const char *kind;
        bool allowed;
    } rows[] = {
        {PERMISSION_ASK, "read", true},       {PERMISSION_ASK, "edit", false},
        {PERMISSION_ASK, "execute", false},   {PERMISSION_EDIT, "edit", true},
        {PERMISSION_EDIT, "delete", true},    {PERMISSION_EDIT, "execute", false},
        {PERMISSION_BYPASS, "execute", true}, {PERMISSION_EDIT, "other", false},
        {PERMISSION_ASK, "", false},          {PERMISSION_EDIT, "fetch", false},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        CHECK_INT(session_permitted(rows[i].permission, str_of(rows[i].kind)), rows[i].allowed);
}

TEST(the_option_that_is_chosen)
{
    auto_json json_t *options =
        json_pack("[{s:s,s:s},{s:s,s:s},{s:s,s:s}]", "optionId", "A", "kind", "allow_always",
                  "optionId", "B", "kind", "allow_once", "optionId", "C", "kind", "reject_once");
    auto_json json_t *none = session_selected(STR_NONE);

    CHECK(str_is(session_option(options, true), "B"));
    CHECK(str_is(session_option(options, false), "C"));
    CHECK(session_option(NULL, true).p == NULL);
    CHECK(str_is(json_get_str(json_object_get(none, "outcome"), "outcome"), "cancelled"));
}

struct seen {
    size_t count;
    int64_t last;
    char method[32];
};

static void note(void *arg, int64_t id, json_t *message)
{
    struct seen *seen = arg;

    seen->count++;
    seen->last = id;
    (void)str_copy(json_get_str(message, "method"), seen->method, sizeof(seen->method));
}

TEST(events_come_in_pieces)
{
    static const char text[] =
        ": hello\r\n\r\nevent: message\r\nid: 7\r\ndata: {\"method\":\"a\"}\r\n"
        "\r\nid: 8\ndata: {\"method\":\ndata: \"b\"}\n\ndata: no json\n\n"
        "data: {\"method\":\"never ended\"}\n";

    for (size_t piece = 1; piece < sizeof(text); piece++) {
        struct acp_feed feed;
        struct seen seen = {0};

        acp_feed_init(&feed);
        for (size_t at = 0; at < sizeof(text) - 1; at += piece) {
            size_t left = sizeof(text) - 1 - at;

            acp_feed_add(&feed, str_n(text + at, left < piece ? left : piece), note, &seen);
        }
        CHECK_INT(seen.count, 2);
        CHECK_INT(seen.last, 8);
        CHECK_STR(str_of(seen.method), "b");
        CHECK_INT(feed.dropped, 1);
        acp_feed_done(&feed);
    }
}

TEST(an_event_without_end_is_dropped)
{
    struct acp_feed feed;
    struct seen seen = {0};
    auto_free char *block = xmalloc(1024 * 1024);

    memset(block, 'x', 1024 * 1024);
    acp_feed_init(&feed);
    acp_feed_add(&feed, STR("data: "), note, &seen);
    for (int i = 0; i < 6; i++)
        acp_feed_add(&feed, str_n(block, 1024 * 1024), note, &seen);
    acp_feed_add(&feed, STR("\n\ndata: {\"method\":\"next\"}\n\n"), note, &seen);
    CHECK_INT(seen.count, 1);
    CHECK_STR(str_of(seen.method), "next");
    CHECK_INT(feed.dropped, 1);
    acp_feed_done(&feed);
}

TEST(answers_of_the_agent)
{
    json_t *result = NULL;
    struct error err;

    CHECK_INT(
        acp_outcome(200, STR("{\"id\":1,\"result\":{\"stopReason\":\"end_turn\"}}"), &result, &err),
        0);
    CHECK(str_is(json_get_str(result, "stopReason"), "end_turn"));
    json_decref(result);
    CHECK_INT(acp_outcome(200, STR("{\"id\":1,\"error\":{\"code\":1,\"message\":\"no\"}}"), &result,
                          &err),
              -1);
    CHECK_INT(err.code, ERROR_INVALID);
    CHECK_INT(acp_outcome(502, STR("{\"detail\":\"gone\"}"), &result, &err), -1);
    CHECK_INT(err.code, ERROR_UNAVAILABLE);
    CHECK(strstr(err.message, "gone") != NULL);
    CHECK_INT(acp_outcome(200, STR("junk"), &result, &err), -1);
    CHECK_INT(acp_outcome(404, STR(""), &result, &err), -1);
    CHECK_INT(err.code, ERROR_NOT_FOUND);
}

/* ---- agents that mean harm ---- */

static struct live_session *quiet_session(struct runtime *runtime)
{
    return live_new(runtime, &(struct runtime_caller){0},
                    &(struct store_session){.id = STR("ses_1")});
}

TEST(a_request_that_waits_is_not_replaced)
{
    struct runtime runtime = {0};
    struct live_session *live = quiet_session(&runtime);
    auto_json json_t *mild = NULL, *harsh = NULL, *number = json_integer(1);
    auto_json json_t *text = json_string("1"), *other = json_integer(2), *name = NULL;
    char longest[1000];
    struct error err;

    CHECK_INT(json_parse(STR("[{\"optionId\":\"yes\",\"kind\":\"allow_once\"}]"), &mild, &err), 0);
    CHECK_INT(json_parse(STR("[{\"optionId\":\"all\",\"kind\":\"allow_always\"}]"), &harsh, &err),
              0);
    CHECK(session_expect(live, number, mild));
    /* The same id, and another that is written the same way. */
    CHECK(!session_expect(live, number, harsh));
    CHECK(!session_expect(live, text, harsh));
    CHECK_STR(json_get_str(json_object_get(live->permissions, "1"), "allow"), "yes");
    CHECK_STR(json_get_str(json_object_get(live->permissions, "1"), "deny"), "");
    CHECK(session_expect(live, other, harsh));
    memset(longest, 'x', sizeof(longest));
    name = json_stringn(longest, sizeof(longest));
    CHECK(!session_expect(live, name, mild));
    session_free(live);
}

TEST(what_an_agent_tells_is_bounded)
{
    struct session_told told = {0};
    int64_t now_ms = 1000, admitted = 0;

    for (int i = 0; i < 20000; i++)
        admitted += session_told_admit(&told, now_ms);
    CHECK_INT(admitted, SESSION_TOLD_BURST);
    CHECK_INT(told.dropped, 20000 - SESSION_TOLD_BURST);
    for (int i = 0; i < 10000; i++)
        admitted += session_told_admit(&told, now_ms + i); /* ten seconds of 1000 each */
    CHECK(admitted - SESSION_TOLD_BURST <= 10 * SESSION_TOLD_PER_S + 1 &&
          admitted - SESSION_TOLD_BURST >= 9 * SESSION_TOLD_PER_S);
    /* Silence gives back no more than the burst. */
    admitted = 0;
    for (int i = 0; i < 20000; i++)
        admitted += session_told_admit(&told, now_ms + 86400000);
    CHECK_INT(admitted, SESSION_TOLD_BURST);
}

TEST(sessions_of_a_team_are_bounded)
{
    struct sessions sessions = {0};
    struct runtime runtime = {.sessions = &sessions};
    struct live_session *live = NULL, *ended = NULL;
    struct map_entry *entry;
    struct error err = {0};

    (void)pthread_mutex_init(&sessions.lock, NULL);
    map_init(&sessions.live);
    for (int i = 0; i < SESSION_TEAM_MAX; i++) {
        char id[32];
        struct store_session row = {
            .team_id = STR("t1"), .state = SESSION_RUNNING, .created_at_us = i + 1};

        (void)snprintf(id, sizeof(id), "ses_%d", i);
        row.id = str_of(id);
        CHECK_INT(session_make_room(&sessions, STR("t1"), &err), 0);
        live = live_new(&runtime, &(struct runtime_caller){0}, &row);
        (void)map_put(&sessions.live, live->row.id, live);
        if (i == 5)
            ended = live;
    }
    CHECK_INT(session_make_room(&sessions, STR("t1"), &err), -1);
    CHECK_INT(err.code, ERROR_QUOTA);
    CHECK_INT(session_make_room(&sessions, STR("t2"), &err), 0);
    /* One that has ended goes, unless somebody has it. */
    ended->row.state = SESSION_CANCELED;
    ended->refs++;
    CHECK_INT(session_make_room(&sessions, STR("t1"), &err), -1);
    ended->refs--;
    CHECK_INT(session_make_room(&sessions, STR("t1"), &err), 0);
    CHECK(!map_get(&sessions.live, STR("ses_5")));
    CHECK_INT(sessions.live.count, SESSION_TEAM_MAX - 1);
    map_for_each (&sessions.live, entry)
        session_free(entry->value);
    map_done(&sessions.live);
    (void)pthread_mutex_destroy(&sessions.lock);
}

/* Connections that the kernel has taken for a listener. */
static unsigned waiting_to_be_accepted(int fd)
{
    struct tcp_info info;
    socklen_t size = sizeof(info);

    CHECK_INT(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size), 0);
    return info.tcpi_unacked;
}

static size_t posts_of(struct live_session *live)
{
    size_t posts;

    (void)pthread_mutex_lock(&live->lock);
    posts = live->posts;
    (void)pthread_mutex_unlock(&live->lock);
    return posts;
}

/* It asks and asks, and takes no answer. */
TEST(answers_that_nobody_takes_are_bounded)
{
    struct sessions sessions = {0};
    struct runtime runtime = {.sessions = &sessions};
    struct live_session *live = quiet_session(&runtime);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(address);
    int fd = socket(AF_INET, SOCK_STREAM, 0), taken = 0;
    char url[64];

    CHECK(bind(fd, (struct sockaddr *)&address, size) == 0 && listen(fd, 4096) == 0 &&
          getsockname(fd, (struct sockaddr *)&address, &size) == 0);
    (void)snprintf(url, sizeof(url), "http://127.0.0.1:%u", ntohs(address.sin_port));
    (void)pthread_mutex_init(&sessions.lock, NULL);
    sessions.hub = fetch_hub_new();
    live->target = (struct acp_target){.base_url = url, .server_id = "s", .agent = "mock"};
    (void)pthread_mutex_lock(&live->lock);
    for (int i = 0; i < 1000; i++)
        taken += session_post(live, xstrdup("{}"));
    (void)pthread_mutex_unlock(&live->lock);
    CHECK_INT(taken, SESSION_POSTS_MAX);
    /* There is room again when they are over. */
    WAIT_FOR(waiting_to_be_accepted(fd) == SESSION_POSTS_MAX);
    (void)close(fd);
    WAIT_FOR(posts_of(live) == 0);
    fetch_hub_free(sessions.hub);
    (void)pthread_mutex_destroy(&sessions.lock);
    session_free(live);
}
