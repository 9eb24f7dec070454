/* Who changed what. */
#include <stdio.h>

#include "store/core/row.h"
#include "store/platform/store_audit.h"

/* A path may be as long as a request's head, and a million of them are kept. */
enum { PATH_KEPT = 256 };

/* clang-format off */
#define AUDIT_ROW(F, T, AND)                                                                     \
    F(T, seq, seq) AND() F(T, at_us, at_us) AND() F(T, team_id, team_id) AND()                   \
    F(T, key_id, key_id) AND() F(T, method, method) AND() F(T, path, path) AND()                 \
    F(T, status, status) AND() F(T, request_id, request_id) AND() F(T, key_name, key_name) AND() \
    F(T, agent_id, agent_id)
/* clang-format on */
ROW(audit_row, struct store_audit, AUDIT_ROW);

static const struct row_field page_fields[] = {
    AUDIT_ROW(ROW_FIELD, struct store_audit, ROW_NEXT),
    ROW_FIELD(struct store_audit, name, team_name),
};
static const struct row page_row = ROW_OF(page_fields, struct store_audit, );

static int insert(struct conn *conn, const struct store_audit *entry, int64_t seq,
                  struct error *err)
{
    auto_query struct query query = {0};
    struct store_audit row = *entry;
    char path[PATH_KEPT + sizeof("...")];
    int kept = entry->path.len > PATH_KEPT ? PATH_KEPT : (int)entry->path.len;

    if (query_open(&query, conn, ROW_INSERT("audit", AUDIT_ROW), err) < 0)
        return -1;
    (void)snprintf(path, sizeof(path), "%.*s%s", kept, entry->path.p ? entry->path.p : "",
                   entry->path.len > PATH_KEPT ? "..." : "");
    row.seq = seq;
    row.path = str_of(path);
    row_bind(&audit_row, &query, &row);
    return query_run(&query, err);
}

int store_audit_add(struct store *store, const struct store_audit *entry, struct error *err)
{
    auto_conn struct conn *conn = store_write(store);
    int64_t seq = 0;
    int result;

    if (store_begin(conn, STORE_EPHEMERAL, err) < 0)
        return -1;
    result = counter_next(conn, "audit", &seq, err);
    return store_end(conn, result < 0 ? -1 : insert(conn, entry, seq, err), err);
}

#define PAGE               \
    "SELECT " ROW_COLUMNS( \
        AUDIT_ROW) ", coalesce((SELECT name FROM teams WHERE teams.id = team_id), '') FROM audit"

int store_audit_page(struct store *store, struct str team_id, int64_t before_seq, size_t limit,
                     struct arena *arena, struct store_audit **out, size_t *out_count,
                     struct error *err)
{
    auto_conn struct conn *conn = store_read_many(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   team_id.p ? PAGE " WHERE team_id = ?1 AND seq < ?2 ORDER BY seq DESC LIMIT ?3"
                             : PAGE " WHERE ?1 = '' AND seq < ?2 ORDER BY seq DESC LIMIT ?3",
                   err) < 0)
        return -1;
    bind_text(&query, team_id.p ? team_id : STR(""));
    bind_int(&query, before_seq ? before_seq : INT64_MAX);
    bind_int(&query, (int64_t)limit);
    return row_all(&page_row, &query, arena, out, out_count, err);
}

int store_audit_prune(struct store *store, int64_t before_us, int64_t keep, size_t max,
                      size_t *out_count, struct error *err)
{
    return store_prune(store, STORE_PRUNE("audit"), before_us, keep, max, out_count, err);
}
