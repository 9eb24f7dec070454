#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/str.h"
#include "host/disk/disk_internal.h"

static const char *find_program(void)
{
    static const char *const places[] = {"/usr/sbin/mkfs.btrfs", "/sbin/mkfs.btrfs",
                                         "/usr/bin/mkfs.btrfs", "/usr/local/sbin/mkfs.btrfs"};

    for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++) {
        if (access(places[i], X_OK) == 0)
            return places[i];
    }
    return NULL;
}

/* The last line of what the program wrote, which is where it says what went wrong. */
static struct str last_line(int fd, char *text, size_t size)
{
    ssize_t n = lseek(fd, 0, SEEK_SET) == 0 ? fd_read_full(fd, text, size) : 0;
    struct str all = str_trim(str_n(text, n > 0 ? (size_t)n : 0));

    for (ptrdiff_t at; (at = str_find(all, '\n')) >= 0;)
        all = str_skip(all, (size_t)at + 1);
    return all;
}

static int spawn(const char *program, char *const argv[], int output_fd, pid_t *out_pid)
{
    char *const no_environment[] = {NULL};
    posix_spawn_file_actions_t actions;
    int r;

    if ((r = posix_spawn_file_actions_init(&actions)) != 0)
        return r;
    r = posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    if (r == 0)
        r = posix_spawn_file_actions_adddup2(&actions, output_fd, 1);
    if (r == 0)
        r = posix_spawn_file_actions_adddup2(&actions, output_fd, 2);
    if (r == 0)
        r = posix_spawn_file_actions_addclosefrom_np(&actions, 3);
    if (r == 0)
        r = posix_spawn(out_pid, program, &actions, NULL, argv, no_environment);
    (void)posix_spawn_file_actions_destroy(&actions);
    return r;
}

/* One copy of the metadata: the image is one file on one disk, a second copy beside the first
 * protects from little and doubles every metadata write. */
int disk_mkfs(const char *image, struct error *err)
{
    auto_free char *path = xstrdup(image);
    char *argv[] = {(char[]){"mkfs.btrfs"},
                    (char[]){"-q"},
                    (char[]){"--nodiscard"},
                    (char[]){"-m"},
                    (char[]){"single"},
                    (char[]){"-d"},
                    (char[]){"single"},
                    (char[]){"-L"},
                    (char[]){"quicksand"},
                    (char[]){"--"},
                    path,
                    NULL};
    const char *program = find_program();
    auto_close int output = memfd_create("mkfs", MFD_CLOEXEC);
    char text[512];
    struct str line;
    pid_t pid, got;
    int r, status;

    if (!program)
        return error_set(err, ERROR_UNAVAILABLE, "mkfs.btrfs is missing (package btrfs-progs)");
    if (output < 0)
        return error_set_errno(err, errno, "memfd_create");
    r = spawn(program, argv, output, &pid);
    if (r != 0)
        return error_set_errno(err, r, "start '%s'", program);
    do
        got = waitpid(pid, &status, 0);
    while (got < 0 && errno == EINTR);
    if (got < 0)
        return error_set_errno(err, errno, "wait for mkfs.btrfs");
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return 0;
    line = last_line(output, text, sizeof(text));
    return error_set(err, ERROR_INTERNAL, "mkfs.btrfs '%s' failed: %.*s", image, STR_ARG(line));
}
