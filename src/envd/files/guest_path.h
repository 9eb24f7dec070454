/* Paths as requests name them. */
#pragma once

#include <limits.h>
#include <sys/types.h>

#include "base/error.h"
#include "base/str.h"
#include "envd/core/users.h"

/* Empty: workdir (may be NULL) or else the home directory. "~" and "~/x": home. Relative: to home.
 * Absolute: as it is. */
int guest_path_resolve(struct str path, const struct user *user, const char *workdir,
                       char out[PATH_MAX], struct error *err);
/* Last component, trailing slashes ignored; "/" for the root. */
struct str guest_path_base(const char *path);
/* Everything before the last component; "/" at least. */
void guest_path_dir(const char *path, char out[PATH_MAX]);
/* mkdir -p, new directories 0755 and owned by the user. */
int guest_path_make_dirs(const char *path, const struct user *user, struct error *err);
