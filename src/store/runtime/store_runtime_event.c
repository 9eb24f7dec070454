/* Events of the runtime. A row holds the event's text as it is told and, besides, the columns it is
 * searched by; the statement is chosen so that the most selective of these leads. */
#include "store/core/row.h"
#include "store/runtime/store_runtime.h"
#include "store/runtime/store_runtime_sandbox_row.h"

static struct str or_empty(struct str s)
{
    return s.p ? s : STR("");
}

/* clang-format off */
#define EVENT_ROW(F, T, AND)                                               \
    F(T, id, id) AND() F(T, team_id, team_id) AND() F(T, type, type) AND() \
    F(T, sandbox_id, sandbox_id) AND() F(T, session_id, session_id) AND()  \
    F(T, process_id, process_id) AND() F(T, agent_id, agent_id) AND() F(T, json, json)
/* clang-format on */
/* clang-format off */
#define LISTED_ROW(F, T, AND) \
    F(T, id, id) AND() F(T, type, type) AND() F(T, json, json)
/* clang-format on */
ROW(event_row, struct store_runtime_event, EVENT_ROW);
ROW(listed_row, struct store_runtime_event, LISTED_ROW);

static int insert(struct conn *conn, const struct store_runtime_event *event, struct error *err)
{
    auto_query struct query query = {0};

    if (query_open(&query, conn, ROW_INSERT("runtime_events", EVENT_ROW), err) < 0)
        return -1;
    row_bind(&event_row, &query, event);
    return query_run(&query, err);
}

int runtime_events_add(struct conn *conn, const struct store_runtime_event *events, size_t count,
                       struct error *err)
{
    for (size_t i = 0; i < count; i++)
        if (insert(conn, &events[i], err) < 0)
            return -1;
    return 0;
}

int store_runtime_event_insert(struct store *store, const struct store_runtime_event *events,
                               size_t count, struct error *err)
{
    auto_conn struct conn *conn = store_write(store);

    if (count == 1)
        return insert(conn, events, err);
    if (store_begin(conn, STORE_EPHEMERAL, err) < 0)
        return -1;
    return store_end(conn, runtime_events_add(conn, events, count, err), err);
}

/* Every statement takes the same nine values. The literal "<> ''" lets partial indices be used. */
/* clang-format off */
#define LIST(lead, order)                                                                      \
    "SELECT " ROW_COLUMNS(LISTED_ROW) " FROM runtime_events WHERE " lead " AND team_id = ?1"                \
    " AND (?2 = '' OR sandbox_id = ?2) AND (?3 = '' OR session_id = ?3)"                       \
    " AND (?4 = '' OR process_id = ?4) AND (?5 = '' OR agent_id = ?5)"                         \
    " AND (?6 = '' OR type = ?6 OR (?6 LIKE '%.' AND substr(type, 1, length(?6)) = ?6))"       \
    " AND id > ?7 AND id <= ?8 ORDER BY id " order " LIMIT ?9"
#define EITHER(lead) (newest ? LIST(lead, "DESC") : LIST(lead, "ASC"))
/* clang-format on */

static const char *list_sql(const struct store_runtime_query *wanted)
{
    bool newest = wanted->newest;

    if (wanted->process_id.p)
        return EITHER("process_id = ?4 AND process_id <> ''");
    if (wanted->session_id.p)
        return EITHER("session_id = ?3 AND session_id <> ''");
    if (wanted->sandbox_id.p)
        return EITHER("sandbox_id = ?2 AND sandbox_id <> ''");
    if (wanted->agent_id.p)
        return EITHER("agent_id = ?5 AND agent_id <> ''");
    return EITHER("team_id = ?1");
}

int store_runtime_event_list(struct store *store, const struct store_runtime_query *wanted,
                             struct arena *arena, struct store_runtime_event **out,
                             size_t *out_count, struct error *err)
{
    auto_conn struct conn *conn = store_read_many(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn, list_sql(wanted), err) < 0)
        return -1;
    bind_text(&query, wanted->team_id);
    bind_text(&query, or_empty(wanted->sandbox_id));
    bind_text(&query, or_empty(wanted->session_id));
    bind_text(&query, or_empty(wanted->process_id));
    bind_text(&query, or_empty(wanted->agent_id));
    bind_text(&query, or_empty(wanted->type));
    bind_int(&query, wanted->after_id);
    bind_int(&query, wanted->upto_id);
    bind_int(&query, (int64_t)wanted->limit);
    return row_all(&listed_row, &query, arena, out, out_count, err);
}

/* clang-format off */
#define USAGE_EVENTS(whose) \
    "SELECT " ROW_COLUMNS(EVENT_ROW) " FROM runtime_events WHERE " whose " AND type = 'usage' ORDER BY id DESC LIMIT ?2"
/* clang-format on */

int store_runtime_event_usage(struct store *store, struct str team_id, size_t limit,
                              struct arena *arena, struct store_runtime_event **out,
                              size_t *out_count, struct error *err)
{
    auto_conn struct conn *conn = store_read_many(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn, team_id.p ? USAGE_EVENTS("team_id = ?1") : USAGE_EVENTS("?1 = ''"),
                   err) < 0)
        return -1;
    bind_text(&query, or_empty(team_id));
    bind_int(&query, (int64_t)limit);
    return row_all(&event_row, &query, arena, out, out_count, err);
}

int store_runtime_event_last(struct store *store, int64_t *out_id, int64_t *out_count,
                             struct error *err)
{
    auto_conn struct conn *conn = store_read_many(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn, "SELECT coalesce(max(id), 0), count(*) FROM runtime_events", err) <
            0 ||
        query_step(&query, err) < 0)
        return -1;
    *out_id = query_int(&query, 0);
    *out_count = query_int(&query, 1);
    return 0;
}

int store_runtime_event_prune(struct store *store, int64_t before_id, int64_t surplus, size_t max,
                              size_t *out_count, struct error *err)
{
    auto_conn struct conn *conn = store_write(store);
    auto_query struct query query = {0};
    int64_t above = surplus < 0 ? 0 : surplus < (int64_t)max ? surplus : (int64_t)max;

    if (query_open(&query, conn,
                   "DELETE FROM runtime_events WHERE id IN (SELECT id FROM runtime_events"
                   " WHERE team_id = (SELECT team_id FROM runtime_events GROUP BY team_id"
                   " ORDER BY count(*) DESC LIMIT 1) ORDER BY id LIMIT ?1) OR id IN (SELECT id "
                   "FROM runtime_events"
                   " WHERE id < ?2 ORDER BY id LIMIT ?3) RETURNING 1",
                   err) < 0)
        return -1;
    bind_int(&query, above);
    bind_int(&query, before_id);
    bind_int(&query, (int64_t)max);
    return query_count(&query, out_count, err);
}
