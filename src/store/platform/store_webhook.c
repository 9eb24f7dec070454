/* Webhooks and the queue of what they have to be told. */
#include "store/platform/store_webhook.h"
#include "store/core/row.h"
#include "store/platform/platform_internal.h"

/* clang-format off */
#define WEBHOOK_ROW(F, T, AND)                                                                  \
    F(T, id, id) AND() F(T, team_id, team_id) AND() F(T, name, name) AND() F(T, url, url) AND() \
    F(T, secret, secret) AND() F(T, events, events) AND() F(T, enabled, enabled) AND()          \
    F(T, created_at_us, created_at_us)
/* clang-format on */
ROW(webhook_row, struct store_webhook, WEBHOOK_ROW);

/* A delivery has its webhook in it. */
#define OF_DELIVERY(T, column, member) ROW_FIELD(T, column, webhook.member)
#define OF_WEBHOOK(T, column, member)  "webhooks." #column
#define DELIVERY_COLUMNS               WEBHOOK_ROW(OF_WEBHOOK, , ROW_COMMA) ", event_seq, attempts, next_at_us"
static const struct row_field delivery_fields[] = {
    WEBHOOK_ROW(OF_DELIVERY, struct store_delivery, ROW_NEXT),
    ROW_FIELD(struct store_delivery, event_seq, event_seq),
    ROW_FIELD(struct store_delivery, attempts, attempts),
    ROW_FIELD(struct store_delivery, next_at_us, next_at_us),
};
static const struct row delivery_row = ROW_OF(delivery_fields, struct store_delivery, );

/* clang-format off */
static const char upsert_webhook[] =
    ROW_INSERT("webhooks", WEBHOOK_ROW)
    " ON CONFLICT (id) DO UPDATE SET name = excluded.name, url = excluded.url, secret ="
    " excluded.secret, events = excluded.events, enabled = excluded.enabled";
/* clang-format on */

int store_webhook_put(struct store *store, const struct store_webhook *webhook, struct error *err)
{
    auto_conn struct conn *conn = store_write(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn, upsert_webhook, err) < 0)
        return -1;
    row_bind(&webhook_row, &query, webhook);
    return query_run_durable(&query, conn, err);
}

int store_webhook_list(struct store *store, struct str team_id, struct arena *arena,
                       struct store_webhook **out, size_t *out_count, struct error *err)
{
    auto_conn struct conn *conn = store_read_many(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "SELECT " ROW_COLUMNS(
                       WEBHOOK_ROW) " FROM webhooks WHERE team_id = ?1 ORDER BY created_at_us, id",
                   err) < 0)
        return -1;
    bind_text(&query, team_id);
    return row_all(&webhook_row, &query, arena, out, out_count, err);
}

static int delete_of(struct conn *conn, const char *sql, struct str id, struct str team_id,
                     bool *out_found, struct error *err)
{
    auto_query struct query query = {0};
    int found;

    if (query_open(&query, conn, sql, err) < 0)
        return -1;
    bind_text(&query, id);
    bind_text(&query, team_id);
    found = query_step(&query, err);
    *out_found = found > 0;
    return found > 0 ? query_run(&query, err) : found;
}

int store_webhook_delete(struct store *store, struct str team_id, struct str id, struct error *err)
{
    auto_conn struct conn *conn = store_write(store);
    bool found = false, ignored;

    if (store_begin(conn, STORE_DURABLE, err) < 0)
        return -1;
    if (store_end(
            conn,
            delete_of(conn, "DELETE FROM webhooks WHERE id = ?1 AND team_id = ?2 RETURNING id", id,
                      team_id, &found, err) < 0 ||
                    (found && delete_of(conn,
                                        "DELETE FROM deliveries WHERE webhook_id = ?1 AND ?2 <> ''"
                                        " RETURNING webhook_id",
                                        id, team_id, &ignored, err) < 0)
                ? -1
                : 0,
            err) < 0)
        return -1;
    return found ? 0 : error_set(err, ERROR_NOT_FOUND, "webhook not found");
}

