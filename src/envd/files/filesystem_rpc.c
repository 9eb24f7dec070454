/* filesystem.Filesystem, the calls about one path. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "envd/core/envd.h"
#include "envd/files/entry.h"
#include "envd/files/files.h"
#include "envd/files/guest_path.h"
#include "envd/files/guest_stat.h"
#include "protocol/json/json_out.h"
#include "protocol/json/json_shape.h"
#include "protocol/rpc/connect.h"

enum { ANSWER_MAX = 1024 * 1024 };

int call_path(const struct call *call, const char *member, struct user *user, char out[PATH_MAX],
              struct error *err)
{
    const json_t *value = json_object_get(call->request, member);

    if (value && !json_is_string(value) && !json_is_null(value))
        return error_set(err, ERROR_INVALID, "'%s' must be a string", member);
    if (call_user(call, user, err) != 0)
        return -1;
    return guest_path_resolve(json_get_str(call->request, member), user,
                              call->envd->settings.default_workdir, out, err);
}

/* {"entry": ...} */
static int reply_entry(const struct call *call, const char *path, struct error *err)
{
    struct user_names names;
    auto_buf struct buf answer = {0};
    int r;

    buf_init(&answer, ANSWER_MAX);
    json_out_open(&answer, NULL, '{');
    json_out_key(&answer, "entry");
    user_names_load(&names);
    r = entry_add(&answer, path, str_of(path), &names, NULL, err);
    user_names_done(&names);
    if (r != 0)
        return -1;
    json_out_close(&answer, "}");
    connect_reply(call->ex, buf_str(&answer));
    return 0;
}

int filesystem_stat(struct call *call, struct error *err)
{
    char path[PATH_MAX];
    struct user user;

    if (call_path(call, "path", &user, path, err) != 0)
        return -1;
    return reply_entry(call, path, err);
}

int filesystem_make_dir(struct call *call, struct error *err)
{
    char path[PATH_MAX];
    struct guest_stat st;
    struct user user;
    int r;

    if (call_path(call, "path", &user, path, err) != 0)
        return -1;
    r = guest_stat(path, true, &st);
    if (r == 0 && S_ISDIR(st.mode))
        return error_set(err, ERROR_EXISTS, "directory already exists: %s", path);
    if (r == 0)
        return error_set(err, ERROR_INVALID, "path already exists but it is not a directory: %s",
                         path);
    if (guest_path_make_dirs(path, &user, err) != 0)
        return -1;
    return reply_entry(call, path, err);
}

int filesystem_move(struct call *call, struct error *err)
{
    char source[PATH_MAX], destination[PATH_MAX], parent[PATH_MAX];
    struct user user;

    if (call_path(call, "source", &user, source, err) != 0 ||
        call_path(call, "destination", &user, destination, err) != 0)
        return -1;
    guest_path_dir(destination, parent);
    if (guest_path_make_dirs(parent, &user, err) != 0)
        return -1;
    if (rename(source, destination) != 0) {
        if (errno == ENOENT)
            return error_set(err, ERROR_NOT_FOUND, "source file not found: '%s' does not exist",
                             source);
        return error_set_errno(err, errno, "error renaming '%s'", source);
    }
    return reply_entry(call, destination, err);
}
