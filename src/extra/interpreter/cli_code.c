/* code: a cell in a sandbox with the interpreter. Text is written as it comes, results are shown as text, pictures become files. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/encode.h"
#include "base/fd.h"
#include "cli/command/cli_runtime.h"
#include "cli/core/cli_names.h"
#include "cli/core/cli_table.h"
#include "cli/core/cli_up.h"
#include "cli/core/cli_v1.h"
#include "extra/interpreter/interpreter_extra.h"
#include "protocol/json/json_shape.h"

#define CODE_TEMPLATE      "code-interpreter-v1"
#define CODE_TEMPLATE_FULL "code-interpreter-full"

enum {
    EXIT_TIMED_OUT = 124,
    LEASE_S = 60, /* a sandbox outlives a command line that was killed by at most this */
    CONNECT_MS = 30 * 1000,
    LINE_MAX_BYTES = 64 * 1024 * 1024,
    CODE_MAX = 1024 * 1024,
    PICTURES_MAX = 10000,
};

struct code_options {
    const char *language, *file, *sandbox, *context, *template_name, *directory;
    struct cli_list env;
    int64_t timeout_s;
};

struct running {
    struct cli *cli;
    const struct code_options *options;
    const char *id;
    struct str code;
    struct http_call stream;
    int signal_fd, status;
    bool ended;
    struct error fault; /* of writing */
};

/* ---- what is shown ---- */

static void write_text(int fd, struct str text)
{
    (void)fflush(stdout);
    (void)fd_write_full(fd, text.p, text.len);
}

/* The first name that is free. */
static int open_picture(const char *directory, const char *ending, char **out_name)
{
    for (int i = 1; i <= PICTURES_MAX; i++) {
        char *name = xasprintf("%s/figure-%d.%s", directory, i, ending);
        int fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);

        if (fd >= 0 || errno != EEXIST) {
            *out_name = name;
            return fd;
        }
        free(name);
    }
    *out_name = xstrdup(directory);
    errno = EEXIST;
    return -1;
}

static int save_picture(struct running *running, struct str bytes, const char *ending)
{
    auto_free char *name = NULL;
    auto_close int fd = open_picture(
        running->options->directory ? running->options->directory : ".", ending, &name);

    if (fd < 0 || fd_write_full(fd, bytes.p, bytes.len) != 0)
        return error_set_errno(&running->fault, errno, "'%s'", name);
    printf("wrote %s\n", strncmp(name, "./", 2) == 0 ? name + 2 : name);
    return 0;
}

static const struct {
    const char *member, *ending;
    bool encoded;
} pictures[] = {
    {"png", "png", true}, {"jpeg", "jpg", true}, {"svg", "svg", false}, {"pdf", "pdf", true}};

/* False: it has none. */
static bool save_pictures(struct running *running, const json_t *result)
{
    for (size_t i = 0; i < sizeof(pictures) / sizeof(pictures[0]); i++) {
        struct str text = json_get_str(result, pictures[i].member);
        auto_buf struct buf bytes = {0};

        if (!text.len)
            continue;
        buf_init(&bytes, LINE_MAX_BYTES);
        if (pictures[i].encoded && !base64_decode(text, &bytes))
            (void)error_set(&running->fault, ERROR_UNAVAILABLE, "a picture that is not base64");
        else
            (void)save_picture(running, pictures[i].encoded ? buf_str(&bytes) : text,
                               pictures[i].ending);
        return true;
    }
    return false;
}

static void show_result(struct running *running, const json_t *result)
{
    static const char *const members[] = {"text", "markdown", "latex", "html"};

    if (save_pictures(running, result))
        return;
    for (size_t i = 0; i < sizeof(members) / sizeof(members[0]); i++) {
        struct str text = json_get_str(result, members[i]);

        if (!text.p)
            continue;
        write_text(STDOUT_FILENO, text);
        write_text(STDOUT_FILENO, STR("\n"));
        return;
    }
}

static void show_error(struct running *running, const json_t *line)
{
    struct str text = json_get_str(line, "traceback");

    running->status = CLI_FAILED;
    if (!text.len)
        text = json_get_str(line, "value");
    write_text(STDERR_FILENO, text);
    write_text(STDERR_FILENO, STR("\n"));
}

static void on_exit_line(struct running *running, const json_t *line)
{
    running->ended = true;
    if (!json_is_true(json_object_get(line, "timed_out")))
        return;
    running->status = EXIT_TIMED_OUT;
    (void)fprintf(stderr, "quicksand: the code reached its time limit\n");
}

