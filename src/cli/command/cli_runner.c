/* `quicksand runner`: offers this host to a server for plain processes, isolated from nothing but by
 * the user it runs as. envd listens here with a token made for this run; the
 * server is told where, and again every HEARTBEAT_S seconds, for as long as this command runs. */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/id.h"
#include "base/parts.h"
#include "cli/command/commands.h"
#include "cli/core/cli.h"
#include "cli/core/cli_command.h"
#include "protocol/fetch/fetch.h"
#include "protocol/json/json_shape.h"
#include "provider/process/process_envd.h"

enum { HEARTBEAT_S = 20, TOKEN_SIZE = 65, CALL_MS = 15000 };

struct runner {
    /* options */
    const char *server, *key, *listen, *root, *name, *advertise, *program;
    int64_t max_sessions;
    /* at work */
    struct fetch *fetch;
    char *base_url;
    char token[TOKEN_SIZE];
    char host[HOST_NAME_MAX + 1];
    char envd[PATH_MAX + 32];
    bool registered;
};

/* *out_status: the server's answer; a refusal is not a failure here. */
static int call(const struct runner *runner, const char *method, const char *tail,
                const json_t *body, int *out_status, struct error *err)
{
    auto_free char *url = xasprintf("%s/api/v1/providers%s", runner->server, tail);
    auto_free char *text = body ? json_text(body) : NULL;
    auto_response struct fetch_response response = {0};
    const struct pair headers[] = {{STR("X-API-Key"), str_of(runner->key)},
                                   {STR("Content-Type"), STR("application/json")}};
    auto_json json_t *json = NULL;
    struct error ignored;
    struct str message;

    if (fetch_call(runner->fetch,
                   &(struct fetch_request){.method = method,
                                           .url = url,
                                           .headers = headers,
                                           .header_count = 2,
                                           .body = str_of(text),
                                           .timeout_ms = CALL_MS},
                   &response, err) < 0)
        return -1;
    *out_status = response.status;
    if (response.status < 400)
        return 0;
    (void)json_parse(buf_str(&response.body), &json, &ignored);
    message = json_get_str(json_object_get(json, "error"), "message");
    return error_set(err, ERROR_UNAVAILABLE, "the server answered %d: %.*s", response.status,
                     (int)(message.len < 200 ? message.len : 200), message.p ? message.p : "");
}

static int enrol(struct runner *runner, struct error *err)
{
    auto_json json_t *body = json_pack(
        "{s:s, s:s, s:s, s:s, s:I}", "name", runner->name, "type", "runner", "base_url",
        runner->base_url, "token", runner->token, "max_sessions", (json_int_t)runner->max_sessions);
    int status = 0;

    if (!body)
        return error_set(err, ERROR_INVALID, "the runner's name is not text");
    if (call(runner, "POST", "", body, &status, err) < 0)
        return error_prefix(err, "register at '%.100s'", runner->server);
    runner->registered = true;
    return 0;
}

/* Sandboxes are directories with their ids as names. */
static int64_t count_sandboxes(const char *root)
{
    DIR *dir = opendir(root);
    struct dirent *entry;
    int64_t count = 0;

    while (dir && (entry = readdir(dir)) != NULL)
        count += id_valid(str_of(entry->d_name));
    if (dir)
        (void)closedir(dir);
    return count;
}

/* A server that has forgotten us is told again. */
static void beat(struct runner *runner)
{
    auto_free char *tail = xasprintf("/%s/heartbeat", runner->name);
    auto_json json_t *body =
        json_pack("{s:I}", "active_sessions", (json_int_t)count_sandboxes(runner->root));
    struct error err = {0};
    int status = 0;

    if (call(runner, "POST", tail, body, &status, &err) == 0)
        return;
    if (status == 404 && enrol(runner, &err) == 0)
        return;
    (void)fprintf(stderr, "quicksand: heartbeat: %s\n", err.message);
}

