#include "store/driver/query.h"
#include "store/runtime/store_runtime.h"

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

int store_profile_put(struct store *store, const struct store_profile *profile, int64_t max,
                      struct error *err)
{
    auto_conn struct conn *conn = store_write(store);
    auto_query struct query query = {0};

    if (check_room(conn, profile, max, err) < 0 ||
        query_open(&query, conn,
                   "INSERT INTO runtime_profiles (team_id, name, record, created_at_us,"
                   " updated_at_us) VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT (team_id, name)"
                   " DO UPDATE SET record = excluded.record,"
                   " updated_at_us = excluded.updated_at_us",
                   err) < 0)
        return -1;
    bind_text(&query, profile->team_id);
    bind_text(&query, profile->name);
    bind_text(&query, profile->record);
    bind_int(&query, profile->created_at_us);
    bind_int(&query, profile->updated_at_us);
    return query_run_durable(&query, conn, err);
}

static void read_profile(const struct query *query, struct arena *arena, struct store_profile *out)
{
    *out = (struct store_profile){
        .team_id = query_text(query, 0, arena),
        .name = query_text(query, 1, arena),
        .record = query_text(query, 2, arena),
        .created_at_us = query_int(query, 3),
        .updated_at_us = query_int(query, 4),
    };
}

int store_profile_get(struct store *store, struct str team_id, struct str name, struct arena *arena,
                      struct store_profile *out, struct error *err)
{
    auto_conn struct conn *conn = store_read(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "SELECT team_id, name, record, created_at_us, updated_at_us"
                   " FROM runtime_profiles WHERE team_id = ?1 AND name = ?2",
                   err) < 0)
        return -1;
    bind_text(&query, team_id);
    bind_text(&query, name);
    if (query_one(&query, "profile", name, err) < 0)
        return -1;
    read_profile(&query, arena, out);
    return 0;
}

int store_profile_list(struct store *store, struct str team_id, size_t limit, struct arena *arena,
                       struct store_profile **out, size_t *out_count, struct error *err)
{
    auto_conn struct conn *conn = store_read_many(store);
    auto_query struct query query = {0};
    int more;

    if (query_open(&query, conn,
                   "SELECT team_id, name, record, created_at_us, updated_at_us"
                   " FROM runtime_profiles WHERE team_id = ?1 ORDER BY name LIMIT ?2",
                   err) < 0)
        return -1;
    bind_text(&query, team_id);
    bind_int(&query, (int64_t)limit);
    *out = arena_alloc(arena, (limit + 1) * sizeof(**out));
    *out_count = 0;
    while ((more = query_step(&query, err)) > 0 && *out_count < limit)
        read_profile(&query, arena, &(*out)[(*out_count)++]);
    return more < 0 ? -1 : 0;
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

int store_runner_put(struct store *store, const struct store_runner *runner, struct error *err)
{
    auto_conn struct conn *conn = store_write(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "INSERT INTO runtime_runners (team_id, name, base_url, token, max_sessions,"
                   " active_sessions, heartbeat_at_us, created_at_us)"
                   " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) ON CONFLICT (team_id, name)"
                   " DO UPDATE SET base_url = excluded.base_url, token = excluded.token,"
                   " max_sessions = excluded.max_sessions,"
                   " active_sessions = excluded.active_sessions,"
                   " heartbeat_at_us = excluded.heartbeat_at_us",
                   err) < 0)
        return -1;
    bind_text(&query, runner->team_id);
    bind_text(&query, runner->name);
    bind_text(&query, runner->base_url);
    bind_text(&query, runner->token.p ? runner->token : STR(""));
    bind_int(&query, runner->max_sessions);
    bind_int(&query, runner->active_sessions);
    bind_int(&query, runner->heartbeat_at_us);
    bind_int(&query, runner->created_at_us);
    return query_run_durable(&query, conn, err);
}

int store_runner_list(struct store *store, size_t limit, struct arena *arena,
                      struct store_runner **out, size_t *out_count, struct error *err)
{
    auto_conn struct conn *conn = store_read_many(store);
    auto_query struct query query = {0};
    int more;

    if (query_open(&query, conn,
                   "SELECT team_id, name, base_url, token, max_sessions, active_sessions,"
                   " heartbeat_at_us, created_at_us FROM runtime_runners"
                   " ORDER BY heartbeat_at_us DESC LIMIT ?1",
                   err) < 0)
        return -1;
    bind_int(&query, (int64_t)limit);
    *out = arena_alloc(arena, (limit + 1) * sizeof(**out));
    *out_count = 0;
    while ((more = query_step(&query, err)) > 0 && *out_count < limit)
        (*out)[(*out_count)++] = (struct store_runner){
            .team_id = query_text(&query, 0, arena),
            .name = query_text(&query, 1, arena),
            .base_url = query_text(&query, 2, arena),
            .token = query_text(&query, 3, arena),
            .max_sessions = query_int(&query, 4),
            .active_sessions = query_int(&query, 5),
            .heartbeat_at_us = query_int(&query, 6),
            .created_at_us = query_int(&query, 7),
        };
    return more < 0 ? -1 : 0;
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
