/* How the runtime's rows follow the engine's, which are in the same store: the engine's events are read
 * from where the last reading ended, and now and then both sides are compared. */
#include <inttypes.h>
#include <stdio.h>

#include "store/runtime/store_runtime_sandbox.h"
#include "store/runtime/store_runtime_sandbox_row.h"

int store_runtime_followed(struct store *store, int64_t *out_seq, struct error *err)
{
    auto_conn struct conn *conn = store_read(store);
    auto_query struct query query = {0};
    int found;

    *out_seq = 0;
    if (query_open(&query, conn, "SELECT name FROM runtime_instance WHERE id = 'followed'", err) <
        0)
        return -1;
    found = query_step(&query, err);
    if (found > 0)
        (void)str_to_i64(query_peek(&query, 0), out_seq);
    return found < 0 ? -1 : 0;
}

int store_runtime_follow(struct store *store, int64_t seq, struct error *err)
{
    auto_conn struct conn *conn = store_write(store);
    auto_query struct query query = {0};
    char text[24];

    (void)snprintf(text, sizeof(text), "%" PRId64, seq);
    if (query_open(&query, conn,
                   "INSERT INTO runtime_instance (id, name) VALUES ('followed', ?1)"
                   " ON CONFLICT (id) DO UPDATE SET name = excluded.name",
                   err) < 0)
        return -1;
    bind_text(&query, str_of(text));
    return query_run(&query, err);
}

int store_event_newest(struct store *store, int64_t *out_seq, struct error *err)
{
    auto_conn struct conn *conn = store_read(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn, "SELECT value FROM counters WHERE name = 'events'", err) < 0 ||
        query_step(&query, err) < 0)
        return -1;
    *out_seq = query_int(&query, 0);
    return 0;
}

int store_runtime_sandbox_by_machine(struct store *store, struct str machine, struct arena *arena,
                                     struct store_runtime_sandbox *out, struct error *err)
{
    auto_conn struct conn *conn = store_read(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "SELECT " RUNTIME_SANDBOX_COLUMNS
                   " FROM runtime_sandboxes WHERE external_id = ?1"
                   " ORDER BY CASE WHEN destroyed_at_us = 0 THEN 0 ELSE 1 END, created_at_us DESC"
                   " LIMIT 1",
                   err) < 0)
        return -1;
    bind_text(&query, machine);
    return row_one(&runtime_sandbox_row, &query, "sandbox with machine", machine, arena, out, err);
}

#define OF_STRAY(T, column, member) ROW_FIELD(T, column, row.member)
static const struct row_field stray_fields[] = {
    RUNTIME_SANDBOX_ROW(OF_STRAY, struct store_runtime_stray, ROW_NEXT),
    ROW_FIELD(struct store_runtime_stray, engine_state, state),
    ROW_FIELD(struct store_runtime_stray, engine_reason, reason),
    ROW_FIELD(struct store_runtime_stray, engine_at, at_us),
};
static const struct names *const stray_names[] = {&sandbox_state_names, &sandbox_state_names};
static const struct row stray_row =
    ROW_OF(stray_fields, struct store_runtime_stray, .flags = ROW_NONE, .names = stray_names);
static const struct row_field unknown_fields[] = {
    ROW_FIELD(struct store_runtime_stray, id, machine),
};
static const struct row unknown_row =
    ROW_OF(unknown_fields, struct store_runtime_stray, .flags = ROW_NONE);

/* 'moving': a pause or resume is under way. */
#define ENGINE(column) \
    "(SELECT " column " FROM sandboxes AS s WHERE s.id = runtime_sandboxes.external_id)"
#define ENGINE_STATE                                                             \
    ENGINE("CASE WHEN s.listed = 'paused' AND s.state <> 'paused' THEN 'moving'" \
           " WHEN s.listed IN ('running', 'paused') THEN s.listed ELSE 'ended' END")
#define ENGINE_AT                                                                           \
    ENGINE("CASE WHEN s.listed = 'ended' THEN s.ended_at_us WHEN s.listed = 'running' THEN" \
           " s.running_since_us ELSE coalesce((SELECT max(at_us) FROM events"               \
           " WHERE sandbox_id = s.id AND type = 'paused'), 0) END")

static int changed_ones(struct conn *conn, struct str provider, size_t limit, struct arena *arena,
                        struct store_runtime_stray **out, size_t *out_count, struct error *err)
{
    auto_query struct query query = {0};

    if (query_open(
            &query, conn,
            "SELECT * FROM (SELECT " RUNTIME_SANDBOX_COLUMNS ", coalesce(" ENGINE_STATE
            ", 'lost') AS engine_state, coalesce(" ENGINE(
                "s.end_reason") ", '') AS engine_reason, coalesce(" ENGINE_AT ", 0) AS engine_at"
                                " FROM runtime_sandboxes WHERE provider = ?1"
                                " AND destroyed_at_us = 0 AND state IN ('running', 'paused'))"
                                " AS mine WHERE engine_state <> state"
                                " AND engine_state <> 'moving' LIMIT ?2",
            err) < 0)
        return -1;
    bind_text(&query, provider);
    bind_int(&query, (int64_t)limit);
    return row_all(&stray_row, &query, arena, out, out_count, err);
}

static int unknown_ones(struct conn *conn, int64_t before_us, size_t limit, struct arena *arena,
                        struct store_runtime_stray **out, size_t *out_count, struct error *err)
{
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "SELECT s.id FROM sandboxes AS s WHERE s.listed <> 'ended'"
                   " AND s.listed <> 'killing' AND s.started_at_us < ?1 AND NOT EXISTS"
                   " (SELECT 1 FROM runtime_sandboxes AS a WHERE a.external_id = s.id) LIMIT ?2",
                   err) < 0)
        return -1;
    bind_int(&query, before_us);
    bind_int(&query, (int64_t)limit);
    return row_all(&unknown_row, &query, arena, out, out_count, err);
}

int store_runtime_strays(struct store *store, struct str provider, int64_t before_us, size_t limit,
                         struct arena *arena, struct store_runtime_stray **out, size_t *out_count,
                         struct error *err)
{
    auto_conn struct conn *conn = store_read_many(store);
    struct store_runtime_stray *changed, *unknown;
    size_t changes = 0, unknowns = 0;

    if (changed_ones(conn, provider, limit, arena, &changed, &changes, err) < 0 ||
        unknown_ones(conn, before_us, limit, arena, &unknown, &unknowns, err) < 0)
        return -1;
    *out_count = changes + unknowns;
    *out = arena_alloc(arena, (*out_count + 1) * sizeof(**out));
    for (size_t i = 0; i < changes; i++) {
        (*out)[i] = changed[i];
        (*out)[i].machine = changed[i].row.external_id;
    }
    for (size_t i = 0; i < unknowns; i++)
        (*out)[changes + i] = unknown[i];
    return 0;
}
