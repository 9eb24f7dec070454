#include "base/parts.h"

#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

const char *const part_names[] = {"envd", "unpack", "interpreter", "mcp-gateway", NULL};

static char parts_dir[PATH_MAX]; /* "" = found by the path of this program */

void parts_set_dir(const char *dir)
{
    (void)snprintf(parts_dir, sizeof(parts_dir), "%s", dir);
}

void part_path(const char *name, char *out, size_t size)
{
    char self[PATH_MAX];
    const char *folder;
    ssize_t len;

    if (parts_dir[0]) {
        (void)snprintf(out, size, "%s/%s", parts_dir, name);
        return;
    }
    len = readlink("/proc/self/exe", self, sizeof(self) - 1);
    self[len < 0 ? 0 : len] = '\0';
    folder = dirname(self);
    (void)snprintf(out, size, "%s/%s", folder, name);
    if (access(out, X_OK) < 0)
        (void)snprintf(out, size, "%s/../lib/quicksand/%s", folder, name);
}
