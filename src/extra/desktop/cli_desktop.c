/* desktop: the screen of a sandbox, from a shell. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "cli/core/cli_names.h"
#include "cli/core/cli_print.h"
#include "cli/core/cli_v1.h"
#include "extra/desktop/desktop_extra.h"
#include "protocol/json/json_shape.h"

enum { PICTURE_MAX = 16 << 20, SHOT_MS = 60 * 1000, VNC_PORT = 6080 };

/* What the command line says behind the sandbox: its name and operands. */
struct wish {
    const char *sandbox, *act;
    char **words;
    int count;
    const char *out;
};

static int save(struct str picture, const char *name, struct error *err)
{
    auto_close int fd = -1;
    int r;

    if (!name || strcmp(name, "-") == 0) {
        r = fd_write_full(STDOUT_FILENO, picture.p, picture.len);
        return r < 0 ? error_set_errno(err, -r, "writing the picture") : 0;
    }
    fd = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    r = fd < 0 ? -errno : fd_write_full(fd, picture.p, picture.len);
    return r < 0 ? error_set_errno(err, -r, "write '%s'", name) : 0;
}

static int take_shot(struct cli *cli, const struct wish *wish, struct error *err)
{
    auto_call struct http_call call = {.fd = -1};
    auto_free char *path = cli_v1_path("sandboxes", wish->sandbox, "desktop", "screenshot");
    int rc = 0;

    if (wish->count)
        return error_set(err, ERROR_INVALID, "screenshot takes no operands");
    if (!wish->out && isatty(STDOUT_FILENO))
        return error_set(err, ERROR_INVALID,
                         "a picture is nothing for a terminal: say where to with -o FILE");
    if (cli_v1_open(cli, path, "image/png", SHOT_MS, PICTURE_MAX, &call, err) < 0)
        return -1;
    do
        rc = http_call_recv(&call, err);
    while (rc > 0);
    return rc < 0 ? -1 : save(buf_str(&call.body), wish->out, err);
}

/* ---- what a hand does ---- */

static int number(const char *text, json_t *body, const char *member, struct error *err)
{
    int64_t value;

    if (!str_to_i64(str_of(text), &value))
        return error_set(err, ERROR_INVALID, "'%s' is not a number", text);
    (void)json_object_set_new(body, member, json_integer(value));
    return 0;
}

/* X Y, and for a drag X Y again. */
static int places(const struct wish *wish, int from, int count, json_t *body, struct error *err)
{
    static const char *const members[] = {"x", "y", "to_x", "to_y"};

    if (wish->count < from + count)
        return error_set(err, ERROR_INVALID, "%s needs %s", wish->act,
                         count == 4 ? "X Y and X Y" : "X and Y");
    for (int i = 0; i < count; i++)
        if (number(wish->words[from + i], body, members[i], err) < 0)
            return -1;
    return 0;
}

static int fill_keys(const struct wish *wish, json_t *body)
{
    json_t *keys = json_array();

    for (int i = 0; i < wish->count; i++)
        (void)json_array_append_new(keys, json_string(wish->words[i]));
    return json_object_set_new(body, "keys", keys);
}

/* [left|middle|right] [X Y] */
static int fill_click(const struct wish *wish, json_t *body, struct error *err)
{
    bool named = wish->count % 2 == 1;

    if (named && cli_v1_set(body, "button", wish->words[0], err) < 0)
        return -1;
    return wish->count > 1 ? places(wish, named, 2, body, err) : 0;
}

/* [up|down|left|right] [STEPS] */
static int fill_scroll(const struct wish *wish, json_t *body, struct error *err)
{
    if (wish->count > 0 && cli_v1_set(body, "direction", wish->words[0], err) < 0)
        return -1;
    return wish->count > 1 ? number(wish->words[1], body, "count", err) : 0;
}

static int fill(const struct wish *wish, json_t *body, struct error *err)
{
    if (strcmp(wish->act, "click") == 0)
        return fill_click(wish, body, err);
    if (strcmp(wish->act, "move") == 0)
        return places(wish, 0, 2, body, err);
    if (strcmp(wish->act, "drag") == 0)
        return places(wish, 0, 4, body, err);
    if (strcmp(wish->act, "scroll") == 0)
        return fill_scroll(wish, body, err);
    if (strcmp(wish->act, "key") == 0)
        return fill_keys(wish, body);
    if (strcmp(wish->act, "type") == 0)
        return cli_v1_set(body, "text", wish->count ? wish->words[0] : "", err);
    return error_set(err, ERROR_INVALID,
                     "no '%s': there are screenshot, open, move, click, type, key, scroll, drag, "
                     "record",
                     wish->act);
}

