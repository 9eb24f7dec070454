#include "cli/core/cli_v1.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "cli/core/cli_ends.h"
#include "cli/core/cli_print.h"
#include "cli/core/cli_table.h"
#include "protocol/json/json_shape.h"

enum { FILE_MAX = 1024 * 1024, READ_SIZE = 64 * 1024 };

char *cli_v1_path_of(const char *segment, ...)
{
    struct buf path;
    va_list more;

    buf_init(&path, HTTP_URL_MAX);
    (void)buf_add_str(&path, STR(CLI_V1));
    va_start(more, segment);
    for (; segment; segment = va_arg(more, const char *)) {
        (void)buf_add_char(&path, '/');
        cli_escape(&path, segment);
    }
    va_end(more);
    return buf_take(&path);
}

int cli_v1(struct cli *cli, const char *method, char *path_consume, const json_t *body,
           json_t **out, struct error *err)
{
    auto_free char *path = path_consume;

    return cli_call(&cli->server, method, path, body, out, NULL, err);
}

json_t *cli_v1_sandbox(struct cli *cli, const char *id, struct error *err)
{
    auto_free char *path = cli_v1_path("sandboxes", id);
    auto_json json_t *row = NULL;

    if (cli_v1(cli, "GET", xasprintf("%s?ports=true", path), NULL, &row, err) < 0 ||
        cli_ends_add_one(cli, row, err) < 0)
        return NULL;
    return json_incref(row);
}

void cli_v1_warn_forgotten(const char *name, const json_t *answer)
{
    struct str message = json_get_str(answer, "message");
    auto_free char *text = cli_defuse(str_dup(message.p ? message : STR("")), true);

    if (json_is_true(json_object_get(answer, "forgotten")))
        (void)fprintf(stderr, "quicksand: %s: %s\n", name, text);
}

int cli_v1_remove(struct cli *cli, const char *collection, const char *query, char *const *names,
                  int count)
{
    auto_json json_t *removed = json_array();
    struct error err = {0};
    int status = CLI_OK;

    for (int i = 0; i < count; i++) {
        auto_free char *path = cli_v1_path(collection, names[i]);
        auto_json json_t *answer = NULL;

        if (cli_v1(cli, "DELETE", xasprintf("%s%s", path, query ? query : ""), NULL, &answer,
                   &err) < 0) {
            status = cli_fail(&err);
            continue;
        }
        cli_v1_warn_forgotten(names[i], answer);
        (void)json_array_append_new(removed, json_str(str_of(names[i])));
        if (!cli->json)
            printf("%s\n", names[i]);
    }
    if (cli->json)
        cli_print_json(removed);
    return status;
}

int cli_v1_open(struct cli *cli, const char *path, const char *accept, uint32_t timeout_ms,
                size_t max, struct http_call *stream, struct error *err)
{
    const struct pair headers[] = {
        {STR("X-API-KEY"), str_of(cli->server.key)},
        {STR("User-Agent"), STR("quicksand/" QUICKSAND_VERSION)},
        {STR("Accept"), str_of(accept)},
    };
    const struct http_call_request request = {
        .method = "GET", .target = path, .headers = headers, .header_count = accept ? 3 : 2};

    if (cli_stream_open(stream, &cli->server.api, &request, timeout_ms, max, err) < 0 ||
        http_call_recv_head(stream, err) < 0)
        return -1;
    if (stream->status / 100 == 2)
        return 0;
    if (http_call_recv_all(stream, err) < 0)
        return -1;
    return cli_answer_error(stream, err);
}

int cli_v1_set(json_t *object, const char *name, const char *value, struct error *err)
{
    if (value && json_object_set_new(object, name, json_string(value)) < 0)
        return error_set(err, ERROR_INVALID, "the %s is not UTF-8", name);
    return 0;
}

