#include "envd/files/guest_stat.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/stat.h>
#include <sys/syscall.h>

#ifndef AT_EMPTY_PATH
#define AT_EMPTY_PATH 0x1000
#endif
/* musl has no statx() and none of its flags. */
#ifndef AT_STATX_DONT_SYNC
#define AT_STATX_DONT_SYNC 0x4000
#endif

enum { DIRECTORY_SIZE = 4096 };

static bool have_own;
static uint32_t own_major, own_minor;

static int do_stat(int fd, const char *path, int flags, struct guest_stat *out)
{
    struct statx st;

    if (syscall(SYS_statx, fd, path, flags | AT_STATX_DONT_SYNC, STATX_BASIC_STATS | STATX_MNT_ID,
                &st) != 0)
        return -errno;
    /* btrfs says 0 of an empty directory; clients take that for nothing. */
    if ((st.stx_mode & S_IFMT) == S_IFDIR && st.stx_size == 0)
        st.stx_size = DIRECTORY_SIZE;
    *out = (struct guest_stat){
        .mode = st.stx_mode,
        .uid = st.stx_uid,
        .gid = st.stx_gid,
        .nlink = st.stx_nlink,
        .size = (int64_t)st.stx_size,
        .mtime_s = st.stx_mtime.tv_sec,
        .mtime_ns = st.stx_mtime.tv_nsec,
        .dev_major = st.stx_dev_major,
        .dev_minor = st.stx_dev_minor,
        .ino = st.stx_ino,
        .mount = st.stx_mask & STATX_MNT_ID ? st.stx_mnt_id : 0,
    };
    return 0;
}

int guest_stat(const char *path, bool follow, struct guest_stat *out)
{
    return do_stat(AT_FDCWD, path, follow ? 0 : AT_SYMLINK_NOFOLLOW, out);
}

int guest_stat_fd(int fd, struct guest_stat *out)
{
    return do_stat(fd, "", AT_EMPTY_PATH, out);
}

bool guest_stat_is_own(const struct guest_stat *st)
{
    return have_own && st->dev_major == own_major && st->dev_minor == own_minor;
}

void guest_stat_set_own(const struct guest_stat *st)
{
    have_own = true;
    own_major = st->dev_major;
    own_minor = st->dev_minor;
}
