/* Lists of sandboxes, by keyset paging: an index gives each page in the time of its own rows, wherever
 * it is. There are three: by state, by template and state, and by tag. Two states are two scans that
 * are merged, except by tag, where the state is looked at row by row. Without a cursor the comparison
 * is with the end of all time. */
#include "store/platform/store_sandbox_row.h"

/* clang-format off */
#define RANGE(compare) " AND (started_at_us, id) " compare " (?2, ?3) AND started_at_us >= ?4"
#define ORDER(order) " ORDER BY started_at_us " order ", id " order " LIMIT ?6"
#define ONE(state, template, compare, order)                                       \
    "SELECT " SANDBOX_COLUMNS " FROM sandboxes WHERE team_id = ?1 AND listed = " state \
    " AND " template RANGE(compare) ORDER(order)
#define TWO(template, compare, order)                                                 \
    "SELECT * FROM (SELECT * FROM (" ONE("'running'", template, compare, order) ") AS a" \
    " UNION ALL SELECT * FROM (" ONE("'paused'", template, compare, order) ") AS b) AS c" \
    ORDER(order)
#define STATES(template, compare, order)                                            \
    {ONE("'running'", template, compare, order), ONE("'paused'", template, compare, order), \
     TWO(template, compare, order)}
#define ANY "?5 = ''"
#define GIVEN "template_id = ?5"
#define ALSO(n) " AND (" n " = '' OR EXISTS (SELECT 1 FROM sandbox_tags AS also" \
                " WHERE also.tag_sandbox = t.tag_sandbox AND also.tag = " n "))"
#define TAG_WHERE                                                                    \
    " FROM sandbox_tags AS t JOIN sandboxes ON id = t.tag_sandbox WHERE t.tag_team = ?1 AND t.tag = ?7" \
    " AND t.tag_start >= ?4 AND (?5 = '' OR template_id = ?5)"                       \
    " AND ((listed = 'running' AND ?8 = 1) OR (listed = 'paused' AND ?9 = 1))"         \
    ALSO("?10") ALSO("?11") ALSO("?12")
#define TAG(compare, order)                                                          \
    "SELECT " SANDBOX_COLUMNS TAG_WHERE " AND (t.tag_start, t.tag_sandbox) " compare " (?2, ?3)" \
    " ORDER BY t.tag_start " order ", t.tag_sandbox " order " LIMIT ?6"

/* [template given][ascending][running, paused, both] */
static const char *const by_state[2][2][3] = {
    {STATES(ANY, "<", "DESC"), STATES(ANY, ">", "ASC")},
    {STATES(GIVEN, "<", "DESC"), STATES(GIVEN, ">", "ASC")},
};
static const char *const by_tag[2] = {TAG("<", "DESC"), TAG(">", "ASC")};
static const char count_by_tag[] =
    "SELECT count(*)" TAG_WHERE " AND ?2 = '' AND ?3 = '' AND ?6 = ''";
static const char count_by_template[] =
    "SELECT count(*) FROM sandboxes WHERE team_id = ?1 AND template_id = ?2 AND listed = 'running'"
    " AND started_at_us >= ?3";
static const char count_by_state[] =
    "SELECT count(*) FROM sandboxes WHERE team_id = ?1 AND ?2 = '' AND listed = 'running'"
    " AND started_at_us >= ?3";
/* clang-format on */

static struct str or_empty(struct str s)
{
    return s.p ? s : STR("");
}

static void bind_tags(struct query *query, const struct store_sandbox_query *wanted)
{
    bind_text(query, wanted->tags[0]);
    bind_int(query, wanted->running);
    bind_int(query, wanted->paused);
    for (size_t i = 1; i < STORE_QUERY_TAGS; i++)
        bind_text(query, i < wanted->tag_count ? wanted->tags[i] : STR(""));
}

int store_sandbox_page(struct store *store, const struct store_sandbox_query *wanted,
                       struct arena *arena, struct store_sandbox **out, size_t *out_count,
                       struct error *err)
{
    auto_conn struct conn *conn = store_read_many(store);
    auto_query struct query query = {0};
    int64_t from = wanted->ascending ? INT64_MIN : INT64_MAX;
    int states = wanted->running && wanted->paused ? 2 : wanted->paused ? 1 : 0;

