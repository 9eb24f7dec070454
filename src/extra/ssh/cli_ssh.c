/* ssh, ssh-config, ssh-proxy: plain ssh (and scp, rsync, editors) into sandboxes, without a port anywhere. A proxy
 * command starts sshd inside for one connection and passes its bytes on, as `exec` does with any program.
 *
 * Each sandbox has keys of its own: one of ours in ~/.quicksand/ssh/NAME, made when it is first reached, and the host's in
 * its /run, which neither forks nor snapshots have. Both public halves go through the API, so nobody is asked whether
 * to trust a host. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/process.h"
#include "cli/command/cli_runtime.h"
#include "cli/core/cli_command.h"
#include "cli/core/cli_names.h"
#include "cli/core/cli_v1.h"
#include "extra/ssh/cli_ssh.h"
#include "protocol/json/json_shape.h"

#define HOST_SUFFIX ".quicksand" /* no name that anybody resolves */
#define KEYS_DIR    ".quicksand/ssh"

enum { KEY_MAX = 4096, NO_SSHD = 3 };

/* $1: our public key. Prints the host's. Several at once are fine: what is there stays. */
static const char prepare_script[] =
    "set -e; d=/run/quicksand-ssh\n"
    "PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin; s=$(command -v sshd) || exit 3\n"
    "mkdir -p $d /run/sshd; chmod 0755 $d /run/sshd\n"
    "if [ ! -f $d/host ]; then\n"
    "  ssh-keygen -q -t ed25519 -N '' -C '' -f $d/host.$$ </dev/null >/dev/null\n"
    "  ln $d/host.$$ $d/host 2>/dev/null || true; rm -f $d/host.$$ $d/host.$$.pub\n"
    "fi\n"
    "grep -qxF -e \"$1\" $d/authorized 2>/dev/null || printf '%s\\n' \"$1\" >>$d/authorized\n"
    "if [ ! -f $d/config ]; then\n"
    "  printf '%s\\n' \"HostKey $d/host\" \"AuthorizedKeysFile $d/authorized\" 'StrictModes no' "
    "\\\n"
    "    'PasswordAuthentication no' 'KbdInteractiveAuthentication no' 'UsePAM no' \\\n"
    "    'PermitRootLogin prohibit-password' 'PidFile none' 'PrintMotd no' 'PrintLastLog no' \\\n"
    "    'AcceptEnv LANG LC_*' 'Subsystem sftp internal-sftp' 'LogLevel QUIET' >$d/config.$$\n"
    "  mv $d/config.$$ $d/config\n"
    "fi\n"
    "echo \"$s\"; ssh-keygen -y -f $d/host\n";

/* ---- files of ours ---- */

/* "ID" or "ID.quicksand", as an id; malloc()ed. NULL when it cannot be one. */
static char *id_of(const char *name)
{
    struct str id = str_of(name);

    if (str_ends(id, STR(HOST_SUFFIX)))
        id.len -= sizeof(HOST_SUFFIX) - 1;
    for (size_t i = 0; i < id.len; i++) {
        char c = id.p[i];

        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
              c == '_' || (c == '-' && i)))
            return NULL;
    }
    return id.len && id.len < 128 ? str_dup(id) : NULL;
}

static int make_dir(const char *path, struct error *err)
{
    if (mkdir(path, 0700) < 0 && errno != EEXIST)
        return error_set_errno(err, errno, "%s", path);
    return 0;
}

/* Where the keys for a sandbox are; malloc()ed, or NULL. */
static char *keys_dir(const char *id, struct error *err)
{
    const char *home = getenv("HOME");
    auto_free char *top = NULL, *all = NULL;
    char *dir;

    if (!home || !home[0]) {
        (void)error_set(err, ERROR_INVALID, "HOME is not set, so there is no place for keys");
        return NULL;
    }
    top = xasprintf("%s/.quicksand", home);
    all = xasprintf("%s/" KEYS_DIR, home);
    dir = xasprintf("%s/%s" HOST_SUFFIX, all, id);
    if (make_dir(top, err) == 0 && make_dir(all, err) == 0 && make_dir(dir, err) == 0)
        return dir;
    free(dir);
    return NULL;
}

