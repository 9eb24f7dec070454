#include "extra/browser/store_browser.h"

#include "store/core/row.h"

/* clang-format off */
#define SESSION_ROW(F, T, AND)                                                                          \
    F(T, id, id) AND() F(T, team_id, team_id) AND() F(T, sandbox_id, sandbox_id) AND()                  \
    F(T, context_id, context_id) AND() F(T, status, status) AND() F(T, region, region) AND()            \
    F(T, metadata, metadata) AND() F(T, keep_alive, keep_alive) AND() F(T, persist, persist) AND()      \
    F(T, wants_log, wants_log) AND() F(T, wants_record, wants_record) AND()                             \
    F(T, created_at_us, created_at_us) AND() F(T, updated_at_us, updated_at_us) AND()                   \
    F(T, expires_at_us, expires_at_us) AND() F(T, ended_at_us, ended_at_us)
#define CONTEXT_ROW(F, T, AND)                                                                          \
    F(T, id, id) AND() F(T, team_id, team_id) AND() F(T, volume_id, volume_id) AND()                    \
    F(T, created_at_us, created_at_us) AND() F(T, updated_at_us, updated_at_us)
#define EXTENSION_ROW(F, T, AND)                                                                        \
    F(T, id, id) AND() F(T, team_id, team_id) AND() F(T, file_name, file_name) AND()                    \
    F(T, created_at_us, created_at_us) AND() F(T, updated_at_us, updated_at_us)
#define FILE_ROW(F, T, AND)                                                                             \
    F(T, id, id) AND() F(T, kind, kind) AND() F(T, team_id, team_id) AND() F(T, bytes, bytes) AND()     \
    F(T, made_at_us, made_at_us)
/* clang-format on */
ROW(session_row, struct store_browser_session, SESSION_ROW);
ROW(context_row, struct store_browser_context, CONTEXT_ROW);
ROW(extension_row, struct store_browser_extension, EXTENSION_ROW);
ROW(file_row, struct store_browser_file, FILE_ROW);

/* ---- sessions ---- */

static int check_writer(struct conn *conn, const struct store_browser_session *session,
                        struct error *err)
{
    auto_query struct query query = {0};
    int found;

    if (!session->persist)
        return 0;
    if (query_open(&query, conn,
                   "SELECT id FROM browser_sessions WHERE team_id = ?1 AND context_id = ?2"
                   " AND persist = 1 AND status = 'RUNNING' AND expires_at_us > ?3 LIMIT 1",
                   err) < 0)
        return -1;
    bind_text(&query, session->team_id);
    bind_text(&query, session->context_id);
    bind_int(&query, session->created_at_us);
    found = query_step(&query, err);
    if (found <= 0)
        return found;
    return error_set(err, ERROR_CONFLICT,
                     "session '%.*s' writes to context '%.*s': release it first, or leave out "
                     "'persist'",
                     STR_ARG(query_peek(&query, 0)), STR_ARG(session->context_id));
}

static int make_room(struct conn *conn, struct str team_id, int64_t keep, struct error *err)
{
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "DELETE FROM browser_sessions WHERE id IN (SELECT id FROM browser_sessions"
                   " WHERE team_id = ?1 AND status <> 'RUNNING' ORDER BY created_at_us DESC"
                   " LIMIT 16 OFFSET ?2)",
                   err) < 0)
        return -1;
    bind_text(&query, team_id);
    bind_int(&query, keep);
    return query_run(&query, err);
}

static int insert_session(struct conn *conn, const struct store_browser_session *session,
                          int64_t keep, struct error *err)
{
    auto_query struct query query = {0};

    if (check_writer(conn, session, err) < 0 || make_room(conn, session->team_id, keep, err) < 0 ||
        query_open(&query, conn, ROW_INSERT("browser_sessions", SESSION_ROW), err) < 0)
        return -1;
    row_bind(&session_row, &query, session);
    return query_run(&query, err);
}

int store_browser_session_insert(struct store *store, const struct store_browser_session *session,
                                 int64_t keep, struct error *err)
{
    auto_conn struct conn *conn = store_write(store);

    if (store_begin(conn, STORE_DURABLE, err) < 0)
        return -1;
    return store_end(conn, insert_session(conn, session, keep, err), err);
}