static int show(struct running *running, const json_t *line, struct error *err)
{
    struct str type = json_get_str(line, "type");
    const json_t *failure = json_object_get(line, "error");

    if (str_is(type, "exit"))
        on_exit_line(running, line);
    else if (json_is_object(failure) && !str_is(type, "exit"))
        return error_set(err, ERROR_UNAVAILABLE, "%.*s", STR_ARG(json_get_str(failure, "message")));
    else if (str_is(type, "error"))
        running->status = CLI_FAILED;
    if (running->cli->json)
        return 0;
    if (str_is(type, "stdout") || str_is(type, "stderr"))
        write_text(str_is(type, "stdout") ? STDOUT_FILENO : STDERR_FILENO,
                   json_get_str(line, "text"));
    else if (str_is(type, "result"))
        show_result(running, line);
    else if (str_is(type, "error"))
        show_error(running, line);
    if (!running->fault.code)
        return 0;
    *err = running->fault;
    return -1;
}

/* ---- the stream ---- */

static int take_lines(struct running *running, struct error *err)
{
    struct str rest = buf_str(&running->stream.body);
    ptrdiff_t end;

    if (running->stream.status != 200)
        return 0;
    while (!running->ended && (end = str_find(rest, '\n')) >= 0) {
        struct str text = str_n(rest.p, (size_t)end);
        auto_json json_t *line = NULL;

        rest = str_skip(rest, (size_t)end + 1);
        if (!text.len)
            continue;
        if (json_parse(text, &line, err) < 0)
            return error_prefix(err, "the server's answer");
        if (running->cli->json)
            printf("%.*s\n", STR_ARG(text));
        if (show(running, line, err) < 0)
            return -1;
    }
    buf_drop(&running->stream.body, running->stream.body.len - rest.len);
    return 0;
}

static bool stopped(struct running *running)
{
    struct signalfd_siginfo signal;

    if (read(running->signal_fd, &signal, sizeof(signal)) != (ssize_t)sizeof(signal))
        return false;
    running->status = 128 + (int)signal.ssi_signo;
    return true;
}

static int pump(struct running *running, struct error *err)
{
    struct pollfd items[] = {{.fd = running->stream.fd, .events = POLLIN},
                             {.fd = running->signal_fd, .events = POLLIN}};

    for (;;) {
        int got = http_call_take(&running->stream, err);

        if (got < 0 || take_lines(running, err) < 0)
            return -1;
        if (running->ended)
            return 0;
        if (got == 0)
            return running->stream.status != 200
                       ? cli_answer_error(&running->stream, err)
                       : error_set(err, ERROR_UNAVAILABLE,
                                   "the server ended the answer before the code did");
        if (poll(items, 2, got == HTTP_CALL_LATER ? -1 : 0) < 0 && errno != EINTR)
            return error_set_errno(err, errno, "poll");
        if (items[1].revents && stopped(running))
            return 0;
        items[1].revents = 0;
    }
}

static json_t *body_of(struct running *running, json_t *env, struct error *err)
{
    const struct code_options *options = running->options;
    auto_json json_t *body = json_pack("{s:o, s:b}", "code", json_str(running->code), "stream", 1);

    if (cli_v1_set(body, "language", options->language, err) < 0 ||
        cli_v1_set(body, "context_id", options->context, err) < 0)
        return NULL;
    if (options->timeout_s)
        (void)json_object_set_new(body, "timeout", json_integer(options->timeout_s));
    (void)json_object_set(body, "env", env);
    return json_incref(body);
}

static int run_cell(struct running *running, json_t *env, struct error *err)
{
    const struct cli_server *server = &running->cli->server;
    auto_free char *path = cli_v1_path("sandboxes", running->id, "code"), *text = NULL;
    auto_json json_t *body = body_of(running, env, err);
    const struct pair headers[] = {
        {STR("X-API-KEY"), str_of(server->key)},
        {STR("User-Agent"), STR("quicksand/" QUICKSAND_VERSION)},
        {STR("Content-Type"), STR("application/json")},
        {STR("Accept"), STR("application/x-ndjson")},
    };
    int rc;

    if (!body)
        return -1;
    text = json_text(body);
    rc = cli_stream_open(&running->stream, &server->api,
                         &(struct http_call_request){.method = "POST",
                                                     .target = path,
                                                     .headers = headers,
                                                     .header_count = 4,
                                                     .body = str_of(text)},
                         CONNECT_MS, LINE_MAX_BYTES, err);
    if (rc == 0)
        rc = pump(running, err);
    http_call_done(&running->stream);
    return rc;
}

/* ---- the sandbox ---- */

static int run_in_new(struct running *running, json_t *env, struct error *err)
{
    struct cli_up up = {.template_name = running->options->template_name, .idle_s = LEASE_S};
    auto_json json_t *answer = NULL, *body = NULL;
    auto_free char *id = NULL;
    struct error left = {0};
    int rc, status;

    body = cli_up_body(&cli_code_command, &up, &status);
    if (!body || cli_v1(running->cli, "POST", cli_v1_path("sandboxes"), body, &answer, err) < 0)
        return -1;
    running->id = id = str_dup(json_get_str(answer, "id"));
    rc = run_cell(running, env, err);
    if (cli_v1(running->cli, "DELETE", cli_v1_path("sandboxes", id), NULL, NULL, &left) < 0 &&
        left.code != ERROR_NOT_FOUND)
        (void)fprintf(stderr, "quicksand: the sandbox %s could not be removed: %s\n", id,
                      left.message);
    return rc;
}

