/* doctor: versions, programs and amounts. */
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/timex.h>
#include <sys/utsname.h>
#include <time.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/parts.h"
#include "base/path.h"
#include "base/size.h"
#include "cli/doctor/cli_doctor.h"
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MIB (1024ull * 1024)
#define GIB (1024ull * MIB)

void doctor_root(const struct doctor *doctor, struct doctor_result *out)
{
    if (doctor->root)
        doctor_ok(out, "running as root");
    else
        doctor_bad(out, DOCTOR_FAIL, "sudo quicksand doctor",
                   "running as uid %u; namespaces and mounts need root", (unsigned)geteuid());
}

void doctor_kernel(const struct doctor *doctor, struct doctor_result *out)
{
    unsigned major = 0, minor = 0;
    struct utsname name;

    (void)doctor;
    (void)uname(&name);
    if (sscanf(name.release, "%u.%u", &major, &minor) != 2)
        doctor_bad(out, DOCTOR_WARN, "uname -r", "unknown version '%s'", name.release);
    else if (major < 5 || (major == 5 && minor < 19))
        doctor_bad(out, DOCTOR_FAIL,
                   "apt-get install linux-image-amd64 (Ubuntu: linux-generic-hwe-22.04), reboot",
                   "Linux %s; 5.19 is the least (overlayfs on idmapped mounts)", name.release);
    else if (major < 6)
        doctor_bad(out, DOCTOR_WARN, "apt-get install linux-image-amd64, then reboot",
                   "Linux %s; 6.1 is the oldest that was tried", name.release);
    else
        doctor_ok(out, "Linux %s", name.release);
}

void doctor_seccomp(const struct doctor *doctor, struct doctor_result *out)
{
    auto_buf struct buf actions = {0};
    int rc;

    (void)doctor;
    buf_init(&actions, 4096);
    rc = fd_read_file_at(AT_FDCWD, "/proc/sys/kernel/seccomp/actions_avail", &actions);
    if (rc < 0)
        doctor_bad(out, DOCTOR_FAIL, "use a kernel with CONFIG_SECCOMP_FILTER=y",
                   "the kernel has no seccomp filters");
    else if (!strstr(actions.p, "errno") || !strstr(actions.p, "kill_process"))
        doctor_bad(out, DOCTOR_FAIL, "use a kernel with CONFIG_SECCOMP_FILTER=y",
                   "actions are missing: %.*s", STR_ARG(str_trim(buf_str(&actions))));
    else
        doctor_ok(out, "filters are available");
}

void doctor_files(const struct doctor *doctor, struct doctor_result *out)
{
    struct rlimit limit = {0};

    (void)doctor;
    (void)getrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_max < 4096)
        doctor_bad(out, DOCTOR_FAIL, "ulimit -Hn 1048576 (systemd: LimitNOFILE=1048576)",
                   "at most %llu", (unsigned long long)limit.rlim_max);
    else if (limit.rlim_max < 16384)
        doctor_bad(out, DOCTOR_WARN, "ulimit -Hn 1048576 (systemd: LimitNOFILE=1048576)",
                   "at most %llu: enough for some hundred sandboxes",
                   (unsigned long long)limit.rlim_max);
    else
        doctor_ok(out, "at most %llu", (unsigned long long)limit.rlim_max);
}

static void list_missing_parts(struct buf *out)
{
    char path[PATH_MAX];

    for (size_t i = 0; part_names[i]; i++) {
        part_path(part_names[i], path, sizeof(path));
        if (access(path, R_OK) < 0)
            (void)buf_printf(out, "%s%s", out->len ? ", " : "", part_names[i]);
    }
}

void doctor_programs(const struct doctor *doctor, struct doctor_result *out)
{
    auto_buf struct buf missing = {0};
    char path[PATH_MAX], fix[sizeof(out->fix)];

    buf_init(&missing, sizeof(out->detail) / 2);
    list_missing_parts(&missing);
    if (missing.len) {
        doctor_bad(out, DOCTOR_FAIL, "build them with 'make', or install the package again",
                   "missing beside this program: %.*s", STR_ARG(buf_str(&missing)));
        return;
    }
    if (part_self_denied_to(doctor->server_uid, path, sizeof(path))) {
        (void)snprintf(fix, sizeof(fix), "chmod o+rx '%.200s'", path);
        doctor_bad(out, DOCTOR_FAIL, fix, "'%.160s': the server (uid %u) may not execute it", path,
                   (unsigned)doctor->server_uid);
        return;
    }
    part_path("envd", path, sizeof(path));
    doctor_ok(out, "all are in %.200s", dirname(path));
}