/* While the oldest delivery of a webhook is put off, new ones wait
 * for it. */
int deliveries_add(struct conn *conn, int64_t event_seq, int64_t now_us, struct error *err)
{
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "INSERT INTO deliveries (webhook_id, event_seq, attempts, next_at_us)"
                   " SELECT webhooks.id, seq, 0, coalesce((SELECT CASE WHEN next_at_us > ?1 THEN"
                   " next_at_us ELSE ?1 END FROM deliveries WHERE webhook_id = webhooks.id"
                   " ORDER BY event_seq LIMIT 1), ?1) FROM events JOIN webhooks"
                   " ON webhooks.team_id = events.team_id"
                   " WHERE seq = ?2 AND enabled = 1"
                   " AND webhooks.events LIKE '%,' || type || ',%'",
                   err) < 0)
        return -1;
    bind_int(&query, now_us);
    bind_int(&query, event_seq);
    return query_run(&query, err);
}

/* By webhook: a busy one may have any number of deliveries, of which only the oldest counts. */
int store_delivery_next(struct store *store, struct str busy, struct arena *arena,
                        struct store_delivery *out, struct error *err)
{
    auto_conn struct conn *conn = store_read(store);
    auto_query struct query query = {0};

    /* The columns of events are read by store_event_page(); here only which one it is. */
    if (query_open(&query, conn,
                   "SELECT " DELIVERY_COLUMNS " FROM webhooks CROSS JOIN deliveries"
                   " WHERE ?1 NOT LIKE '%,' || webhooks.id || ',%'"
                   " AND ?1 NOT LIKE '%,' || team_id || ',%' AND webhook_id = webhooks.id"
                   " AND event_seq = (SELECT min(event_seq) FROM deliveries AS oldest"
                   " WHERE oldest.webhook_id = webhooks.id) ORDER BY next_at_us LIMIT 1",
                   err) < 0)
        return -1;
    bind_text(&query, busy);
    return row_one(&delivery_row, &query, "delivery", STR_NONE, arena, out, err);
}

int store_delivery_waiting(struct store *store, struct str webhook_id, int64_t *out_count,
                           int64_t *out_next_at_us, struct error *err)
{
    auto_conn struct conn *conn = store_read(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "SELECT count(*), coalesce(min(next_at_us), 0) FROM deliveries"
                   " WHERE webhook_id = ?1",
                   err) < 0)
        return -1;
    bind_text(&query, webhook_id);
    if (query_one(&query, "webhook", webhook_id, err) < 0)
        return -1;
    *out_count = query_int(&query, 0);
    *out_next_at_us = query_int(&query, 1);
    return 0;
}

int store_delivery_done(struct store *store, struct str webhook_id, int64_t event_seq,
                        struct error *err)
{
    auto_conn struct conn *conn = store_write(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn, "DELETE FROM deliveries WHERE webhook_id = ?1 AND event_seq = ?2",
                   err) < 0)
        return -1;
    bind_text(&query, webhook_id);
    bind_int(&query, event_seq);
    return query_run(&query, err);
}

int store_delivery_later(struct store *store, struct str webhook_id, int64_t event_seq,
                         int64_t next_at_us, struct error *err)
{
    auto_conn struct conn *conn = store_write(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "UPDATE deliveries SET next_at_us = ?3,"
                   " attempts = attempts + CASE WHEN event_seq = ?2 THEN 1 ELSE 0 END"
                   " WHERE webhook_id = ?1 AND (event_seq = ?2 OR next_at_us < ?3)",
                   err) < 0)
        return -1;
    bind_text(&query, webhook_id);
    bind_int(&query, event_seq);
    bind_int(&query, next_at_us);
    return query_run(&query, err);
}

int store_webhook_any(struct store *store, bool *out, struct error *err)
{
    auto_conn struct conn *conn = store_read(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn, "SELECT EXISTS (SELECT 1 FROM webhooks)", err) < 0 ||
        query_step(&query, err) < 0)
        return -1;
    *out = query_int(&query, 0) != 0;
    return 0;
}
