/* Sandboxes of the agent runtime. The unique index over (team, key, spec) of the living rows is what
 * decides a race for a key: a claim is an insert. How long a sandbox ran is added up whenever it
 * stops, so that usage needs no other record. */
#include "store/runtime/store_runtime_sandbox.h"

#include <inttypes.h>

#include "base/clock.h"
#include "base/id.h"
#include "store/runtime/store_runtime_sandbox_row.h"

static const struct row_field fields[] = {
    RUNTIME_SANDBOX_ROW(ROW_FIELD, struct store_runtime_sandbox, ROW_NEXT)};
static const struct names *const names[] = {&sandbox_state_names};
const struct row runtime_sandbox_row =
    ROW_OF(fields, struct store_runtime_sandbox, .flags = ROW_NONE, .names = names);

void runtime_bind(struct query *query, struct str text)
{
    bind_text(query, text.p ? text : STR(""));
}

int store_runtime_instance(struct store *store, struct arena *arena, struct str *out,
                           struct error *err)
{
    auto_conn struct conn *conn = store_write(store);
    auto_query struct query insert = {0}, query = {0};
    char name[17];

    id_hex(name, 8);
    if (query_open(&insert, conn,
                   "INSERT INTO runtime_instance (id, name) VALUES ('id', ?1)"
                   " ON CONFLICT (id) DO NOTHING",
                   err) < 0)
        return -1;
    bind_text(&insert, str_of(name));
    if (query_run_durable(&insert, conn, err) < 0 ||
        query_open(&query, conn, "SELECT name FROM runtime_instance WHERE id = 'id'", err) < 0 ||
        query_step(&query, err) < 0)
        return -1;
    *out = query_text(&query, 0, arena);
    return 0;
}

static int insert_row(struct conn *conn, const struct store_runtime_sandbox *given,
                      struct error *err)
{
    auto_query struct query query = {0};
    struct store_runtime_sandbox row = *given;

    if (query_open(&query, conn, ROW_INSERT("runtime_sandboxes", RUNTIME_SANDBOX_ROW), err) < 0)
        return -1;
    row.destroyed_at_us = row.ran_us = row.commands = row.jobs = 0;
    row_bind(&runtime_sandbox_row, &query, &row);
    return query_run(&query, err);
}

static int count_of(struct conn *conn, struct str provider, int64_t *out, struct error *err)
{
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "SELECT count(*) FROM runtime_sandboxes WHERE provider = ?1"
                   " AND destroyed_at_us = 0 AND adopted = 0 AND state IN ('creating', 'running')",
                   err) < 0)
        return -1;
    bind_text(&query, provider);
    if (query_step(&query, err) < 0)
        return -1;
    *out = query_int(&query, 0);
    return 0;
}

int store_runtime_sandbox_count(struct store *store, struct str provider, int64_t *out,
                                struct error *err)
{
    auto_conn struct conn *conn = store_read(store);

    return count_of(conn, provider, out, err);
}

struct change {
    struct str id;
    struct str machine; /* nothing happens unless the row has it, and is not about to get another */
    enum sandbox_state state;
    struct str reason;
    int64_t at_us;
    bool told; /* and unless the row knows of nothing that came after */
};

/* 1 = it changed. */
static int set_state(struct conn *conn, const struct change *change, struct error *err)
{
    char sources[SANDBOX_SOURCES_SIZE];
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "UPDATE runtime_sandboxes SET state = ?2, error = ?3,"
                   " ran_us = ran_us + CASE WHEN running_since_us > 0 AND ?2 <> 'running'"
                   " AND running_since_us < ?4 THEN ?4 - running_since_us ELSE 0 END,"
                   " running_since_us = CASE WHEN ?2 <> 'running' THEN 0"
                   " WHEN running_since_us > 0 THEN running_since_us ELSE ?4 END,"
                   " destroyed_at_us = CASE WHEN ?2 = 'ended' THEN ?4 ELSE 0 END,"
                   " state_at_us = ?7"
                   " WHERE id = ?1 AND destroyed_at_us = 0 AND (state <> ?2 OR error <> ?3)"
                   " AND (?5 = '' OR (external_id = ?5 AND state <> 'creating'))"
                   " AND (?6 = 0 OR state_at_us < ?7)"
                   " AND ?8 LIKE '%,' || state || ',%'"
                   " RETURNING id",
                   err) < 0)
        return -1;
    bind_text(&query, change->id);
    sandbox_state_sources(change->state, sources);
    bind_text(&query, str_of(name_of(&sandbox_state_names, change->state)));
    runtime_bind(&query, change->reason);
    bind_int(&query, change->at_us);
    runtime_bind(&query, change->machine);
    bind_int(&query, change->told);
    bind_int(&query, change->told ? change->at_us : clock_wall_us());
    bind_text(&query, str_of(sources));
    return query_step(&query, err);
}

