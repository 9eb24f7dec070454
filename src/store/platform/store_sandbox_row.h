/* Sandboxes' rows, for the files that read them. Private to this folder. */
#pragma once

#include "store/core/row.h"
#include "store/platform/store_sandbox.h"

/* clang-format off */
#define SANDBOX_HEAD(F, T, AND)                                                           \
    F(T, id, id) AND() F(T, team_id, team_id) AND() F(T, template_id, template_id) AND()  \
    F(T, alias, alias) AND() F(T, state, life.state) AND() F(T, revision, revision) AND() \
    F(T, started_at_us, started_at_us) AND() F(T, end_at_us, life.end_at_us) AND()        \
    F(T, cpu_count, cpu_count) AND() F(T, mem_mb, mem_mb) AND() F(T, disk_mb, disk_mb)
#define SANDBOX_TEXTS(F, T, AND) \
    F(T, metadata, metadata) AND() F(T, env, env) AND() F(T, setup, setup)
#define SANDBOX_TAIL(F, T, AND)                                                                     \
    F(T, access_token, access_token) AND() F(T, internet, internet) AND()                           \
    F(T, internet_given, internet_given) AND() F(T, network, network) AND()                         \
    F(T, secure, secure) AND()                                                                      \
    F(T, ended_at_us, ended_at_us) AND() F(T, end_reason, end_reason) AND()                         \
    F(T, listed, life.listed) AND() F(T, memory, life.memory) AND()                                     \
    F(T, resumed_from, life.resumed_from) AND() F(T, running_since_us, life.running_since_us) AND() \
    F(T, timeout_s, timeout_s) AND() F(T, auto_pause, life.auto_pause) AND()                        \
    F(T, auto_pause_memory, auto_pause_memory) AND() F(T, auto_resume, auto_resume) AND()           \
    F(T, layers, layers) AND() F(T, tagged, tagged) AND() F(T, volumes, volumes) AND()           \
    F(T, traffic_token, traffic_token) AND() F(T, ingress, ingress)
#define SANDBOX_ROW(F, T, AND) \
    SANDBOX_HEAD(F, T, AND) AND() SANDBOX_TEXTS(F, T, AND) AND() SANDBOX_TAIL(F, T, AND)
#define SANDBOX_COLUMNS ROW_COLUMNS(SANDBOX_ROW)
/* clang-format on */
extern const struct row sandbox_row;

/* ---- store_list.c, as parts of transactions ---- */

int sandbox_tags_add(struct conn *conn, const struct store_sandbox *row, struct error *err);
int sandbox_tags_remove(struct conn *conn, struct str id, struct error *err);