static int run_code(struct cli *cli, const struct code_options *options, struct str code)
{
    auto_json json_t *env = cli_v1_pairs(&cli_code_command, &options->env, "env", true);
    struct running running = {.cli = cli,
                              .options = options,
                              .id = options->sandbox,
                              .code = code,
                              .stream = {.fd = -1},
                              .status = CLI_OK};
    auto_close int signal_fd = -1;
    struct error err = {0};
    int rc;

    if (!env)
        return CLI_USAGE;
    if (cli_connect(cli, &err) < 0 ||
        (options->sandbox && !(running.id = cli_name_id(cli, options->sandbox, &err))))
        return cli_fail(&err);
    running.signal_fd = signal_fd = cli_runtime_signals();
    rc = options->sandbox ? run_cell(&running, env, &err) : run_in_new(&running, env, &err);
    return rc < 0 ? cli_fail(&err) : running.status;
}

/* The operand, a file, or stdin. */
static int read_code(const struct code_options *options, char **operands, int count,
                     struct buf *out, struct error *err)
{
    int rc;

    if (count) {
        (void)buf_add_str(out, str_of(operands[0]));
        return out->overflowed ? error_set(err, ERROR_LIMIT, "the code is too long") : 0;
    }
    rc = options->file && strcmp(options->file, "-") != 0
             ? fd_read_file_at(AT_FDCWD, options->file, out)
             : cli_v1_read_stdin(out);
    return rc < 0 ? error_set_errno(err, -rc, "'%s'", options->file ? options->file : "stdin") : 0;
}

/* Its kernel is in the larger template only. */
static bool is_large(const char *language)
{
    struct str name = str_of(language);

    return str_eq_nocase(name, STR("r")) || str_eq_nocase(name, STR("java"));
}

static int run(struct cli *cli, int argc, char **argv)
{
    struct code_options options = {0};
    const struct cli_option table[] = {
        {"language", 'l', CLI_TEXT, &options.language, "NAME",
         "python (the default), javascript, typescript, bash, r, java"},
        {"file", 'f', CLI_TEXT, &options.file, "FILE", "the code; - is stdin"},
        {"sandbox", 's', CLI_TEXT, &options.sandbox, "ID", "where, instead of in a new one"},
        {"context", 0, CLI_TEXT, &options.context, "ID", "a context of that sandbox"},
        {"template", 't', CLI_TEXT, &options.template_name, "NAME",
         "of a new one (" CODE_TEMPLATE "; for r and java " CODE_TEMPLATE_FULL ")"},
        {"output", 'o', CLI_TEXT, &options.directory, "DIR", "where pictures are written (here)"},
        {"env", 'e', CLI_LIST, &options.env, "NAME[=VALUE]", "environment; may be repeated"},
        {"timeout", 0, CLI_TIME, &options.timeout_s, "TIME", "end it after so long (status 124)"},
        {.name = NULL},
    };
    auto_buf struct buf code = {0};
    struct error err = {0};
    char **operands;
    int count, rc = cli_args(cli, &cli_code_command, table, CLI_ARGS_ANYWHERE, argc, argv,
                             &operands, &count);

    buf_init(&code, CODE_MAX);
    if (!options.template_name)
        options.template_name = is_large(options.language) ? CODE_TEMPLATE_FULL : CODE_TEMPLATE;
    if (rc == CLI_ARGS_RUN && (count > 1 || (count && options.file)))
        rc = cli_usage(&cli_code_command, "takes one text, or a file");
    else if (rc == CLI_ARGS_RUN && read_code(&options, operands, count, &code, &err) < 0)
        rc = cli_fail(&err);
    else if (rc == CLI_ARGS_RUN)
        rc = run_code(cli, &options, buf_str(&code));
    cli_list_done(&options.env);
    return rc;
}

const struct cli_command cli_code_command = {
    "code", "[OPTION...] [CODE]",
    "Run code like a cell of a notebook, in a new sandbox that is removed afterwards or in one "
    "that is there.\n"
    "What it prints comes as it is printed, its results as text; pictures become files. Without "
    "CODE it is read\n"
    "from FILE or stdin. With --json each line of the answer is one of ours.",
    run,
    .examples = "quicksand code '6 * 7'\n"
                "quicksand code -f plot.py -o pictures\n"
                "quicksand code --sandbox i... --language js 'await fetch(url)'"};
