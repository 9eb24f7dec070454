/* The directory belongs to whoever is root inside, who may have put anything there: a link, a FIFO. So
 * it is entered without following links, and the file is a new one that takes the name's place. */
#include "envd/core/run_files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fd.h"

#define TEMP_NAME ".envd-new"

static int write_new(int dir_fd, struct str value, mode_t mode)
{
    auto_close int fd = -1;

    if (unlinkat(dir_fd, TEMP_NAME, 0) != 0 && errno != ENOENT)
        return -errno;
    fd = openat(dir_fd, TEMP_NAME, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
    if (fd < 0 || fchmod(fd, mode) != 0)
        return -errno;
    return fd_write_full(fd, value.p, value.len);
}

int run_files_write(const char *dir, const char *name, struct str value, mode_t mode,
                    struct error *err)
{
    auto_close int dir_fd = -1;
    int r;

    if (mkdir(dir, 0755) != 0 && errno != EEXIST)
        return error_set_errno(err, errno, "make '%s'", dir);
    dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (dir_fd < 0)
        return error_set_errno(err, errno, "open '%s'", dir);
    r = write_new(dir_fd, value, mode);
    if (r == 0 && renameat(dir_fd, TEMP_NAME, dir_fd, name) != 0)
        r = -errno;
    if (r != 0)
        return error_set_errno(err, -r, "write '%s/%s'", dir, name);
    return 0;
}