static int make_key(const char *path, const char *id, struct error *err)
{
    auto_free char *comment = xasprintf("quicksand-%s", id);
    const char *argv[] = {"ssh-keygen", "-q",    "-t", "ed25519", "-N", "",
                          "-C",         comment, "-f", path,      NULL};
    int status = process_run(&(struct process_spec){.argv = argv}, 0);

    if (status < 0)
        return error_set_errno(err, -status, "ssh-keygen (is OpenSSH's client installed?)");
    return status == 0 ? 0 : error_set(err, ERROR_INTERNAL, "ssh-keygen could not make %s", path);
}

/* Our key for the sandbox, made when it is not there; *out is its public half. */
static int own_key(const char *dir, const char *id, struct buf *out, struct error *err)
{
    auto_free char *lock = xasprintf("%s/lock", dir), *key = xasprintf("%s/key", dir);
    auto_free char *public_key = xasprintf("%s.pub", key);
    auto_close int fd = open(lock, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    int r;

    if (fd < 0 || flock(fd, LOCK_EX) < 0)
        return error_set_errno(err, errno, "%s", lock);
    if (access(key, F_OK) < 0 && make_key(key, id, err) < 0)
        return -1;
    r = fd_read_file_at(AT_FDCWD, public_key, out);
    return r < 0 ? error_set_errno(err, -r, "%s", public_key) : 0;
}

/* Whole or not at all: several connections begin at once. */
static int write_known(const char *dir, const char *id, struct str host_key, struct error *err)
{
    auto_free char *path = xasprintf("%s/known_hosts", dir);
    auto_free char *next = xasprintf("%s.%d", path, getpid());
    auto_free char *line = xasprintf("%s" HOST_SUFFIX " %.*s\n", id, STR_ARG(host_key));
    auto_close int fd = open(next, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    int r = fd < 0 ? -errno : fd_write_full(fd, line, strlen(line));

    if (r == 0 && rename(next, path) < 0)
        r = -errno;
    return r < 0 ? error_set_errno(err, -r, "%s", next) : 0;
}

/* ---- ssh-proxy ---- */

/* An answer of the guest's: one line of letters that an authorized_keys file knows. */
static bool is_host_key(struct str text)
{
    if (!str_starts(text, STR("ssh-ed25519 ")) || text.len > KEY_MAX)
        return false;
    for (size_t i = 0; i < text.len; i++) {
        if (text.p[i] < ' ' || text.p[i] > '~')
            return false;
    }
    return true;
}

static int prepare(struct cli *cli, const char *id, struct str key, char **out_sshd,
                   struct buf *out_host, struct error *err)
{
    auto_json json_t *body =
        json_pack("{s:[s,s,s,s,s#],s:s}", "argv", "/bin/sh", "-c", prepare_script, "sh",
                  key.len ? key.p : "", (int)key.len, "user", "root");
    auto_json json_t *answer = NULL;
    struct str lines, sshd, host;
    int64_t status;

    if (cli_v1(cli, "POST", cli_v1_path("sandboxes", id, "execute"), body, &answer, err) < 0)
        return -1;
    status = json_integer_value(json_object_get(answer, "exit_code"));
    if (status == NO_SSHD)
        return error_set(err, ERROR_UNSUPPORTED,
                         "sandbox '%s' has no sshd: its template needs the package openssh-server",
                         id);
    lines = json_get_str(answer, "stdout");
    sshd = str_split(&lines, '\n');
    host = str_trim(lines);
    if (status != 0 || !sshd.len || sshd.p[0] != '/' || !is_host_key(host)) {
        struct str why = str_trim(json_get_str(answer, "stderr"));

        return error_set(err, ERROR_UNAVAILABLE, "sandbox '%s' cannot be made ready for ssh: %.*s",
                         id, (int)(why.len < 300 ? why.len : 300), why.p ? why.p : "");
    }
    *out_sshd = str_dup(sshd);
    (void)buf_add_str(out_host, host);
    return 0;
}

/* Keys on both sides; *out_sshd is what to start inside. */
static int make_ready(struct cli *cli, const char *id, char **out_sshd, struct error *err)
{
    auto_free char *dir = keys_dir(id, err);
    auto_buf struct buf key = {0}, host = {0};

    buf_init(&key, KEY_MAX);
    buf_init(&host, KEY_MAX);
    if (!dir || own_key(dir, id, &key, err) < 0 ||
        prepare(cli, id, str_trim(buf_str(&key)), out_sshd, &host, err) < 0)
        return -1;
    return write_known(dir, id, buf_str(&host), err);
}

static int run_ssh_proxy(struct cli *cli, int argc, char **argv)
{
    const struct cli_option table[] = {{.name = NULL}};
    auto_free char *id = NULL, *sshd = NULL;
    auto_close int signal_fd = -1;
    struct error err = {0};
    char **operands;
    int count, rc = cli_args(cli, &cli_ssh_proxy_command, table, CLI_ARGS_ANYWHERE, argc, argv,
                             &operands, &count);

    if (rc != CLI_ARGS_RUN)
        return rc;
    id = count == 1 ? id_of(operands[0]) : NULL;
    if (!id)
        return cli_usage(&cli_ssh_proxy_command, "needs one sandbox");
    if (cli_connect(cli, &err) < 0 || make_ready(cli, id, &sshd, &err) < 0)
        return cli_fail(&err);
    signal_fd = cli_runtime_signals();
    return cli_runtime_run(&(struct cli_runtime){
        .cli = cli,
        .id = id,
        .argv = (char *const[]){sshd, (char *)(uintptr_t) "-i", (char *)(uintptr_t) "-f",
                                (char *)(uintptr_t) "/run/quicksand-ssh/config", NULL},
        .argc = 4,
        .user = "root",
        .signal_fd = signal_fd,
    });
}

/* ---- ssh, ssh-config ---- */

/* A user's name, which becomes an argument of ssh and a line of its settings. */
static bool is_user(const char *name)
{
    size_t len = strlen(name);

    for (size_t i = 0; i < len; i++) {
        char c = name[i];

        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
              c == '_' || (i && (c == '-' || c == '.'))))
            return false;
    }
    return len > 0 && len <= 64;
}

