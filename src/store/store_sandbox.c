/* Sandboxes' rows. A row appears when a sandbox is ready (a box without a row is a leftover), says
 * 'killing' while it is torn down, and stays as history with 'ended'. Nothing here is fsync()ed:
 * no sandbox outlives the host, so rows that the host's death took with it described nothing. */
#include <inttypes.h>

#include "base/list.h"
#include "store/query.h"
#include "store/store.h"

#define COLUMNS                                                                              \
    "id, team_id, template_id, alias, state, revision, started_at_us, end_at_us, cpu_count," \
    " mem_mb, disk_mb, metadata, env, access_token, internet, internet_given, secure,"       \
    " ended_at_us, end_reason"

static const char *const state_names[] = {
    [STORE_SANDBOX_RUNNING] = "running",
    [STORE_SANDBOX_KILLING] = "killing",
    [STORE_SANDBOX_ENDED] = "ended",
};

static enum store_sandbox_state state_of(struct str name)
{
    if (str_is(name, "running"))
        return STORE_SANDBOX_RUNNING;
    return str_is(name, "killing") ? STORE_SANDBOX_KILLING : STORE_SANDBOX_ENDED;
}

static void read_row(const struct query *query, struct arena *arena, struct store_sandbox *out)
{
    *out = (struct store_sandbox){
        .id = query_text(query, 0, arena),
        .team_id = query_text(query, 1, arena),
        .template_id = query_text(query, 2, arena),
        .alias = query_text(query, 3, arena),
        .state = state_of(query_text(query, 4, arena)),
        .revision = query_int(query, 5),
        .started_at_us = query_int(query, 6),
        .end_at_us = query_int(query, 7),
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
    };
}

int store_sandbox_insert(struct store *store, const struct store_sandbox *row, struct error *err)
{
    auto_unlock struct store *locked = store_lock(store);
    auto_query struct query query = {0};

    if (query_open(&query, locked,
                   "INSERT INTO sandboxes (" COLUMNS ") VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8,"
                   " ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19)",
                   err) < 0)
        return -1;
    bind_text(&query, row->id);
    bind_text(&query, row->team_id);
    bind_text(&query, row->template_id);
    bind_text(&query, row->alias.p ? row->alias : STR(""));
    bind_text(&query, str_of(state_names[row->state]));
    bind_int(&query, row->revision);
    bind_int(&query, row->started_at_us);
    bind_int(&query, row->end_at_us);
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
    return query_run(&query, err);
}

int store_sandbox_get(struct store *store, struct str id, struct arena *arena,
                      struct store_sandbox *out, struct error *err)
{
    auto_unlock struct store *locked = store_lock(store);
    auto_query struct query query = {0};
    int found;

    if (query_open(&query, locked, "SELECT " COLUMNS " FROM sandboxes WHERE id = ?1", err) < 0)
        return -1;
    bind_text(&query, id);
    found = query_step(&query, err);
    if (found <= 0)
        return found < 0 ? -1
                         : error_set(err, ERROR_NOT_FOUND, "sandbox '%.*s' not found", STR_ARG(id));
    read_row(&query, arena, out);
    return 0;
}

struct row_node {
    struct list link;
    struct store_sandbox row;
};

static int read_rows(struct query *query, struct arena *arena, struct store_sandbox **out,
                     size_t *out_count, struct error *err)
{
    struct list found, *pos;
    size_t count = 0;
    int more;

    list_init(&found);
    while ((more = query_step(query, err)) > 0) {
        struct row_node *node = arena_alloc(arena, sizeof(*node));

        read_row(query, arena, &node->row);
        list_push_back(&found, &node->link);
        count++;
    }
    if (more < 0)
        return -1;
    *out = arena_alloc(arena, (count + 1) * sizeof(**out));
    *out_count = 0;
    list_for_each (pos, &found)
        (*out)[(*out_count)++] = container_of(pos, struct row_node, link)->row;
    return 0;
}

/* Keyset paging: the index (team_id, state, started_at_us, id) gives each page in the time of its
 * own rows, wherever it is. Without a cursor the comparison is with the end of all time. */
static const char page_descending[] =
    "SELECT " COLUMNS " FROM sandboxes WHERE team_id = ?1 AND state = 'running'"
    " AND (started_at_us, id) < (?2, ?3) AND started_at_us >= ?4"
    " AND (?5 = '' OR template_id = ?5) ORDER BY started_at_us DESC, id DESC LIMIT ?6";
static const char page_ascending[] =
    "SELECT " COLUMNS " FROM sandboxes WHERE team_id = ?1 AND state = 'running'"
    " AND (started_at_us, id) > (?2, ?3) AND started_at_us >= ?4"
    " AND (?5 = '' OR template_id = ?5) ORDER BY started_at_us, id LIMIT ?6";

