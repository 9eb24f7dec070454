/* Shared by the files that run in a box's first process only, between clone and exec. */
#pragma once

#include "host/native/box.h"

/* Tells the warden what failed, by errno, and ends. */
_Noreturn void box_child_die(const struct box_child *child, const char *step);

#define MUST(expr, step)                \
    do {                                \
        if ((expr) < 0)                 \
            box_child_die(child, step); \
    } while (0)

/* Puts a detached mount in its place, without following a link, and closes it. */
void box_child_attach(const struct box_child *child, int mount_fd, const char *path,
                      bool directory);
/* box_hide.c: covers what speaks of the host, or acts on it. While /dev/mqueue is still an empty directory. */
void box_child_hide(const struct box_child *child);
