/* What sessions are asked for, and the rows that are kept of them. */
#include "extra/browser/browser.h"

#include "base/test.h"
#include "protocol/json/json_shape.h"
#include "store/core/store.h"

static struct arena arena;
static struct browser_new wish;
static struct error why;

static int ask(const char *text)
{
    json_t *body = NULL;
    struct error err = {0};

    CHECK_INT(json_parse(str_of(text), &body, &err), 0);
    arena_defer(&arena, (void (*)(void *))json_decref, body);
    wish = (struct browser_new){0};
    return browser_new_read(body, &arena, &wish, &why);
}

static void refused(const char *text, const char *words)
{
    CHECK_INT(ask(text), -1);
    CHECK_INT(why.code, ERROR_INVALID);
    CHECK(strstr(why.message, words) != NULL);
}

TEST(browser_new_reads)
{
    CHECK_INT(ask("{}"), 0);
    CHECK_STR(wish.region, "us-west-2");
    CHECK_INT(
        ask("{\"timeout\":120,\"keepAlive\":true,\"userMetadata\":{\"a\":\"b\"},"
            "\"proxies\":[{\"type\":\"external\",\"server\":\"http://p.example:3128\"}],"
            "\"browserSettings\":{\"viewport\":{\"width\":800,\"height\":600},\"solveCaptchas\":"
            "false,\"context\":{\"id\":\"c\",\"persist\":true},\"ignoreCertificateErrors\":true}}"),
        0);
    CHECK_INT(wish.timeout_s, 120);
    CHECK(wish.keep_alive && wish.persist && wish.ignore_certificates);
    CHECK_STR(wish.metadata, "{\"a\":\"b\"}");
    CHECK_STR(wish.proxy, "http://p.example:3128");
    CHECK_STR(wish.context_id, "c");
    CHECK_INT(wish.width, 800);
    arena_done(&arena);
}

TEST(browser_new_refuses_by_name)
{
    refused("{\"browserSettings\":{\"advancedStealth\":true}}", "stealth");
    refused("{\"browserSettings\":{\"verified\":true}}", "stealth");
    refused("{\"browserSettings\":{\"solveCaptchas\":true}}", "captcha");
    refused("{\"browserSettings\":{\"blockAds\":true}}", "blockAds");
    refused("{\"browserSettings\":{\"os\":\"mac\"}}", "'os'");
    refused("{\"browserSettings\":{\"allowedDomains\":[\"a.b\"]}}", "allowedDomains");
    refused("{\"browserSettings\":[]}", "object");
    refused("{\"browserSettings\":{\"context\":{}}}", "context");
    refused("{\"browserSettings\":{\"viewport\":{\"width\":800,\"height\":99999}}}", "viewport");
    refused("{\"proxies\":true}", "proxies of the service");
    refused("{\"proxies\":[{\"type\":\"browserbase\"}]}", "proxies of the service");
    refused("{\"proxies\":[{\"type\":\"external\",\"server\":\"http://p:1 --x\"}]}", "proxy");
    refused(
        "{\"proxies\":[{\"type\":\"external\",\"server\":\"http://p:1\",\"domainPattern\":\"x\"}]}",
        "domainPattern");
    refused("{\"timeout\":59}", "timeout");
    refused("{\"timeout\":21601}", "timeout");
    refused("{\"region\":\"moon\"}", "region");
    refused("{\"userMetadata\":[]}", "userMetadata");
    arena_done(&arena);
}

TEST(browser_filter)
{
    struct browser_filter filter = {0};

    CHECK_INT(browser_filter_read(STR("user_metadata['a b']:'c\\'d'"), &arena, &filter, &why), 0);
    CHECK_STR(filter.name, "a b");
    CHECK_STR(filter.value, "c'd");
    CHECK_INT(browser_filter_read(STR("user_metadata[\"a\"]:\"\""), &arena, &filter, &why), 0);
    CHECK_INT(browser_filter_read(STR("user_metadata['a']:'b"), &arena, &filter, &why), -1);
    CHECK_INT(browser_filter_read(STR("user_metadata['a']:'b' x"), &arena, &filter, &why), -1);
    CHECK_INT(browser_filter_read(STR(""), &arena, &filter, &why), -1);
    arena_done(&arena);
}

static struct store_browser_session row(const char *id, const char *context, bool persist)
{
    return (struct store_browser_session){.id = str_of(id),
                                          .team_id = STR("t"),
                                          .sandbox_id = STR("i"),
                                          .context_id = str_of(context),
                                          .status = STR("RUNNING"),
                                          .region = STR("us-west-2"),
                                          .metadata = STR(""),
                                          .persist = persist,
                                          .created_at_us = 1000000,
                                          .expires_at_us = 61000000};
}

TEST(browser_rows)
{
    struct store_browser_session one = row("1", "c", true), two = row("2", "c", true), got = {0};
    struct store_browser_session *all;
    struct store *store;
    int64_t seconds = 0;
    size_t count;

    OK(store_open(":memory:", &store, &err));
    OK(store_browser_session_insert(store, &one, 10, &err));
    CHECK_INT(store_browser_session_insert(store, &two, 10, &why), -1);
    CHECK_INT(why.code, ERROR_CONFLICT);
    two.persist = false;
    OK(store_browser_session_insert(store, &two, 10, &err));
    CHECK_INT(store_browser_session_find(store, STR("other"), STR("1"), &arena, &got, &why), -1);
    CHECK_INT(why.code, ERROR_NOT_FOUND);
    OK(store_browser_session_find(store, STR_NONE, STR("1"), &arena, &got, &err));
    OK(store_browser_session_end(store, STR("1"), STR("COMPLETED"), 31000000, &err));
    OK(store_browser_session_end(store, STR("1"), STR("ERROR"), 41000000, &err));
    OK(store_browser_session_find(store, STR("t"), STR("1"), &arena, &got, &err));
    CHECK_STR(got.status, "COMPLETED");
    OK(store_browser_session_list(store, STR("t"), STR("RUNNING"), 10, &arena, &all, &count, &err));
    CHECK_INT(count, 1);
    OK(store_browser_session_seconds(store, STR("t"), 11000000, &seconds, &err));
    CHECK_INT(seconds, 40);
    /* The one that ended makes room. */
    two.id = STR("3");
    OK(store_browser_session_insert(store, &two, 0, &err));
    CHECK_INT(store_browser_session_find(store, STR("t"), STR("1"), &arena, &got, &why), -1);
    arena_done(&arena);
    store_close(store);
}
