/* secret: what sandboxes' requests get on their way out, and sandboxes never see. */
#include <errno.h>
#include <termios.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "cli/command/commands.h"
#include "cli/core/cli_each.h"
#include "cli/core/cli_print.h"
#include "cli/core/cli_v1.h"
#include "protocol/json/json_shape.h"

enum { VALUE_MAX = 64 * 1024 };

static const struct cli_command secret_set, secret_ls, secret_rm;

/* "/secrets/NAME"; malloc()ed. */
static char *target_of(const char *name)
{
    struct buf target;

    buf_init(&target, HTTP_URL_MAX);
    (void)buf_add_str(&target, STR("/secrets/"));
    cli_escape(&target, name);
    return target.p;
}

/* Whoever types it does not want it on the screen. */
static int read_typed(const char *name, struct buf *out)
{
    struct termios saved, quiet;
    bool hidden = tcgetattr(STDIN_FILENO, &saved) == 0;
    char c = 0;

    (void)fprintf(stderr, "Value of %s (not shown): ", name);
    if (hidden) {
        quiet = saved;
        quiet.c_lflag &= ~(tcflag_t)ECHO;
        (void)tcsetattr(STDIN_FILENO, TCSAFLUSH, &quiet);
    }
    while (c != '\n' && read(STDIN_FILENO, &c, 1) == 1)
        (void)buf_add_char(out, c);
    if (hidden)
        (void)tcsetattr(STDIN_FILENO, TCSAFLUSH, &saved);
    (void)fputc('\n', stderr);
    return out->overflowed ? -EFBIG : 0;
}

/* One line end at its end is the editor's or the shell's, not the secret's. */
static int read_value(const char *name, struct buf *out, struct error *err)
{
    int r;

    buf_init(out, VALUE_MAX);
    r = isatty(STDIN_FILENO) ? read_typed(name, out) : cli_v1_read_stdin(out);
    if (r < 0)
        return error_set_errno(err, -r, "read the secret's value");
    if (out->len && out->p[out->len - 1] == '\n')
        out->len--;
    if (out->len && out->p[out->len - 1] == '\r')
        out->len--;
    if (!out->len)
        return error_set(err, ERROR_INVALID, "the value of a secret comes by stdin; it is empty");
    if (!str_valid_utf8(buf_str(out)))
        return error_set(err, ERROR_INVALID, "the value of a secret must be text in UTF-8");
    return 0;
}

static json_t *body_of(const struct cli_list *hosts, bool any_host, json_t *metadata,
                       struct str value)
{
    json_t *body = json_object(), *array = json_array();

    (void)json_object_set_new(body, "value", json_str(value));
    if (json_object_size(metadata))
        (void)json_object_set(body, "metadata", metadata);
    for (size_t i = 0; i < hosts->count; i++)
        (void)json_array_append_new(array, json_str(str_of(hosts->items[i])));
    if (hosts->count || any_host)
        (void)json_object_set(body, "hosts", array);
    json_decref(array);
    return body;
}

/* A new version of the one that there is, or the first. */
static int put(struct cli *cli, const char *name, json_t *body, json_t **out, struct error *err)
{
    auto_free char *target = target_of(name);
    auto_json json_t *known = NULL;
    struct error why = {0};

    if (cli_call(&cli->server, "GET", target, NULL, &known, NULL, &why) == 0)
        return cli_call(&cli->server, "POST", target, body, out, NULL, err);
    if (why.code != ERROR_NOT_FOUND) {
        *err = why;
        return -1;
    }
    if (cli_v1_set(body, "name", name, err) < 0)
        return -1;
    return cli_call(&cli->server, "POST", "/secrets", body, out, NULL, err);
}

static int set(struct cli *cli, const char *name, const struct cli_list *hosts, bool any_host,
               json_t *metadata)
{
    auto_json json_t *body = NULL, *answer = NULL;
    auto_buf struct buf value = {0};
    struct error err = {0};

    if (cli_connect(cli, &err) < 0 || read_value(name, &value, &err) < 0)
        return cli_fail(&err);
    body = body_of(hosts, any_host, metadata, buf_str(&value));
    if (put(cli, name, body, &answer, &err) < 0)
        return cli_fail(&err);
    if (cli->json)
        cli_print_json(answer);
    else
        printf("%s\n", name);
    return CLI_OK;
}