void doctor_data_dir(const struct doctor *doctor, struct doctor_result *out)
{
    unsigned uid = (unsigned)doctor->server_uid;
    char where[PATH_MAX], fix[sizeof(out->fix)];

    if (doctor_needs_root(doctor, out))
        return;
    if (path_denied_to(doctor->server_uid, doctor->data_dir, F_OK, where, sizeof(where)) == 1) {
        (void)snprintf(fix, sizeof(fix), "chmod o+x '%.80s', or choose another directory (--data)",
                       where);
        doctor_bad(out, DOCTOR_FAIL, fix, "'%.80s': the server (uid %u) may not pass '%.80s'",
                   doctor->data_dir, uid, where);
    } else {
        doctor_ok(out, "the server (uid %u) can reach '%.160s'", uid, doctor->data_dir);
    }
}

/* statvfs of the nearest folder that exists. */
static int space_of(const char *path, struct statvfs *out)
{
    auto_free char *at = xstrdup(path);

    while (statvfs(at, out) < 0) {
        char *slash;

        if (errno != ENOENT)
            return -errno;
        slash = strrchr(at, '/');
        if (!slash)
            return statvfs(".", out) < 0 ? -errno : 0;
        if (slash == at)
            return statvfs("/", out) < 0 ? -errno : 0;
        *slash = '\0';
    }
    return 0;
}

/* The pool of a server that was started here. False when there is nothing to say about it. */
static bool pool_trouble(const struct doctor *doctor, struct doctor_result *out)
{
    auto_buf struct buf path = {0};
    unsigned long long bytes, size;
    char text[SIZE_TEXT];
    struct statvfs pool;

    buf_init(&path, 4096);
    if (!buf_printf(&path, "%s/pool", doctor->data_dir) || statvfs(path.p, &pool) < 0)
        return false;
    bytes = (unsigned long long)pool.f_bavail * pool.f_frsize;
    size = (unsigned long long)pool.f_blocks * pool.f_frsize;
    if (pool.f_flag & ST_RDONLY)
        doctor_bad(out, DOCTOR_FAIL,
                   "see to the disk, stop the server, 'quicksand down', start it again",
                   "'%s' is read-only, because writing to its disk failed", path.p);
    else if (bytes < 128 * MIB && bytes < size / 20)
        doctor_bad(out, DOCTOR_FAIL,
                   "delete sandboxes, snapshots or volumes, or free space on the file system of "
                   "the data directory",
                   "%s free in '%s': no sandbox is created", size_text(bytes, text), path.p);
    else
        return false;
    return true;
}

void doctor_disk_space(const struct doctor *doctor, struct doctor_result *out)
{
    struct statvfs fs;
    unsigned long long bytes;
    char text[SIZE_TEXT];
    int rc = space_of(doctor->data_dir, &fs);

    if (pool_trouble(doctor, out))
        return;
    if (rc < 0) {
        doctor_bad(out, DOCTOR_FAIL, "choose a data directory with --data", "'%s': %s",
                   doctor->data_dir, strerror(-rc));
        return;
    }
    bytes = (unsigned long long)fs.f_bavail * fs.f_frsize;
    size_text(bytes, text);
    if (bytes < 3 * GIB)
        doctor_bad(out, DOCTOR_FAIL, "free some space, or choose another data directory",
                   "%s free for '%s'; the base template alone takes 2 GiB", text, doctor->data_dir);
    else if (bytes < 10 * GIB)
        doctor_bad(out, DOCTOR_WARN, "free some space, or choose another data directory",
                   "%s free for '%s'", text, doctor->data_dir);
    else
        doctor_ok(out, "%s free for '%s'", text, doctor->data_dir);
}

void doctor_memory(const struct doctor *doctor, struct doctor_result *out)
{
    auto_buf struct buf text = {0};
    unsigned long long kib = 0;
    char size[SIZE_TEXT];
    const char *line;

    (void)doctor;
    buf_init(&text, 64 * 1024);
    if (fd_read_file_at(AT_FDCWD, "/proc/meminfo", &text) == 0 &&
        (line = strstr(text.p, "MemAvailable:")))
        kib = strtoull(line + 13, NULL, 10);
    size_text(kib * 1024, size);
    if (kib < 256 * 1024)
        doctor_bad(out, DOCTOR_FAIL, "end something, or use a larger machine", "%s available",
                   size);
    else if (kib < 1024 * 1024)
        doctor_bad(out, DOCTOR_WARN, "end something, or use a larger machine", "%s available",
                   size);
    else
        doctor_ok(out, "%s available", size);
}

void doctor_clock(const struct doctor *doctor, struct doctor_result *out)
{
    struct timex state = {0};
    time_t now = time(NULL);
    struct tm tm;

    (void)doctor;
    (void)gmtime_r(&now, &tm);
    if (tm.tm_year + 1900 < 2025)
        doctor_bad(out, DOCTOR_FAIL, "timedatectl set-ntp true",
                   "the clock says %d: certificates and time limits will be wrong",
                   tm.tm_year + 1900);
    else if (adjtimex(&state) < 0 || (state.status & STA_UNSYNC))
        doctor_ok(out, "%04d-%02d-%02d, not synchronised by NTP", tm.tm_year + 1900, tm.tm_mon + 1,
                  tm.tm_mday);
    else
        doctor_ok(out, "synchronised");
}