int store_sandbox_page(struct store *store, const struct store_sandbox_query *wanted,
                       struct arena *arena, struct store_sandbox **out, size_t *out_count,
                       struct error *err)
{
    auto_unlock struct store *locked = store_lock(store);
    auto_query struct query query = {0};
    int64_t from = wanted->ascending ? INT64_MIN : INT64_MAX;

    if (query_open(&query, locked, wanted->ascending ? page_ascending : page_descending, err) < 0)
        return -1;
    bind_text(&query, wanted->team_id);
    bind_int(&query, wanted->after_id.p ? wanted->after_us : from);
    bind_text(&query, wanted->after_id.p ? wanted->after_id : STR(""));
    bind_int(&query, wanted->started_after_us);
    bind_text(&query, wanted->template_id.p ? wanted->template_id : STR(""));
    bind_int(&query, (int64_t)wanted->limit);
    return read_rows(&query, arena, out, out_count, err);
}

int store_sandbox_live(struct store *store, struct arena *arena, struct store_sandbox **out,
                       size_t *out_count, struct error *err)
{
    auto_unlock struct store *locked = store_lock(store);
    auto_query struct query query = {0};

    if (query_open(&query, locked,
                   "SELECT id, team_id, template_id, alias, state, revision, started_at_us,"
                   " end_at_us, cpu_count, mem_mb, disk_mb, '{}', '{}', access_token, internet,"
                   " internet_given, secure, ended_at_us, end_reason"
                   " FROM sandboxes WHERE state <> 'ended'",
                   err) < 0)
        return -1;
    return read_rows(&query, arena, out, out_count, err);
}

int store_sandbox_set_end(struct store *store, struct str id, int64_t end_at_us, bool only_later,
                          int64_t *out_end_at_us, int64_t *out_revision, struct error *err)
{
    auto_unlock struct store *locked = store_lock(store);
    auto_query struct query query = {0};
    int found;

    if (query_open(&query, locked,
                   "UPDATE sandboxes SET revision = revision + 1, end_at_us ="
                   " CASE WHEN ?3 = 1 AND end_at_us > ?2 THEN end_at_us ELSE ?2 END"
                   " WHERE id = ?1 AND state = 'running' RETURNING end_at_us, revision",
                   err) < 0)
        return -1;
    bind_text(&query, id);
    bind_int(&query, end_at_us);
    bind_int(&query, only_later);
    found = query_step(&query, err);
    if (found < 0)
        return -1;
    if (found == 0)
        return error_set(err, ERROR_NOT_FOUND, "sandbox '%.*s' not found", STR_ARG(id));
    *out_end_at_us = query_int(&query, 0);
    *out_revision = query_int(&query, 1);
    return query_run(&query, err);
}

int store_sandbox_killing(struct store *store, struct str id, struct str reason, struct error *err)
{
    auto_unlock struct store *locked = store_lock(store);
    auto_query struct query query = {0};

    if (query_open(&query, locked,
                   "UPDATE sandboxes SET state = 'killing', end_reason = ?2"
                   " WHERE id = ?1 AND state = 'running'",
                   err) < 0)
        return -1;
    bind_text(&query, id);
    bind_text(&query, reason);
    return query_run(&query, err);
}

/* History needs neither the token nor the environment: secrets go as early as they can. */
int store_sandbox_end(struct store *store, struct str id, struct str reason, int64_t at_us,
                      struct error *err)
{
    auto_unlock struct store *locked = store_lock(store);
    auto_query struct query query = {0};

    if (query_open(&query, locked,
                   "UPDATE sandboxes SET state = 'ended', ended_at_us = ?3,"
                   " end_reason = CASE WHEN end_reason = '' THEN ?2 ELSE end_reason END,"
                   " access_token = '', env = '{}' WHERE id = ?1 AND state <> 'ended'",
                   err) < 0)
        return -1;
    bind_text(&query, id);
    bind_text(&query, reason);
    bind_int(&query, at_us);
    return query_run(&query, err);
}

int store_sandbox_prune(struct store *store, int64_t before_us, size_t max, size_t *out_count,
                        struct error *err)
{
    auto_unlock struct store *locked = store_lock(store);
    auto_query struct query query = {0};
    int more;

    if (query_open(&query, locked,
                   "DELETE FROM sandboxes WHERE id IN (SELECT id FROM sandboxes"
                   " WHERE state = 'ended' AND ended_at_us < ?1 LIMIT ?2) RETURNING id",
                   err) < 0)
        return -1;
    bind_int(&query, before_us);
    bind_int(&query, (int64_t)max);
    *out_count = 0;
    while ((more = query_step(&query, err)) > 0)
        (*out_count)++;
    return more;
}
