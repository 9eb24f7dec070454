/* PostgreSQL behind store_driver.h. A store is a schema: the first one of the search path.
 *
 * Types: a statement is prepared when it is first run, because its parameters have the types they were
 * bound with; nothing is left to be guessed from the SQL.
 *
 * Serial transactions: begin takes an advisory lock of the schema, which the end of the transaction gives
 * back. Statements after it see what was committed before it (READ COMMITTED).
 *
 * How durable: what is STORE_EPHEMERAL is committed without waiting for the disk (synchronous_commit=off),
 * so it survives our end, not that of the database's host. */
#include "store/driver/driver_postgres.h"

#include <inttypes.h>
#include <libpq-fe.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/cleanup.h"

enum { TYPE_BOOL = 16, TYPE_INT8 = 20, TYPE_TEXT = 25 }; /* in every database of theirs */
enum { PARAMETERS_MAX = 40, READERS = 4 };

struct store_db {
    char *where;
};

struct store_conn {
    PGconn *pg;
    enum store_role role;
    unsigned session;    /* counts connections to the server: statements end with them */
    unsigned statements; /* counts names */
    bool in_transaction;
};

struct store_stmt {
    struct store_conn *conn;
    char *sql;
    char name[16];
    unsigned session; /* where it is prepared; 0 = nowhere */
    int count;
    Oid types[PARAMETERS_MAX];
    char *values[PARAMETERS_MAX];
    PGresult *result;
    int row;
};

/* ---- errors ---- */

static enum error_code code_of(const char *state)
{
    static const struct {
        const char *begin;
        enum error_code code;
    } codes[] = {
        {"23505", ERROR_EXISTS},   {"53100", ERROR_NO_SPACE},  {"55P03", ERROR_UNAVAILABLE},
        {"40", ERROR_UNAVAILABLE}, {"08", ERROR_UNAVAILABLE},  {"53", ERROR_UNAVAILABLE},
        {"57", ERROR_UNAVAILABLE}, {"25006", ERROR_FORBIDDEN}, {"42501", ERROR_FORBIDDEN},
        {"28", ERROR_FORBIDDEN},
    };

    if (!state)
        return ERROR_UNAVAILABLE; /* the connection broke */
    for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++)
        if (strncmp(state, codes[i].begin, strlen(codes[i].begin)) == 0)
            return codes[i].code;
    return ERROR_INTERNAL;
}

/* Messages of theirs end in a new line. */
static int fail_conn(struct store_conn *conn, const char *what, struct error *err)
{
    const char *text = PQerrorMessage(conn->pg);

    return error_set(err, ERROR_UNAVAILABLE, "store: %s: %.*s", what, (int)strcspn(text, "\n"),
                     text);
}

static int fail(struct store_conn *conn, const char *what, const PGresult *result,
                struct error *err)
{
    const char *text = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);

    if (!text)
        return fail_conn(conn, what, err);
    return error_set(err, code_of(PQresultErrorField(result, PG_DIAG_SQLSTATE)), "store: %s: %s",
                     what, text);
}

/* ---- connections ---- */

static int run(struct store_conn *conn, const char *sql, struct error *err)
{
    PGresult *result = PQexec(conn->pg, sql);
    ExecStatusType status = PQresultStatus(result);
    int failed = 0;

    if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK)
        failed = fail(conn, "exec", result, err);
    PQclear(result);
    return failed;
}

/* Text is compared byte by byte, as SQLite does, else pages would be in another order. */
static int check_database(struct store_conn *conn, struct error *err)
{
    PGresult *result = PQexec(
        conn->pg, "SELECT 1 FROM pg_database WHERE datname = current_database()"
                  " AND datcollate IN ('C', 'POSIX') AND pg_encoding_to_char(encoding) = 'UTF8'");
    bool good = PQresultStatus(result) == PGRES_TUPLES_OK && PQntuples(result) == 1;

    PQclear(result);
    if (good)
        return 0;
    return error_set(err, ERROR_UNSUPPORTED,
                     "the store needs a database with encoding UTF8 and collation C: createdb"
                     " --encoding=UTF8 --locale=C --template=template0 NAME");
}

