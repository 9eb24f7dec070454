/* The programs that come with quicksand: static ones that run inside sandboxes and builds. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Their names; ends with NULL. Made by tools/extras.py of those of the core and of the extras of this build. */
extern const char *const part_names[];
/* Path of this program. */
void part_self(char *out, size_t size);
/* The path of this program in out; true when a process of this user may not execute it. False when that is unknown. */
bool part_self_denied_to(uid_t uid, char *out, size_t size);
/* Path of one of them: beside this program, or where `make install` puts it, or in the directory that parts_set_dir()
 * named. The file may be missing. */
void part_path(const char *name, char *out, size_t size);
/* For a process whose user may not be able to read the directory of its own program. Call it before other threads
 * start; dir is copied. */
void parts_set_dir(const char *dir);
