/* The distance of the wall clock to the time since the host booted, as it was last seen; one row. */
#include "base/cleanup.h"
#include "store/core/query.h"
#include "store/core/store.h"

int store_clock_get(struct store *store, struct str boot_id, int64_t *out_us, struct error *err)
{
    auto_conn struct conn *conn = store_read(store);
    auto_query struct query query = {0};
    int found;

    if (query_open(&query, conn, "SELECT clock_us FROM host_clock WHERE boot_id = ?1", err) < 0)
        return -1;
    bind_text(&query, boot_id);
    found = query_step(&query, err);
    if (found > 0)
        *out_us = query_int(&query, 0);
    return found < 0 ? -1 : 0;
}

static int run(struct conn *conn, const char *sql, struct str text, int64_t number,
               struct error *err)
{
    auto_query struct query query = {0};

    if (query_open(&query, conn, sql, err) < 0)
        return -1;
    if (text.p)
        bind_text(&query, text);
    bind_int(&query, number);
    return query_run(&query, err);
}

int store_clock_set(struct store *store, struct str boot_id, int64_t clock_us, int64_t move_us,
                    struct error *err)
{
    auto_conn struct conn *conn = store_write(store);

    if (store_begin(conn, STORE_EPHEMERAL, err) < 0)
        return -1;
    return store_end(
        conn,
        store_exec(conn, "DELETE FROM host_clock", err) < 0 ||
                run(conn, "INSERT INTO host_clock (boot_id, clock_us) VALUES (?1, ?2)", boot_id,
                    clock_us, err) < 0 ||
                (move_us &&
                 run(conn,
                     "UPDATE sandboxes SET end_at_us = end_at_us + ?1,"
                     " running_since_us = running_since_us + ?1 WHERE listed = 'running'",
                     STR_NONE, move_us, err) < 0) ||
                (move_us && run(conn, "UPDATE deliveries SET next_at_us = next_at_us + ?1",
                                STR_NONE, move_us, err) < 0)
            ? -1
            : 0,
        err);
}
