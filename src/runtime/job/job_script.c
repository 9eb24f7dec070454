/* What runs in the sandbox for a job. All scripts are constants for /bin/sh; ids, numbers and the
 * command come as arguments, so that there is nothing to quote.
 *
 * ~/.quicksand/jobs/ID holds log, pid (with the time the process started, since pids are used again),
 * boot and, at last, exit. The command and all it starts have QUICKSAND_JOB=ID in their environment:
 * by that they are found, also when they have left their process group. The wrapper itself has not,
 * so that it outlives them and writes their end. */
#include <signal.h>

#include "runtime/job/job_internal.h"

#define FOLDER "d=\"${HOME:-/tmp}/.quicksand/jobs/$1\"\n"
#define STARTED                                                                 \
    "st() { read -r s 2>/dev/null <\"/proc/$1/stat\" || return 1; s=${s##*) };" \
    " set -- $s; shift 19; echo \"$1\"; }\n"
#define BOOT "cat /proc/sys/kernel/random/boot_id 2>/dev/null"

static const char wrapper[] =
    FOLDER STARTED "shift\n"
                   "m=$(umask); umask 077\n"
                   "mkdir -p \"$d\" || exit 126\n" BOOT " >\"$d/boot\"\n"
                   "echo \"$$ $(st $$)\" >\"$d/pid\"\n"
                   ": >\"$d/log\"\n"
                   "umask \"$m\"\n"
                   "QUICKSAND_JOB=${d##*/}; export QUICKSAND_JOB\n"
                   "\"$@\" >>\"$d/log\" 2>&1\n"
                   "rc=$?\n"
                   "echo \"$rc\" >\"$d/exit.new\" && mv \"$d/exit.new\" \"$d/exit\"\n"
                   "exit \"$rc\"\n";

static const char status[] = FOLDER STARTED
    "[ -f \"$d/exit\" ] && exec cat \"$d/exit\"\n"
    "[ -f \"$d/pid\" ] || { echo never; exit 0; }\n"
    "read -r p t <\"$d/pid\"\n"
    "if [ \"$(" BOOT ")\" = \"$(cat \"$d/boot\")\" ] && [ \"$(st \"$p\")\" = \"$t\" ]\n"
    "then echo running; exit 0; fi\n"
    "[ -f \"$d/exit\" ] && exec cat \"$d/exit\"\n"
    "echo lost\n";

static const char read_from[] = FOLDER "[ -f \"$d/log\" ] || exit 0\n"
                                       "tail -c +\"$2\" \"$d/log\" | head -c \"$3\"\n";
static const char read_last[] = FOLDER "[ -f \"$d/log\" ] || exit 0\n"
                                       "exec tail -c \"$3\" \"$d/log\"\n";

/* clang-format off */
/* Ends with the job where tail can do that; else it is ended by who started it. */
static const char follow[] =
    FOLDER
    "i=0; while [ ! -f \"$d/log\" ] && [ $i -lt 50 ]; do\n"
    "sleep 0.1 2>/dev/null || sleep 1; i=$((i + 1)); done\n"
    "read -r p t <\"$d/pid\" || exit 0\n"
    "tail --help 2>&1 | grep -q -e --pid &&"
    " exec tail -c +\"$2\" -f -s 0.2 --pid=\"$p\" \"$d/log\"\n"
    "exec tail -c +\"$2\" -f \"$d/log\"\n";

/* One grep for all processes: a host may have many. A job that has just been launched may have none
 * yet: its wrapper is still on its way to the command. */
static const char kill_all[] =
    FOLDER
    "id=$1\n"
    "pids() { for e in $(grep -lz \"QUICKSAND_JOB=$id\" /proc/[0-9]*/environ 2>/dev/null); do"
    " e=${e#/proc/}; echo \"${e%/environ}\"; done; }\n"
    "i=0; while [ -z \"$(pids)\" ] && [ ! -f \"$d/exit\" ] && [ $i -lt 20 ]; do\n"
    "sleep 0.1 2>/dev/null || sleep 1; i=$((i + 1)); done\n"
    "p=$(pids); [ -n \"$p\" ] && kill -\"$2\" $p 2>/dev/null\n"
    "[ \"$3\" = once ] && exit 0\n"
    "i=0; while [ $i -lt 10 ]; do [ -z \"$(pids)\" ] && exit 0\n"
    "sleep 0.1 2>/dev/null || sleep 1; i=$((i + 1)); done\n"
    "i=0; while [ $i -lt 10 ]; do p=$(pids); [ -z \"$p\" ] && exit 0\n"
    "kill -KILL $p 2>/dev/null; i=$((i + 1)); done\n"
    "exit 0\n";
