/* cp: one file into or out of a sandbox, streamed; several, and trees, are cli_cp_tree.c's. */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/id.h"
#include "cli/command/cli_cp.h"
#include "cli/command/cli_cp_tree.h"
#include "cli/command/commands.h"
#include "cli/core/cli_command.h"
#include "cli/core/cli_names.h"
#include "cli/core/cli_print.h"
#include "cli/core/cli_progress.h"
#include "cli/core/cli_v1.h"
#include "protocol/json/json_shape.h"

enum {
    STEP_TIMEOUT_MS = 120 * 1000,
    CHUNK_SIZE = 256 * 1024,
    SLICE_SIZE = 4 * 1024 * 1024, /* of a file, until it is told how far we are */
    BODY_MAX = 1024 * 1024
};

bool cli_cp_split(const char *operand, struct str *out_id, const char **out_path)
{
    struct str rest = str_of(operand), id;

    /* A key may have colons; the path begins behind the last one, or at the first ":/". */
    if (str_starts(rest, STR("key:"))) {
        ptrdiff_t at = str_find_str(rest, STR(":/"));
        const char *last = strrchr(operand + 4, ':');

        if (at < 4 && !last)
            return false;
        *out_path = at >= 4 ? operand + at + 1 : last + 1;
        *out_id = str_n(operand, (size_t)(*out_path - operand) - 1);
        return out_id->len > 4;
    }
    id = str_split(&rest, ':');
    if (!rest.p || !id.len || str_find(id, '/') >= 0)
        return false;
    *out_id = id;
    *out_path = rest.p;
    return true;
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

/* Where files are: reached through the runtime; as another user, of a sandbox of the engine, by its envd. */
struct place {
    struct cli *cli;
    char *id;
    bool runtime;
    struct cli_sandbox sandbox;    /* of the engine */
    struct cli_progress *progress; /* NULL: nobody looks */
    uint64_t bytes;                /* copied so far */
};

static void count(struct place *place, uint64_t bytes)
{
    place->bytes += bytes;
    cli_progress_add(place->progress, 0, bytes);
}

static char *files_target(const struct place *place, const char *path, const char *user)
{
    auto_free char *base =
        place->runtime ? cli_v1_path("sandboxes", place->id, "files") : xstrdup("/files");
    struct buf target;

    buf_init(&target, HTTP_URL_MAX);
    (void)buf_printf(&target, "%s?path=", base);
    cli_escape(&target, path);
    if (user) {
        (void)buf_add_str(&target, STR("&username="));
        cli_escape(&target, user);
    }
    return buf_take(&target);
}

static int open_files(const struct place *place, bool up, const char *target, int64_t length,
                      struct http_call *stream, struct error *err)
{
    const struct cli_server *server = &place->cli->server;
    struct pair headers[CLI_SANDBOX_HEADERS + 2] = {
        {STR("X-API-KEY"), str_of(server->key)},
    };
    size_t n = place->runtime ? 1 : cli_sandbox_headers(&place->sandbox, headers);
    const char *method = !up ? "GET" : place->runtime ? "PUT" : "POST";

    headers[n++] = (struct pair){STR("Content-Type"), STR("application/octet-stream")};
    headers[n++] = (struct pair){STR("Accept-Encoding"), STR("identity")};
    return cli_stream_open(stream, place->runtime ? &server->api : &server->sandboxes,
                           &(struct http_call_request){.method = method,
                                                       .target = target,
                                                       .headers = headers,
                                                       .header_count = n,
                                                       .more = length},
                           STEP_TIMEOUT_MS, BODY_MAX, err);
}

/* The whole answer of a request that was sent. */
static int finish(struct http_call *stream, struct error *err)
{
    if (http_call_recv_all(stream, err) < 0)
        return -1;
    return stream->status / 100 == 2 ? 0 : cli_answer_error(stream, err);
}

static int send_file(struct place *place, struct http_call *stream, int fd, int64_t length,
                     struct error *err)
{
    cli_progress_expect(place->progress, (uint64_t)length);
    while (length > 0 && !stream->cut) {
        int64_t slice = length < SLICE_SIZE ? length : SLICE_SIZE;

        if (http_call_send_file(stream, fd, slice, err) < 0)
            return -1;
        count(place, (uint64_t)slice);
        length -= slice;
    }
    return 0;
}

static int send_chunks(struct place *place, struct http_call *stream, int fd, struct error *err)
{
    auto_free char *bytes = xmalloc(CHUNK_SIZE);

    while (!stream->cut) {
        ssize_t n = read(fd, bytes, CHUNK_SIZE);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return error_set_errno(err, errno, "reading the input");
        if (n == 0)
            break;
        if (http_call_send(stream, str_n(bytes, (size_t)n), err) < 0)
            return -1;
        count(place, (uint64_t)n);
    }
    return http_call_send_end(stream, err);
}

/* What files are allowed goes beside their bytes, by a command. Paths are relative to the home. The answer has its exit_code
 * and stdout; NULL with err. */
static json_t *run_script(const struct place *place, const char *script, const char *path,
                          const char *user, struct error *err)
{
    json_t *answer = NULL;
    auto_json json_t *body =
        json_pack("{s:[s,s,s,s,s]}", "argv", "/bin/sh", "-c", script, "sh", path);

    if (!body) {
        (void)error_set(err, ERROR_INVALID, "the path is not UTF-8");
        return NULL;
    }
    if (user)
        (void)json_object_set_new(body, "user", json_string(user));
    return cli_v1(place->cli, "POST", cli_v1_path("sandboxes", place->id, "execute"), body, &answer,
                  err) < 0
               ? NULL
               : answer;
}

static int run_inside(const struct place *place, const char *script, const char *path,
                      const char *user, int64_t *out_exit, struct error *err)
{
    auto_json json_t *answer = run_script(place, script, path, user, err);

    if (!answer)
        return -1;
    *out_exit = json_integer_value(json_object_get(answer, "exit_code"));
    return 0;
}

/* For people who wait: how long a file inside is. */
static void expect_size(const struct place *place, const char *path, const char *user)
{
    struct error ignored = {0};
    auto_json json_t *answer =
        place->progress ? run_script(place, "cd && stat -Lc %s -- \"$1\"", path, user, &ignored)
                        : NULL;
    int64_t size = 0;

    if (str_to_i64(str_trim(json_get_str(answer, "stdout")), &size) && size > 0)
        cli_progress_expect(place->progress, (uint64_t)size);
}

static int make_executable(const struct place *place, const char *path, const char *user,
                           struct error *err)
{
    int64_t status = 0;

    if (run_inside(place, "cd && exec chmod +x -- \"$1\"", path, user, &status, err) < 0)
        return error_prefix(err, "'%s' is there, but may not be executed", path);
    return status == 0
               ? 0
               : error_set(err, ERROR_FORBIDDEN,
                           "'%s' is there, but chmod +x failed with status %d", path, (int)status);
}

static bool is_executable(const struct place *place, const char *path, const char *user)
{
    struct error err = {0};
    int64_t status = 1;

    if (run_inside(place, "cd && test -x \"$1\"", path, user, &status, &err) < 0)
        (void)fprintf(stderr, "quicksand: whether '%s' may be executed is not known: %s\n", path,
                      err.message);
    return status == 0;
}

static int upload(struct place *place, const char *from, const char *to, const char *user,
                  struct error *err)
{
    bool is_stdin = strcmp(from, "-") == 0;
    auto_close int fd = is_stdin ? dup(STDIN_FILENO) : open(from, O_RDONLY | O_CLOEXEC);
    auto_call struct http_call stream = {.fd = -1};
    auto_free char *path = NULL, *target = NULL;
    int64_t length = -1;
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0)
        return error_set_errno(err, errno, "'%s'", from);
    if (S_ISDIR(st.st_mode))
        return error_set(err, ERROR_INVALID, "'%s' is a directory: copy it with -r", from);
    if (!to[0] || to[strlen(to) - 1] == '/') {
        if (is_stdin)
            return error_set(err, ERROR_INVALID, "stdin needs a file name to be written to");
        path = xasprintf("%s%s", to, base_name(from));
    } else {
        path = xstrdup(to);
    }
    /* stdin may be a file that was read already in part. */
    if (S_ISREG(st.st_mode) && lseek(fd, 0, SEEK_CUR) <= st.st_size)
        length = st.st_size - lseek(fd, 0, SEEK_CUR);
    target = files_target(place, path, user);
    if (open_files(place, true, target, length, &stream, err) < 0)
        return -1;
    if ((length >= 0 ? send_file(place, &stream, fd, length, err)
                     : send_chunks(place, &stream, fd, err)) < 0 ||
        finish(&stream, err) < 0)
        return -1;
    if (is_stdin || !S_ISREG(st.st_mode) || !(st.st_mode & 0111))
        return 0;
    return make_executable(place, path, user, err);
}

