/* Checks of `quicksand serve` that need nothing but the configuration: made before the base template, which takes
 * minutes. */
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/parts.h"
#include "base/path.h"
#include "quicksand/serve.h"

int serve_check_parts(const char *const paths[], struct error *err)
{
    char self[PATH_MAX];
    struct stat st;

    part_self(self, sizeof(self));
    for (size_t i = 0; part_names[i]; i++)
        if (stat(paths[i], &st) < 0 || !S_ISREG(st.st_mode))
            return error_set(err, ERROR_NOT_FOUND,
                             "the program '%s' is missing: there is no file '%s'. It comes with "
                             "'%s': build it with 'make', or install the package again",
                             part_names[i], paths[i], self);
    return 0;
}

static int check_file(const char *setting, const char *path, uid_t uid, struct error *err)
{
    char where[PATH_MAX];
    struct stat st;

    if (!path || !path[0] || path_denied_to(uid, path, R_OK, where, sizeof(where)) != 1)
        return 0;
    if (stat(where, &st) == 0 && S_ISDIR(st.st_mode))
        return error_set(err, ERROR_FORBIDDEN,
                         "%s '%s': the server (uid %u) may not read '%s'; allow it with "
                         "'chmod o+x %s', or move the file",
                         setting, path, (unsigned)uid, where, where);
    /* Not "for everybody": it may hold secrets. */
    return error_set(err, ERROR_FORBIDDEN,
                     "%s '%s': the server (uid %u) may not read it; allow it with "
                     "'chgrp %u %s && chmod g+r %s'",
                     setting, path, (unsigned)uid, (unsigned)uid, path, path);
}

int serve_check_access(const struct config *config, const char *config_file, struct error *err)
{
    uid_t uid = (uid_t)config->server_uid;
    char where[PATH_MAX], self[PATH_MAX];

    if (part_self_denied_to(uid, self, sizeof(self)))
        return error_set(err, ERROR_FORBIDDEN,
                         "'%s': the server (uid %u) may not execute it: run 'chmod o+rx %s'", self,
                         (unsigned)uid, self);

    /* The mode of the directory itself is set by the warden. */
    if (path_denied_to(uid, config->data, F_OK, where, sizeof(where)) == 1)
        return error_set(err, ERROR_FORBIDDEN,
                         "data directory '%s': the server (uid %u) may not pass '%s': 'chmod o+x' "
                         "that folder, or choose another data directory (--data)",
                         config->data, (unsigned)uid, where);
    if (check_file("--config", config_file, uid, err) < 0 ||
        check_file("--runtime-config", config->runtime_config, uid, err) < 0 ||
        check_file("--webhook-ca", config->webhook_ca, uid, err) < 0 ||
        check_file("--package-keyring", config->package_keyring, uid, err) < 0 ||
        check_file("--egress-ca", config->egress_ca, uid + 2, err) < 0)
        return -1;
    return 0;
}
