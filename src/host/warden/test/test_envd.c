/* Stands in for envd in the warden's tests: the first process of a box, which does what it is told
 * over envd's socket. One command per connection, "command argument argument"; the answer is
 * "ok", "ok TEXT" or "errno N". */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/btrfs.h>
#include <linux/fs.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

enum { LISTEN_FD = 3, FUSE_FD = 4, CLAIM_FD = 8, ANSWER_SIZE = 4000 };

static char answer[ANSWER_SIZE];

/* ---- commands: 0 or -1 with errno; text for the answer goes to `answer` ---- */

static int write_file(const char *path, const char *text, unsigned long long bytes)
{
    static char block[1 << 16];
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    size_t len = strlen(text);
    int r = 0;

    if (fd < 0)
        return -1;
    for (size_t i = 0; i < sizeof(block); i++)
        block[i] = len ? text[i % len] : 0;
    while (r == 0 && bytes) {
        size_t part = bytes < sizeof(block) ? (size_t)bytes : sizeof(block);
        ssize_t n = write(fd, block, part);

        if (n < 0)
            r = -1;
        else
            bytes -= (unsigned long long)n;
    }
    (void)close(fd);
    return r;
}

static int put(const char *path, const char *text)
{
    return write_file(path, text, strlen(text));
}

static int fill(const char *path, const char *bytes)
{
    return write_file(path, "filler", strtoull(bytes, NULL, 10));
}

static int get(const char *path, const char *unused)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n;

    (void)unused;
    if (fd < 0)
        return -1;
    n = read(fd, answer, sizeof(answer) - 1);
    (void)close(fd);
    return n < 0 ? -1 : 0;
}

static int make_dir(const char *path, const char *unused)
{
    (void)unused;
    return mkdir(path, 0755);
}

static int remove_entry(const char *path, const char *unused)
{
    (void)unused;
    return remove(path);
}

static int rename_entry(const char *from, const char *to)
{
    return rename(from, to);
}

static int make_link(const char *target, const char *path)
{
    return symlink(target, path);
}

static int make_hard_link(const char *from, const char *to)
{
    return link(from, to);
}

static int change_mode(const char *path, const char *mode)
{
    return chmod(path, (mode_t)strtoul(mode, NULL, 8));
}

static int change_owner(const char *path, const char *id)
{
    return lchown(path, (uid_t)strtoul(id, NULL, 10), (gid_t)strtoul(id, NULL, 10));
}

static int make_special(const char *path, const char *kind)
{
    return mknod(path,
                 (kind[0] == 'p'   ? S_IFIFO
                  : kind[0] == 's' ? S_IFSOCK
                                   : S_IFCHR) |
                     0644,
                 kind[0] == 'c' ? makedev(1, 3) : 0);
}

static int set_attribute(const char *path, const char *name)
{
    return lsetxattr(path, name, "value", 5, 0);
}

static int get_attribute(const char *path, const char *name)
{
    return lgetxattr(path, name, answer, sizeof(answer) - 1) < 0 ? -1 : 0;
}

/* CAP_NET_RAW, permitted and effective. */
static int set_capability(const char *path, const char *unused)
{
    const unsigned cap[] = {0x02000001, 1u << 13, 0, 0, 0};

    (void)unused;
    return setxattr(path, "security.capability", cap, sizeof(cap), 0);
}

static int get_capability(const char *path, const char *unused)
{
    unsigned cap[6] = {0};
    ssize_t len = getxattr(path, "security.capability", cap, sizeof(cap));

    (void)unused;
    if (len < 0)
        return -1;
    (void)snprintf(answer, sizeof(answer), "%zd %08x %08x", len, cap[0], cap[1]);
    return 0;
}

/* Directories within each other, more than a path can name. */
static int make_deep(const char *path, const char *depth)
{
    int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), next;

    for (int i = (int)strtoul(depth, NULL, 10); dir >= 0 && i > 0; i--) {
        next =
            mkdirat(dir, "d", 0755) < 0 ? -1 : openat(dir, "d", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        (void)close(dir);
        dir = next;
    }
    if (dir < 0)
        return -1;
    (void)close(dir);
    return 0;
}

/* Nothing but a hole, and its last byte. */
static int make_sparse(const char *path, const char *bytes)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    off_t end = (off_t)strtoull(bytes, NULL, 10);
    int r;

    if (fd < 0)
        return -1;
    r = pwrite(fd, "x", 1, end - 1) == 1 ? 0 : -1;
    (void)close(fd);
    return r;
}

static int run_program(const char *path, const char *unused)
{
    int status;
    pid_t pid;

    (void)unused;
    (void)signal(SIGCHLD, SIG_DFL);
    pid = fork();
    if (pid == 0) {
        (void)execl(path, path, "ran", NULL);
        _exit(errno);
    }
    if (waitpid(pid, &status, 0) < 0)
        return -1;
    (void)signal(SIGCHLD, SIG_IGN);
    (void)snprintf(answer, sizeof(answer), "%d", WEXITSTATUS(status));
    return 0;
}

