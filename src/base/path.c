#include "base/path.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"

int path_open_in_root(int root_fd, const char *path, int flags, mode_t mode)
{
    struct open_how how = {.flags = (uint64_t)(unsigned)(flags | O_CLOEXEC),
                           .mode = flags & (O_CREAT | O_TMPFILE) ? mode : 0,
                           .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS};
    long got;

    /* EAGAIN: a rename raced with the walk and the kernel could not prove containment. */
    for (int i = 0; i < 32; i++) {
        got = syscall(SYS_openat2, root_fd, path, &how, sizeof(how));
        if (got >= 0 || errno != EAGAIN)
            break;
    }
    return got < 0 ? -errno : (int)got;
}

int path_make_dirs(const char *path, mode_t mode)
{
    char copy[4096];
    size_t len = strlen(path);

    if (len == 0 || len >= sizeof(copy))
        return -ENAMETOOLONG;
    memcpy(copy, path, len + 1);
    for (char *p = copy + 1;; p++) {
        char c = *p;

        if (c != '/' && c != '\0')
            continue;
        *p = '\0';
        if (mkdir(copy, mode) < 0 && errno != EEXIST)
            return -errno;
        *p = c;
        if (c == '\0')
            return 0;
    }
}

/* A hostile tree may be deeper than the stack or the descriptor table allows. */
enum { DEPTH_MAX = 512 };

DIR *path_open_dir(int dir_fd, const char *name)
{
    int fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);

    if (!dir && fd >= 0)
        (void)close(fd);
    return dir;
}

static int remove_at(int dir_fd, const char *name, int depth)
{
    struct dirent *entry;
    int first = 0;
    DIR *dir;

    if (unlinkat(dir_fd, name, 0) == 0 || errno == ENOENT)
        return 0;
    if (errno != EISDIR && errno != EPERM && errno != ENOTEMPTY)
        return -errno;
    if (depth >= DEPTH_MAX)
        return -ELOOP;
    dir = path_open_dir(dir_fd, name);
    if (!dir)
        return -errno;
    while ((entry = readdir(dir))) {
        int r;

        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        r = remove_at(dirfd(dir), entry->d_name, depth + 1);
        if (r < 0 && first == 0)
            first = r;
    }
    (void)closedir(dir);
    if (unlinkat(dir_fd, name, AT_REMOVEDIR) < 0 && errno != ENOENT && first == 0)
        first = -errno;
    return first;
}

int path_remove_tree(int dir_fd, const char *name)
{
    return remove_at(dir_fd, name, 0);
}

bool path_barred(const char *path, char *out, size_t size)
{
    for (const char *end = strchr(path + 1, '/'); end; end = strchr(end + 1, '/')) {
        if ((size_t)(end - path) >= size)
            return false;
        (void)snprintf(out, size, "%.*s", (int)(end - path), path);
        if (access(out, X_OK) < 0)
            return errno == EACCES;
    }
    return false;
}