static void leave(struct runner *runner)
{
    auto_free char *tail = xasprintf("/%s", runner->name);
    struct error ignored;
    int status;

    if (runner->registered)
        (void)call(runner, "DELETE", tail, NULL, &status, &ignored);
}

/* Returns the exit status. */
static int stay(struct runner *runner, int signal_fd, int envd_fd)
{
    int64_t next_ms = clock_mono_ms() + HEARTBEAT_S * 1000;

    for (;;) {
        struct pollfd fds[] = {{.fd = signal_fd, .events = POLLIN},
                               {.fd = envd_fd, .events = POLLIN}};
        int64_t left_ms = next_ms - clock_mono_ms();

        (void)poll(fds, 2, left_ms > 0 ? (int)left_ms : 0);
        if (fds[0].revents)
            return CLI_OK;
        if (fds[1].revents) {
            (void)fprintf(stderr, "quicksand: envd ended by itself\n");
            return CLI_FAILED;
        }
        if (clock_mono_ms() >= next_ms) {
            next_ms = clock_mono_ms() + HEARTBEAT_S * 1000;
            beat(runner);
        }
    }
}

/* "ADDRESS:PORT"; *out_port is what the system gave for 0. */
static int listen_at(const char *text, uint16_t *out_port, struct error *err)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    struct str rest = str_of(text), host = str_split(&rest, ':');
    socklen_t len = sizeof(address);
    auto_close int fd = -1;
    char ip[INET_ADDRSTRLEN];
    uint64_t port;
    int on = 1;

    if (!str_copy(host, ip, sizeof(ip)) || inet_pton(AF_INET, ip, &address.sin_addr) != 1 ||
        !str_to_u64(rest, &port) || port > UINT16_MAX)
        return error_set(err, ERROR_INVALID, "'%.60s' is not ADDRESS:PORT", text);
    address.sin_port = htons((uint16_t)port);
    fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return error_set_errno(err, errno, "socket");
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0 || listen(fd, 128) < 0 ||
        getsockname(fd, (struct sockaddr *)&address, &len) < 0)
        return error_set_errno(err, errno, "listen on '%.60s'", text);
    *out_port = ntohs(address.sin_port);
    return take_fd(&fd);
}

static int block_signals(void)
{
    sigset_t set;

    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGTERM);
    (void)sigaddset(&set, SIGINT);
    (void)sigaddset(&set, SIGHUP);
    (void)sigprocmask(SIG_BLOCK, &set, NULL);
    return signalfd(-1, &set, SFD_CLOEXEC);
}

static int work(struct runner *runner, struct error *err)
{
    auto_close int listener = -1, signal_fd = -1, envd_fd = -1;
    struct process_envd envd = {.parent_fd = -1};
    struct str address;
    uint16_t port = 0;
    int status = -1;

    listener = listen_at(runner->listen, &port, err);
    if (listener < 0)
        return -1;
    address = str_of(runner->listen);
    address.len = strcspn(runner->listen, ":");
    runner->base_url = runner->advertise ? xstrdup(runner->advertise)
                                         : xasprintf("http://%.*s:%u", STR_ARG(address), port);
    id_hex(runner->token, sizeof(runner->token) / 2);
    signal_fd = block_signals();
    if (process_envd_start(&(struct process_envd_spec){.program = runner->program,
                                                       .root = runner->root,
                                                       .listen_fd = listener,
                                                       .token = str_of(runner->token)},
                           &envd, err) < 0)
        return -1;
    close_fd(&listener);
    envd_fd = (int)syscall(SYS_pidfd_open, envd.pid, 0);
    if (enrol(runner, err) == 0) {
        (void)printf("runner '%s' at %s, directories in '%s'\n", runner->name, runner->base_url,
                     runner->root);
        (void)fflush(stdout);
        status = stay(runner, signal_fd, envd_fd);
    }
    leave(runner);
    process_envd_stop(&envd);
    return status;
}