/* Name to write to: inside `to` when that is a directory. */
static char *local_name(const char *from, const char *to)
{
    struct stat st;

    if (to[strlen(to) - 1] == '/')
        return xasprintf("%s%s", to, base_name(from));
    if (stat(to, &st) == 0 && S_ISDIR(st.st_mode))
        return xasprintf("%s/%s", to, base_name(from));
    return xstrdup(to);
}

static int save(struct place *place, struct http_call *stream, int fd, const char *name,
                struct error *err)
{
    for (;;) {
        int rc = fd_write_full(fd, stream->body.p, stream->body.len);

        if (rc < 0)
            return error_set_errno(err, -rc, "writing '%s'", name);
        count(place, stream->body.len);
        buf_clear(&stream->body);
        rc = http_call_recv(stream, err);
        if (rc < 0)
            return -1;
        if (rc == 0 && stream->body.len == 0)
            return 0;
    }
}

/* By whoever may read it. */
static void allow_execution(int fd)
{
    struct stat st;

    if (fstat(fd, &st) == 0)
        (void)fchmod(fd, (st.st_mode & 07777) | (st.st_mode & 0444) >> 2);
}

static int download(struct place *place, const char *from, const char *to, const char *user,
                    struct error *err)
{
    auto_call struct http_call stream = {.fd = -1};
    auto_free char *target = files_target(place, from, user), *name = NULL, *partial = NULL;
    auto_close int fd = -1;