static int act(struct cli *cli, const struct wish *wish, struct error *err)
{
    auto_json json_t *body = json_object();

    if (fill(wish, body, err) < 0)
        return -1;
    return cli_v1(cli, "POST", cli_v1_path("sandboxes", wish->sandbox, "desktop", wish->act), body,
                  NULL, err);
}

/* ---- by programs of the template ---- */

/* Runs it in the sandbox; *out: what it printed. */
static int run_inside(struct cli *cli, const struct wish *wish, json_t *argv_consume, char **out,
                      struct error *err)
{
    auto_json json_t *body = json_pack("{s:o}", "argv", argv_consume), *answer = NULL;
    struct str said;

    if (cli_v1(cli, "POST", cli_v1_path("sandboxes", wish->sandbox, "execute"), body, &answer,
               err) < 0)
        return -1;
    if (json_integer_value(json_object_get(answer, "exit_code")) != 0) {
        said = str_trim(json_get_str(answer, "stderr"));
        return error_set(err, ERROR_CONFLICT, "%.*s", STR_ARG(said));
    }
    *out = str_dup(str_trim(json_get_str(answer, "stdout")));
    return 0;
}

static int record(struct cli *cli, const struct wish *wish, struct error *err)
{
    auto_free char *file = NULL;
    json_t *argv = json_pack("[s]", "desktop-record");

    for (int i = 0; i < wish->count; i++)
        (void)json_array_append_new(argv, json_string(wish->words[i]));
    if (run_inside(cli, wish, argv, &file, err) < 0)
        return -1;
    printf("%s\n", file);
    return 0;
}

/* The address of the screen in a browser; who has it sees and steers. */
static int open_screen(struct cli *cli, const struct wish *wish, struct error *err)
{
    auto_free char *password = NULL;
    auto_json json_t *answer = NULL;
    char port[8];

    (void)snprintf(port, sizeof(port), "%d", VNC_PORT);
    if (run_inside(cli, wish, json_pack("[s]", "desktop-stream"), &password, err) < 0 ||
        cli_v1(cli, "GET", cli_v1_path("sandboxes", wish->sandbox, "ports", port), NULL, &answer,
               err) < 0)
        return -1;
    printf("%.*s/vnc.html?autoconnect=true&resize=scale&password=%s\n",
           STR_ARG(json_get_str(answer, "url")), password);
    return 0;
}

static int do_wish(struct cli *cli, const struct wish *wish, struct error *err)
{
    if (strcmp(wish->act, "screenshot") == 0)
        return take_shot(cli, wish, err);
    if (strcmp(wish->act, "record") == 0)
        return record(cli, wish, err);
    if (strcmp(wish->act, "open") == 0)
        return open_screen(cli, wish, err);
    return act(cli, wish, err);
}

static int run_desktop(struct cli *cli, int argc, char **argv)
{
    struct wish wish = {0};
    const struct cli_option table[] = {
        {"output", 'o', CLI_TEXT, &wish.out, "FILE", "where the picture goes (-: standard output)"},
        {.name = NULL},
    };
    struct error err = {0};
    char **operands;
    int count, rc = cli_args(cli, &cli_desktop_command, table, CLI_ARGS_ANYWHERE, argc, argv,
                             &operands, &count);

    if (rc != CLI_ARGS_RUN)
        return rc;
    if (count < 2)
        return cli_usage(&cli_desktop_command, "needs a sandbox and what to do");
    wish.act = operands[1];
    wish.words = operands + 2;
    wish.count = count - 2;
    if (cli_connect_to(cli, operands, 1, &err) < 0)
        return cli_fail(&err);
    wish.sandbox = operands[0];
    if (do_wish(cli, &wish, &err) < 0)
        return cli_fail(&err);
    return CLI_OK;
}

const struct cli_command cli_desktop_command = {
    "desktop",
    "SANDBOX screenshot -o FILE | open | click [BUTTON] [X Y] | move X Y | drag X Y X Y | type "
    "TEXT "
    "| key KEY... | scroll [DIRECTION [STEPS]] | record start|stop [FILE]",
    "See and steer the screen of a sandbox.", run_desktop,
    .examples = "quicksand desktop i... screenshot -o screen.png\n"
                "quicksand desktop i... click 100 200"};