/* Looks a program up in $PATH and where Debian has system programs. */
static bool find_program(const char *name, char out[256])
{
    const char *path = getenv("PATH");
    auto_free char *all = xasprintf("%s:/usr/sbin:/sbin:/usr/bin:/bin", path ? path : "");
    struct str rest = str_of(all);

    while (rest.p) {
        struct str folder = str_split(&rest, ':');

        if (folder.len == 0)
            continue;
        if (snprintf(out, 256, "%.*s/%s", STR_ARG(folder), name) < 256 && access(out, X_OK) == 0)
            return true;
    }
    return false;
}

static void check_program(const char *name, const char *fix, const char *what_for,
                          struct doctor_result *out)
{
    char path[256];

    if (find_program(name, path))
        doctor_ok(out, "%s", path);
    else
        doctor_bad(out, DOCTOR_FAIL, fix, "not found; %s", what_for);
}

void doctor_mmdebstrap(const struct doctor *doctor, struct doctor_result *out)
{
    (void)doctor;
    check_program("mmdebstrap", "apt-get install mmdebstrap", "the base template is made with it",
                  out);
}

void doctor_mkfs_btrfs(const struct doctor *doctor, struct doctor_result *out)
{
    (void)doctor;
    check_program("mkfs.btrfs", "apt-get install btrfs-progs",
                  "sandboxes' disks live on a btrfs pool", out);
}

void doctor_nft(const struct doctor *doctor, struct doctor_result *out)
{
    char path[256];

    (void)doctor;
    if (find_program("nft", path))
        doctor_ok(out, "%s", path);
    else
        doctor_bad(out, DOCTOR_WARN, "apt-get install nftables", "not found; " DOCTOR_NO_NETWORK);
}

void doctor_fuse(const struct doctor *doctor, struct doctor_result *out)
{
    (void)doctor;
    if (access("/dev/fuse", F_OK) == 0)
        doctor_ok(out, "there");
    else
        doctor_bad(out, DOCTOR_WARN, "modprobe fuse",
                   "not there; file systems in user space will not work in sandboxes");
}

static const char *docker_socket(void)
{
    const char *host = getenv("DOCKER_HOST");

    return host && strncmp(host, "unix://", 7) == 0 ? host + 7 : "/var/run/docker.sock";
}

/* As the server: its user and group, and no other group. */
static int open_docker(void *arg)
{
    const struct doctor *doctor = arg;
    uid_t uid = doctor->server_uid;

    if (setgroups(0, NULL) < 0 || setresgid(uid, uid, uid) < 0 || setresuid(uid, uid, uid) < 0)
        return errno;
    return access(docker_socket(), R_OK | W_OK) < 0 ? errno : 0;
}

void doctor_docker(const struct doctor *doctor, struct doctor_result *out)
{
    char fix[256];
    int r;

    if (access(docker_socket(), F_OK) < 0) {
        doctor_ok(out, "none; only the docker provider wants it");
        return;
    }
    if (doctor_needs_root(doctor, out))
        return;
    r = doctor_try(open_docker, doctor);
    if (r == 0) {
        doctor_ok(out, "the server may use %.200s", docker_socket());
        return;
    }
    (void)snprintf(fix, sizeof(fix), "setfacl -m u:%u:rw %.200s", (unsigned)doctor->server_uid,
                   docker_socket());
    doctor_bad(out, DOCTOR_WARN, fix,
               "the server's user %u may not open %.100s (%s); only the docker provider wants it",
               (unsigned)doctor->server_uid, docker_socket(), strerror(r));
}

/* The server keeps this list (store_aside.c). */
void doctor_kept_aside(const struct doctor *doctor, struct doctor_result *out)
{
    auto_free char *path = xasprintf("%s/store/kept-aside", doctor->data_dir);
    char fix[256];
    auto_buf struct buf text = {0};
    size_t count = 0;
    struct str rest;
    int r;

    buf_init(&text, 16 << 20);
    r = fd_read_file_at(AT_FDCWD, path, &text);
    if (r == -ENOENT) {
        doctor_ok(out, "nothing");
        return;
    }
    if (r == -EACCES && doctor_needs_root(doctor, out))
        return;
    if (r < 0) {
        doctor_bad(out, DOCTOR_WARN, "", "read '%.150s': %s", path, strerror(-r));
        return;
    }
    for (rest = buf_str(&text); rest.len;)
        count += str_split(&rest, '\n').len > 0;
    for (size_t i = 0; i + 1 < text.len; i++)
        if (text.p[i] == '\n')
            text.p[i] = ',';
    (void)snprintf(fix, sizeof(fix),
                   "save their files, remove their lines from '%.100s', restart the server "
                   "(docs/operate.md)",
                   path);
    doctor_bad(out, DOCTOR_WARN, fix,
               "%zu that the store does not know, since a copy was installed: %.*s", count,
               (int)(text.len < 180 ? text.len - (text.len > 0) : 180), text.p ? text.p : "");
}