static int tell(const char *path, const char *unused)
{
    struct stat st;

    (void)unused;
    if (lstat(path, &st) < 0)
        return -1;
    (void)snprintf(answer, sizeof(answer), "%llu:%llu %o %llu %u", (unsigned long long)st.st_dev,
                   (unsigned long long)st.st_ino, st.st_mode, (unsigned long long)st.st_size,
                   st.st_uid);
    return 0;
}

static int count_entries(const char *path, const char *unused)
{
    DIR *dir = opendir(path);
    struct dirent *entry;
    int count = 0;

    (void)unused;
    if (!dir)
        return -1;
    while ((entry = readdir(dir)))
        count += entry->d_name[0] != '.';
    (void)closedir(dir);
    (void)snprintf(answer, sizeof(answer), "%d", count);
    return 0;
}

/* Whiteouts and the overlay's own attributes must stay out of reach. */
static int make_whiteout(const char *path, const char *unused)
{
    (void)unused;
    return mknod(path, S_IFCHR | 0644, makedev(0, 0));
}

static int make_opaque(const char *path, const char *unused)
{
    (void)unused;
    return setxattr(path, "trusted.overlay.opaque", "y", 1, 0);
}

static int make_subvolume(const char *path, const char *name)
{
    struct btrfs_ioctl_vol_args args = {0};
    int fd = open(path, O_RDONLY | O_CLOEXEC), r;

    if (fd < 0)
        return -1;
    (void)snprintf(args.name, sizeof(args.name), "%s", name);
    r = ioctl(fd, BTRFS_IOC_SUBVOL_CREATE, &args);
    (void)close(fd);
    return r;
}

