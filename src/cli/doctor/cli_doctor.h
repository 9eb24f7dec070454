/* What the host must have: one function per requirement. */
#pragma once

#include "cli/core/cli_command.h"
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/process.h"

extern const struct cli_command cli_doctor_command;

enum doctor_level {
    DOCTOR_OK,
    DOCTOR_WARN, /* works, but not as well as it could */
    DOCTOR_FAIL, /* the server cannot work */
};

struct doctor_result {
    enum doctor_level level;
    char detail[256]; /* what was found */
    char fix[256];    /* a command, or what to do; "" when ok */
};

struct doctor {
    const char *data_dir;
    const char *domain, *certificate; /* NULL: those of the data directory */
    uid_t server_uid;                 /* user and group of the server */
    bool root;
};

typedef void doctor_check_fn(const struct doctor *doctor, struct doctor_result *out);

void doctor_ok(struct doctor_result *out, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* fix is a plain text. */
void doctor_bad(struct doctor_result *out, enum doctor_level level, const char *fix,
                const char *fmt, ...) __attribute__((format(printf, 4, 5)));
/* For checks that try something: true when they cannot be made without root. */
bool doctor_needs_root(const struct doctor *doctor, struct doctor_result *out);
/* Runs fn, which gets the doctor, in a child process, so that namespaces and mounts go with it. Returns what fn returned:
 * 0 or an errno below 128; EIO when the child died or took longer than a few seconds. */
int doctor_try(process_fn *fn, const struct doctor *doctor);

/* What follows when a host lacks what networks need. */
#define DOCTOR_NO_NETWORK                                                               \
    "no rule of a network can be enforced, so sandboxes that ask for one are refused (" \
    "allow_internet_access: false works)"

/* cli_doctor_host.c */
doctor_check_fn doctor_root, doctor_kernel, doctor_seccomp, doctor_files, doctor_disk_space;
doctor_check_fn doctor_memory, doctor_clock, doctor_mmdebstrap, doctor_mkfs_btrfs, doctor_nft,
    doctor_fuse;
doctor_check_fn doctor_docker, doctor_programs, doctor_data_dir, doctor_kept_aside;
/* cli_doctor_kernel.c */
doctor_check_fn doctor_namespaces, doctor_overlay, doctor_cgroup_v2, doctor_controllers;
doctor_check_fn doctor_btrfs, doctor_loop;
/* cli_doctor_net.c */
doctor_check_fn doctor_net_admin, doctor_nftables, doctor_veth, doctor_ip_forward,
    doctor_forward_policy;
/* cli_doctor_domain.c */
doctor_check_fn doctor_domain, doctor_certificate, doctor_kernel_tls;
