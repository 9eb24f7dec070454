/* Whole reads and writes, flags, and descriptors over Unix sockets. Negative errno on failure. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/buf.h"

/* Reads until len or end of file; returns the bytes read. */
ssize_t fd_read_full(int fd, void *p, size_t len);
/* Writes everything; 0 or negative errno. */
int fd_write_full(int fd, const void *p, size_t len);
int fd_set_nonblocking(int fd, bool on);
/* Appends all of a file; -EFBIG when it is longer than out may become. */
int fd_read_file_at(int dirfd, const char *path, struct buf *out);
/* A file of mode 0600 that is complete, and on disk, or not there; that there is one already is success. */
int fd_make_file_at(int dirfd, const char *name, struct str text);
/* Writes one short value to an existing (kernel) file, e.g. a cgroup knob. */
int fd_write_value_at(int dirfd, const char *path, const char *value);

enum { FD_PASS_MAX = 4 };
/* One message with up to FD_PASS_MAX descriptors. send: 0 or -errno. recv: bytes (0 = peer gone) or
 * -errno; received descriptors are close-on-exec, *nfds is capacity in, count out; a truncated
 * message or too many descriptors is -EMSGSIZE (everything received is closed). */
int fd_send(int sock, const void *p, size_t len, const int *fds, size_t nfds);
ssize_t fd_recv(int sock, void *p, size_t len, int *fds, size_t *nfds, int flags);
