/* What an image needs to be the root of a sandbox: the directories that a box mounts on, the user `user`, his home and his
 * right to become root, a shell at /bin/bash. What is there already stays. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/path.h"
#include "image/unpack/owner.h"
#include "image/unpack/tree.h"
#include "image/unpack/unpack.h"

struct provision {
    struct tree tree;
    struct owner user;
    bool has_user;
};

/* A real directory, whatever was there. */
static int need_dir(struct provision *provision, const char *path, mode_t mode, struct error *err)
{
    struct tree *tree = &provision->tree;
    const char *name;
    struct stat st;

    if (tree_parent(tree, path, &name, err) < 0)
        return -1;
    if (fstatat(tree->parent, name, &st, AT_SYMLINK_NOFOLLOW) == 0) {
        if (S_ISDIR(st.st_mode))
            return 0;
        if (tree_remove(tree, name, err) < 0)
            return -1;
    }
    if (mkdirat(tree->parent, name, mode) < 0 || fchmodat(tree->parent, name, mode, 0) < 0)
        return error_set_errno(err, errno, "cannot make '/%s'", path);
    return 0;
}

static int make_dirs(struct provision *provision, struct error *err)
{
    static const struct {
        const char *path;
        mode_t mode;
    } dirs[] = {{"proc", 0555}, {"sys", 0555}, {"dev", 0755},     {"run", 0755},
                {"tmp", 01777}, {"etc", 0755}, {"root", 0700},    {"home", 0755},
                {"var", 0755},  {"usr", 0755}, {"var/tmp", 01777}};

    for (size_t i = 0; i < sizeof(dirs) / sizeof(dirs[0]); i++)
        if (need_dir(provision, dirs[i].path, dirs[i].mode, err) < 0)
            return -1;
    return 0;
}

/* ---- files ---- */

static bool has(const struct provision *provision, const char *path)
{
    auto_close int fd = tree_find(&provision->tree, path, O_PATH);

    return fd >= 0;
}

