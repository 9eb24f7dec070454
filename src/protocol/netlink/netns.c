#include "protocol/netlink/netns.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/log.h"

int netns_current(void)
{
    int fd = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);

    return fd < 0 ? -errno : fd;
}

int netns_enter(int netns_fd, struct netns_visit *visit)
{
    auto_close int home = netns_current();

    if (home < 0)
        return home;
    if (setns(netns_fd, CLONE_NEWNET) < 0)
        return -errno;
    visit->home_fd = take_fd(&home);
    return 0;
}

int netns_enter_new(struct netns_visit *visit)
{
    auto_close int home = netns_current();

    if (home < 0)
        return home;
    if (unshare(CLONE_NEWNET) < 0)
        return -errno;
    visit->home_fd = take_fd(&home);
    return 0;
}

void netns_leave(struct netns_visit *visit)
{
    if (visit->home_fd < 0)
        return;
    if (setns(visit->home_fd, CLONE_NEWNET) < 0) {
        log_error("netlink", "cannot return to the own network namespace: errno %d", errno);
        abort();
    }
    close_fd(&visit->home_fd);
}
