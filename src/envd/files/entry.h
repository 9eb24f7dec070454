/* Directory entries as messages: EntryInfo of the filesystem service. */
#pragma once

#include "base/buf.h"
#include "base/error.h"
#include "base/str.h"
#include "envd/core/users.h"

/* Attributes that hold a file's metadata begin so. */
#define ENTRY_METADATA_PREFIX "user.e2b."

/* Appends the JSON object of what is at path; shown is the path to report. ERROR_NOT_FOUND when
 * nothing is there. is_dir may be NULL; a link to a directory is none. */
int entry_add(struct buf *out, const char *path, struct str shown, struct user_names *names,
              bool *is_dir, struct error *err);
/* "drwxr-xr-x" and so on, in the notation of Go's file modes. out has room for 32. */
void entry_permissions(mode_t mode, char out[32]);
/* Appends ,"metadata":{...} from the user.e2b.* attributes, or nothing when there are none. */
void entry_add_metadata(struct buf *out, const char *path);
