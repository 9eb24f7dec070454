#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"

ssize_t fd_read_full(int fd, void *p, size_t len)
{
    size_t done = 0;

    while (done < len) {
        ssize_t n = read(fd, (char *)p + done, len - done);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        if (n == 0)
            break;
        done += (size_t)n;
    }
    return (ssize_t)done;
}

int fd_write_full(int fd, const void *p, size_t len)
{
    while (len) {
        ssize_t n = write(fd, p, len);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        p = (const char *)p + n;
        len -= (size_t)n;
    }
    return 0;
}

int fd_set_nonblocking(int fd, bool on)
{
    int flags = fcntl(fd, F_GETFL);

    if (flags < 0)
        return -errno;
    flags = on ? flags | O_NONBLOCK : flags & ~O_NONBLOCK;
    return fcntl(fd, F_SETFL, flags) < 0 ? -errno : 0;
}

int fd_read_file_at(int dirfd, const char *path, struct buf *out)
{
    auto_close int fd = openat(dirfd, path, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return -errno;
    for (;;) {
        size_t want = out->max - out->len < 4096 ? out->max - out->len : 4096;
        char spare;
        ssize_t n;

        if (want == 0) {
            n = fd_read_full(fd, &spare, 1);
            return n < 0 ? (int)n : n ? -EFBIG : 0;
        }
        n = fd_read_full(fd, buf_reserve(out, want), want);
        if (n < 0)
            return (int)n;
        buf_grew(out, (size_t)n);
        if ((size_t)n < want)
            return 0;
    }
}

int fd_write_value_at(int dirfd, const char *path, const char *value)
{
    auto_close int fd = openat(dirfd, path, O_WRONLY | O_CLOEXEC);
    size_t len = strlen(value);
    ssize_t n;

    if (fd < 0)
        return -errno;
    n = write(fd, value, len);
    if (n < 0)
        return -errno;
    return (size_t)n == len ? 0 : -EIO;
}

union control {
    char space[CMSG_SPACE(sizeof(int) * FD_PASS_MAX)];
    struct cmsghdr align;
};

int fd_send(int sock, const void *p, size_t len, const int *fds, size_t nfds)
{
    union control control;
    struct iovec iov = {(void *)(uintptr_t)p, len};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
    ssize_t n;

    if (nfds > FD_PASS_MAX)
        return -EINVAL;
    if (nfds) {
        struct cmsghdr *head;

        memset(&control, 0, sizeof(control));
        msg.msg_control = control.space;
        msg.msg_controllen = CMSG_SPACE(sizeof(int) * nfds);
        head = CMSG_FIRSTHDR(&msg);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN(sizeof(int) * nfds);
        memcpy(CMSG_DATA(head), fds, sizeof(int) * nfds);
    }
    do
        n = sendmsg(sock, &msg, MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return -errno;
    return (size_t)n == len ? 0 : -EMSGSIZE;
}

/* Collects the descriptors of a received message; closes those that do not fit. */
static bool collect_fds(struct msghdr *msg, int *fds, size_t max, size_t *count)
{
    bool fits = true;

    *count = 0;
    for (struct cmsghdr *head = CMSG_FIRSTHDR(msg); head; head = CMSG_NXTHDR(msg, head)) {
        size_t n;

        if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS)
            continue;
        n = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < n; i++) {
            int fd;

            memcpy(&fd, CMSG_DATA(head) + i * sizeof(int), sizeof(int));
            if (*count < max) {
                fds[(*count)++] = fd;
            } else {
                (void)close(fd);
                fits = false;
            }
        }
    }
    return fits;
}

ssize_t fd_recv(int sock, void *p, size_t len, int *fds, size_t *nfds, int flags)
{
    union control control;
    struct iovec iov = {p, len};
    struct msghdr msg = {.msg_iov = &iov,
                         .msg_iovlen = 1,
                         .msg_control = control.space,
                         .msg_controllen = sizeof(control.space)};
    size_t max = nfds ? *nfds : 0, count = 0;
    ssize_t n;

    do
        n = recvmsg(sock, &msg, flags | MSG_CMSG_CLOEXEC);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return -errno;
    if (!collect_fds(&msg, fds, max, &count) || (msg.msg_flags & (MSG_TRUNC | MSG_CTRUNC))) {
        while (count)
            (void)close(fds[--count]);
        return -EMSGSIZE;
    }
    if (nfds)
        *nfds = count;
    return n;
}

int fd_make_file_at(int dirfd, const char *name, struct str text)
{
    auto_close int fd = openat(dirfd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    char path[32];
    int r;

    if (fd < 0)
        return -errno;
    r = fd_write_full(fd, text.p, text.len);
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    if (r == 0 && (fsync(fd) < 0 || linkat(AT_FDCWD, path, dirfd, name, AT_SYMLINK_FOLLOW) < 0 ||
                   fsync(dirfd) < 0))
        r = -errno;
    return r == -EEXIST ? 0 : r;
}
