/* Sandboxes' rows. A row appears when a sandbox is ready (a box without a row is a leftover), says
 * 'killing' while it is torn down, and stays as history with 'ended'. What runs is not fsync()ed: it
 * does not outlive the host, so rows that the host's death took with it described nothing. A pause
 * is: its files outlive the host. */
#include <inttypes.h>

#include "store/core/query.h"
#include "store/platform/platform_internal.h"
#include "store/platform/store_sandbox_row.h"

static const char *const resumed_names[] = {
    [STORE_RESUMED_NEVER] = "",
    [STORE_RESUMED_MEMORY] = "memory",
    [STORE_RESUMED_DISK] = "disk",
};

static const struct names resumed = NAMES("last resume of a sandbox", resumed_names);
static const struct names *const names[] = {&sandbox_state_names, &sandbox_state_names, &resumed};
static const struct row_field fields[] = {SANDBOX_ROW(ROW_FIELD, struct store_sandbox, ROW_NEXT)};
const struct row sandbox_row = ROW_OF(fields, struct store_sandbox, .names = names);

static int insert_row(struct conn *conn, const struct store_sandbox *given, struct error *err)
{
    auto_query struct query query = {0};
    struct store_sandbox row = *given;

    if (query_open(&query, conn, ROW_INSERT("sandboxes", SANDBOX_ROW), err) < 0)
        return -1;
    row.tagged = true;
    row.life.listed = sandbox_state_listed(row.life.state);
    if (!row.metadata.p)
        row.metadata = STR("{}");
    if (!row.env.p)
        row.env = STR("{}");
    if (!row.network.p)
        row.network = STR("");
    row_bind(&sandbox_row, &query, &row);
    return query_run(&query, err);
}

int store_sandbox_insert(struct store *store, const struct store_sandbox *row, struct error *err)
{
    auto_conn struct conn *conn = store_write(store);

    if (store_begin(conn, STORE_EPHEMERAL, err) < 0)
        return -1;
    return store_end(conn,
                     insert_row(conn, row, err) < 0 ||
                             layer_uses_add(conn, row->layers, "sandbox", row->id, err) < 0 ||
                             sandbox_tags_add(conn, row, err) < 0 ||
                             event_add(conn, row->id, row->event, err) < 0 ||
                             idempotency_add(conn, row, err) < 0 ||
                             template_spawned(conn, row->template_id, row->started_at_us, err) <
                                 0 ||
                             volume_uses_add(conn, row, err) < 0 ||
                             (row->also && row->also->run(row->also->arg, conn, err) < 0)
                         ? -1
                         : 0,
                     err);
}

int store_sandbox_get(struct store *store, struct str id, struct arena *arena,
                      struct store_sandbox *out, struct error *err)
{
    auto_conn struct conn *conn = store_read(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn, "SELECT " SANDBOX_COLUMNS " FROM sandboxes WHERE id = ?1", err) <
        0)
        return -1;
    bind_text(&query, id);
    return row_one(&sandbox_row, &query, "sandbox", id, arena, out, err);
}

int store_sandbox_live(struct store *store, struct arena *arena, struct store_sandbox **out,
                       size_t *out_count, struct error *err)
{
    auto_conn struct conn *conn = store_read_many(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "SELECT " ROW_COLUMNS(SANDBOX_HEAD) ", '{}', '{}', '', " ROW_COLUMNS(
                       SANDBOX_TAIL) " FROM sandboxes WHERE listed <> 'ended'",
                   err) < 0)
        return -1;
    return row_all(&sandbox_row, &query, arena, out, out_count, err);
}

#define POLICY_ROW(F, T, AND) F(T, id, id) AND() F(T, network, network)
ROW(policy_row, struct store_sandbox_policy, POLICY_ROW);

int store_sandbox_policies(struct store *store, struct str team_id, struct arena *arena,
                           struct store_sandbox_policy **out, size_t *out_count, struct error *err)
{
    auto_conn struct conn *conn = store_read_many(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "SELECT " ROW_COLUMNS(POLICY_ROW) " FROM sandboxes WHERE team_id = ?1 AND"
                                                     " listed <> 'ended' AND network LIKE"
                                                     " '%${e2b.secrets.%'",
                   err) < 0)
        return -1;
    bind_text(&query, team_id);
    return row_all(&policy_row, &query, arena, out, out_count, err);
}

int store_sandbox_set_end(struct store *store, struct str id, const struct store_sandbox_end *end,
                          int64_t *out_end_at_us, int64_t *out_revision, struct error *err)
{
    auto_conn struct conn *conn = store_write(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "UPDATE sandboxes SET revision = revision + 1, end_at_us ="
                   " CASE WHEN ?3 = 1 AND end_at_us > ?2 THEN end_at_us"
                   " WHEN ?4 > 0 AND ?2 > running_since_us + ?4 THEN running_since_us + ?4"
                   " ELSE ?2 END"
                   " WHERE id = ?1 AND state = 'running' RETURNING end_at_us, revision",
                   err) < 0)
        return -1;
    bind_text(&query, id);
    bind_int(&query, end->end_at_us);
    bind_int(&query, end->only_later);
    bind_int(&query, end->max_life_us);
    if (query_one(&query, "sandbox", id, err) < 0)
        return -1;
    *out_end_at_us = query_int(&query, 0);
    *out_revision = query_int(&query, 1);
    return query_run(&query, err);
}

