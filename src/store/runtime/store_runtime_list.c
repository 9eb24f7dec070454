/* Many sandboxes of the agent runtime at once: lists, usage, forgetting. */
#include "store/runtime/store_runtime_sandbox.h"
#include "store/runtime/store_runtime_sandbox_row.h"

int store_runtime_sandbox_list(struct store *store,
                               const struct store_runtime_sandbox_query *wanted,
                               struct arena *arena, struct store_runtime_sandbox **out,
                               size_t *out_count, struct error *err)
{
    auto_conn struct conn *conn = store_read_many(store);
    auto_query struct query query = {0};
    if (query_open(&query, conn,
                   "SELECT " RUNTIME_SANDBOX_COLUMNS " FROM runtime_sandboxes"
                   " WHERE (?1 = '' OR team_id = ?1) AND (?2 = '' OR state = ?2)"
                   " AND (?3 = '' OR agent_id = ?3) AND (?4 = '' OR task_id = ?4)"
                   " AND (?5 = '' OR provider = ?5) AND (?6 = 1 OR destroyed_at_us = 0)"
                   " AND (?7 = 0 OR created_at_us < ?7) AND (?8 = 0 OR last_used_at_us < ?8)"
                   " ORDER BY created_at_us DESC, id LIMIT ?9",
                   err) < 0)
        return -1;
    runtime_bind(&query, wanted->team_id);
    bind_text(&query,
              wanted->state ? str_of(name_of(&sandbox_state_names, *wanted->state)) : STR(""));
    runtime_bind(&query, wanted->agent_id);
    runtime_bind(&query, wanted->task_id);
    runtime_bind(&query, wanted->provider);
    bind_int(&query, wanted->destroyed);
    bind_int(&query, wanted->before_us);
    bind_int(&query, wanted->used_before_us);
    bind_int(&query, (int64_t)wanted->limit);
    return row_all(&runtime_sandbox_row, &query, arena, out, out_count, err);
}

enum { TEAMS_MAX = 1000 };

int store_runtime_teams(struct store *store, struct arena *arena, struct str **out,
                        size_t *out_count, struct error *err)
{
    auto_conn struct conn *conn = store_read_many(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "SELECT DISTINCT team_id FROM runtime_sandboxes WHERE destroyed_at_us = 0"
                   " LIMIT ?1",
                   err) < 0)
        return -1;
    bind_int(&query, TEAMS_MAX);
    return row_all(&row_strings, &query, arena, out, out_count, err);
}

int runtime_delete(struct conn *conn, const char *sql, struct str id, struct error *err)
{
    auto_query struct query query = {0};

    if (query_open(&query, conn, sql, err) < 0)
        return -1;
    bind_text(&query, id);
    return query_run(&query, err);
}

#define OLD "(SELECT id FROM runtime_sandboxes WHERE destroyed_at_us > 0 AND destroyed_at_us < ?1)"

/* Also of those whose rows stay. */
static int forget_jobs(struct conn *conn, int64_t before_us, struct error *err)
{
    static const char *const sql[] = {
        "DELETE FROM runtime_job_callbacks WHERE job_id IN"
        " (SELECT id FROM runtime_jobs WHERE sandbox_id IN " OLD ")",
        "DELETE FROM runtime_jobs WHERE sandbox_id IN " OLD,
    };

    for (size_t i = 0; i < sizeof(sql) / sizeof(sql[0]); i++) {
        auto_query struct query query = {0};

        if (query_open(&query, conn, sql[i], err) < 0)
            return -1;
        bind_int(&query, before_us);
        if (query_run(&query, err) < 0)
            return -1;
    }
    return 0;
}

/* Of each key the row that store_runtime_sandbox_previous() finds, for a year after its end; of a team the
 * newest 1000. Before ?1 are 30 days. A session's key does not come back. */
#define REMEMBERED                                                                         \
    "SELECT id FROM (SELECT id, row_number() OVER (PARTITION BY team_id"                   \
    " ORDER BY destroyed_at_us DESC, id) AS of_team FROM"                                  \
    " (SELECT id, team_id, destroyed_at_us, row_number() OVER (PARTITION BY team_id,"      \
    " sandbox_key ORDER BY last_used_at_us DESC, created_at_us DESC, id) AS of_key"        \
    " FROM runtime_sandboxes WHERE sandbox_key <> '' AND sandbox_key NOT LIKE 'session:%'" \
    " AND (destroyed_at_us = 0 OR ran_us > 0)) AS keyed"                                   \
    " WHERE of_key = 1 AND destroyed_at_us > ?1 - 28944000000000) AS newest"               \
    " WHERE of_team <= 1000"

