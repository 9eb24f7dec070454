/* Sandboxes' rows. A row appears when a sandbox is ready (a box without a row is a leftover), says
 * 'killing' while it is torn down, and stays as history with 'ended'. What runs is not fsync()ed: it
 * does not outlive the host, so rows that the host's death took with it described nothing. A pause
 * is: its files outlive the host. */
#include <inttypes.h>

#include "store/core/store.h"
#include "store/driver/query.h"
#include "store/platform/store_sandbox_row.h"

static const char *const state_names[] = {
    [STORE_SANDBOX_RUNNING] = "running",
    [STORE_SANDBOX_PAUSED] = "paused",
    [STORE_SANDBOX_KILLING] = "killing",
    [STORE_SANDBOX_ENDED] = "ended",
};

static const char *const step_names[] = {
    [STORE_STEP_NONE] = "",
    [STORE_STEP_PAUSING] = "pausing",
    [STORE_STEP_RESUMING] = "resuming",
};

static const char *const resumed_names[] = {
    [STORE_RESUMED_NEVER] = "",
    [STORE_RESUMED_MEMORY] = "memory",
    [STORE_RESUMED_DISK] = "disk",
};

/* Index of the name, or that of the last one. */
static unsigned index_of(const struct query *query, int column, const char *const *names,
                         unsigned count)
{
    struct str name = query_peek(query, column);
    unsigned i = 0;

    while (i + 1 < count && !str_is(name, names[i]))
        i++;
    return i;
}

static void read_life(const struct query *query, struct store_sandbox_life *out)
{
    *out = (struct store_sandbox_life){
        .state = index_of(query, 4, state_names, 4),
        .end_at_us = query_int(query, 7),
        .step = index_of(query, 19, step_names, 3),
        .memory = query_int(query, 20) != 0,
        .resumed_from = index_of(query, 21, resumed_names, 3),
        .running_since_us = query_int(query, 22),
        .auto_pause = query_int(query, 24) != 0,
    };
}

static void read_row(const struct query *query, struct arena *arena, void *to)
{
    struct store_sandbox *out = to;

    *out = (struct store_sandbox){
        .id = query_text(query, 0, arena),
        .team_id = query_text(query, 1, arena),
        .template_id = query_text(query, 2, arena),
        .alias = query_text(query, 3, arena),
        .revision = query_int(query, 5),
        .started_at_us = query_int(query, 6),
        .cpu_count = query_int(query, 8),
        .mem_mb = query_int(query, 9),
        .disk_mb = query_int(query, 10),
        .metadata = query_text(query, 11, arena),
        .env = query_text(query, 12, arena),
        .access_token = query_text(query, 13, arena),
        .internet = query_int(query, 14) != 0,
        .internet_given = query_int(query, 15) != 0,
        .secure = query_int(query, 16) != 0,
        .ended_at_us = query_int(query, 17),
        .end_reason = query_text(query, 18, arena),
        .timeout_s = query_int(query, 23),
        .auto_pause_memory = query_int(query, 25) != 0,
        .auto_resume = query_int(query, 26) != 0,
        .layers = query_text(query, 27, arena),
        .tagged = query_int(query, 28) != 0,
        .volumes = query_text(query, 29, arena),
    };
    read_life(query, &out->life);
}

static const struct query_kind row_kind = {sizeof(struct store_sandbox), read_row};