static int claim_row(struct conn *conn, const struct store_runtime_claim *claim, struct error *err)
{
    int64_t count = 0;

    if (claim->replaces.p && set_state(conn,
                                       &(struct change){.id = claim->replaces,
                                                        .state = SANDBOX_ENDED,
                                                        .reason = claim->reason,
                                                        .at_us = claim->row->created_at_us},
                                       err) < 0)
        return -1;
    if (claim->max > 0) {
        if (count_of(conn, claim->row->provider, &count, err) < 0)
            return -1;
        if (count >= claim->max)
            return error_set(err, ERROR_QUOTA,
                             "provider '%.*s' has its %" PRId64
                             " sandboxes (max_sandboxes): kill or pause one, or try later",
                             STR_ARG(claim->row->provider), claim->max);
    }
    return insert_row(conn, claim->row, err);
}

int store_runtime_claim_in(struct conn *conn, const struct store_runtime_claim *claim,
                           struct error *err)
{
    return claim_row(conn, claim, err) < 0
               ? -1
               : runtime_events_add(conn, claim->events, claim->event_count, err);
}

int store_runtime_claim(struct store *store, const struct store_runtime_claim *claim,
                        struct error *err)
{
    auto_conn struct conn *conn = store_write(store);

    if (store_begin(conn, claim->durable ? STORE_DURABLE : STORE_EPHEMERAL, err) < 0)
        return -1;
    return store_end(conn, store_runtime_claim_in(conn, claim, err), err);
}

static int read_one(struct query *query, struct arena *arena, struct store_runtime_sandbox *out,
                    struct error *err)
{
    return row_one(&runtime_sandbox_row, query, "sandbox", STR_NONE, arena, out, err);
}

int store_runtime_sandbox_get(struct store *store, struct str team_id, struct str id,
                              struct arena *arena, struct store_runtime_sandbox *out,
                              struct error *err)
{
    auto_conn struct conn *conn = store_read(store);
    auto_query struct query query = {0}, machine = {0};

    if (query_open(&query, conn,
                   "SELECT " RUNTIME_SANDBOX_COLUMNS
                   " FROM runtime_sandboxes WHERE id = ?1 AND team_id = ?2",
                   err) < 0)
        return -1;
    bind_text(&query, id);
    bind_text(&query, team_id);
    if (read_one(&query, arena, out, err) == 0)
        return 0;
    if (err->code != ERROR_NOT_FOUND || !id.len ||
        query_open(&machine, conn,
                   "SELECT " RUNTIME_SANDBOX_COLUMNS
                   " FROM runtime_sandboxes WHERE external_id = ?1 AND team_id = ?2"
                   " ORDER BY CASE WHEN destroyed_at_us = 0 THEN 0 ELSE 1 END, created_at_us DESC"
                   " LIMIT 1",
                   err) < 0)
        return -1;
    bind_text(&machine, id);
    bind_text(&machine, team_id);
    return read_one(&machine, arena, out, err);
}

/* With a spec there is one at most, and nothing to be sorted. */
#define OF_KEY                                                                     \
    "SELECT " RUNTIME_SANDBOX_COLUMNS " FROM runtime_sandboxes WHERE team_id = ?1" \
    " AND sandbox_key = ?2 AND sandbox_key <> '' AND destroyed_at_us = 0 AND spec_hash "
#define NEWEST ">= ?3 ORDER BY last_used_at_us DESC LIMIT 1"

int store_runtime_sandbox_find(struct store *store, struct str team_id, struct str key,
                               struct str spec_hash, struct arena *arena,
                               struct store_runtime_sandbox *out, struct error *err)
{
    auto_conn struct conn *conn = store_read(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn, spec_hash.len ? OF_KEY "= ?3" : OF_KEY NEWEST, err) < 0)
        return -1;
    bind_text(&query, team_id);
    runtime_bind(&query, key);
    runtime_bind(&query, spec_hash);
    return read_one(&query, arena, out, err);
}

int store_runtime_sandbox_previous(struct store *store, struct str team_id, struct str key,
                                   struct arena *arena, struct store_runtime_sandbox *out,
                                   struct error *err)
{
    auto_conn struct conn *conn = store_read(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "SELECT " RUNTIME_SANDBOX_COLUMNS
                   " FROM runtime_sandboxes WHERE team_id = ?1 AND sandbox_key = ?2"
                   " AND sandbox_key <> '' AND (destroyed_at_us = 0 OR ran_us > 0)"
                   " ORDER BY last_used_at_us DESC, created_at_us DESC LIMIT 1",
                   err) < 0)
        return -1;
    bind_text(&query, team_id);
    runtime_bind(&query, key);
    return read_one(&query, arena, out, err);
}

static int announce(struct conn *conn, struct str id, int64_t at_us, int64_t *out_at_us,
                    struct error *err)
{
    auto_query struct query query = {0};
    int found;