static int begin_session(struct store_conn *conn, struct error *err)
{
    if (PQstatus(conn->pg) != CONNECTION_OK)
        return fail_conn(conn, "connect", err);
    conn->session++;
    conn->in_transaction = false;
    if (run(conn,
            "SET client_encoding = 'UTF8'; SET client_min_messages = warning;"
            "SET synchronous_commit = off; SET lock_timeout = '5s'",
            err) < 0)
        return -1;
    return conn->role == STORE_READER ? run(conn, "SET default_transaction_read_only = on", err)
                                      : check_database(conn, err);
}

/* A connection that broke is made anew, but not within a transaction: that has failed. */
static int be_connected(struct store_conn *conn, struct error *err)
{
    if (conn->in_transaction || PQstatus(conn->pg) == CONNECTION_OK)
        return 0;
    PQreset(conn->pg);
    return begin_session(conn, err);
}

static int postgres_open(const char *where, struct store_db **out, struct error *err)
{
    (void)err;
    *out = xcalloc(1, sizeof(**out));
    (*out)->where = xstrdup(where);
    return 0;
}

static void postgres_close(struct store_db *db)
{
    free(db->where);
    free(db);
}

static size_t postgres_readers(const struct store_db *db)
{
    (void)db;
    return READERS;
}

static void postgres_disconnect(struct store_conn *conn)
{
    PQfinish(conn->pg);
    free(conn);
}

static int postgres_connect(struct store_db *db, enum store_role role, struct store_conn **out,
                            struct error *err)
{
    struct store_conn *conn = xcalloc(1, sizeof(*conn));

    conn->pg = PQconnectdb(db->where);
    conn->role = role;
    if (begin_session(conn, err) < 0) {
        postgres_disconnect(conn);
        return -1;
    }
    *out = conn;
    return 0;
}

/* ---- transactions ---- */

static int postgres_exec(struct store_conn *conn, const char *sql, struct error *err)
{
    return be_connected(conn, err) < 0 ? -1 : run(conn, sql, err);
}

static void postgres_rollback(struct store_conn *conn)
{
    struct error ignored;

    conn->in_transaction = false;
    (void)run(conn, "ROLLBACK", &ignored);
}

static int postgres_begin(struct store_conn *conn, enum store_durability durability,
                          struct error *err)
{
    static const char *const begin[] = {
        [STORE_EPHEMERAL] =
            "BEGIN; SELECT pg_advisory_xact_lock(hashtextextended(current_schema(), 0))",
        [STORE_DURABLE] = "BEGIN; SET LOCAL synchronous_commit = on;"
                          "SELECT pg_advisory_xact_lock(hashtextextended(current_schema(), 0))",
    };

    if (be_connected(conn, err) < 0)
        return -1;
    if (run(conn, begin[durability], err) < 0) {
        postgres_rollback(conn);
        return -1;
    }
    conn->in_transaction = true;
    return 0;
}

/* After a statement that failed a commit is a rollback, and says so only by its name. */
static int postgres_commit(struct store_conn *conn, struct error *err)
{
    PGresult *result = PQexec(conn->pg, "COMMIT");
    int failed = 0;

    conn->in_transaction = false;
    if (PQresultStatus(result) != PGRES_COMMAND_OK)
        failed = fail(conn, "commit", result, err);
    else if (strcmp(PQcmdStatus(result), "COMMIT") != 0)
        failed = error_set(err, ERROR_INTERNAL, "store: commit: the transaction had failed");
    PQclear(result);
    return failed;
}

/* ---- statements ---- */

char *postgres_translate(const char *sql, int *out_count)
{
    size_t size = strlen(sql) * 4 + 1;
    char *text = xcalloc(1, size), *to = text;
    bool quoted = false;

    *out_count = 0;
    for (const char *from = sql; *from; from++) {
        int number = 0;

        if (*from == '\'')
            quoted = !quoted;
        if (quoted || *from != '?') {
            *to++ = *from;
            continue;
        }
        while (from[1] >= '0' && from[1] <= '9')
            number = number * 10 + (*++from - '0');
        if (!number)
            number = *out_count + 1;
        if (number > *out_count)
            *out_count = number;
        to += snprintf(to, size - (size_t)(to - text), "$%d", number);
    }
    return text;
}

static int postgres_prepare(struct store_conn *conn, const char *sql, struct store_stmt **out,
                            struct error *err)
{
    struct store_stmt *stmt = xcalloc(1, sizeof(*stmt));