static int put(struct provision *provision, const char *path, mode_t mode,
               const struct owner *owner, struct str text, struct error *err)
{
    struct tree *tree = &provision->tree;
    auto_close int fd = -1;
    const char *name;

    if (tree_parent(tree, path, &name, err) < 0 || tree_remove(tree, name, err) < 0)
        return -1;
    fd = openat(tree->parent, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
    if (fd < 0 || fd_write_full(fd, text.p, text.len) < 0 ||
        fchown(fd, owner->uid, owner->gid) < 0 || fchmod(fd, mode) < 0)
        return error_set_errno(err, errno, "cannot write '/%s'", path);
    return 0;
}

static const struct owner root_owner = {0, 0};

static int put_missing(struct provision *provision, const char *path, mode_t mode,
                       const struct owner *owner, struct str text, struct error *err)
{
    return has(provision, path) ? 0 : put(provision, path, mode, owner, text, err);
}

/* ---- accounts ---- */

static uint32_t free_id(struct str file)
{
    for (uint32_t id = 1000; id < 60000; id++) {
        char text[16];

        (void)snprintf(text, sizeof(text), "%u", id);
        if (!account_find(file, 2, str_of(text)).p)
            return id;
    }
    return 1000;
}

/* A line at the end. A file that is there keeps its owner and mode: programs of the group `shadow` read one of them. */
static int append(struct provision *provision, const char *path, mode_t mode, struct buf *file,
                  const char *line, struct error *err)
{
    auto_close int fd = tree_find(&provision->tree, path, O_PATH);
    struct owner owner = root_owner;
    struct stat st;

    if (fd >= 0 && fstat(fd, &st) == 0) {
        owner = (struct owner){st.st_uid, st.st_gid};
        mode = st.st_mode & 0777;
    }
    if (file->len > 0 && file->p[file->len - 1] != '\n')
        buf_add_char(file, '\n');
    buf_add_str(file, str_of(line));
    return put(provision, path, mode, &owner, buf_str(file), err);
}

static int add_group(struct provision *provision, struct error *err)
{
    auto_buf struct buf file = {0};
    char line[64];
    struct str found;

    accounts_read(provision->tree.root, "etc/group", &file);
    found = account_find(buf_str(&file), 0, STR("user"));
    if (found.p) {
        uint64_t gid = 1000;

        (void)str_to_u64(account_field(found, 2), &gid);
        provision->user.gid = (gid_t)gid;
        return 0;
    }
    provision->user.gid = free_id(buf_str(&file));
    (void)snprintf(line, sizeof(line), "%suser:x:%u:\n", file.len ? "" : "root:x:0:\n",
                   provision->user.gid);
    return append(provision, "etc/group", 0644, &file, line, err);
}

static int add_user(struct provision *provision, struct error *err)
{
    auto_buf struct buf file = {0};
    char line[160];

    accounts_read(provision->tree.root, "etc/passwd", &file);
    provision->has_user = account_find(buf_str(&file), 0, STR("user")).p != NULL;
    if (provision->has_user)
        return owner_find(provision->tree.root, "user", &provision->user, err);
    if (add_group(provision, err) < 0)
        return -1;
    provision->user.uid = free_id(buf_str(&file));
    (void)snprintf(line, sizeof(line), "%suser:x:%u:%u::/home/user:/bin/bash\n",
                   file.len ? "" : "root:x:0:0:root:/root:/bin/bash\n", provision->user.uid,
                   provision->user.gid);
    return append(provision, "etc/passwd", 0644, &file, line, err);
}

/* Without a password, as sudo without one is all that is asked of it. */
static int add_shadow(struct provision *provision, struct error *err)
{
    auto_buf struct buf file = {0};

    accounts_read(provision->tree.root, "etc/shadow", &file);
    if (file.len == 0 || account_find(buf_str(&file), 0, STR("user")).p)
        return 0;
    return append(provision, "etc/shadow", 0640, &file, "user::19000:0:99999:7:::\n", err);
}

static int add_home(struct provision *provision, struct error *err)
{
    static const char profile[] = "if [ -n \"$BASH_VERSION\" ] && [ -f \"$HOME/.bashrc\" ]; then\n"
                                  "    . \"$HOME/.bashrc\"\nfi\n";
    struct tree *tree = &provision->tree;
    bool made = !has(provision, "home/user");
    const char *name;

    if (need_dir(provision, "home/user", 0755, err) < 0 ||
        tree_parent(tree, "home/user", &name, err) < 0)
        return -1;
    if (made && fchownat(tree->parent, name, provision->user.uid, provision->user.gid,
                         AT_SYMLINK_NOFOLLOW) < 0)
        return error_set_errno(err, errno, "cannot give '/home/user' to its user");
    if (put_missing(provision, "home/user/.profile", 0644, &provision->user, str_of(profile), err) <
        0)
        return -1;
    return put_missing(provision, "home/user/.bashrc", 0644, &provision->user, STR(""), err);
}

static int add_sudo(struct provision *provision, struct error *err)
{
    if (!has(provision, "usr/bin/sudo"))
        return 0;
    return put_missing(provision, "etc/sudoers.d/user", 0440, &root_owner,
                       STR("Defaults !fqdn\nuser ALL=(ALL:ALL) NOPASSWD: ALL\n"), err);
}

/* ---- the shell ---- */

static int copy_file(struct provision *provision, const char *from, const char *path,
                     struct error *err)
{
    auto_close int in = open(from, O_RDONLY | O_CLOEXEC), out = -1;
    struct tree *tree = &provision->tree;
    char piece[64 * 1024];
    const char *name;
    ssize_t got;

    if (in < 0)
        return error_set_errno(err, errno, "cannot open '%s'", from);
    if (tree_parent(tree, path, &name, err) < 0 || tree_remove(tree, name, err) < 0)
        return -1;
    out = openat(tree->parent, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0755);
    if (out < 0)
        return error_set_errno(err, errno, "cannot make '/%s'", path);
    while ((got = fd_read_full(in, piece, sizeof(piece))) > 0) {
        int r = fd_write_full(out, piece, (size_t)got);

        if (r < 0)
            return error_set_errno(err, -r, "cannot write '/%s'", path);
    }
    return 0;
}

/* Some shells are many programs in one and do what their name says: a link called bash would be none. */
static const char stand_in[] = "#!/bin/sh\nexec /bin/sh \"$@\"\n";

static int add_shell(struct provision *provision, const char *bash, struct error *err)
{
    static const char *const others[] = {"usr/bin/bash", "usr/local/bin/bash"};
    struct tree *tree = &provision->tree;
    const char *name;

    if (has(provision, "bin/bash"))
        return 0;
    if (bash)
        return copy_file(provision, bash, "bin/bash", err);
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        char target[64];

        if (!has(provision, others[i]))
            continue;
        (void)snprintf(target, sizeof(target), "/%s", others[i]);
        if (tree_parent(tree, "bin/bash", &name, err) < 0 || tree_remove(tree, name, err) < 0)
            return -1;
        return symlinkat(target, tree->parent, name) == 0
                   ? 0
                   : error_set_errno(err, errno, "cannot make '/bin/bash'");
    }
    if (has(provision, "bin/sh"))
        return put(provision, "bin/bash", 0755, &root_owner, str_of(stand_in), err);
    printf("note: this root has no shell\n");
    return 0;
}

int unpack_provision(const char *root, const char *bash, struct error *err)
{
    struct provision provision = {0};
    int r;

    if (tree_open(&provision.tree, root, err) < 0)
        return -1;
    r = make_dirs(&provision, err) < 0 || add_user(&provision, err) < 0 ||
                add_shadow(&provision, err) < 0 || add_home(&provision, err) < 0 ||
                add_sudo(&provision, err) < 0 || add_shell(&provision, bash, err) < 0 ||
                put_missing(&provision, "etc/hostname", 0644, &root_owner, STR("e2b.local\n"),
                            err) < 0 ||
                put_missing(&provision, "etc/hosts", 0644, &root_owner,
                            STR("127.0.0.1 localhost e2b.local\n::1 localhost\n"), err) < 0
            ? -1
            : 0;
    tree_close(&provision.tree);
    return r;
}