/* One word for the shell that runs a ProxyCommand, past ssh, which expands '%' in it before. */
static void add_word(struct buf *out, const char *text)
{
    (void)buf_add_char(out, '\'');
    for (; *text; text++) {
        if (*text == '\'')
            (void)buf_add_str(out, STR("'\\'"));
        else if (*text == '%')
            (void)buf_add_char(out, '%');
        (void)buf_add_char(out, *text);
    }
    (void)buf_add_char(out, '\'');
}

/* How this program is started again for the same server; malloc()ed. */
static char *proxy_command(const struct cli *cli)
{
    char self[PATH_MAX];
    ssize_t len = readlink("/proc/self/exe", self, sizeof(self) - 1);
    auto_buf struct buf line = {0};

    self[len > 0 ? len : 0] = '\0';
    buf_init(&line, SIZE_MAX / 2);
    add_word(&line, len > 0 ? self : "quicksand");
    (void)buf_add_str(&line, STR(" ssh-proxy"));
    if (cli->url) {
        (void)buf_add_str(&line, STR(" --url "));
        add_word(&line, cli->url);
    }
    (void)buf_add_str(&line, STR(" %n"));
    return buf_take(&line);
}

/* The lines of a host, each as `ssh -o` takes it, too. */
static void each_setting(const struct cli *cli, void (*fn)(void *arg, const char *line), void *arg)
{
    const char *home = getenv("HOME"); /* ssh's own ~ is not that one */
    auto_free char *command = proxy_command(cli);
    auto_free char *proxy = xasprintf("ProxyCommand=%s", command);
    auto_free char *key = xasprintf("IdentityFile=\"%s/" KEYS_DIR "/%%n/key\"", home ? home : "~");
    auto_free char *known =
        xasprintf("UserKnownHostsFile=\"%s/" KEYS_DIR "/%%n/known_hosts\"", home ? home : "~");

    fn(arg, proxy);
    fn(arg, key);
    fn(arg, "IdentitiesOnly=yes");
    fn(arg, known);
    fn(arg, "StrictHostKeyChecking=yes");
    fn(arg, "UpdateHostKeys=no");
    /* The guest is hostile: what "Host *" of the user's settings lends to other hosts is not for it. */
    fn(arg, "ForwardAgent=no");
    fn(arg, "ForwardX11=no");
}

