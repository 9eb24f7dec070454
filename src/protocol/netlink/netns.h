/* Visiting another network namespace with the calling thread. A thread that cannot come back would
 * do its next work in the wrong place, so failing to return ends the process. */
#pragma once

struct netns_visit {
    int home_fd; /* -1: not away */
};

#define auto_netns __attribute__((cleanup(netns_leave)))
#define NETNS_HOME ((struct netns_visit){-1})

/* 0 or -errno (then the thread is still at home). */
int netns_enter(int netns_fd, struct netns_visit *visit);
/* Enters a namespace that nothing else uses yet. */
int netns_enter_new(struct netns_visit *visit);
void netns_leave(struct netns_visit *visit);
/* Descriptor of the namespace that the thread is in, or -errno. */
int netns_current(void);
