/* browser: a page as a picture, a PDF or text, in a browser that is thrown away; or a session to look at. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "cli/core/cli_print.h"
#include "cli/core/cli_v1.h"
#include "extra/browser/browser_extra.h"
#include "protocol/json/json_shape.h"

enum { FILE_MAX = 32 << 20, CALL_MS = 120 * 1000, LIFE_S = 600, SESSION_S = 3600 };

struct wish {
    const char *act, *url, *out, *sandbox;
    int64_t timeout_s;
};

static int save(struct str bytes, const char *name, struct error *err)
{
    auto_close int fd = -1;
    int r;

    if (!name || strcmp(name, "-") == 0) {
        r = fd_write_full(STDOUT_FILENO, bytes.p, bytes.len);
        return r < 0 ? error_set_errno(err, -r, "writing the page") : 0;
    }
    fd = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    r = fd < 0 ? -errno : fd_write_full(fd, bytes.p, bytes.len);
    return r < 0 ? error_set_errno(err, -r, "write '%s'", name) : 0;
}

static int go(struct cli *cli, const char *sandbox, const char *url, struct error *err)
{
    auto_json json_t *body = json_pack("{s:s}", "url", url);

    if (!body)
        return error_set(err, ERROR_INVALID, "the address is not UTF-8");
    return cli_v1(cli, "POST", cli_v1_path("sandboxes", sandbox, "browser", "goto"), body, NULL,
                  err);
}

static int fetch_file(struct cli *cli, const struct wish *wish, const char *sandbox,
                      struct error *err)
{
    auto_call struct http_call call = {.fd = -1};
    auto_free char *path = cli_v1_path("sandboxes", sandbox, "browser", wish->act);
    int rc = 0;

    if (cli_v1_open(cli, path, NULL, CALL_MS, FILE_MAX, &call, err) < 0)
        return -1;
    do
        rc = http_call_recv(&call, err);
    while (rc > 0);
    return rc < 0 ? -1 : save(buf_str(&call.body), wish->out, err);
}

static int print_text(struct cli *cli, const char *sandbox, struct error *err)
{
    auto_json json_t *answer = NULL;
    struct str text;

    if (cli_v1(cli, "GET", cli_v1_path("sandboxes", sandbox, "browser", "text"), NULL, &answer,
               err) < 0)
        return -1;
    text = json_get_str(answer, "text");
    if (cli->json)
        cli_print_json(answer);
    else
        printf("%.*s\n", STR_ARG(text));
    return 0;
}

static int look(struct cli *cli, const struct wish *wish, const char *sandbox, struct error *err)
{
    if (go(cli, sandbox, wish->url, err) < 0)
        return -1;
    if (strcmp(wish->act, "text") == 0)
        return print_text(cli, sandbox, err);
    return fetch_file(cli, wish, sandbox, err);
}

/* In a browser of its own, which comes from the warm pool and goes afterwards. */
static int look_once(struct cli *cli, const struct wish *wish, struct error *err)
{
    auto_json json_t *body =
        json_pack("{s:s, s:i, s:b}", "templateID", "browser", "timeout", LIFE_S, "secure", 1);
    auto_json json_t *answer = NULL;
    auto_free char *id = NULL, *path = NULL;
    struct error ignored = {0};
    int r;

    if (cli_call(&cli->server, "POST", "/sandboxes", body, &answer, NULL, err) < 0)
        return -1;
    id = str_dup(json_get_str(answer, "sandboxID"));
    path = xasprintf("/sandboxes/%s", id);
    r = look(cli, wish, id, err);
    if (cli_call(&cli->server, "DELETE", path, NULL, NULL, NULL, &ignored) < 0 && r == 0)
        return error_set(err, ignored.code, "%s", ignored.message);
    return r;
}

/* ---- a session ---- */