int store_browser_session_find(struct store *store, struct str team_id, struct str id,
                               struct arena *arena, struct store_browser_session *out,
                               struct error *err)
{
    auto_conn struct conn *conn = store_read(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "SELECT " ROW_COLUMNS(SESSION_ROW) " FROM browser_sessions WHERE id = ?1"
                                                      " AND (?2 = '' OR team_id = ?2)",
                   err) < 0)
        return -1;
    bind_text(&query, id);
    bind_text(&query, team_id.p ? team_id : STR(""));
    return row_one(&session_row, &query, "session", id, arena, out, err);
}

int store_browser_session_list(struct store *store, struct str team_id, struct str status,
                               int64_t limit, struct arena *arena,
                               struct store_browser_session **out, size_t *out_count,
                               struct error *err)
{
    auto_conn struct conn *conn = store_read_many(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "SELECT " ROW_COLUMNS(
                       SESSION_ROW) " FROM browser_sessions WHERE team_id = ?1 AND (?2 = '' OR"
                                    " status = ?2) ORDER BY created_at_us DESC, id LIMIT ?3",
                   err) < 0)
        return -1;
    bind_text(&query, team_id);
    bind_text(&query, status.p ? status : STR(""));
    bind_int(&query, limit);
    return row_all(&session_row, &query, arena, out, out_count, err);
}

int store_browser_session_end(struct store *store, struct str id, struct str status, int64_t at_us,
                              struct error *err)
{
    auto_conn struct conn *conn = store_write(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "UPDATE browser_sessions SET status = ?1, ended_at_us = ?2, updated_at_us = ?2"
                   " WHERE id = ?3 AND status = 'RUNNING'",
                   err) < 0)
        return -1;
    bind_text(&query, status);
    bind_int(&query, at_us);
    bind_text(&query, id);
    return query_run_durable(&query, conn, err);
}

int store_browser_session_seconds(struct store *store, struct str team_id, int64_t now_us,
                                  int64_t *out, struct error *err)
{
    auto_conn struct conn *conn = store_read_many(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "SELECT CAST(coalesce(sum(CASE WHEN ended_at_us > 0 THEN ended_at_us"
                   " WHEN expires_at_us < ?1 THEN expires_at_us ELSE ?1 END - created_at_us), 0)"
                   " / 1000000 AS BIGINT) FROM browser_sessions WHERE team_id = ?2",
                   err) < 0)
        return -1;
    bind_int(&query, now_us);
    bind_text(&query, team_id);
    return query_number(&query, out, err);
}

/* ---- contexts ---- */

int store_browser_context_insert(struct store *store, const struct store_browser_context *context,
                                 struct error *err)
{
    auto_conn struct conn *conn = store_write(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn, ROW_INSERT("browser_contexts", CONTEXT_ROW), err) < 0)
        return -1;
    row_bind(&context_row, &query, context);
    return query_run_durable(&query, conn, err);
}

int store_browser_context_find(struct store *store, struct str team_id, struct str id,
                               struct arena *arena, struct store_browser_context *out,
                               struct error *err)
{
    auto_conn struct conn *conn = store_read(store);
    auto_query struct query query = {0};

    if (query_open(
            &query, conn,
            "SELECT " ROW_COLUMNS(CONTEXT_ROW) " FROM browser_contexts WHERE id = ?1 AND team_id ="
                                               " ?2",
            err) < 0)
        return -1;
    bind_text(&query, id);
    bind_text(&query, team_id);
    return row_one(&context_row, &query, "context", id, arena, out, err);
}

int store_browser_context_touch(struct store *store, struct str id, int64_t at_us,
                                struct error *err)
{
    auto_conn struct conn *conn = store_write(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn, "UPDATE browser_contexts SET updated_at_us = ?1 WHERE id = ?2",
                   err) < 0)
        return -1;
    bind_int(&query, at_us);
    bind_text(&query, id);
    return query_run_durable(&query, conn, err);
}

int store_browser_context_delete(struct store *store, struct str team_id, struct str id,
                                 struct error *err)
{
    auto_conn struct conn *conn = store_write(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn, "DELETE FROM browser_contexts WHERE id = ?1 AND team_id = ?2",
                   err) < 0)
        return -1;
    bind_text(&query, id);
    bind_text(&query, team_id);
    return query_run_durable(&query, conn, err);
}

/* ---- extensions ---- */