static int clone_file(const char *from, const char *to)
{
    int in = open(from, O_RDONLY | O_CLOEXEC);
    int out = open(to, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    int r = in < 0 || out < 0 ? -1 : ioctl(out, FICLONE, in);

    if (in >= 0)
        (void)close(in);
    if (out >= 0)
        (void)close(out);
    return r;
}

static int copy_range(const char *from, const char *to)
{
    int in = open(from, O_RDONLY | O_CLOEXEC);
    int out = open(to, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    ssize_t n = in < 0 || out < 0 ? -1 : copy_file_range(in, NULL, out, NULL, 4096, 0);

    if (in >= 0)
        (void)close(in);
    if (out >= 0)
        (void)close(out);
    return n < 0 ? -1 : 0;
}

/* ---- processes that go on ---- */

static void count_for_ever(const char *dir)
{
    char path[2][256];
    int fds[2];

    for (int i = 0; i < 2; i++) {
        (void)snprintf(path[i], sizeof(path[i]), "%s/%d", dir, i);
        fds[i] = open(path[i], O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    }
    for (unsigned long n = 1;; n++)
        for (int i = 0; i < 2; i++) {
            char text[24];
            int len = snprintf(text, sizeof(text), "%020lu", n);

            if (pwrite(fds[i], text, (size_t)len, 0) != len)
                _exit(1);
        }
}

/* The first of two files is never behind the second, and at most one ahead. */
static int start_writer(const char *dir, const char *unused)
{
    (void)unused;
    if (fork() == 0)
        count_for_ever(dir);
    return 0;
}

static int start_spinner(const char *unused1, const char *unused2)
{
    (void)unused1;
    (void)unused2;
    if (fork() == 0)
        for (volatile unsigned n = 0;; n++)
            ;
    return 0;
}

/* On this address family ("4", "6") and port: a port above 10000 on all addresses, others on the loopback interface. */
static int start_listener(const char *family, const char *number)
{
    unsigned port = (unsigned)strtoul(number, NULL, 10);
    bool all = port > 10000;
    struct sockaddr_in v4 = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(all ? INADDR_ANY : INADDR_LOOPBACK)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6,
                              .sin6_port = htons((uint16_t)port),
                              .sin6_addr = all ? in6addr_any : in6addr_loopback};
    bool six = strcmp(family, "6") == 0;
    int fd = socket(six ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), r;

    if (fd < 0)
        return -1;
    r = six ? bind(fd, (struct sockaddr *)&v6, sizeof(v6))
            : bind(fd, (struct sockaddr *)&v4, sizeof(v4));
    return r < 0 ? -1 : listen(fd, 1);
}

/* Nobody answers for this file here: whoever reads it waits, and cannot be frozen. */
static int start_waiter(const char *unused1, const char *unused2)
{
    (void)unused1;
    (void)unused2;
    if (fork() == 0) {
        (void)open("/proc/meminfo", O_RDONLY | O_CLOEXEC);
        _exit(0);
    }
    return 0;
}

static ssize_t read_fuse(char *out, size_t size)
{
    struct pollfd ready = {.fd = FUSE_FD, .events = POLLIN};

    (void)poll(&ready, 1, -1);
    return read(FUSE_FD, out, size);
}

/* Takes the next request, and is silent. */
static _Noreturn void serve_badly(const char *mark)
{
    static char request[1 << 16];

    if (read_fuse(request, sizeof(request)) <= 0)
        _exit(1);
    (void)put(mark, "taken");
    for (;;)
        (void)pause();
}

/* One that waits for an answer to a request that was taken, which not even SIGKILL ends; it holds the other
 * end open itself. */
static int start_hostage(const char *mark, const char *unused)
{
    (void)unused;
    if (fork() == 0) {
        if (fork() == 0)
            serve_badly(mark);
        (void)open("/proc/meminfo", O_RDONLY | O_CLOEXEC);
        _exit(0);
    }
    return 0;
}

static int start_eater(const char *megabytes, const char *mark)
{
    size_t len = (size_t)strtoul(megabytes, NULL, 10) << 20;

    if (fork() == 0) {
        char *memory = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

        if (memory != MAP_FAILED)
            memset(memory, 1, len);
        (void)put(mark, "eaten");
        for (;;)
            (void)pause();
    }
    return 0;
}

static int end(const char *unused1, const char *unused2)
{
    (void)unused1;
    (void)unused2;
    _exit(0);
}

static const struct {
    const char *name;
    int (*run)(const char *first, const char *second);
} commands[] = {
    {"put", put},
    {"fill", fill},
    {"get", get},
    {"mkdir", make_dir},
    {"remove", remove_entry},
    {"rename", rename_entry},
    {"symlink", make_link},
    {"stat", tell},
    {"link", make_hard_link},
    {"chmod", change_mode},
    {"chown", change_owner},
    {"special", make_special},
    {"setxattr", set_attribute},
    {"getxattr", get_attribute},
    {"setcap", set_capability},
    {"getcap", get_capability},
    {"deep", make_deep},
    {"sparse", make_sparse},
    {"run", run_program},
    {"count", count_entries},
    {"whiteout", make_whiteout},
    {"opaque", make_opaque},
    {"subvolume", make_subvolume},
    {"clone", clone_file},
    {"range", copy_range},
    {"writer", start_writer},
    {"spinner", start_spinner},
    {"listener", start_listener},
    {"waiter", start_waiter},
    {"hostage", start_hostage},
    {"eater", start_eater},
    {"exit", end},
};

static void serve(int fd)
{
    char line[1024], text[ANSWER_SIZE + 16];
    ssize_t n = read(fd, line, sizeof(line) - 1);
    char *rest = line, *name, *first, *second;
    int r = -1;

    if (n <= 0)
        return;
    line[n] = '\0';
    name = strsep(&rest, " ");
    first = rest ? strsep(&rest, " ") : NULL;
    second = rest;
    memset(answer, 0, sizeof(answer));
    errno = ENOSYS;
    for (size_t i = 0; i < sizeof(commands) / sizeof(*commands); i++)
        if (strcmp(commands[i].name, name) == 0)
            r = commands[i].run(first ? first : "", second ? second : "");
    if (r < 0)
        n = snprintf(text, sizeof(text), "errno %d", errno);
    else
        n = snprintf(text, sizeof(text), answer[0] ? "ok %s" : "ok%s", answer);
    (void)!write(fd, text, (size_t)n);
}

/* In a blank box: enters the root that comes with the message of a claim, when it is there. */
static bool enter_root(void)
{
    char text[512];
    union {
        struct cmsghdr head;
        char space[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec iov = {text, sizeof(text)};
    struct msghdr message = {.msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = sizeof(control)};
    int root;

    if (recvmsg(CLAIM_FD, &message, MSG_DONTWAIT) <= 0 || !CMSG_FIRSTHDR(&message))
        return false;
    memcpy(&root, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(root));
    if (fchdir(root) < 0 || chroot(".") < 0)
        _exit(1);
    (void)close(root);
    (void)close(CLAIM_FD);
    return true;
}

int main(int argc, char **argv)
{
    bool blank = argc > 2 && strcmp(argv[argc - 2], "--claim-fd") == 0;

    if (argc == 2 && strcmp(argv[1], "ran") == 0)
        return 7;
    (void)signal(SIGCHLD, SIG_IGN);
    (void)signal(SIGPIPE, SIG_IGN);
    (void)fcntl(LISTEN_FD, F_SETFL, 0);
    for (;;) {
        int fd = accept4(LISTEN_FD, NULL, NULL, SOCK_CLOEXEC);

        if (fd < 0) {
            (void)usleep(1000);
            continue;
        }
        if (blank)
            blank = !enter_root();
        serve(fd);
        /* Not only close(): a process that was started meanwhile has it too, and who asked waits. */
        (void)shutdown(fd, SHUT_RDWR);
        (void)close(fd);
    }
}
