/* An archive that one side writes while the other reads it: the local side is a thread of ours at one end of a pipe, the
 * other end is the standard input or output of a tar inside. What comes from inside is hostile: it may neither leave the
 * directory that was named nor put anything beside what was asked for. */
#include "cli/command/cli_cp_tree.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/path.h"
#include "base/thread.h"
#include "cli/command/cli_cp_pack.h"
#include "cli/command/cli_runtime.h"
#include "cli/core/cli_print.h"
#include "cli/core/cli_progress.h"
#include "cli/core/cli_v1.h"
#include "protocol/json/json_shape.h"

enum { PIPE_SIZE = 1024 * 1024, WORDS_MAX = 8 };

/* $1: where to; $2: "into" when that has to be a directory; $3: "dir" or "file", $4: its name, of the one source. */
static const char up_script[] =
    "cd || exit 1\n"
    "command -v tar >/dev/null || { echo 'the sandbox has no tar' >&2; exit 1; }\n"
    "d=${1:-.}\n"
    "case $1 in */) set -- \"$1\" into \"$3\" \"$4\" ;; esac\n"
    "if [ \"$2\" = into ] || [ -d \"$d\" ]; then mkdir -p -- \"$d\" && exec tar -xopf - -C \"$d\"; "
    "exit; fi\n"
    "if [ \"$3\" = dir ]; then mkdir -p -- \"$d\" && exec tar -xopf - --strip-components=1 -C "
    "\"$d\"; exit; fi\n"
    "p=$(dirname -- \"$d\"); mkdir -p -- \"$p\" && t=$(mktemp -d \"$p/.quicksand.XXXXXX\") || "
    "exit\n"
    "tar -xopf - -C \"$t\" && mv -f -- \"$t/$4\" \"$d\"; s=$?; rm -rf -- \"$t\"; exit $s\n";

/* Names as they are called in their directories: no two of them can be mixed up with options. */
static const char down_script[] =
    "cd || exit 1\n"
    "command -v tar >/dev/null || { echo 'the sandbox has no tar' >&2; exit 1; }\n"
    "h=$PWD n=$#\n"
    "while [ $n -gt 0 ]; do\n"
    "  p=$1; shift; n=$((n - 1))\n"
    "  case $p in /*) ;; *) p=$h/$p ;; esac\n"
    "  [ -e \"$p\" ] || [ -L \"$p\" ] || { echo \"'$p': there is no such file or directory\" >&2; "
    "exit 1; }\n"
    "  set -- \"$@\" -C \"$(dirname -- \"$p\")\" \"./$(basename -- \"$p\")\"\n"
    "done\n"
    "exec tar -cf - \"$@\"\n";

static const char size_script[] = "cd && du -sbc -- \"$@\" 2>/dev/null | tail -n 1 | cut -f 1";

static struct str base_name(struct str path)
{
    while (path.len > 1 && path.p[path.len - 1] == '/')
        path.len--;
    for (size_t i = path.len; i > 0; i--)
        if (path.p[i - 1] == '/' && path.len > 1)
            return str_n(path.p + i, path.len - i);
    return path;
}

/* ---- the two ends ---- */

struct end {
    const struct cli_cp_tree *tree;
    struct cli_cp_pack pack;
    const char *name; /* of the one source from inside, when it becomes another */
    int fd;
    int rc;
    struct error err;
};

static char *rename_entry(void *arg, const char *entry)
{
    const struct end *end = arg;

    return cli_cp_tree_name(end->tree, entry, end->name);
}

static void write_all(void *arg)
{
    struct end *end = arg;

    end->rc = cli_cp_pack_write(&end->pack, end->tree->from, end->tree->count, end->fd, &end->err);
    (void)close(end->fd);
}

static void read_all(void *arg)
{
    struct end *end = arg;

    end->rc = cli_cp_pack_read(&end->pack, end->fd, rename_entry, end, &end->err);
    (void)close(end->fd);
}