    if (query_open(&query, conn,
                   "UPDATE runtime_sandboxes SET announced_at_us ="
                   " CASE WHEN announced_at_us > last_used_at_us AND announced_at_us > state_at_us"
                   " THEN announced_at_us ELSE ?2 END"
                   " WHERE id = ?1 AND destroyed_at_us = 0 RETURNING announced_at_us",
                   err) < 0)
        return -1;
    bind_text(&query, id);
    bind_int(&query, at_us);
    found = query_step(&query, err);
    if (found < 0)
        return -1;
    if (!found)
        return error_set(err, ERROR_NOT_FOUND, "sandbox '%.*s' was killed", STR_ARG(id));
    *out_at_us = query_int(&query, 0);
    return 0;
}

int store_runtime_sandbox_announce(struct store *store, struct str id, int64_t at_us,
                                   int64_t *out_at_us, struct error *err)
{
    auto_conn struct conn *conn = store_write(store);

    if (store_begin(conn, STORE_DURABLE, err) < 0)
        return -1;
    return store_end(conn, announce(conn, id, at_us, out_at_us, err), err);
}

static int set_ready(struct conn *conn, struct str id, const struct store_runtime_ready *ready,
                     struct error *err)
{
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "UPDATE runtime_sandboxes SET external_id = ?2, token = ?3, address = ?4,"
                   " cdp_url = ?5, snapshot_id = ?6, state = 'running', error = '',"
                   " running_since_us = ?7, state_at_us = ?7,"
                   " last_used_at_us = ?7, create_ms = CASE WHEN ?8 < 0 THEN create_ms ELSE ?8 END,"
                   " image = CASE WHEN ?9 = '' THEN image ELSE ?9 END,"
                   " id = CASE WHEN ?11 = '' THEN id ELSE ?11 END"
                   " WHERE id = ?1 AND destroyed_at_us = 0 AND (?10 = '' OR external_id = ?10)"
                   " RETURNING id",
                   err) < 0)
        return -1;
    bind_text(&query, id);
    runtime_bind(&query, ready->external_id);
    runtime_bind(&query, ready->token);
    runtime_bind(&query, ready->address);
    runtime_bind(&query, ready->cdp_url);
    runtime_bind(&query, ready->snapshot_id);
    bind_int(&query, ready->at_us);
    bind_int(&query, ready->create_ms);
    runtime_bind(&query, ready->image);
    runtime_bind(&query, ready->machine);
    runtime_bind(&query, ready->id);
    return query_step(&query, err);
}

int store_runtime_sandbox_ready(struct store *store, struct str id,
                                const struct store_runtime_ready *ready, struct error *err)
{
    auto_conn struct conn *conn = store_write(store);
    int changed;

    if (store_begin(conn, ready->durable ? STORE_DURABLE : STORE_EPHEMERAL, err) < 0)
        return -1;
    changed = set_ready(conn, id, ready, err);
    if (store_end(conn, changed, err) < 0)
        return -1;
    return changed ? 0 : error_set(err, ERROR_NOT_FOUND, "sandbox '%.*s' was killed", STR_ARG(id));
}

static int change_state(struct store *store, const struct change *change, bool *out_changed,
                        struct error *err)
{
    auto_conn struct conn *conn = store_write(store);
    int changed;

    if (store_begin(conn, STORE_EPHEMERAL, err) < 0)
        return -1;
    changed = set_state(conn, change, err);
    *out_changed = changed > 0;
    return store_end(conn, changed, err);
}

int store_runtime_sandbox_seen(struct store *store, struct str id, struct str machine,
                               enum sandbox_state state, struct str error, int64_t at_us,
                               bool *out_changed, struct error *err)
{
    return change_state(store, &(struct change){id, machine, state, error, at_us, false},
                        out_changed, err);
}

int store_runtime_sandbox_told(struct store *store, struct str id, struct str machine,
                               enum sandbox_state state, struct str error, int64_t at_us,
                               bool *out_changed, struct error *err)
{
    return change_state(store, &(struct change){id, machine, state, error, at_us, true},
                        out_changed, err);
}

int store_runtime_sandbox_state(struct store *store, struct str id, enum sandbox_state state,
                                struct str error, int64_t at_us, bool *out_changed,
                                struct error *err)
{
    return store_runtime_sandbox_seen(store, id, STR_NONE, state, error, at_us, out_changed, err);
}

int store_runtime_sandbox_used(struct store *store, struct str id, int64_t at_us, int64_t commands,
                               int64_t jobs, struct error *err)
{
    auto_conn struct conn *conn = store_write(store);
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "UPDATE runtime_sandboxes SET commands = commands + ?3, jobs = jobs + ?4,"
                   " last_used_at_us = CASE WHEN last_used_at_us < ?2 THEN ?2"
                   " ELSE last_used_at_us END WHERE id = ?1",
                   err) < 0)
        return -1;
    bind_text(&query, id);
    bind_int(&query, at_us);
    bind_int(&query, commands);
    bind_int(&query, jobs);
    return query_run(&query, err);
}
