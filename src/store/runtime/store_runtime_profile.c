/* Profiles, and runners that registered. */
#include "store/core/row.h"
#include "store/runtime/store_runtime.h"

/* clang-format off */
#define PROFILE_ROW(F, T, AND)                                                     \
    F(T, team_id, team_id) AND() F(T, name, name) AND() F(T, record, record) AND() \
    F(T, created_at_us, created_at_us) AND() F(T, updated_at_us, updated_at_us)
/* clang-format on */
ROW(profile_row, struct store_profile, PROFILE_ROW);
/* clang-format off */
#define RUNNER_ROW(F, T, AND)                                                                 \
    F(T, team_id, team_id) AND() F(T, name, name) AND() F(T, base_url, base_url) AND()        \
    F(T, token, token) AND() F(T, max_sessions, max_sessions) AND()                           \
    F(T, active_sessions, active_sessions) AND() F(T, heartbeat_at_us, heartbeat_at_us) AND() \
    F(T, created_at_us, created_at_us)
/* clang-format on */
ROW(runner_row, struct store_runner, RUNNER_ROW);

static int check_room(struct conn *conn, const struct store_profile *profile, int64_t max,
                      struct error *err)
{
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "SELECT count(*) FROM runtime_profiles WHERE team_id = ?1 AND name <> ?2",
                   err) < 0)
        return -1;
    bind_text(&query, profile->team_id);
    bind_text(&query, profile->name);
    if (query_step(&query, err) < 0)
        return -1;
    if (query_int(&query, 0) < max)
        return 0;
    return error_set(err, ERROR_QUOTA, "a team has at most %lld profiles: delete one",
                     (long long)max);
}

/* clang-format off */
static const char upsert_profile[] =
    ROW_INSERT("runtime_profiles", PROFILE_ROW)
    " ON CONFLICT (team_id, name) DO UPDATE SET record = excluded.record, updated_at_us ="
    " excluded.updated_at_us";
/* clang-format on */

static int put_profile(struct conn *conn, const struct store_profile *profile, struct error *err)
{
    auto_query struct query query = {0};

    if (query_open(&query, conn, upsert_profile, err) < 0)
        return -1;
    row_bind(&profile_row, &query, profile);
    return query_run(&query, err);
}

int store_profile_put(struct store *store, const struct store_profile *profile, int64_t max,
                      struct error *err)
{
    auto_conn struct conn *conn = store_write(store);

    if (store_begin(conn, STORE_DURABLE, err) < 0)
        return -1;
    return store_end(
        conn,
        check_room(conn, profile, max, err) < 0 || put_profile(conn, profile, err) < 0 ? -1 : 0,
        err);
}

int store_profile_get(struct store *store, struct str team_id, struct str name, struct arena *arena,
                      struct store_profile *out, struct error *err)
{
    auto_conn struct conn *conn = store_read(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "SELECT " ROW_COLUMNS(
                       PROFILE_ROW) " FROM runtime_profiles WHERE team_id = ?1 AND name = ?2",
                   err) < 0)
        return -1;
    bind_text(&query, team_id);
    bind_text(&query, name);
    return row_one(&profile_row, &query, "profile", name, arena, out, err);
}

int store_profile_list(struct store *store, struct str team_id, size_t limit, struct arena *arena,
                       struct store_profile **out, size_t *out_count, struct error *err)
{
    auto_conn struct conn *conn = store_read_many(store);
    auto_query struct query query = {0};

    if (query_open(
            &query, conn,
            "SELECT " ROW_COLUMNS(
                PROFILE_ROW) " FROM runtime_profiles WHERE team_id = ?1 ORDER BY name LIMIT ?2",
            err) < 0)
        return -1;
    bind_text(&query, team_id);
    bind_int(&query, (int64_t)limit);
    return row_all(&profile_row, &query, arena, out, out_count, err);
}

int store_profile_delete(struct store *store, struct str team_id, struct str name,
                         struct error *err)
{
    auto_conn struct conn *conn = store_write(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "DELETE FROM runtime_profiles WHERE team_id = ?1 AND name = ?2 RETURNING 1",
                   err) < 0)
        return -1;
    bind_text(&query, team_id);
    bind_text(&query, name);
    if (query_one(&query, "profile", name, err) < 0)
        return -1;
    return query_run(&query, err);
}

/* clang-format off */
static const char upsert_runner[] =
    ROW_INSERT("runtime_runners", RUNNER_ROW)
    " ON CONFLICT (team_id, name) DO UPDATE SET base_url = excluded.base_url, token ="
    " excluded.token, max_sessions = excluded.max_sessions, active_sessions ="
    " excluded.active_sessions, heartbeat_at_us = excluded.heartbeat_at_us";
/* clang-format on */

int store_runner_put(struct store *store, const struct store_runner *runner, struct error *err)
{
    auto_conn struct conn *conn = store_write(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn, upsert_runner, err) < 0)
        return -1;
    row_bind(&runner_row, &query, runner);
    return query_run_durable(&query, conn, err);
}

int store_runner_list(struct store *store, size_t limit, struct arena *arena,
                      struct store_runner **out, size_t *out_count, struct error *err)
{
    auto_conn struct conn *conn = store_read_many(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "SELECT " ROW_COLUMNS(RUNNER_ROW) " FROM runtime_runners"
                                                     " ORDER BY heartbeat_at_us DESC LIMIT ?1",
                   err) < 0)
        return -1;
    bind_int(&query, (int64_t)limit);
    return row_all(&runner_row, &query, arena, out, out_count, err);
}

static int runner_change(struct query *query, struct str name, struct error *err)
{
    if (query_one(query, "runner", name, err) < 0)
        return -1;
    return query_run(query, err);
}

int store_runner_heartbeat(struct store *store, struct str team_id, struct str name,
                           int64_t active_sessions, int64_t at_us, struct error *err)
{
    auto_conn struct conn *conn = store_write(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "UPDATE runtime_runners SET active_sessions = ?3, heartbeat_at_us = ?4"
                   " WHERE team_id = ?1 AND name = ?2 RETURNING 1",
                   err) < 0)
        return -1;
    bind_text(&query, team_id);
    bind_text(&query, name);
    bind_int(&query, active_sessions);
    bind_int(&query, at_us);
    return runner_change(&query, name, err);
}

int store_runner_delete(struct store *store, struct str team_id, struct str name, struct error *err)
{
    auto_conn struct conn *conn = store_write(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "DELETE FROM runtime_runners WHERE team_id = ?1 AND name = ?2 RETURNING 1",
                   err) < 0)
        return -1;
    bind_text(&query, team_id);
    bind_text(&query, name);
    return runner_change(&query, name, err);
}