/* Address and key as for all commands, unless both were given. */
static int find_server(struct cli *cli, struct runner *runner, char **out_url, struct error *err)
{
    if (!runner->server && cli->url)
        runner->server = cli->url;
    if (!runner->server || !runner->key) {
        cli->url = runner->server;
        if (cli_connect(cli, err) < 0)
            return -1;
        if (!runner->key)
            runner->key = cli->server.key;
        *out_url = xasprintf("%s://%s:%u", cli->server.api.tls ? "https" : "http",
                             cli->server.api.host, cli->server.api.port);
        if (!runner->server)
            runner->server = *out_url;
    }
    return 0;
}

static void set_defaults(struct runner *runner)
{
    if (!runner->name) {
        if (gethostname(runner->host, sizeof(runner->host) - 1) < 0)
            (void)str_copy(STR("runner"), runner->host, sizeof(runner->host));
        for (char *c = runner->host; *c; c++)
            if (*c >= 'A' && *c <= 'Z')
                *c = (char)(*c - 'A' + 'a');
            else if (*c == '.')
                *c = '-';
        runner->name = runner->host;
    }
    if (!runner->program) {
        part_path("envd", runner->envd, sizeof(runner->envd));
        runner->program = runner->envd;
    }
}

/* What it runs has its user: the key must be neither in what /proc tells of this process nor in reach
 * of a debugger. */
static char *hide_key(struct runner *runner)
{
    char *given = (char *)(uintptr_t)runner->key, *key = given ? xstrdup(given) : NULL;

    if (given) /* in argv */
        memset(given, '*', strlen(given));
    runner->key = key;
    (void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    return key;
}

static int run_runner(struct cli *cli, int argc, char **argv)
{
    struct runner runner = {.max_sessions = 1, .listen = "127.0.0.1:0"};
    const struct cli_option options[] = {
        {"server", 0, CLI_TEXT, &runner.server, "URL", "the server to work for"},
        {"token", 0, CLI_TEXT, &runner.key, "KEY", "key of that server"},
        {"listen", 0, CLI_TEXT, &runner.listen, "ADDR:PORT", "where the server reaches this host"},
        {"advertise", 0, CLI_TEXT, &runner.advertise, "URL",
         "the same as the server must write it (behind a proxy or for 0.0.0.0)"},
        {"root", 0, CLI_TEXT, &runner.root, "DIR", "where sandboxes' directories are made"},
        {"name", 0, CLI_TEXT, &runner.name, "NAME", "its name (default: the host's)"},
        {"max-sessions", 0, CLI_COUNT, &runner.max_sessions, "N", "how many at once [1]"},
        {"envd", 0, CLI_TEXT, &runner.program, "FILE", "its program (default: beside this one)"},
        {"agent", 0, CLI_TEXT, &runner.program, "FILE", "the same, as it was called before"},
        {0},
    };
    auto_free char *url = NULL, *key = NULL;
    struct error err = {0};
    char **operands;
    int count, rc = cli_args(cli, &cli_runner_command, options, CLI_ARGS_ANYWHERE, argc, argv,
                             &operands, &count);

    if (rc != CLI_ARGS_RUN)
        return rc;
    if (count || !runner.root)
        return cli_usage(&cli_runner_command, count ? "takes no operand" : "--root is needed");
    if (geteuid() == 0)
        return cli_usage(&cli_runner_command,
                         "whatever it runs has the rights of this user: not as root");
    key = hide_key(&runner);
    if (find_server(cli, &runner, &url, &err) < 0)
        return cli_fail(&err);
    set_defaults(&runner);
    runner.fetch = fetch_new();
    rc = work(&runner, &err);
    fetch_free(runner.fetch);
    free(runner.base_url);
    return rc < 0 ? cli_fail(&err) : rc;
}

const struct cli_command cli_runner_command = {
    "runner", "--root DIR",
    "Offer this host to a server for plain processes.\n"
    "They run with the rights of the user who starts this command and are isolated from\n"
    "nothing else. The server reaches envd over plain HTTP with a token: put both in one\n"
    "private network.",
    run_runner, .examples = "quicksand runner --server http://server:3000 --root /srv/work"};
