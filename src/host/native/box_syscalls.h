/* System calls that Debian 12's C library has no wrappers for, or whose wrappers do more. */
#pragma once

#include <fcntl.h>
#include <linux/capability.h>
#include <linux/mount.h>
#include <linux/openat2.h>
#include <linux/sched.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

static inline int sys_open_tree(int dir, const char *path, unsigned flags)
{
    return (int)syscall(SYS_open_tree, dir, path, flags);
}

static inline int sys_move_mount(int from, const char *from_path, int to, const char *to_path,
                                 unsigned flags)
{
    return (int)syscall(SYS_move_mount, from, from_path, to, to_path, flags);
}

static inline int sys_fsopen(const char *type, unsigned flags)
{
    return (int)syscall(SYS_fsopen, type, flags);
}

static inline int sys_fsconfig(int fs, unsigned command, const char *key, const void *value,
                               int aux)
{
    return (int)syscall(SYS_fsconfig, fs, command, key, value, aux);
}

static inline int sys_fsmount(int fs, unsigned flags, unsigned attrs)
{
    return (int)syscall(SYS_fsmount, fs, flags, attrs);
}

static inline int sys_mount_setattr(int dir, const char *path, unsigned flags,
                                    struct mount_attr *attr)
{
    return (int)syscall(SYS_mount_setattr, dir, path, flags, attr, sizeof(*attr));
}

static inline int sys_openat2(int dir, const char *path, struct open_how *how)
{
    return (int)syscall(SYS_openat2, dir, path, how, sizeof(*how));
}

#ifndef SYS_process_mrelease
#define SYS_process_mrelease 448
#endif

/* The memory of a process that was killed and has not ended yet. */
static inline int sys_process_mrelease(int pidfd)
{
    return (int)syscall(SYS_process_mrelease, pidfd, 0);
}

/* Of this thread: effective, permitted and inheritable capabilities. */
static inline int sys_capget(struct __user_cap_data_struct caps[2])
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};

    return (int)syscall(SYS_capget, &head, caps);
}

static inline int sys_capset(const struct __user_cap_data_struct caps[2])
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};

    return (int)syscall(SYS_capset, &head, caps);
}

static inline pid_t sys_clone3(struct clone_args *args)
{
    return (pid_t)syscall(SYS_clone3, args, sizeof(*args));
}