    if (query_open(&query, conn,
                   wanted->tag_count
                       ? by_tag[wanted->ascending]
                       : by_state[wanted->template_id.p != NULL][wanted->ascending][states],
                   err) < 0)
        return -1;
    bind_text(&query, wanted->team_id);
    bind_int(&query, wanted->after_id.p ? wanted->after_us : from);
    bind_text(&query, or_empty(wanted->after_id));
    bind_int(&query, wanted->started_after_us);
    bind_text(&query, or_empty(wanted->template_id));
    bind_int(&query, (int64_t)wanted->limit);
    if (wanted->tag_count)
        bind_tags(&query, wanted);
    return row_all(&sandbox_row, &query, arena, out, out_count, err);
}

static int open_count(struct query *query, struct conn *conn,
                      const struct store_sandbox_query *wanted, struct error *err)
{
    struct store_sandbox_query running = *wanted;

    if (!wanted->tag_count) {
        if (query_open(query, conn, wanted->template_id.p ? count_by_template : count_by_state,
                       err) < 0)
            return -1;
        bind_text(query, wanted->team_id);
        bind_text(query, or_empty(wanted->template_id));
        bind_int(query, wanted->started_after_us);
        return 0;
    }
    if (query_open(query, conn, count_by_tag, err) < 0)
        return -1;
    bind_text(query, wanted->team_id);
    bind_text(query, STR(""));
    bind_text(query, STR(""));
    bind_int(query, wanted->started_after_us);
    bind_text(query, or_empty(wanted->template_id));
    bind_text(query, STR(""));
    running.running = true;
    running.paused = false;
    bind_tags(query, &running);
    return 0;
}

int store_sandbox_count_running(struct store *store, const struct store_sandbox_query *wanted,
                                size_t *out, struct error *err)
{
    auto_conn struct conn *conn = store_read_many(store);
    auto_query struct query query = {0};

    if (open_count(&query, conn, wanted, err) < 0 || query_step(&query, err) < 0)
        return -1;
    *out = (size_t)query_int(&query, 0);
    return 0;
}

static int add_tag(struct conn *conn, const struct store_sandbox *row, struct str tag,
                   struct error *err)
{
    auto_query struct query query = {0};

    if (query_open(&query, conn,
                   "INSERT INTO sandbox_tags (tag_team, tag, tag_start, tag_sandbox)"
                   " VALUES (?1, ?2, ?3, ?4) ON CONFLICT DO NOTHING",
                   err) < 0)
        return -1;
    bind_text(&query, row->team_id);
    bind_text(&query, tag);
    bind_int(&query, row->started_at_us);
    bind_text(&query, row->id);
    return query_run(&query, err);
}

int sandbox_tags_add(struct conn *conn, const struct store_sandbox *row, struct error *err)
{
    for (size_t i = 0; i < row->tag_count; i++)
        if (add_tag(conn, row, row->tags[i], err) < 0)
            return -1;
    return 0;
}

int sandbox_tags_remove(struct conn *conn, struct str id, struct error *err)
{
    auto_query struct query query = {0};

    if (query_open(&query, conn, "DELETE FROM sandbox_tags WHERE tag_sandbox = ?1", err) < 0)
        return -1;
    bind_text(&query, id);
    return query_run(&query, err);
}

static int set_tagged(struct conn *conn, struct str id, struct error *err)
{
    auto_query struct query query = {0};

    if (query_open(&query, conn, "UPDATE sandboxes SET tagged = 1 WHERE id = ?1", err) < 0)
        return -1;
    bind_text(&query, id);
    return query_run(&query, err);
}

int store_sandbox_tag(struct store *store, const struct store_sandbox *row, struct error *err)
{
    auto_conn struct conn *conn = store_write(store);

    if (store_begin(conn, STORE_EPHEMERAL, err) < 0)
        return -1;
    return store_end(
        conn, sandbox_tags_add(conn, row, err) < 0 || set_tagged(conn, row->id, err) < 0 ? -1 : 0,
        err);
}
