/* What the guest controls and envd parses: user tables, paths, mounts, FUSE requests. The first byte
 * chooses. */
#include <stdint.h>
#include <stdlib.h>

#include "envd/files/guest_mount.h"
#include "envd/files/guest_path.h"
#include "envd/view/proc_files.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct user user = {.name = "user", .home = "/home/user"};
    char path[PATH_MAX], reply[PROC_FILES_REPLY_MAX];
    struct error err = {0};
    struct str text;

    if (size == 0)
        return 0;
    text = str_n(data + 1, size - 1);
    switch (data[0] % 4) {
    case 0:
        (void)users_find_in(text, text, STR("user"), &user);
        if (user.group_count > USER_GROUPS_MAX)
            abort();
        break;
    case 1:
        if (guest_path_resolve(text, &user, NULL, path, &err) == 0) {
            char parent[PATH_MAX];

            guest_path_dir(path, parent);
            if (path[0] != '/' || parent[0] != '/' || guest_path_base(path).len == 0)
                abort();
        }
        break;
    case 2:
        (void)guest_mount_kind_in(text, 5);
        break;
    default:
        if (proc_files_answer(text.p, text.len, STR("MemTotal"), reply) > sizeof(reply))
            abort();
        break;
    }
    return 0;
}
