#include "envd/files/guest_mount.h"

#include <fcntl.h>

#include "base/buf.h"
#include "base/fd.h"

enum { MOUNTINFO_MAX = 4 * 1024 * 1024 };

static const struct {
    const char *type;
    enum guest_mount kind;
} kinds[] = {
    {"nfs", GUEST_MOUNT_NETWORK},       {"nfs4", GUEST_MOUNT_NETWORK},
    {"cifs", GUEST_MOUNT_NETWORK},      {"smb3", GUEST_MOUNT_NETWORK},
    {"smbfs", GUEST_MOUNT_NETWORK},     {"fuse", GUEST_MOUNT_NETWORK},
    {"fuseblk", GUEST_MOUNT_NETWORK},   {"proc", GUEST_MOUNT_KERNEL},
    {"sysfs", GUEST_MOUNT_KERNEL},      {"cgroup", GUEST_MOUNT_KERNEL},
    {"cgroup2", GUEST_MOUNT_KERNEL},    {"devpts", GUEST_MOUNT_KERNEL},
    {"debugfs", GUEST_MOUNT_KERNEL},    {"tracefs", GUEST_MOUNT_KERNEL},
    {"securityfs", GUEST_MOUNT_KERNEL}, {"bpf", GUEST_MOUNT_KERNEL},
    {"mqueue", GUEST_MOUNT_KERNEL},
};

static enum guest_mount kind_of(struct str type)
{
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        if (str_is(type, kinds[i].type))
            return kinds[i].kind;
    return str_starts(type, STR("fuse.")) ? GUEST_MOUNT_NETWORK : GUEST_MOUNT_ORDINARY;
}

/* "36 35 98:0 /root /mount/point options [fields] - type source options" */
enum guest_mount guest_mount_kind_in(struct str mountinfo, uint64_t id)
{
    while (mountinfo.p) {
        struct str line = str_split(&mountinfo, '\n');
        struct str rest = line;
        ptrdiff_t dash = str_find_str(line, STR(" - "));
        uint64_t number;

        if (dash < 0 || !str_to_u64(str_split(&rest, ' '), &number) || number != id)
            continue;
        rest = str_skip(line, (size_t)dash + 3);
        return kind_of(str_split(&rest, ' '));
    }
    return GUEST_MOUNT_ORDINARY;
}

enum guest_mount guest_mount_kind(uint64_t id)
{
    auto_buf struct buf text = {0};

    buf_init(&text, MOUNTINFO_MAX);
    if (fd_read_file_at(AT_FDCWD, "/proc/self/mountinfo", &text) != 0)
        return GUEST_MOUNT_ORDINARY;
    return guest_mount_kind_in(buf_str(&text), id);
}
