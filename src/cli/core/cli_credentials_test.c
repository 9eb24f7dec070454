/* Addresses of servers, and the file that keeps keys for them. */
#include <fcntl.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/path.h"
#include "base/test.h"
#include "cli/core/cli.h"
#include "cli/core/cli_client.h"
#include "cli/core/cli_credentials.h"
#include "cli/core/cli_test.h"

static int parse_url(const char *text, struct cli_url *out)
{
    struct error err = {0};

    return cli_url_parse(text, out, &err);
}

TEST(urls)
{
    struct cli_url url;

    CHECK_INT(parse_url("http://127.0.0.1:3000", &url), 0);
    CHECK_STR(str_of(url.host), "127.0.0.1");
    CHECK_INT(url.port, 3000);
    CHECK_INT(parse_url("http://[::1]:80/", &url), 0);
    CHECK_STR(str_of(url.host), "::1");
    CHECK_INT(parse_url("http://box", &url), 0);
    CHECK_INT(url.port, 80);
    CHECK(!url.tls);
    CHECK_INT(parse_url("https://box", &url), 0);
    CHECK_INT(url.port, 443);
    CHECK(url.tls);
    CHECK_INT(parse_url("box:80", &url), -1);
    CHECK_INT(parse_url("http://", &url), -1);
    CHECK_INT(parse_url("http://:80", &url), -1);
    CHECK_INT(parse_url("http://box:0", &url), -1);
    CHECK_INT(parse_url("http://box:70000", &url), -1);
    CHECK_INT(parse_url("http://box:8x", &url), -1);
    CHECK_INT(parse_url("http://box/path", &url), -1);
    CHECK_INT(parse_url("http://b\r\nX: y", &url), -1);
    CHECK_INT(parse_url("http://[::1", &url), -1);
}

