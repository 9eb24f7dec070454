/* login, context: several servers and a key for each, in ~/.quicksand/credentials. One is the current one: the server of
 * commands that are told no other. */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#include "base/address.h"
#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "cli/command/commands.h"
#include "cli/core/cli.h"
#include "cli/core/cli_command.h"
#include "cli/core/cli_credentials.h"
#include "cli/core/cli_print.h"
#include "cli/core/cli_v1.h"
#include "protocol/json/json_shape.h"

enum { KEY_MAX = 1024 };

static const struct cli_command context_ls, context_use, context_rm;

/* ---- the file ---- */

static char *file_path(struct error *err)
{
    const char *home = getenv("HOME");

    if (home && home[0])
        return xasprintf("%s/" CLI_CREDENTIALS, home);
    (void)error_set(err, ERROR_INVALID, "HOME is not set: there is no place for credentials");
    return NULL;
}

static int load(struct cli_credentials *out, struct error *err)
{
    auto_free char *path = file_path(err);

    *out = (struct cli_credentials){.count = 0};
    return path ? cli_credentials_load(path, out, err) : -1;
}

/* Beside the old one, and then in its place: nobody ever sees half of it. */
static int replace_file(const char *path, struct str text, struct error *err)
{
    auto_free char *partial = xasprintf("%s.%d", path, (int)getpid());
    auto_close int fd = open(partial, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    int rc;

    if (fd < 0)
        return error_set_errno(err, errno, "'%s'", partial);
    rc = fd_write_full(fd, text.p, text.len);
    if (rc == 0 && (fsync(fd) < 0 || rename(partial, path) < 0))
        rc = -errno;
    if (rc == 0)
        return 0;
    (void)unlink(partial);
    return error_set_errno(err, -rc, "writing '%s'", path);
}

static int save(const struct cli_credentials *all, struct error *err)
{
    auto_free char *path = file_path(err), *dir = NULL;
    auto_buf struct buf text = {0};

    if (!path)
        return -1;
    dir = xstrdup(path);
    *strrchr(dir, '/') = 0;
    if (mkdir(dir, 0700) < 0 && errno != EEXIST)
        return error_set_errno(err, errno, "'%s'", dir);
    buf_init(&text, CLI_CREDENTIALS_MAX);
    cli_credentials_write(all, &text);
    if (text.overflowed)
        return error_set(err, ERROR_LIMIT, "'%s' would become too long", path);
    return replace_file(path, buf_str(&text), err);
}

/* ---- login ---- */

static int read_key(struct buf *out)
{
    struct termios saved, quiet;
    bool hidden = isatty(STDIN_FILENO) && tcgetattr(STDIN_FILENO, &saved) == 0;
    char c = 0;

    if (!hidden)
        return cli_v1_read_stdin(out);
    (void)fprintf(stderr, "API key (not shown): ");
    quiet = saved;
    quiet.c_lflag &= ~(tcflag_t)ECHO;
    (void)tcsetattr(STDIN_FILENO, TCSAFLUSH, &quiet);
    while (c != '\n' && read(STDIN_FILENO, &c, 1) == 1)
        (void)buf_add_char(out, c);
    (void)tcsetattr(STDIN_FILENO, TCSAFLUSH, &saved);
    (void)fputc('\n', stderr);
    return out->overflowed ? -EFBIG : 0;
}

/* The server is asked with the key before anything is kept. */
static int try_key(struct cli *cli, const char *url, const char *key, struct error *err)
{
    auto_json json_t *answer = NULL;

    if (cli_url_parse(url, &cli->server.api, err) < 0)
        return -1;
    cli->server.sandboxes = cli->server.api;
    cli->server.key = xstrdup(key);
    return cli_v1(cli, "GET", cli_v1_path("profiles"), NULL, &answer, err);
}

static int keep(const char *url, const char *name, const char *key, struct error *err)
{
    struct cli_credentials all;
    int rc = load(&all, err);

    if (rc == 0) {
        cli_credentials_put(&all, url, name, key);
        rc = save(&all, err);
    }
    cli_credentials_done(&all);
    return rc;
}

static int log_in(struct cli *cli, const char *url, const char *given)
{
    struct str host = STR_NONE;
    auto_free char *name = NULL, *key = NULL;
    auto_buf struct buf typed = {0};
    struct error err = {0};
    uint16_t port = 0;
    int rc;

    if (!strstr(url, "://") || !address_of_url(str_of(url), &host, &port))
        return cli_usage(&cli_login_command, "'%s' is no address like https://host:port", url);
    name = given ? xstrdup(given) : str_dup(host);
    buf_init(&typed, KEY_MAX);
    rc = read_key(&typed);
    if (rc < 0) {
        (void)error_set_errno(&err, -rc, "reading the API key");
        return cli_fail(&err);
    }
    key = str_dup(str_trim(buf_str(&typed)));
    if (!key[0] || key[strcspn(key, " \t\r\n")])
        return cli_usage(&cli_login_command, "needs an API key on stdin");
    if (try_key(cli, url, key, &err) < 0 || keep(url, name, key, &err) < 0)
        return cli_fail(&err);
    if (cli->json)
        cli_print_json_new(json_pack("{s:s, s:s, s:b}", "name", name, "url", url, "current", 1));
    else
        printf("signed in to %s as context '%s'\n", url, name);
    return CLI_OK;
}

static int run_login(struct cli *cli, int argc, char **argv)
{
    const char *name = NULL;
    const struct cli_option table[] = {
        {"name", 0, CLI_TEXT, &name, "NAME", "what the context is called (the server's host)"},
        {.name = NULL},
    };
    char **operands;
    int count, rc = cli_args(cli, &cli_login_command, table, CLI_ARGS_ANYWHERE, argc, argv,
                             &operands, &count);

    if (rc != CLI_ARGS_RUN)
        return rc;
    if (count > 1)
        return cli_usage(&cli_login_command, "takes one address");
    if (name && (!name[0] || name[strcspn(name, " \t\r\n=:/\"\\")]))
        return cli_usage(&cli_login_command, "--name '%s' has a character that names cannot have",
                         name);
    return log_in(cli, count ? operands[0] : CLI_DEFAULT_URL, name);
}

const struct cli_command cli_login_command = {
    "login", "[OPTION...] [URL]",
    "Keep the API key of a server, and make that the current one.\n"
    "The key comes by stdin, or is typed, and the server is asked with it before it is kept in\n"
    "~/" CLI_CREDENTIALS ".",
    run_login,
    .examples = "quicksand login https://sandboxes.example.org --name prod\n"
                "quicksand login http://10.0.0.5:3000 < key"};

/* ---- context ---- */

static json_t *contexts_json(const struct cli_credentials *all)
{
    const struct cli_credential *current = cli_credentials_find(all, NULL);
    json_t *rows = json_array();

    for (size_t i = 0; i < all->count; i++) {
        const struct cli_credential *item = &all->items[i];

        /* Of several for one address the last one holds. */
        if (item->url && cli_credentials_find(all, item->url) == item)
            (void)json_array_append_new(rows, json_pack("{s:s?,s:s,s:b}", "name", item->name, "url",
                                                        item->url, "current", item == current));
    }
    return rows;
}

static char *mark(const json_t *row)
{
    return xstrdup(json_is_true(json_object_get(row, "current")) ? "*" : "");
}

static int run_context_ls(struct cli *cli, int argc, char **argv)
{
    static const struct cli_column columns[] = {
        {"CURRENT", .text = mark}, {"NAME", "name"}, {"URL", "url"}, {NULL}};
    struct cli_credentials all;
    auto_json json_t *rows = NULL;
    struct error err = {0};
    char **operands;
    int count,
        rc = cli_args(cli, &context_ls, NULL, CLI_ARGS_ANYWHERE, argc, argv, &operands, &count);

    if (rc != CLI_ARGS_RUN)
        return rc;
    if (count)
        return cli_usage(&context_ls, "takes no operand");
    rc = load(&all, &err);
    rows = contexts_json(&all);
    cli_credentials_done(&all);
    if (rc < 0)
        return cli_fail(&err);
    if (cli->json)
        cli_print_json(rows);
    else
        cli_print_rows(rows, columns);
    return CLI_OK;
}

/* Both change the file by one word: a name or an address. */
static int change(struct cli *cli, const struct cli_command *command, int argc, char **argv,
                  bool (*apply)(struct cli_credentials *all, const char *word))
{
    struct cli_credentials all;
    struct error err = {0};
    char **operands;
    int count, rc = cli_args(cli, command, NULL, CLI_ARGS_ANYWHERE, argc, argv, &operands, &count);

    if (rc != CLI_ARGS_RUN)
        return rc;
    if (count != 1)
        return cli_usage(command, "needs one context");
    rc = load(&all, &err);
    if (rc == 0 && !apply(&all, operands[0]))
        rc = error_set(&err, ERROR_NOT_FOUND,
                       "there is no context '%s'; see 'quicksand context ls'", operands[0]);
    if (rc == 0)
        rc = save(&all, &err);
    cli_credentials_done(&all);
    if (rc < 0)
        return cli_fail(&err);
    if (cli->json)
        printf("[\"%s\"]\n", operands[0]);
    else
        printf("%s\n", operands[0]);
    return CLI_OK;
}

static int run_context_use(struct cli *cli, int argc, char **argv)
{
    return change(cli, &context_use, argc, argv, cli_credentials_use);
}

static int run_context_rm(struct cli *cli, int argc, char **argv)
{
    return change(cli, &context_rm, argc, argv, cli_credentials_remove);
}

static const struct cli_command context_ls = {"context ls", "[OPTION...]",
                                              "List the servers whose keys are kept.",
                                              run_context_ls, .examples = "quicksand context ls"};
static const struct cli_command context_use = {"context use", "[OPTION...] NAME|URL",
                                               "Make a server the current one.", run_context_use,
                                               .examples = "quicksand context use prod\n"
                                                           "quicksand ls --url prod"};
static const struct cli_command context_rm = {
    "context rm", "[OPTION...] NAME|URL", "Forget a server and its key (the key stays valid).",
    run_context_rm, .examples = "quicksand context rm prod"};
const struct cli_command cli_context_command = {
    "context", "ls, use, rm", "Servers that this command line knows, of which one is the current.",
    NULL, (const struct cli_command *const[]){&context_ls, &context_use, &context_rm, NULL}};