static int forget_ids(struct conn *conn, int64_t before_us, size_t max, struct arena *arena,
                      struct str **out, size_t *out_count, struct error *err)
{
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "SELECT id FROM runtime_sandboxes WHERE destroyed_at_us > 0"
                   " AND destroyed_at_us < ?1 AND id NOT IN (" REMEMBERED ") LIMIT ?2",
                   err) < 0)
        return -1;
    bind_int(&query, before_us);
    bind_int(&query, (int64_t)max);
    return row_all(&row_strings, &query, arena, out, out_count, err);
}

int store_runtime_sandbox_forget(struct store *store, int64_t before_us, size_t max,
                                 size_t *out_count, struct error *err)
{
    auto_conn struct conn *conn = store_write(store);
    auto_arena struct arena arena = {0};
    struct str *ids = NULL;

    int result;

    *out_count = 0;
    if (store_begin(conn, STORE_EPHEMERAL, err) < 0)
        return -1;
    result = forget_jobs(conn, before_us, err);
    if (result == 0)
        result = forget_ids(conn, before_us, max, &arena, &ids, out_count, err);
    for (size_t i = 0; i < *out_count && result == 0; i++)
        result = runtime_delete(conn, "DELETE FROM runtime_sandboxes WHERE id = ?1", ids[i], err);
    return store_end(conn, result, err);
}

enum { USAGES_MAX = 1000 };

#define RAN "ran_us + CASE WHEN running_since_us > 0 THEN ?2 - running_since_us ELSE 0 END"
#define USAGE(name, where)                                                                      \
    "SELECT " name ", provider, count(*),"                                                      \
    " sum(CASE WHEN running_since_us > 0 THEN 1 ELSE 0 END), sum(" RAN "),"                     \
    " sum((" RAN ") * CASE WHEN cpu > 0 THEN cpu ELSE 1 END), sum(commands), sum(jobs)"         \
    " FROM runtime_sandboxes WHERE (?1 = '' OR team_id = ?1)"                                   \
    " AND (destroyed_at_us = 0 OR destroyed_at_us > ?2 - 2592000000000)" where " GROUP BY 1, 2" \
    " ORDER BY 5 DESC, 1 LIMIT ?3"

/* The sandbox of a session has its id as key. */
static const char *const usage_sql[] = {
    [USAGE_BY_PROVIDER] = USAGE("provider", ""),
    [USAGE_BY_AGENT] = USAGE("agent_id", " AND agent_id <> ''"),
    [USAGE_BY_TASK] = USAGE("task_id", " AND task_id <> ''"),
    [USAGE_BY_SESSION] =
        USAGE("substr(sandbox_key, 9)", " AND sandbox_key LIKE 'session:ses~_%' ESCAPE '~'"),
    [USAGE_BY_TEAM] = USAGE("team_id", ""),
};

/* clang-format off */
#define USAGE_ROW(F, T, AND)                                                               \
    F(T, name, name) AND() F(T, provider, provider) AND() F(T, sandboxes, sandboxes) AND() \
    F(T, running, running) AND() F(T, ran_us, ran_us) AND() F(T, cpu_us, cpu_us) AND()     \
    F(T, commands, commands) AND() F(T, jobs, jobs)
/* clang-format on */
ROW(usage_row, struct store_runtime_usage, USAGE_ROW, .flags = ROW_NONE);

int store_runtime_usage(struct store *store, enum store_runtime_usage_by by, struct str team_id,
                        int64_t now_us, struct arena *arena, struct store_runtime_usage **out,
                        size_t *out_count, struct error *err)
{
    auto_conn struct conn *conn = store_read_many(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn, usage_sql[by], err) < 0)
        return -1;
    runtime_bind(&query, team_id);
    bind_int(&query, now_us);
    bind_int(&query, USAGES_MAX);
    return row_all(&usage_row, &query, arena, out, out_count, err);
}

int store_runtime_create_ms(struct store *store, struct str team_id, size_t max,
                            struct arena *arena, int64_t **out, size_t *out_count,
                            struct error *err)
{
    auto_conn struct conn *conn = store_read_many(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "SELECT create_ms FROM (SELECT create_ms FROM runtime_sandboxes"
                   " WHERE (?1 = '' OR team_id = ?1) AND external_id <> '' AND adopted = 0"
                   " ORDER BY created_at_us DESC LIMIT ?2) AS newest ORDER BY create_ms",
                   err) < 0)
        return -1;
    runtime_bind(&query, team_id);
    bind_int(&query, (int64_t)max);
    return row_all(&row_numbers, &query, arena, out, out_count, err);
}
