/* A file system in a new image, by mkfs.btrfs. */
#include "base/process.h"
#include "host/disk/disk_internal.h"

enum { SAID_MAX = 4096 };

/* One copy of the metadata: the image is one file on one disk, a second copy beside the first
 * protects from little and doubles every metadata write. */
int disk_mkfs(const char *image, struct error *err)
{
    const struct program mkfs = {
        .name = "mkfs.btrfs",
        .package = "btrfs-progs",
        .args = {"-q", "--nodiscard", "-m", "single", "-d", "single", "-L", "quicksand", "--",
                 image},
    };
    auto_buf struct buf said = {0};
    struct str line;
    int status;

    buf_init(&said, SAID_MAX);
    status = program_run(&mkfs, &said, err);
    if (status <= 0)
        return status;
    line = str_trim(buf_str(&said));
    for (ptrdiff_t at; (at = str_find(line, '\n')) >= 0;) /* the last one says what went wrong */
        line = str_skip(line, (size_t)at + 1);
    return error_set(err, ERROR_INTERNAL, "mkfs.btrfs '%s' failed: %.*s", image, STR_ARG(line));
}
