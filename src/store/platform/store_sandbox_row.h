/* Sandboxes' rows, for the files that read them. Private to this folder. */
#pragma once

#include "store/core/store.h"
#include "store/driver/query.h"

#define SANDBOX_COLUMNS                                                                      \
    "id, team_id, template_id, alias, state, revision, started_at_us, end_at_us, cpu_count," \
    " mem_mb, disk_mb, metadata, env, access_token, internet, internet_given, secure,"       \
    " ended_at_us, end_reason," SANDBOX_LIFE_COLUMNS
#define SANDBOX_LIFE_COLUMNS                                                \
    " step, memory, resumed_from, running_since_us, timeout_s, auto_pause," \
    " auto_pause_memory, auto_resume, layers, tagged, volumes"

/* All rows of a query for SANDBOX_COLUMNS. */
int sandbox_rows(struct query *query, struct arena *arena, struct store_sandbox **out,
                 size_t *out_count, struct error *err);

/* ---- store_list.c, as parts of transactions ---- */

int sandbox_tags_add(struct conn *conn, const struct store_sandbox *row, struct error *err);
int sandbox_tags_remove(struct conn *conn, struct str id, struct error *err);
