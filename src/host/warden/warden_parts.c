/* Copies the programs that come with quicksand into the data directory. The server, another user, may not be able to
 * read them where they are: a clone below root's home is the usual case. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/log.h"
#include "host/warden/warden_internal.h"

enum { PIECE = 64 * 1024, PART_SIZE_MAX = 64 << 20, NAME_SIZE = 64 };

static bool same_content(int one, int other)
{
    char left[PIECE], right[PIECE];
    off_t at = 0;

    for (;;) {
        ssize_t n = pread(one, left, sizeof(left), at);
        ssize_t m = pread(other, right, sizeof(right), at);

        if (n < 0 || n != m || memcmp(left, right, (size_t)n) != 0)
            return false;
        if (n == 0)
            return true;
        at += n;
    }
}

static int copy_content(int from, int to)
{
    char piece[PIECE];
    off_t at = 0;
    ssize_t n;

    while ((n = pread(from, piece, sizeof(piece), at)) > 0) {
        int r = fd_write_full(to, piece, (size_t)n);

        if (r < 0)
            return r;
        if ((at += n) > PART_SIZE_MAX)
            return -EFBIG;
    }
    return n < 0 || fchmod(to, 0755) < 0 ? -errno : 0;
}

/* Replaces a different copy by a rename, so that the server never reads half of one. 0 or -errno. */
static int install_part(int dir, const struct warden_part *part)
{
    auto_close int from = open(part->path, O_RDONLY | O_CLOEXEC);
    auto_close int there = openat(dir, part->name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    auto_close int to = -1;
    char name[NAME_SIZE];
    int r;

    if (from < 0)
        return -errno;
    if (there >= 0 && same_content(from, there))
        return 0;
    (void)snprintf(name, sizeof(name), ".%s", part->name);
    to = openat(dir, name, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0755);
    if (to < 0)
        return -errno;
    r = copy_content(from, to);
    if (r == 0 && renameat(dir, name, dir, part->name) < 0)
        r = -errno;
    if (r < 0)
        (void)unlinkat(dir, name, 0);
    return r;
}

int warden_install_parts(const struct warden *warden, int data_fd, struct error *err)
{
    const struct warden_config *config = warden->config;
    auto_close int dir = openat(data_fd, WARDEN_PARTS_DIR, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (dir < 0)
        return error_set_errno(err, errno, "open '%s/" WARDEN_PARTS_DIR "'", config->data_dir);
    for (size_t i = 0; i < config->part_count; i++) {
        const struct warden_part *part = &config->parts[i];
        int r = install_part(dir, part);

        /* A full disk must not keep the server, which can free space, from starting. */
        if (r == -ENOSPC || r == -EDQUOT)
            log_error("warden",
                      "copy '%s' to '%s/" WARDEN_PARTS_DIR
                      "': %s; builds of templates may fail until there is space and the server "
                      "was started again",
                      part->path, config->data_dir, strerror(-r));
        else if (r < 0)
            return error_set_errno(err, -r, "copy '%s' to '%s/" WARDEN_PARTS_DIR "'", part->path,
                                   config->data_dir);
    }
    return 0;
}