/* clang-format on */

enum { SCRIPT_MS = 30000 };

const char *const *job_wrap(struct arena *arena, const char *id, const char *const *argv)
{
    const char **wrapped;
    size_t count = 0;

    while (argv[count])
        count++;
    wrapped = arena_alloc(arena, (count + 6) * sizeof(*wrapped));
    wrapped[0] = "/bin/sh";
    wrapped[1] = "-c";
    wrapped[2] = wrapper;
    wrapped[3] = "sh";
    wrapped[4] = id;
    memcpy(wrapped + 5, argv, count * sizeof(*argv));
    return wrapped;
}

static int run_script(struct runtime *runtime, const struct runtime_use *use, const char *user,
                      const char *const *argv, int64_t limit, struct runtime_result *out,
                      struct error *err)
{
    struct runtime_run run = {
        .argv = argv, .user = user, .timeout_ms = SCRIPT_MS, .output_limit = limit};
    bool started = false;

    if (runtime_run(runtime, use->provider, &use->ref, &run, out, &started, err) < 0)
        return -1;
    if (out->out.refused)
        return buf_refuse(&out->out, err);
    if (out->timed_out)
        return error_set(err, ERROR_TIMEOUT, "sandbox '%.*s' did not answer within %d s",
                         STR_ARG(use->sandbox.id), SCRIPT_MS / 1000);
    return 0;
}

int job_status(struct runtime *runtime, const struct runtime_use *use, const char *id,
               const char *user, enum wrapper_status *out, int *out_code, struct error *err)
{
    const char *argv[] = {"/bin/sh", "-c", status, "sh", id, NULL};
    struct runtime_result result = {0};
    int64_t code = 0;
    struct str said;
    int r = run_script(runtime, use, user, argv, 256, &result, err);

    said = str_trim(buf_str(&result.out));
    if (r == 0 && str_is(said, "running"))
        *out = WRAPPER_RUNS;
    else if (r == 0 && str_is(said, "never"))
        *out = WRAPPER_NEVER;
    else if (r == 0 && str_to_i64(said, &code) && code >= 0 && code <= 255)
        *out = WRAPPER_EXITED;
    else if (r == 0)
        *out = WRAPPER_LOST;
    *out_code = (int)code;
    runtime_result_done(&result);
    return r;
}

int job_read_log(struct runtime *runtime, const struct runtime_use *use, const char *id,
                 const char *user, int64_t after, int64_t limit, struct runtime_result *out,
                 struct error *err)
{
    char from[24], most[24];
    const char *argv[] = {"/bin/sh", "-c", after < 0 ? read_last : read_from, "sh", id, from,
                          most,      NULL};

    (void)snprintf(from, sizeof(from), "%lld", (long long)after + 1);
    (void)snprintf(most, sizeof(most), "%lld", (long long)limit);
    return run_script(runtime, use, user, argv, limit, out, err);
}

int job_follow_log(const struct runtime_use *use, const char *id, const char *user, int64_t after,
                   struct provider_process **out, struct error *err)
{
    char from[24];
    const char *argv[] = {"/bin/sh", "-c", follow, "sh", id, from, NULL};
    struct provider_command command = {.argv = argv, .user = user};

    (void)snprintf(from, sizeof(from), "%lld", (long long)after + 1);
    return provider_start(use->provider, &use->ref, &command, out, err);
}

int job_signal(struct runtime *runtime, const struct runtime_use *use, const char *id,
               const char *user, int signal, struct error *err)
{
    char number[12];
    const char *argv[] = {"/bin/sh", "-c", kill_all, "sh", id, number, signal ? "once" : "all",
                          NULL};
    struct runtime_result result = {0};
    int r;

    (void)snprintf(number, sizeof(number), "%d", signal ? signal : SIGTERM);
    r = run_script(runtime, use, user, argv, 4096, &result, err);
    runtime_result_done(&result);
    return r;
}
