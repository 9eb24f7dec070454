/* Builds' rows and parts of transactions about them, for the files that write them. Private to this folder. */
#pragma once

#include "store/core/row.h"

/* clang-format off */
#define BUILD_ROW(F, T, AND)                                                                      \
    F(T, id, id) AND() F(T, template_id, template_id) AND() F(T, team_id, team_id) AND()          \
    F(T, state, state) AND() F(T, recipe, recipe) AND() F(T, tags, tags) AND()                    \
    F(T, layers, layers) AND() F(T, cpu_count, cpu_count) AND() F(T, mem_mb, mem_mb) AND()        \
    F(T, disk_mb, disk_mb) AND() F(T, env, env) AND() F(T, default_user, default_user) AND()      \
    F(T, workdir, workdir) AND() F(T, start_cmd, start_cmd) AND() F(T, ready_cmd, ready_cmd)      \
    AND() F(T, reason, reason) AND() F(T, reason_step, reason_step) AND()                         \
    F(T, log_count, log_count) AND() F(T, created_at_us, created_at_us) AND()                     \
    F(T, started_at_us, started_at_us) AND() F(T, finished_at_us, finished_at_us)
/* clang-format on */
extern const struct row build_row;

/* Moves tags ("a,b") to a build; a build that has none any more lets go of its layers (*out_freed). */
int build_tags_give(struct conn *conn, struct str template_id, struct str build_id, struct str tags,
                    int64_t at_us, bool *out_freed, struct error *err);