    expect_size(place, from, user);
    if (open_files(place, false, target, 0, &stream, err) < 0 ||
        http_call_recv_head(&stream, err) < 0)
        return -1;
    if (stream.status / 100 != 2)
        return finish(&stream, err);
    /* A file's bytes come as such; only a directory is told as a list. */
    if (place->runtime &&
        str_starts(http_call_header(&stream, "content-type"), STR("application/json")))
        return error_set(err, ERROR_INVALID, "'%s' is a directory: copy it with -r", from);
    if (strcmp(to, "-") == 0)
        return save(place, &stream, STDOUT_FILENO, "stdout", err);
    name = local_name(from, to);
    /* Half a file never gets the name of the whole one. */
    partial = xasprintf("%s.quicksand-%d", name, (int)getpid());
    fd = open(partial, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0)
        return error_set_errno(err, errno, "'%s'", partial);
    if (save(place, &stream, fd, name, err) < 0) {
        (void)unlink(partial);
        return -1;
    }
    if (is_executable(place, from, user))
        allow_execution(fd);
    if (rename(partial, name) < 0) {
        (void)error_set_errno(err, errno, "'%s'", name);
        (void)unlink(partial);
        return -1;
    }
    return 0;
}

/* One file. */
static int copy_one(struct cli *cli, const char *id, bool down, const char *from, const char *to,
                    const char *user)
{
    struct place place = {.cli = cli, .runtime = !user};
    auto_free char *kept = xstrdup(id);
    struct error err = {0};
    int rc;

    place.id = kept;
    if (user && !id_valid(str_of(id)))
        return cli_usage(&cli_cp_command, "--user is for sandboxes of the engine (i...)");
    if (!place.runtime && cli_sandbox_get(&cli->server, id, &place.sandbox, &err) < 0)
        return cli_fail(&err);
    place.progress = cli->json ? NULL : cli_progress_start(NULL);
    rc = down ? download(&place, from, to, user, &err) : upload(&place, from, to, user, &err);
    cli_progress_end(place.progress);
    cli_sandbox_done(&place.sandbox);
    if (rc < 0)
        return cli_fail(&err);
    if (cli->json && strcmp(to, "-") != 0)
        cli_print_json_new(json_pack("{s:i, s:I}", "files", 1, "bytes", (json_int_t)place.bytes));
    return CLI_OK;
}

struct wish {
    const char *user;
    bool recursive, preserve;
};

/* One side of a copy: a sandbox and paths in it, or paths here. */
struct side {
    char *name; /* NULL: here */
    const char **paths;
    size_t count;
};

static void side_done(struct side *side)
{
    free(side->name);
    free(side->paths);
}

/* Local names may have colons, too: what is there is meant. */
static bool is_inside(const char *operand, struct str *out_id, const char **out_path)
{
    return cli_cp_split(operand, out_id, out_path) &&
           (cli_name_is_id(*out_id) || access(operand, F_OK) < 0);
}