static int set_life(struct conn *conn, struct str id, const struct store_sandbox_life *life,
                    int64_t *out_revision, struct error *err)
{
    char sources[SANDBOX_SOURCES_SIZE];
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "UPDATE sandboxes SET revision = revision + 1, state = ?2, listed = ?3,"
                   " end_at_us = ?4, running_since_us = ?5, memory = ?6, auto_pause = ?7,"
                   " resumed_from = ?8 WHERE id = ?1 AND ?9 LIKE '%,' || state || ',%'"
                   " RETURNING revision",
                   err) < 0)
        return -1;
    sandbox_state_sources(life->state, sources);
    bind_text(&query, id);
    bind_text(&query, str_of(name_of(&sandbox_state_names, life->state)));
    bind_text(&query, str_of(name_of(&sandbox_state_names, life->listed)));
    bind_int(&query, life->end_at_us);
    bind_int(&query, life->running_since_us);
    bind_int(&query, life->memory);
    bind_int(&query, life->auto_pause);
    bind_text(&query, str_of(resumed_names[life->resumed_from]));
    bind_text(&query, str_of(sources));
    if (query_one(&query, "sandbox", id, err) < 0)
        return -1;
    *out_revision = query_int(&query, 0);
    return query_run(&query, err);
}

int store_sandbox_set_life(struct store *store, struct str id,
                           const struct store_sandbox_life *life, const struct store_event *event,
                           bool durable, int64_t *out_revision, struct error *err)
{
    auto_conn struct conn *conn = store_write(store);

    if (store_begin(conn, durable ? STORE_DURABLE : STORE_EPHEMERAL, err) < 0)
        return -1;
    return store_end(
        conn,
        set_life(conn, id, life, out_revision, err) < 0 || event_add(conn, id, event, err) < 0 ? -1
                                                                                               : 0,
        err);
}

int store_sandbox_set_network(struct store *store, struct str id,
                              const struct store_sandbox_network *network, struct error *err)
{
    auto_conn struct conn *conn = store_write(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "UPDATE sandboxes SET network = ?2, internet = ?3, internet_given = ?4"
                   " WHERE id = ?1",
                   err) < 0)
        return -1;
    bind_text(&query, id);
    bind_text(&query, network->text);
    bind_int(&query, network->internet);
    bind_int(&query, network->given);
    return query_run(&query, err);
}

int store_sandbox_killing(struct store *store, struct str id, struct str reason, struct error *err)
{
    auto_conn struct conn *conn = store_write(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "UPDATE sandboxes SET state = 'killing', listed = 'killing', end_reason = ?2"
                   " WHERE id = ?1 AND listed IN ('running', 'paused')",
                   err) < 0)
        return -1;
    bind_text(&query, id);
    bind_text(&query, reason);
    return query_run(&query, err);
}

/* History needs neither the token nor the environment: secrets go as early as they can. 1 = ended
 * now, 0 = it was not there, or had ended before. */
static int end_row(struct conn *conn, struct str id, struct str reason, int64_t at_us,
                   struct error *err)
{
    auto_query struct query query = {0};
    int found;

    if (query_open(
            &query, conn,
            "UPDATE sandboxes SET state = 'ended', listed = 'ended', ended_at_us = ?3,"
            " end_reason = CASE WHEN end_reason = '' THEN ?2 ELSE end_reason END,"
            " access_token = '', traffic_token = '', env = '{}' WHERE id = ?1 AND listed <> 'ended'"
            " RETURNING id",
            err) < 0)
        return -1;
    bind_text(&query, id);
    bind_text(&query, reason);
    bind_int(&query, at_us);
    found = query_step(&query, err);
    return found > 0 && query_run(&query, err) < 0 ? -1 : found;
}

int store_sandbox_ended(struct store *store, struct str id, struct str reason,
                        const struct store_event *event, int64_t at_us, bool *out_freed,
                        struct error *err)
{
    auto_conn struct conn *conn = store_write(store);
    int ended;

    if (store_begin(conn, STORE_EPHEMERAL, err) < 0)
        return -1;
    ended = end_row(conn, id, reason, at_us, err);
    return store_end(conn,
                     ended < 0 || (ended > 0 && event_add(conn, id, event, err) < 0) ||
                             layer_uses_remove(conn, "sandbox", id, out_freed, err) < 0 ||
                             sandbox_tags_remove(conn, id, err) < 0 ||
                             volume_uses_remove(conn, id, err) < 0
                         ? -1
                         : 0,
                     err);
}

int store_sandbox_prune(struct store *store, int64_t before_us, size_t max, size_t *out_count,
                        struct error *err)
{
    auto_conn struct conn *conn = store_write(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "DELETE FROM sandboxes WHERE id IN (SELECT id FROM sandboxes"
                   " WHERE listed = 'ended' AND ended_at_us < ?1 LIMIT ?2) RETURNING id",
                   err) < 0)
        return -1;
    bind_int(&query, before_us);
    bind_int(&query, (int64_t)max);
    return query_count(&query, out_count, err);
}
