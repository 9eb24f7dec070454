/* What a repository's URL may be, and the names made of it. */
#pragma once

#include <stdbool.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/str.h"

/* Letters, digits and `extra` only, and not empty. */
bool repo_plain(struct str text, const char *extra);
/* Only http(s), ssh and git URLs, scp-like names and absolute paths: nothing git takes for an option
 * or a helper. */
bool repo_valid(struct str repo);
bool repo_branch_valid(struct str branch);
/* 'repo' and 'branch' of a request, where given. */
int repo_check(struct str repo, struct str branch, struct error *err);
/* The last two parts of a path, without ".git". */
bool repo_owner_and_name(struct str path, struct str *owner, struct str *name);
/* Name of the folder a clone makes. */
void repo_folder(struct str repo, struct arena *arena, struct str *out);