char *cli_cp_tree_name(const struct cli_cp_tree *tree, const char *entry, const char *name)
{
    struct str rest = str_of(entry), first;
    bool asked = false;

    while (str_starts(rest, STR("./")))
        rest = str_skip(rest, 2);
    first = rest;
    for (first.len = 0; first.len < rest.len && rest.p[first.len] != '/';)
        first.len++;
    rest = str_skip(rest, first.len);
    for (size_t i = 0; i < tree->count; i++)
        asked |= str_eq(base_name(str_of(tree->from[i])), first);
    if (!first.len && tree->count == 1 && str_is(base_name(str_of(tree->from[0])), "."))
        asked = true;
    if (!asked)
        return NULL;
    if (name)
        first = str_of(name);
    return first.len ? xasprintf("%.*s%.*s", STR_ARG(first), STR_ARG(rest)) : xstrdup(".");
}

/* Our standard input or output is the pipe while the command inside runs. */
static int run_inside(const struct cli_cp_tree *tree, char *const *argv, int argc, int pipe_fd,
                      int as)
{
    struct cli quiet = *tree->cli;
    int saved = fcntl(as, F_DUPFD_CLOEXEC, 3), signal_fd = cli_runtime_signals(), status;

    quiet.json = false;
    (void)fflush(stdout);
    (void)dup2(pipe_fd, as);
    (void)close(pipe_fd);
    status = cli_runtime_run(&(struct cli_runtime){.cli = &quiet,
                                                   .id = tree->id,
                                                   .argv = argv,
                                                   .argc = argc,
                                                   .user = tree->user,
                                                   .no_stdin = as != STDIN_FILENO,
                                                   .signal_fd = signal_fd});
    if (saved >= 0)
        (void)dup2(saved, as);
    else
        (void)close(as);
    (void)close(saved);
    (void)close(signal_fd);
    return status;
}

static int open_pipe(int fds[2], struct error *err)
{
    if (pipe2(fds, O_CLOEXEC) < 0)
        return error_set_errno(err, errno, "pipe");
    (void)fcntl(fds[0], F_SETPIPE_SZ, PIPE_SIZE);
    return 0;
}

/* One thread at our end, the command inside at the other. as: which of our standard streams that one is. */
static int run_both(struct end *end, char *const *argv, int argc, int as)
{
    int fds[2], status;
    bool up = as == STDIN_FILENO;
    struct thread thread = {0};

    if (open_pipe(fds, &end->err) < 0)
        return cli_fail(&end->err);
    end->fd = up ? fds[1] : fds[0];
    end->pack.progress = end->tree->cli->json ? NULL : cli_progress_start("files");
    cli_progress_expect(end->pack.progress, end->pack.expected);
    if (thread_start(&thread, "archive", THREAD_STACK_DEFAULT, up ? write_all : read_all, end,
                     &end->err) < 0)
        return cli_fail(&end->err);
    status = run_inside(end->tree, argv, argc, up ? fds[0] : fds[1], as);
    thread_join(&thread);
    cli_progress_end(end->pack.progress);
    /* Whose end broke first is not told by the pipe: a failure inside has been told already. */
    if (end->rc < 0 && !(up && end->err.errnum == EPIPE) &&
        (status == CLI_OK || status == CLI_BROKEN_PIPE || up))
        return cli_fail(&end->err);
    return status == CLI_BROKEN_PIPE          ? CLI_FAILED
           : status > 128 || status == CLI_OK ? status
                                              : CLI_FAILED;
}

static int finish(const struct end *end, int status)
{
    if (status == CLI_OK && end->tree->cli->json)
        cli_print_json_new(json_pack("{s:I, s:I}", "files", (json_int_t)end->pack.files, "bytes",
                                     (json_int_t)end->pack.bytes));
    return status;
}

/* ---- up ---- */