static int open_session(struct cli *cli, const struct wish *wish, struct error *err)
{
    auto_json json_t *body = json_pack("{s:b, s:I}", "keepAlive", 1, "timeout",
                                       (json_int_t)(wish->timeout_s ? wish->timeout_s : SESSION_S));
    auto_json json_t *session = NULL, *view = NULL;
    auto_free char *path = NULL, *sandbox = NULL;

    if (cli_call(&cli->server, "POST", "/v1/sessions", body, &session, NULL, err) < 0)
        return -1;
    path = xasprintf("/v1/sessions/%.*s/debug", STR_ARG(json_get_str(session, "id")));
    sandbox = str_dup(json_get_str(session, "sandboxId"));
    if ((wish->url && go(cli, sandbox, wish->url, err) < 0) ||
        cli_call(&cli->server, "GET", path, NULL, &view, NULL, err) < 0)
        return -1;
    (void)json_object_set(session, "debuggerUrl", json_object_get(view, "debuggerUrl"));
    if (cli->json)
        cli_print_json(session);
    else
        printf("session  %.*s\nsandbox  %s\nlook     %.*s\nconnect  %.*s\n",
               STR_ARG(json_get_str(session, "id")), sandbox,
               STR_ARG(json_get_str(view, "debuggerUrl")),
               STR_ARG(json_get_str(session, "connectUrl")));
    return 0;
}

static bool gives_file(const char *act)
{
    return strcmp(act, "screenshot") == 0 || strcmp(act, "pdf") == 0;
}

static int do_wish(struct cli *cli, const struct wish *wish, struct error *err)
{
    if (strcmp(wish->act, "open") == 0)
        return open_session(cli, wish, err);
    if (!gives_file(wish->act) && strcmp(wish->act, "text") != 0)
        return error_set(err, ERROR_INVALID, "no '%s': there are open, screenshot, pdf, text",
                         wish->act);
    if (!wish->url)
        return error_set(err, ERROR_INVALID, "%s needs an address", wish->act);
    if (gives_file(wish->act) && !wish->out && isatty(STDOUT_FILENO))
        return error_set(err, ERROR_INVALID,
                         "this is nothing for a terminal: say where to with -o FILE");
    return wish->sandbox ? look(cli, wish, wish->sandbox, err) : look_once(cli, wish, err);
}

static int run_browser(struct cli *cli, int argc, char **argv)
{
    struct wish wish = {0};
    const struct cli_option table[] = {
        {"output", 'o', CLI_TEXT, &wish.out, "FILE",
         "where picture or PDF go (-: standard output)"},
        {"sandbox", 's', CLI_TEXT, &wish.sandbox, "SANDBOX", "in the browser of this one"},
        {"timeout", 0, CLI_TIME, &wish.timeout_s, "TIME", "end of an opened session (1h)"},
        {.name = NULL},
    };
    struct error err = {0};
    char **operands;
    int count, rc = cli_args(cli, &cli_browser_command, table, CLI_ARGS_ANYWHERE, argc, argv,
                             &operands, &count);

    if (rc != CLI_ARGS_RUN)
        return rc;
    if (count < 1 || count > 2)
        return cli_usage(&cli_browser_command, "needs what to do, and an address");
    wish.act = operands[0];
    wish.url = count > 1 ? operands[1] : NULL;
    if (cli_connect(cli, &err) < 0 || do_wish(cli, &wish, &err) < 0)
        return cli_fail(&err);
    return CLI_OK;
}

const struct cli_command cli_browser_command = {
    "browser", "open [URL] | screenshot URL -o FILE | pdf URL -o FILE | text URL",
    "Pages in a browser of the template `browser`. 'open' makes a session that programs connect "
    "to\n"
    "(Playwright, Puppeteer) and people look at; the others use one that is removed afterwards.",
    run_browser,
    .examples = "quicksand browser screenshot https://example.com -o page.png\n"
                "quicksand browser text https://example.com\n"
                "quicksand browser open https://example.com"};