static int run_set(struct cli *cli, int argc, char **argv)
{
    struct cli_list hosts = {0}, pairs = {0};
    bool any_host = false;
    const struct cli_option table[] = {
        {"host", 0, CLI_LIST, &hosts, "HOST",
         "send it to this host only (also '*.example.com'); several times"},
        {"any-host", 0, CLI_FLAG, &any_host, NULL, "send it to every host whose rule names it"},
        {"meta", 0, CLI_LIST, &pairs, "NAME=VALUE", "metadata; several times"},
        {.name = NULL},
    };
    auto_json json_t *metadata = NULL;
    char **operands;
    int count,
        rc = cli_args(cli, &secret_set, table, CLI_ARGS_ANYWHERE, argc, argv, &operands, &count);

    if (rc == CLI_ARGS_RUN && count != 1)
        rc = cli_usage(&secret_set, "needs one name");
    if (rc == CLI_ARGS_RUN && hosts.count && any_host)
        rc = cli_usage(&secret_set, "takes --host or --any-host");
    if (rc == CLI_ARGS_RUN)
        metadata = cli_v1_pairs(&secret_set, &pairs, "meta", false);
    if (rc == CLI_ARGS_RUN)
        rc = metadata ? set(cli, operands[0], &hosts, any_host, metadata) : CLI_USAGE;
    cli_list_done(&hosts);
    cli_list_done(&pairs);
    return rc;
}

static char *hosts_text(const json_t *row)
{
    const json_t *hosts = json_object_get(row, "hosts"), *host;
    struct buf text;
    size_t i;

    if (!json_array_size(hosts))
        return xstrdup("any");
    buf_init(&text, VALUE_MAX);
    json_array_foreach (hosts, i, host)
        (void)buf_printf(&text, "%s%s", i ? " " : "", json_string_value(host));
    return text.p;
}

static const struct cli_column columns[] = {
    {"NAME", "name"},
    {"ID", "secretID"},
    {"VERSION", "currentVersion"},
    {"HOSTS", .text = hosts_text},
    {"AGE", "createdAt", .age = true},
    {"CHANGED", "updatedAt", .age = true},
    {NULL},
};

static int add_page(struct cli *cli, json_t *all, struct buf *token, struct error *err)
{
    auto_json json_t *page = NULL;
    auto_buf struct buf target = {0};

    buf_init(&target, HTTP_URL_MAX);
    (void)buf_add_str(&target, STR("/secrets?limit=100"));
    if (token->len) {
        (void)buf_add_str(&target, STR("&nextToken="));
        cli_escape(&target, token->p);
    }
    token->len = 0;
    if (cli_call(&cli->server, "GET", target.p, NULL, &page, token, err) < 0)
        return -1;
    return json_array_extend(all, page);
}

static int run_ls(struct cli *cli, int argc, char **argv)
{
    auto_json json_t *all = json_array();
    auto_buf struct buf token = {0};
    struct error err = {0};
    char **operands;
    int count,
        rc = cli_args(cli, &secret_ls, NULL, CLI_ARGS_ANYWHERE, argc, argv, &operands, &count);

    if (rc != CLI_ARGS_RUN)
        return rc;
    if (count)
        return cli_usage(&secret_ls, "takes no operand");
    buf_init(&token, HTTP_URL_MAX);
    if (cli_connect(cli, &err) < 0)
        return cli_fail(&err);
    do {
        if (add_page(cli, all, &token, &err) < 0)
            return cli_fail(&err);
    } while (token.len);
    if (cli->json)
        cli_print_json(all);
    else
        cli_print_rows(all, columns);
    return CLI_OK;
}

static char *rm_target(struct cli *cli, const char *word, const void *arg, struct error *err)
{
    (void)cli;
    (void)arg;
    (void)err;
    return target_of(word);
}

static int run_rm(struct cli *cli, int argc, char **argv)
{
    return cli_remove_each(cli, &secret_rm, "name", rm_target, NULL, argc, argv);
}

static const struct cli_command secret_set = {
    "secret set", "[OPTION...] NAME",
    "Keep a secret, or give one another value; the value is read from stdin.\n"
    "In rules of a sandbox's network '${e2b.secrets.NAME}' stands for it.",
    run_set, .examples = "quicksand secret set openai --host api.openai.com < key.txt"};
static const struct cli_command secret_ls = {"secret ls", "[OPTION...]",
                                             "List the secrets; their values are never shown.",
                                             run_ls, .examples = "quicksand secret ls"};
static const struct cli_command secret_rm = {"secret rm", "[OPTION...] NAME...",
                                             "Remove secrets; requests no longer get them.", run_rm,
                                             .examples = "quicksand secret rm GITHUB"};
const struct cli_command cli_secret_command = {
    "secret", "set, ls, rm", "What requests get on their way out of sandboxes.", NULL,
    (const struct cli_command *const[]){&secret_set, &secret_ls, &secret_rm, NULL}};