static int insert_extension(struct conn *conn, const struct store_browser_extension *extension,
                            int64_t max, struct error *err)
{
    auto_query struct query count = {0}, query = {0};
    int64_t have = 0;

    if (query_open(&count, conn, "SELECT count(*) FROM browser_extensions WHERE team_id = ?1",
                   err) < 0)
        return -1;
    bind_text(&count, extension->team_id);
    if (query_number(&count, &have, err) < 0)
        return -1;
    if (have >= max)
        return error_set(err, ERROR_QUOTA, "the team has %lld extensions already", (long long)have);
    if (query_open(&query, conn, ROW_INSERT("browser_extensions", EXTENSION_ROW), err) < 0)
        return -1;
    row_bind(&extension_row, &query, extension);
    return query_run(&query, err);
}

int store_browser_extension_insert(struct store *store,
                                   const struct store_browser_extension *extension, int64_t max,
                                   struct error *err)
{
    auto_conn struct conn *conn = store_write(store);

    if (store_begin(conn, STORE_DURABLE, err) < 0)
        return -1;
    return store_end(conn, insert_extension(conn, extension, max, err), err);
}

int store_browser_extension_find(struct store *store, struct str team_id, struct str id,
                                 struct arena *arena, struct store_browser_extension *out,
                                 struct error *err)
{
    auto_conn struct conn *conn = store_read(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "SELECT " ROW_COLUMNS(
                       EXTENSION_ROW) " FROM browser_extensions WHERE id = ?1 AND team_id = ?2",
                   err) < 0)
        return -1;
    bind_text(&query, id);
    bind_text(&query, team_id);
    return row_one(&extension_row, &query, "extension", id, arena, out, err);
}

int store_browser_extension_delete(struct store *store, struct str team_id, struct str id,
                                   struct error *err)
{
    auto_conn struct conn *conn = store_write(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn, "DELETE FROM browser_extensions WHERE id = ?1 AND team_id = ?2",
                   err) < 0)
        return -1;
    bind_text(&query, id);
    bind_text(&query, team_id);
    return query_run_durable(&query, conn, err);
}

/* ---- files ---- */

int store_browser_file_put(struct store *store, const struct store_browser_file *file,
                           struct error *err)
{
    auto_conn struct conn *conn = store_write(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   ROW_INSERT("browser_files",
                              FILE_ROW) " ON CONFLICT (id, kind) DO UPDATE SET bytes ="
                                        " excluded.bytes, made_at_us = excluded.made_at_us",
                   err) < 0)
        return -1;
    row_bind(&file_row, &query, file);
    return query_run_durable(&query, conn, err);
}

int store_browser_file_delete(struct store *store, struct str id, struct str kind,
                              struct error *err)
{
    auto_conn struct conn *conn = store_write(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn, "DELETE FROM browser_files WHERE id = ?1 AND kind = ?2", err) < 0)
        return -1;
    bind_text(&query, id);
    bind_text(&query, kind);
    return query_run(&query, err);
}

int store_browser_file_old(struct store *store, int64_t before_us, size_t max, struct arena *arena,
                           struct store_browser_file **out, size_t *out_count, struct error *err)
{
    auto_conn struct conn *conn = store_read_many(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "SELECT " ROW_COLUMNS(FILE_ROW) " FROM browser_files WHERE kind <> 'zip'"
                                                   " AND made_at_us < ?1 LIMIT ?2",
                   err) < 0)
        return -1;
    bind_int(&query, before_us);
    bind_int(&query, (int64_t)max);
    return row_all(&file_row, &query, arena, out, out_count, err);
}

int store_browser_file_orphans(struct store *store, struct arena *arena,
                               struct store_browser_file **out, size_t *out_count,
                               struct error *err)
{
    auto_conn struct conn *conn = store_read_many(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "SELECT " ROW_COLUMNS(FILE_ROW) " FROM browser_files WHERE kind = 'zip' AND NOT"
                                                   " EXISTS (SELECT 1 FROM browser_extensions"
                                                   " WHERE browser_extensions.id ="
                                                   " browser_files.id)",
                   err) < 0)
        return -1;
    return row_all(&file_row, &query, arena, out, out_count, err);
}

int store_browser_file_missing(struct store *store, struct arena *arena,
                               struct store_browser_file **out, size_t *out_count,
                               struct error *err)
{
    auto_conn struct conn *conn = store_read_many(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "SELECT id, 'zip', team_id, CAST(0 AS BIGINT), created_at_us FROM "
                   "browser_extensions WHERE NOT"
                   " EXISTS (SELECT 1 FROM browser_files WHERE browser_files.id ="
                   " browser_extensions.id)",
                   err) < 0)
        return -1;
    return row_all(&file_row, &query, arena, out, out_count, err);
}
