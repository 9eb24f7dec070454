/* Events. They are parts of other transactions (query.h); here they are also read and forgotten. */
#include "base/id.h"
#include "store/core/row.h"
#include "store/platform/platform_internal.h"

/* clang-format off */
#define EVENT_ROW(F, T, AND)                                                                       \
    F(T, seq, seq) AND() F(T, id, id) AND() F(T, team_id, team_id) AND()                           \
    F(T, sandbox_id, sandbox_id) AND() F(T, template_id, template_id) AND() F(T, type, type) AND() \
    F(T, level, level) AND() F(T, message, message) AND() F(T, detail, detail) AND()               \
    F(T, at_us, at_us) AND() F(T, since_us, since_us) AND() F(T, cpu_count, cpu_count) AND()       \
    F(T, mem_mb, mem_mb) AND() F(T, metadata, metadata)
/* clang-format on */
ROW(event_row, struct store_event, EVENT_ROW);
#define COLUMNS ROW_COLUMNS(EVENT_ROW)

/* 1 = added, 0 = there is no such sandbox. */
static int insert_event(struct conn *conn, struct str sandbox_id, const struct store_event *event,
                        int64_t seq, struct error *err)
{
    auto_query struct query query = {0};
    char id[UUID_SIZE];
    int found;

    if (query_open(&query, conn,
                   "INSERT INTO events (" COLUMNS ")"
                   " SELECT ?8, ?2, team_id, id, template_id, ?3, ?4, ?5, ?6, ?7,"
                   " running_since_us, cpu_count, mem_mb, metadata"
                   " FROM sandboxes WHERE id = ?1 RETURNING seq",
                   err) < 0)
        return -1;
    id_uuid(id);
    bind_text(&query, sandbox_id);
    bind_text(&query, str_of(id));
    bind_text(&query, event->type);
    bind_int(&query, event->level);
    bind_text(&query, event->message);
    bind_text(&query, event->detail.p ? event->detail : STR(""));
    bind_int(&query, event->at_us);
    bind_int(&query, seq);
    found = query_step(&query, err);
    return found > 0 && query_run(&query, err) < 0 ? -1 : found;
}

int event_add(struct conn *conn, struct str sandbox_id, const struct store_event *event,
              struct error *err)
{
    int64_t seq = 0;
    int added;

    if (!event)
        return 0;
    if (counter_next(conn, "events", &seq, err) < 0)
        return -1;
    added = insert_event(conn, sandbox_id, event, seq, err);
    return added > 0 ? deliveries_add(conn, seq, event->at_us, err) : added;
}

int store_event_add(struct store *store, struct str sandbox_id, const struct store_event *event,
                    struct error *err)
{
    auto_conn struct conn *conn = store_write(store);

    if (store_begin(conn, STORE_EPHEMERAL, err) < 0)
        return -1;
    return store_end(conn, event_add(conn, sandbox_id, event, err), err);
}

/* clang-format off */
#define PAGE(where, compare, order) \
    "SELECT " COLUMNS " FROM events WHERE " where " AND seq " compare " ?3 ORDER BY seq " order " LIMIT ?4"
#define OF_SANDBOX "sandbox_id = ?2 AND team_id = ?1"
#define OF_TEAM    "team_id = ?1 AND ?2 = ''"
#define OF_ALL     "?1 = '' AND ?2 = ''"
/* clang-format on */

static const char *page_sql(const struct store_event_query *wanted)
{
    if (!wanted->team_id.p)
        return PAGE(OF_ALL, ">", "ASC");
    if (wanted->sandbox_id.p)
        return wanted->ascending ? PAGE(OF_SANDBOX, ">", "ASC") : PAGE(OF_SANDBOX, "<", "DESC");
    return wanted->ascending ? PAGE(OF_TEAM, ">", "ASC") : PAGE(OF_TEAM, "<", "DESC");
}

int store_event_page(struct store *store, const struct store_event_query *wanted,
                     struct arena *arena, struct store_event **out, size_t *out_count,
                     struct error *err)
{
    auto_conn struct conn *conn = store_read_many(store);
    auto_query struct query query = {0};
    bool ascending = wanted->ascending || !wanted->team_id.p;

    if (query_open(&query, conn, page_sql(wanted), err) < 0)
        return -1;
    bind_text(&query, wanted->team_id.p ? wanted->team_id : STR(""));
    bind_text(&query, wanted->sandbox_id.p ? wanted->sandbox_id : STR(""));
    bind_int(&query, wanted->after_seq || ascending ? wanted->after_seq : INT64_MAX);
    bind_int(&query, (int64_t)wanted->limit);
    return row_all(&event_row, &query, arena, out, out_count, err);
}

int store_event_prune(struct store *store, int64_t before_us, int64_t keep, size_t max,
                      size_t *out_count, struct error *err)
{
    return store_prune(store, STORE_PRUNE("events"), before_us, keep, max, out_count, err);
}