int cli_v1_command(json_t *body, char *const *argv, int argc, struct error *err)
{
    json_t *words;

    if (argc == 1 && strpbrk(argv[0], " \t\n")) {
        if (json_object_set_new(body, "command", json_string(argv[0])) == 0)
            return 0;
        return error_set(err, ERROR_INVALID, "the command is not UTF-8");
    }
    words = json_array();
    (void)json_object_set_new(body, "argv", words);
    for (int i = 0; i < argc; i++)
        if (json_array_append_new(words, json_string(argv[i])) < 0)
            return error_set(err, ERROR_INVALID, "the command is not UTF-8");
    return 0;
}

json_t *cli_v1_pairs(const struct cli_command *command, const struct cli_list *list,
                     const char *option, bool from_environment)
{
    auto_json json_t *object = json_object();

    for (size_t i = 0; i < list->count; i++) {
        struct str value = str_of(list->items[i]);
        auto_free char *name = str_dup(str_split(&value, '='));

        if (!value.p && from_environment) {
            value = str_of(getenv(name));
            if (!value.p) {
                (void)cli_usage(command, "--%s %s: there is no such variable here", option, name);
                return NULL;
            }
        }
        if (!name[0] || !value.p) {
            (void)cli_usage(command, "--%s needs NAME=VALUE, not '%s'", option, list->items[i]);
            return NULL;
        }
        if (!str_valid_utf8(value) || json_object_set_new(object, name, json_str(value)) < 0) {
            (void)cli_usage(command, "--%s: '%s' is not UTF-8", option, name);
            return NULL;
        }
    }
    return json_incref(object);
}

static int add_env_line(const struct cli_command *command, const char *file, size_t line,
                        struct str value, json_t *env)
{
    auto_free char *name = str_dup(str_trim(str_split(&value, '=')));

    if (!value.p)
        value = str_of(getenv(name));
    if (!value.p)
        return 0; /* of ours, and not set: as if it were not there */
    if (!name[0] || strpbrk(name, " \t") || !str_valid_utf8(value) ||
        !str_valid_utf8(str_of(name))) {
        (void)cli_usage(command, "--env-file %s: line %zu is no NAME=VALUE", file, line);
        return -1;
    }
    if (!json_object_get(env, name))
        (void)json_object_set_new(env, name, json_str(value));
    return 0;
}

static int add_env_file(const struct cli_command *command, const char *file, json_t *env)
{
    auto_buf struct buf text = {0};
    struct str rest;
    int rc;

    buf_init(&text, FILE_MAX);
    rc = fd_read_file_at(AT_FDCWD, file, &text);
    if (rc < 0) {
        (void)cli_usage(command, "--env-file %s: %s", file, strerror(-rc));
        return -1;
    }
    rest = buf_str(&text);
    for (size_t line = 1; rest.p; line++) {
        struct str one = str_split(&rest, '\n');

        if (one.len && one.p[one.len - 1] == '\r')
            one.len--;
        if (!str_trim(one).len || str_starts(str_trim(one), STR("#")))
            continue;
        if (add_env_line(command, file, line, one, env) < 0)
            return -1;
    }
    return 0;
}

int cli_v1_env_files(const struct cli_command *command, const struct cli_list *files, json_t *env)
{
    for (size_t i = files->count; i > 0; i--) /* the last one wins */
        if (add_env_file(command, files->items[i - 1], env) < 0)
            return -1;
    return 0;
}

int cli_v1_read_stdin(struct buf *out)
{
    auto_free char *bytes = xmalloc(READ_SIZE);

    for (;;) {
        ssize_t n = read(STDIN_FILENO, bytes, READ_SIZE);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : 0;
        if (!buf_add(out, bytes, (size_t)n))
            return -EFBIG;
    }
}

int cli_v1_read_file(const char *name, json_t **out, struct error *err)
{
    auto_buf struct buf text = {0};
    int rc;

    buf_init(&text, FILE_MAX);
    rc = strcmp(name, "-") == 0 ? cli_v1_read_stdin(&text) : fd_read_file_at(AT_FDCWD, name, &text);
    if (rc < 0)
        return error_set_errno(err, -rc, "reading '%s'", name);
    if (json_parse(buf_str(&text), out, err) < 0)
        return error_prefix(err, "'%s'", name);
    return 0;
}