static int insert_row(struct conn *conn, const struct store_sandbox *row, struct error *err)
{
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "INSERT INTO sandboxes (" SANDBOX_COLUMNS
                   ") VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8,"
                   " ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23,"
                   " ?24, ?25, ?26, ?27, ?28, 1, ?29)",
                   err) < 0)
        return -1;
    bind_text(&query, row->id);
    bind_text(&query, row->team_id);
    bind_text(&query, row->template_id);
    bind_text(&query, row->alias.p ? row->alias : STR(""));
    bind_text(&query, str_of(state_names[row->life.state]));
    bind_int(&query, row->revision);
    bind_int(&query, row->started_at_us);
    bind_int(&query, row->life.end_at_us);
    bind_int(&query, row->cpu_count);
    bind_int(&query, row->mem_mb);
    bind_int(&query, row->disk_mb);
    bind_text(&query, row->metadata.p ? row->metadata : STR("{}"));
    bind_text(&query, row->env.p ? row->env : STR("{}"));
    bind_text(&query, row->access_token.p ? row->access_token : STR(""));
    bind_int(&query, row->internet);
    bind_int(&query, row->internet_given);
    bind_int(&query, row->secure);
    bind_int(&query, row->ended_at_us);
    bind_text(&query, row->end_reason.p ? row->end_reason : STR(""));
    bind_text(&query, str_of(step_names[row->life.step]));
    bind_int(&query, row->life.memory);
    bind_text(&query, str_of(resumed_names[row->life.resumed_from]));
    bind_int(&query, row->life.running_since_us);
    bind_int(&query, row->timeout_s);
    bind_int(&query, row->life.auto_pause);
    bind_int(&query, row->auto_pause_memory);
    bind_int(&query, row->auto_resume);
    bind_text(&query, row->layers.p ? row->layers : STR(""));
    bind_text(&query, row->volumes.p ? row->volumes : STR(""));
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
                             volume_uses_add(conn, row, err) < 0
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
    if (query_one(&query, "sandbox", id, err) < 0)
        return -1;
    read_row(&query, arena, out);
    return 0;
}

int sandbox_rows(struct query *query, struct arena *arena, struct store_sandbox **out,
                 size_t *out_count, struct error *err)
{
    return query_rows(query, &row_kind, arena, out, out_count, err);
}

int store_sandbox_live(struct store *store, struct arena *arena, struct store_sandbox **out,
                       size_t *out_count, struct error *err)
{
    auto_conn struct conn *conn = store_read_many(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "SELECT id, team_id, template_id, alias, state, revision, started_at_us,"
                   " end_at_us, cpu_count, mem_mb, disk_mb, '{}', '{}', access_token, internet,"
                   " internet_given, secure, ended_at_us, end_reason," SANDBOX_LIFE_COLUMNS
                   " FROM sandboxes WHERE state <> 'ended'",
                   err) < 0)
        return -1;
    return sandbox_rows(&query, arena, out, out_count, err);
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
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "UPDATE sandboxes SET revision = revision + 1, state = ?2, step = ?3,"
                   " end_at_us = ?4, running_since_us = ?5, memory = ?6, auto_pause = ?7,"
                   " resumed_from = ?8 WHERE id = ?1 AND state IN ('running', 'paused')"
                   " RETURNING revision",
                   err) < 0)
        return -1;
    bind_text(&query, id);
    bind_text(&query, str_of(state_names[life->state]));
    bind_text(&query, str_of(step_names[life->step]));
    bind_int(&query, life->end_at_us);
    bind_int(&query, life->running_since_us);
    bind_int(&query, life->memory);
    bind_int(&query, life->auto_pause);
    bind_text(&query, str_of(resumed_names[life->resumed_from]));
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

int store_sandbox_set_internet(struct store *store, struct str id, bool internet, bool given,
                               struct error *err)
{
    auto_conn struct conn *conn = store_write(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "UPDATE sandboxes SET internet = ?2, internet_given = ?3 WHERE id = ?1",
                   err) < 0)
        return -1;
    bind_text(&query, id);
    bind_int(&query, internet);
    bind_int(&query, given);
    return query_run(&query, err);
}

int store_sandbox_killing(struct store *store, struct str id, struct str reason, struct error *err)
{
    auto_conn struct conn *conn = store_write(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "UPDATE sandboxes SET state = 'killing', end_reason = ?2"
                   " WHERE id = ?1 AND state IN ('running', 'paused')",
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

    if (query_open(&query, conn,
                   "UPDATE sandboxes SET state = 'ended', ended_at_us = ?3,"
                   " end_reason = CASE WHEN end_reason = '' THEN ?2 ELSE end_reason END,"
                   " access_token = '', env = '{}' WHERE id = ?1 AND state <> 'ended' RETURNING id",
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
                   " WHERE state = 'ended' AND ended_at_us < ?1 LIMIT ?2) RETURNING id",
                   err) < 0)
        return -1;
    bind_int(&query, before_us);
    bind_int(&query, (int64_t)max);
    return query_count(&query, out_count, err);
}
