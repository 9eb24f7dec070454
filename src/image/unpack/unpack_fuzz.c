/* Any bytes as a layer, and as what a client copies. Nothing may appear outside of the directory. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/path.h"
#include "image/unpack/unpack.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char dir[64], into[96], outside[96];

static void leave(void)
{
    (void)path_remove_tree(AT_FDCWD, dir);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct copy_wanted copy = {.root = into, .to = "/to/", .src = "a", .extract = true};
    int fd = memfd_create("layer", MFD_CLOEXEC);
    char path[64];
    const char *file = path;
    struct error err;

    if (!dir[0]) {
        (void)snprintf(dir, sizeof(dir), "/tmp/unpack-fuzz-XXXXXX");
        if (!mkdtemp(dir))
            abort();
        (void)snprintf(into, sizeof(into), "%s/into", dir);
        (void)snprintf(outside, sizeof(outside), "%s/outside", dir);
        (void)mkdir(outside, 0700);
        if (!freopen("/dev/null", "w", stdout) || atexit(leave) != 0)
            abort();
    }
    (void)mkdir(into, 0700);
    if (write(fd, data, size) != (ssize_t)size)
        abort();
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    (void)unpack_apply(into, &file, 1, 1 << 20, &err);
    copy.from = path;
    (void)unpack_copy(&copy, &err);
    (void)unpack_provision(into, NULL, &err);
    if (rmdir(outside) < 0 || mkdir(outside, 0700) < 0)
        abort(); /* it was not empty */
    (void)path_remove_tree(AT_FDCWD, into);
    (void)close(fd);
    return 0;
}