int cli_cp_tree_up(const struct cli_cp_tree *tree)
{
    struct end end = {.tree = tree};
    auto_free char *name = str_dup(base_name(str_of(tree->from[0])));
    struct stat st = {0};
    char *argv[WORDS_MAX] = {
        (char *)(uintptr_t) "/bin/sh", (char *)(uintptr_t) "-c",
        (char *)(uintptr_t)up_script,  (char *)(uintptr_t) "sh",
        (char *)(uintptr_t)tree->to,   (char *)(uintptr_t)(tree->count > 1 ? "into" : ""),
        (char *)(uintptr_t) "file",    name};

    for (size_t i = 0; i < tree->count; i++)
        if (stat(tree->from[i], &st) < 0) {
            (void)error_set_errno(&end.err, errno, "'%s'", tree->from[i]);
            return cli_fail(&end.err);
        }
    if (S_ISDIR(st.st_mode))
        argv[6] = (char *)(uintptr_t) "dir";
    if (isatty(STDERR_FILENO) && !tree->cli->json)
        end.pack.expected = cli_cp_pack_size(tree->from, tree->count);
    return finish(&end, run_both(&end, argv, WORDS_MAX, STDIN_FILENO));
}

/* ---- down ---- */

static char **down_argv(const struct cli_cp_tree *tree, const char *script, int *out_argc)
{
    char **argv = xcalloc(tree->count + 5, sizeof(*argv));

    argv[0] = (char *)(uintptr_t) "/bin/sh";
    argv[1] = (char *)(uintptr_t) "-c";
    argv[2] = (char *)(uintptr_t)script;
    argv[3] = (char *)(uintptr_t) "sh";
    for (size_t i = 0; i < tree->count; i++)
        argv[4 + i] = (char *)(uintptr_t)tree->from[i];
    *out_argc = (int)tree->count + 4;
    return argv;
}

/* For people who wait; 0 when it is not known. */
static uint64_t size_inside(const struct cli_cp_tree *tree)
{
    int argc;
    auto_free char **argv = down_argv(tree, size_script, &argc);
    auto_json json_t *body = json_object(), *answer = NULL;
    struct error ignored = {0};
    int64_t bytes = 0;

    if (cli_v1_command(body, argv, argc, &ignored) < 0 ||
        cli_v1_set(body, "user", tree->user, &ignored) < 0 ||
        cli_v1(tree->cli, "POST", cli_v1_path("sandboxes", tree->id, "execute"), body, &answer,
               &ignored) < 0)
        return 0;
    return str_to_i64(str_trim(json_get_str(answer, "stdout")), &bytes) && bytes > 0
               ? (uint64_t)bytes
               : 0;
}

/* Goes to the directory where things are put; *name: what the one source becomes, or NULL. */
static int enter(const struct cli_cp_tree *tree, char **name, struct error *err)
{
    size_t len = strlen(tree->to);
    auto_free char *dir = xstrdup(tree->to);
    bool into = tree->count > 1 || tree->to[len - 1] == '/';
    struct str last = base_name(str_of(tree->to));
    struct stat st;
    int rc;

    if (stat(tree->to, &st) == 0 && !S_ISDIR(st.st_mode) && into)
        return error_set(err, ERROR_INVALID, "'%s' is no directory", tree->to);
    if (stat(tree->to, &st) == 0 && S_ISDIR(st.st_mode))
        into = true;
    else if (!into) {
        *name = str_dup(last);
        dir[last.p - tree->to] = 0;
    }
    rc = into ? path_make_dirs(dir, 0777) : 0;
    if (rc < 0 || (dir[0] && chdir(dir) < 0))
        return error_set_errno(err, rc < 0 ? -rc : errno, "'%s'", dir);
    return 0;
}

int cli_cp_tree_down(const struct cli_cp_tree *tree)
{
    struct end end = {.tree = tree};
    auto_free char *name = NULL;
    auto_free char **argv = NULL;
    int argc;

    if (enter(tree, &name, &end.err) < 0)
        return cli_fail(&end.err);
    end.name = name;
    if (isatty(STDERR_FILENO) && !tree->cli->json)
        end.pack.expected = size_inside(tree);
    argv = down_argv(tree, down_script, &argc);
    return finish(&end, run_both(&end, argv, argc, STDOUT_FILENO));
}
