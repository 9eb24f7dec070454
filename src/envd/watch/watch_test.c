#include "base/test.h"
#include "envd/files/guest_mount.h"
#include "envd/watch/watch_tree.h"

TEST(mount_kinds)
{
    struct str text = STR("21 1 0:19 / /proc rw shared:5 - proc proc rw\n"
                          "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
                          "broken line\n"
                          "23 22 0:40 / /mnt/a\\040b rw,nosuid - nfs4 host:/x rw\n"
                          "24 22 0:41 / /mnt/f rw - fuse.sshfs user@host: rw\n"
                          "25 22 0:42 / /mnt/o rw opt:1 opt:2 - overlay overlay rw\n");

    CHECK_INT(guest_mount_kind_in(text, 21), GUEST_MOUNT_KERNEL);
    CHECK_INT(guest_mount_kind_in(text, 22), GUEST_MOUNT_ORDINARY);
    CHECK_INT(guest_mount_kind_in(text, 23), GUEST_MOUNT_NETWORK);
    CHECK_INT(guest_mount_kind_in(text, 24), GUEST_MOUNT_NETWORK);
    CHECK_INT(guest_mount_kind_in(text, 25), GUEST_MOUNT_ORDINARY);
    CHECK_INT(guest_mount_kind_in(text, 99), GUEST_MOUNT_ORDINARY);
}

static void check_path(const struct watch_node *node, const char *name, const char *want)
{
    char path[PATH_MAX];

    CHECK(watch_tree_path(node, str_of(name), path));
    CHECK_STR(str_of(path), want);
}

TEST(watch_tree_paths)
{
    struct watch_tree tree;
    struct watch_node *root, *a, *b, *c;
    char path[PATH_MAX];

    watch_tree_init(&tree);
    root = watch_tree_add(&tree, NULL, 1, STR(""));
    a = watch_tree_add(&tree, root, 2, STR("a"));
    b = watch_tree_add(&tree, a, 3, STR("b"));
    c = watch_tree_add(&tree, root, 4, STR("c"));
    check_path(root, "", "");
    check_path(root, "x", "x");
    check_path(b, "x", "a/b/x");
    check_path(b, "", "a/b");
    CHECK(watch_tree_child(&tree, root, STR("c")) == c);
    CHECK(!watch_tree_child(&tree, root, STR("b")));
    watch_tree_cut(&tree, a, 7);
    CHECK(!watch_tree_path(b, STR("x"), path));
    CHECK(!watch_tree_child(&tree, root, STR("a")));
    a = watch_tree_move(&tree, a, c, STR("moved"));
    CHECK(watch_tree_find(&tree, 2) == a);
    check_path(b, "x", "c/moved/b/x");
    watch_tree_remove(&tree, c, -1);
    CHECK(!watch_tree_find(&tree, 3));
    CHECK(watch_tree_find(&tree, 1) == root);
    watch_tree_done(&tree);
}
