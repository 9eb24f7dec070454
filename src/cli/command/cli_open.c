/* `quicksand open`: a link that signs a browser in to the dashboard, once. */
#include <stdio.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "cli/command/commands.h"
#include "cli/core/cli_command.h"
#include "cli/core/cli_names.h"
#include "cli/core/cli_print.h"
#include "cli/core/cli_v1.h"
#include "protocol/json/json_shape.h"

enum { ADDRESS_MAX = 4096 };

static bool add_server(struct buf *out, const struct cli_url *url)
{
    bool six = strchr(url->host, ':') != NULL;

    return buf_printf(out, "%s://%s%s%s:%u", url->tls ? "https" : "http", six ? "[" : "", url->host,
                      six ? "]" : "", url->port);
}

static int print_link(struct cli *cli, const char *id, struct error *err)
{
    auto_json json_t *answer = NULL;
    auto_buf struct buf text = {0};

    buf_init(&text, ADDRESS_MAX);
    if (cli_v1(cli, "POST", cli_v1_path("signin", "links"), NULL, &answer, err) < 0)
        return cli_fail(err);
    if (!add_server(&text, &cli->server.api) ||
        !buf_printf(&text, "%.*s", STR_ARG(json_get_str(answer, "path")))) {
        (void)error_set(err, ERROR_LIMIT, "the server's address is too long");
        return cli_fail(err);
    }
    if (id) {
        (void)buf_add_str(&text, STR("&to=sandboxes/"));
        cli_escape(&text, id);
    }
    (void)json_object_set_new(answer, "url", json_str(buf_str(&text)));
    if (cli->json)
        cli_print_json(answer);
    else
        printf("%.*s\n", STR_ARG(buf_str(&text)));
    return CLI_OK;
}

/* Where a port is reached; the sandbox's own pages need no sign-in here. */
static int print_port(struct cli *cli, char **operands, struct error *err)
{
    auto_json json_t *answer = NULL;
    auto_free char *url = NULL;
    int64_t port = 0;

    if (!str_to_i64(str_of(operands[1]), &port) || port < 1 || port > UINT16_MAX)
        return cli_usage(&cli_open_command, "'%s' is no port", operands[1]);
    if (cli_connect_to(cli, operands, 1, err) < 0 ||
        cli_v1(cli, "GET", cli_v1_path("sandboxes", operands[0], "ports", operands[1]), NULL,
               &answer, err) < 0)
        return cli_fail(err);
    url = cli_print_str(answer, "url");
    if (cli->json)
        cli_print_json(answer);
    else
        printf("%s\n", url);
    return CLI_OK;
}

static int run_open(struct cli *cli, int argc, char **argv)
{
    const struct cli_option table[] = {{.name = NULL}};
    struct error err = {0};
    char **operands;
    int count, rc = cli_args(cli, &cli_open_command, table, CLI_ARGS_ANYWHERE, argc, argv,
                             &operands, &count);

    if (rc != CLI_ARGS_RUN)
        return rc;
    if (count > 2)
        return cli_usage(&cli_open_command, "takes at most one sandbox and a port of it");
    if (count == 2)
        return print_port(cli, operands, &err);
    if ((count ? cli_connect_to(cli, operands, 1, &err) : cli_connect(cli, &err)) < 0)
        return cli_fail(&err);
    return print_link(cli, count ? operands[0] : NULL, &err);
}

const struct cli_command cli_open_command = {
    "open", "[SANDBOX [PORT]]",
    "Print a link to the dashboard, or to a sandbox there, or to a port of it.\nThe dashboard's "
    "signs "
    "a browser in once, within the hour, in the name of your API key.",
    run_open,
    .examples = "quicksand open\n"
                "xdg-open \"$(quicksand open web)\"\n"
                "xdg-open \"$(quicksand open web 3000)\""};
