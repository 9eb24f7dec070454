/* The files that changed in a session's workspace since the session began, with their diffs. */
#pragma once

#include "runtime/core/runtime.h"

enum {
    CHANGES_FILES_MAX = 500,
    CHANGES_LIST_MAX = 128 * 1024,  /* bytes of names and counts that the sandbox may print */
    CHANGES_DIFF_MAX = 1024 * 1024, /* bytes of all diffs together */
};

struct session_change {
    struct str path;
    char status;            /* as git has it: A, M, D or T */
    bool binary;            /* no counts and no diff */
    int64_t added, removed; /* lines */
    struct str diff;        /* unified, with its header; "" = none, or beyond the limit */
    bool cut;               /* the diff is not whole */
};

struct session_changes {
    struct str kind; /* "repository", "directory" (everything is new), or "none": there is no git */
    struct str base; /* the commit that HEAD was when the session began; "" = there was none */
    struct session_change *items;
    size_t count;
    bool truncated; /* there are more files or diffs than are listed */
};

/* Reads what the sandbox printed, which may be anything; strings point into text. False: not that format. */
bool session_changes_parse(struct str text, struct arena *arena, struct session_changes *out);

/* Runs git in the sandbox, as its default user. Wakes nothing: ERROR_CONFLICT when the sandbox does not run. */
int session_changes(struct runtime *runtime, const struct runtime_caller *caller, struct str id,
                    struct arena *arena, struct session_changes *out, struct error *err);