static void print_setting(void *arg, const char *line)
{
    struct str rest = str_of(line), name = str_split(&rest, '=');

    (void)arg;
    printf("    %.*s %.*s\n", STR_ARG(name), STR_ARG(rest));
}

static int run_ssh_config(struct cli *cli, int argc, char **argv)
{
    const char *user = "user";
    const struct cli_option table[] = {
        {"user", 'u', CLI_TEXT, &user, "USER", "who to be inside (user)"},
        {.name = NULL},
    };
    char **operands;
    int count, rc = cli_args(cli, &cli_ssh_config_command, table, CLI_ARGS_ANYWHERE, argc, argv,
                             &operands, &count);

    if (rc != CLI_ARGS_RUN)
        return rc;
    if (count)
        return cli_usage(&cli_ssh_config_command, "takes no operands");
    if (!is_user(user))
        return cli_usage(&cli_ssh_config_command, "--user must be the name of a user");
    printf("Host *" HOST_SUFFIX "\n    User %s\n", user);
    each_setting(cli, print_setting, NULL);
    return CLI_OK;
}

struct ssh_args {
    char **items;
    size_t count;
};

static void add_arg(struct ssh_args *args, const char *text)
{
    args->items = xrealloc(args->items, (args->count + 2) * sizeof(*args->items));
    args->items[args->count++] = xstrdup(text);
    args->items[args->count] = NULL;
}

static void add_setting(void *arg, const char *line)
{
    add_arg(arg, "-o");
    add_arg(arg, line);
}

static int start_ssh(struct cli *cli, const char *user, const char *id, char *const *command,
                     int count)
{
    auto_free char *where = xasprintf("%s@%s" HOST_SUFFIX, user, id);
    struct ssh_args args = {0};
    struct error err = {0};

    add_arg(&args, "ssh");
    each_setting(cli, add_setting, &args);
    add_arg(&args, where);
    for (int i = 0; i < count; i++)
        add_arg(&args, command[i]);
    (void)execvp("ssh", args.items);
    (void)error_set_errno(&err, errno, "ssh (is OpenSSH's client installed?)");
    for (size_t i = 0; i < args.count; i++)
        free(args.items[i]);
    free(args.items);
    return cli_fail(&err);
}

static int run_ssh(struct cli *cli, int argc, char **argv)
{
    const char *user = "user";
    const struct cli_option table[] = {
        {"user", 'u', CLI_TEXT, &user, "USER", "who to be inside (user)"},
        {.name = NULL},
    };
    auto_free char *name = NULL;
    struct error err = {0};
    const char *id;
    char **operands;
    int count,
        rc = cli_args(cli, &cli_ssh_command, table, CLI_ARGS_FIRST, argc, argv, &operands, &count);

    if (rc != CLI_ARGS_RUN)
        return rc;
    name = count ? id_of(operands[0]) : NULL;
    if (!name)
        return cli_usage(&cli_ssh_command, "needs a sandbox");
    if (!is_user(user))
        return cli_usage(&cli_ssh_command, "--user must be the name of a user");
    if (cli_connect(cli, &err) < 0 || !(id = cli_name_id(cli, name, &err)))
        return cli_fail(&err);
    return start_ssh(cli, user, id, operands + 1, count - 1);
}

const struct cli_command cli_ssh_command = {
    "ssh", "[OPTION...] SANDBOX [COMMAND [ARG...]]",
    "Log in to a sandbox by ssh, or run a command there.\n"
    "Its template needs sshd (the base template has it); no port is opened.",
    run_ssh,
    .examples = "quicksand ssh SANDBOX\n"
                "quicksand ssh -u root SANDBOX apt-get update"};
const struct cli_command cli_ssh_config_command = {
    "ssh-config", "[OPTION...]",
    "Print settings by which ssh, scp, rsync and editors reach sandboxes as SANDBOX" HOST_SUFFIX
    ".",
    run_ssh_config,
    .examples = "quicksand ssh-config >> ~/.ssh/config\n"
                "scp file SANDBOX.quicksand:"};
const struct cli_command cli_ssh_proxy_command = {
    "ssh-proxy", "SANDBOX",
    "Connect stdin and stdout with an sshd in a sandbox: what ssh starts as its ProxyCommand.",
    run_ssh_proxy, .examples = "ssh -o ProxyCommand='quicksand ssh-proxy %h' user@i..."};
