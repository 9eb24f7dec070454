#include "base/parts.h"

#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

#include "base/path.h"

static char parts_dir[PATH_MAX]; /* "" = found by the path of this program */

void parts_set_dir(const char *dir)
{
    (void)snprintf(parts_dir, sizeof(parts_dir), "%s", dir);
}

void part_self(char *out, size_t size)
{
    ssize_t len = readlink("/proc/self/exe", out, size - 1);

    out[len < 0 ? 0 : len] = '\0';
}

bool part_self_denied_to(uid_t uid, char *out, size_t size)
{
    char where[PATH_MAX];

    part_self(out, size);
    /* By this link the directories above it do not matter: the warden starts the server by it, too. */
    return path_denied_to(uid, "/proc/self/exe", X_OK, where, sizeof(where)) == 1;
}

void part_path(const char *name, char *out, size_t size)
{
    char self[PATH_MAX];
    const char *folder;

    if (parts_dir[0]) {
        (void)snprintf(out, size, "%s/%s", parts_dir, name);
        return;
    }
    part_self(self, sizeof(self));
    folder = dirname(self);
    (void)snprintf(out, size, "%s/%s", folder, name);
    if (access(out, X_OK) < 0)
        (void)snprintf(out, size, "%s/../lib/quicksand/%s", folder, name);
}