    stmt->conn = conn;
    stmt->sql = postgres_translate(sql, &stmt->count);
    *out = stmt;
    if (stmt->count <= PARAMETERS_MAX)
        return 0;
    (void)error_set(err, ERROR_INTERNAL, "store: a statement with %d parameters", stmt->count);
    free(stmt->sql);
    free(stmt);
    return -1;
}

static int set_value(struct store_stmt *stmt, int index, Oid type, char *value)
{
    if (index < 1 || index > stmt->count) {
        free(value);
        return -1;
    }
    if (stmt->types[index - 1] != type)
        stmt->session = 0;
    stmt->types[index - 1] = type;
    free(stmt->values[index - 1]);
    stmt->values[index - 1] = value;
    return 0;
}

static int postgres_bind_text(struct store_stmt *stmt, int index, struct str text)
{
    if (text.p && memchr(text.p, '\0', text.len))
        return -1;
    return set_value(stmt, index, TYPE_TEXT, text.p ? xasprintf("%.*s", STR_ARG(text)) : NULL);
}

static int postgres_bind_int(struct store_stmt *stmt, int index, int64_t value)
{
    return set_value(stmt, index, TYPE_INT8, xasprintf("%" PRId64, value));
}

static int prepare_now(struct store_stmt *stmt, struct error *err)
{
    struct store_conn *conn = stmt->conn;
    PGresult *result;
    int failed = 0;

    if (stmt->session == conn->session)
        return 0;
    (void)snprintf(stmt->name, sizeof(stmt->name), "s%u", ++conn->statements);
    result = PQprepare(conn->pg, stmt->name, stmt->sql, stmt->count, stmt->types);
    if (PQresultStatus(result) != PGRES_COMMAND_OK)
        failed = fail(conn, "prepare", result, err);
    else
        stmt->session = conn->session;
    PQclear(result);
    return failed;
}

static int execute(struct store_stmt *stmt, struct error *err)
{
    struct store_conn *conn = stmt->conn;
    ExecStatusType status;

    if (be_connected(conn, err) < 0 || prepare_now(stmt, err) < 0)
        return -1;
    stmt->result = PQexecPrepared(conn->pg, stmt->name, stmt->count,
                                  (const char *const *)stmt->values, NULL, NULL, 0);
    stmt->row = -1;
    status = PQresultStatus(stmt->result);
    if (status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK)
        return 0;
    (void)fail(conn, "step", stmt->result, err);
    PQclear(stmt->result);
    stmt->result = NULL;
    return -1;
}

static int postgres_step(struct store_stmt *stmt, struct error *err)
{
    if (!stmt->result && execute(stmt, err) < 0)
        return -1;
    return ++stmt->row < PQntuples(stmt->result) ? 1 : 0;
}

static struct str postgres_column_text(struct store_stmt *stmt, int column)
{
    if (PQgetisnull(stmt->result, stmt->row, column))
        return STR_NONE;
    return str_n(PQgetvalue(stmt->result, stmt->row, column),
                 (size_t)PQgetlength(stmt->result, stmt->row, column));
}

static int64_t postgres_column_int(struct store_stmt *stmt, int column)
{
    const char *text = PQgetvalue(stmt->result, stmt->row, column);

    return PQftype(stmt->result, column) == TYPE_BOOL ? text[0] == 't' : strtoll(text, NULL, 10);
}

static void postgres_reset(struct store_stmt *stmt)
{
    PQclear(stmt->result);
    stmt->result = NULL;
    for (int i = 0; i < stmt->count; i++) {
        free(stmt->values[i]);
        stmt->values[i] = NULL;
    }
}

static void postgres_finalize(struct store_stmt *stmt)
{
    postgres_reset(stmt);
    free(stmt->sql);
    free(stmt);
}

const struct store_driver driver_postgres = {
    .name = "postgresql",
    .open = postgres_open,
    .close = postgres_close,
    .readers = postgres_readers,
    .connect = postgres_connect,
    .disconnect = postgres_disconnect,
    .exec = postgres_exec,
    .begin = postgres_begin,
    .commit = postgres_commit,
    .rollback = postgres_rollback,
    .prepare = postgres_prepare,
    .bind_text = postgres_bind_text,
    .bind_int = postgres_bind_int,
    .step = postgres_step,
    .column_text = postgres_column_text,
    .column_int = postgres_column_int,
    .reset = postgres_reset,
    .finalize = postgres_finalize,
};