TEST(credentials)
{
    char dir[] = "/tmp/cli-test-XXXXXX";
    auto_free char *path = NULL;
    struct cli_server server = {0};
    struct error err = {0};
    FILE *file;

    static const char *const names[] = {"QUICKSAND_URL",     "E2B_API_URL", "QUICKSAND_TOKEN",
                                        "QUICKSAND_API_KEY", "E2B_API_KEY", "E2B_SANDBOX_URL",
                                        "E2B_DOMAIN"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        (void)unsetenv(names[i]);
    CHECK(mkdtemp(dir));
    CHECK_INT(cli_server_find(NULL, dir, &server, &err), -1);
    CHECK_INT(err.code, ERROR_UNAUTHORIZED);
    path = xasprintf("%s/.quicksand", dir);
    CHECK_INT(path_make_dirs(path, 0700), 0);
    free(path);
    path = xasprintf("%s/" CLI_CREDENTIALS, dir);
    file = fopen(path, "w");
    CHECK(file &&
          fputs("# made by the server\nurl = http://10.0.0.1:99\nkey = e2b_file\n", file) >= 0);
    (void)fclose(file);
    CHECK_INT(cli_server_find(NULL, dir, &server, &err), 0);
    CHECK_STR(str_of(server.key), "e2b_file");
    CHECK_INT(server.api.port, 99);
    cli_server_done(&server);
    CHECK_INT(setenv("E2B_API_KEY", "e2b_env", 1), 0);
    CHECK_INT(cli_server_find("http://h:1", dir, &server, &err), 0);
    CHECK_STR(str_of(server.key), "e2b_env");
    CHECK_STR(str_of(server.sandboxes.host), "h");
    cli_server_done(&server);
    /* The key is for the server of the domain, not for the one in the file. */
    CHECK_INT(setenv("E2B_DOMAIN", "example.test", 1), 0);
    CHECK_INT(cli_server_find(NULL, dir, &server, &err), 0);
    CHECK_STR(str_of(server.api.host), "api.example.test");
    CHECK_INT(server.api.port, 443);
    CHECK_STR(str_of(server.key), "e2b_env");
    cli_server_done(&server);
    CHECK_INT(setenv("E2B_API_URL", "http://h:2", 1), 0);
    CHECK_INT(cli_server_find(NULL, dir, &server, &err), 0);
    CHECK_INT(server.api.port, 2);
    cli_server_done(&server);
    CHECK_INT(setenv("QUICKSAND_TOKEN", "bad\r\nkey", 1), 0);
    CHECK_INT(cli_server_find("http://h:1", dir, &server, &err), -1);
    CHECK_INT(path_remove_tree(AT_FDCWD, dir), 0);
}

static const char *key_for(struct cli_credentials *all, const char *url)
{
    const struct cli_credential *found = cli_credentials_find(all, url);

    return found ? found->key : "";
}

TEST(credentials_of_several_servers)
{
    struct cli_credentials all;

    cli_credentials_parse(STR("# a\nurl = http://127.0.0.1:3000\nkey = e2b_a\n\n"
                              "url = http://127.0.0.1:3001\nkey = e2b_b\n"
                              "url = https://box.example\nkey = e2b_c\n"
                              "url = http://127.0.0.1:3000\nkey = e2b_d\nkey =\nurl = x\n"),
                          &all);
    CHECK_INT(all.count, 4);
    CHECK_STR(str_of(key_for(&all, NULL)), "e2b_d");
    CHECK_STR(str_of(key_for(&all, "http://localhost:3000")), "e2b_d");
    CHECK_STR(str_of(key_for(&all, "http://[::1]:3001")), "e2b_b");
    CHECK_STR(str_of(key_for(&all, "http://0.0.0.0:3001/")), "e2b_b");
    CHECK_STR(str_of(key_for(&all, "https://BOX.example:443")), "e2b_c");
    CHECK_STR(str_of(key_for(&all, "http://box.example:443")), "");
    CHECK_STR(str_of(key_for(&all, "http://127.0.0.1:3002")), "");
    CHECK_STR(str_of(key_for(&all, "https://127.0.0.1:3000")), "");
    cli_credentials_done(&all);
    cli_credentials_parse(STR("url = http://127.0.0.1:4000\nkey = e2b_a\n"
                              "url = http://127.0.0.1:4001\nkey = e2b_b\n"),
                          &all);
    CHECK_STR(str_of(key_for(&all, NULL)), "e2b_b");
    cli_credentials_done(&all);
    cli_credentials_parse(STR("key = e2b_any"), &all);
    CHECK_STR(str_of(key_for(&all, "https://box.example")), "e2b_any");
    cli_credentials_done(&all);
    cli_credentials_parse(STR_NONE, &all);
    CHECK_STR(str_of(key_for(&all, NULL)), "");
}

TEST(contexts_are_put_used_and_removed)
{
    struct cli_credentials all;
    auto_buf struct buf text = {0};

    cli_credentials_parse(STR("url = http://127.0.0.1:3000\nkey = k1\n"), &all);
    cli_credentials_put(&all, "https://far.example", "prod", "k2");
    CHECK_STR(str_of(cli_credentials_find(&all, NULL)->key), "k2");
    CHECK(cli_credentials_use(&all, "http://localhost:3000"));
    CHECK_STR(str_of(cli_credentials_find(&all, NULL)->key), "k1");
    CHECK(!cli_credentials_use(&all, "other"));
    cli_credentials_put(&all, "https://far.example", "prod", "k3");
    buf_init(&text, CLI_CREDENTIALS_MAX);
    cli_credentials_write(&all, &text);
    CHECK_STR(buf_str(&text), "url = http://127.0.0.1:3000\nkey = k1\nname = prod\n"
                              "url = https://far.example\nkey = k3\nuse = https://far.example\n");
    cli_credentials_done(&all);
    cli_credentials_parse(buf_str(&text), &all);
    CHECK_STR(str_of(cli_credentials_named(&all, "prod")->key), "k3");
    CHECK(cli_credentials_remove(&all, "prod") && !cli_credentials_remove(&all, "prod"));
    CHECK(!all.current);
    CHECK_STR(str_of(cli_credentials_find(&all, NULL)->key), "k1");
    cli_credentials_done(&all);
}
