#include "envd/process/pty.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#include "base/cleanup.h"

/* musl's headers do not have it. */
#ifndef TIOCGPTPEER
#define TIOCGPTPEER 0x5441
#endif

int pty_resize(int master, uint16_t cols, uint16_t rows, struct error *err)
{
    struct winsize size = {.ws_col = cols, .ws_row = rows};

    if (ioctl(master, TIOCSWINSZ, &size) != 0)
        return error_set_errno(err, errno, "error resizing tty");
    return 0;
}

int pty_open(const struct user *user, uint16_t cols, uint16_t rows, int *out_master, int *out_slave,
             struct error *err)
{
    auto_close int master = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
    auto_close int slave = -1;
    int unlock = 0;

    if (master < 0)
        return error_set_errno(err, errno, "error opening tty");
    /* By descriptor: the path /dev/pts/N could be somebody else's mount. */
    if (ioctl(master, TIOCSPTLCK, &unlock) != 0 ||
        (slave = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC)) < 0)
        return error_set_errno(err, errno, "error opening tty");
    if (fchown(slave, user->uid, (gid_t)-1) != 0 || fchmod(slave, 0620) != 0)
        return error_set_errno(err, errno, "error handing the tty to its user");
    if (pty_resize(master, cols, rows, err) != 0)
        return -1;
    *out_master = take_fd(&master);
    *out_slave = take_fd(&slave);
    return 0;
}