/* False when they are not all of one place. */
static bool read_side(char *const *operands, size_t count, struct side *out)
{
    *out = (struct side){.paths = xcalloc(count, sizeof(*out->paths)), .count = count};
    for (size_t i = 0; i < count; i++) {
        const char *path = operands[i];
        struct str id;
        bool inside = is_inside(operands[i], &id, &path);

        if (i > 0 && (inside ? !out->name || !str_is(id, out->name) : out->name != NULL))
            return false;
        if (inside && !out->name)
            out->name = str_dup(id);
        out->paths[i] = path;
    }
    return true;
}

static int copy(struct cli *cli, const struct wish *wish, const struct side *from,
                const struct side *to)
{
    bool down = from->name != NULL;
    struct error err = {0};
    const char *id;

    if (cli_connect(cli, &err) < 0 || !(id = cli_name_id(cli, down ? from->name : to->name, &err)))
        return cli_fail(&err);
    if (wish->recursive || wish->preserve || from->count > 1) {
        const struct cli_cp_tree tree = {.cli = cli,
                                         .id = id,
                                         .user = wish->user,
                                         .from = from->paths,
                                         .count = from->count,
                                         .to = to->paths[0]};

        return down ? cli_cp_tree_down(&tree) : cli_cp_tree_up(&tree);
    }
    return copy_one(cli, id, down, from->paths[0], to->paths[0], wish->user);
}

/* Directories without -r, of several: nothing is copied then. */
static int check_sources(const struct wish *wish, const struct side *from, const struct side *to)
{
    bool tree = wish->recursive || wish->preserve || from->count > 1;
    struct stat st;

    for (size_t i = 0; i < from->count; i++) {
        if (from->name && (!from->paths[i][0] || !to->paths[0][0]))
            return cli_usage(&cli_cp_command, "needs a file on both sides");
        if (tree && (strcmp(from->paths[i], "-") == 0 || strcmp(to->paths[0], "-") == 0) &&
            !(from->name && to->name))
            return cli_usage(&cli_cp_command, "'-' is one file: without -r, -p and other files");
        if (tree && !wish->recursive && !from->name && stat(from->paths[i], &st) == 0 &&
            S_ISDIR(st.st_mode))
            return cli_usage(&cli_cp_command, "'%s' is a directory: copy it with -r",
                             from->paths[i]);
    }
    return CLI_ARGS_RUN;
}

static int run_cp(struct cli *cli, int argc, char **argv)
{
    struct wish wish = {0};
    const struct cli_option table[] = {
        {"user", 'u', CLI_TEXT, &wish.user, "USER", "whose files these are inside (user)"},
        {"recursive", 'r', CLI_FLAG, &wish.recursive, NULL, "directories, with all in them"},
        {"preserve", 'p', CLI_FLAG, &wish.preserve, NULL,
         "keep modes and times, as -r and several files do"},
        {.name = NULL},
    };
    struct side from = {0}, to = {0};
    char **operands;
    int count, rc = cli_args(cli, &cli_cp_command, table, CLI_ARGS_ANYWHERE, argc, argv, &operands,
                             &count);

    if (rc != CLI_ARGS_RUN)
        return rc;
    if (count < 2)
        return cli_usage(&cli_cp_command, "needs a source and a destination");
    (void)read_side(operands + count - 1, 1, &to);
    if (!read_side(operands, (size_t)count - 1, &from))
        rc = cli_usage(&cli_cp_command, "all sources must be here, or in the same sandbox");
    else if (!from.name == !to.name)
        rc = cli_usage(&cli_cp_command, "one of the two must be SANDBOX:PATH");
    else
        rc = check_sources(&wish, &from, &to);
    if (rc == CLI_ARGS_RUN)
        rc = copy(cli, &wish, &from, &to);
    side_done(&from);
    side_done(&to);
    return rc;
}

const struct cli_command cli_cp_command = {
    "cp", "[OPTION...] FILE... SANDBOX:PATH | SANDBOX:PATH... FILE",
    "Copy files into a sandbox or out of it ('-' is stdin or stdout).\n"
    "A PATH that does not begin with '/' is relative to the user's home. What may be executed may\n"
    "be on the other side; -r, -p and several files keep modes, times and symbolic links. As with\n"
    "cp, what is copied goes into a directory that is there, else it gets the name.",
    run_cp,
    .examples = "quicksand cp model.bin i...:/tmp/\n"
                "quicksand cp -r src tests i...:project/\n"
                "quicksand cp -r i...:results ."};
