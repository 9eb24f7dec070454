/* SQLite behind store_driver.h.
 *
 * How durable: the file is in WAL mode. With synchronous=NORMAL a commit is a write() without
 * fsync(): it survives the death of this process (kill -9 included) because the pages are in the
 * kernel's cache, and may be lost when the host loses power. That is what facts about sandboxes
 * need, because no sandbox outlives its host. Facts that people keep (keys, templates, the schema)
 * are committed with synchronous=FULL, which fsync()s the log and with it everything before. The
 * level cannot be changed inside a transaction, so begin() raises it and the end lowers it again.
 *
 * Transactions are BEGIN IMMEDIATE: the command line may write to the same file, and a reader that
 * becomes a writer halfway could not be retried by the busy handler.
 *
 * Space: the file and its log have blocks ahead of what they need, and the log keeps its own, emptied,
 * when the last connection closes. So others who fill the disk do not keep sandboxes from being extended, paused,
 * resumed and ended, nor a server from starting. A thread copies the log to the file (sqlite_log.c); SQLite then cuts the file where
 * it ends, and what was reserved is reserved anew. */
#include "store/driver/store_driver.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/path.h"
#include "store/driver/sqlite_log.h"
#include "store/migrations/migrations.h"

enum {
    BUSY_TIMEOUT_MS = 5000,
    LOG_BYTES = 8 << 20, /* twice what it holds before it is copied to the file */
    AHEAD_BYTES = 4 << 20,
    RESERVE_EVERY = 64, /* commits */
    READERS = 4,
};

struct store_db {
    char *where, *log;
    /* To reserve space. The first is closed after all connections: closing it takes the locks of this
     * process away. */
    int file_fd, log_fd;
};

struct store_conn {
    sqlite3 *db;
    struct store_db *of;
    unsigned commits;
    bool raised;            /* synchronous is FULL now */
    struct sqlite_log *log; /* of the one that writes */
    /* Parsed once, by the first that needs them. */
    sqlite3_stmt *begin, *commit;
};

/* A store_stmt is a sqlite3_stmt under another name. */
static sqlite3_stmt *stmt_of(struct store_stmt *stmt)
{
    return (sqlite3_stmt *)(void *)stmt;
}

static enum error_code code_of(int rc)
{
    switch (rc & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return ERROR_UNAVAILABLE;
    case SQLITE_FULL:
        return ERROR_NO_SPACE;
    case SQLITE_PERM:
    case SQLITE_READONLY:
    case SQLITE_AUTH:
        return ERROR_FORBIDDEN;
    default:
        break;
    }
    if (rc == SQLITE_CONSTRAINT_UNIQUE || rc == SQLITE_CONSTRAINT_PRIMARYKEY)
        return ERROR_EXISTS;
    return ERROR_INTERNAL;
}

static int set_damaged(struct error *err, const char *where, const char *detail)
{
    return error_set(err, ERROR_INTERNAL,
                     "store file '%s' is damaged (%s): move it and its -wal and -shm away, then"
                     " copy '%s" STORE_BACKUP "' (an hour old at most; older ones end in .1 and"
                     " .2) in its place and start again; what that means for sandboxes is in"
                     " docs/operate.md. Without a copy a start makes a new, empty store",
                     where, detail, where);
}

static int fail(sqlite3 *db, const char *what, struct error *err)
{
    int rc = sqlite3_extended_errcode(db);
    const char *file = sqlite3_db_filename(db, "main");

    if ((rc & 0xff) == SQLITE_CORRUPT || (rc & 0xff) == SQLITE_NOTADB)
        return set_damaged(err, file ? file : "?", sqlite3_errstr(rc));
    return error_set(err, code_of(rc), "store: %s: %s", what, sqlite3_errmsg(db));
}

static int sqlite_exec(struct store_conn *conn, const char *sql, struct error *err)
{
    if (sqlite3_exec(conn->db, sql, NULL, NULL, NULL) != SQLITE_OK)
        return fail(conn->db, "exec", err);
    return 0;
}

/* The same of a statement that is kept. */
static int run_kept(struct store_conn *conn, sqlite3_stmt **kept, const char *sql,
                    struct error *err)
{
    if (!*kept &&
        sqlite3_prepare_v3(conn->db, sql, -1, SQLITE_PREPARE_PERSISTENT, kept, NULL) != SQLITE_OK)
        return fail(conn->db, "prepare", err);
    (void)sqlite3_step(*kept);
    return sqlite3_reset(*kept) == SQLITE_OK ? 0 : fail(conn->db, "exec", err);
}

/* Where there is no space to reserve, or no way to do it, things go on as long as they can. */
static void reserve_file(void *arg)
{
    const struct store_db *db = arg;
    struct stat st;

    if (fstat(db->file_fd, &st) == 0)
        (void)fallocate(db->file_fd, FALLOC_FL_KEEP_SIZE, 0, st.st_size + AHEAD_BYTES);
}

static void reserve(struct store_db *db)
{
    if (db->file_fd < 0)
        return;
    reserve_file(db);
    if (db->log_fd < 0)
        db->log_fd = open(db->log, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (db->log_fd >= 0)
        (void)fallocate(db->log_fd, FALLOC_FL_KEEP_SIZE, 0, LOG_BYTES);
}

/* Whoever closes last has all of the log copied to the file, and empties it. */
static void sqlite_disconnect(struct store_conn *conn)
{
    int keep = 1;

    if (!conn || !conn->db) {
        free(conn);
        return;
    }
    sqlite_log_free(conn->log);
    (void)sqlite3_wal_hook(conn->db, NULL, NULL);
    (void)sqlite3_file_control(conn->db, "main", SQLITE_FCNTL_PERSIST_WAL, &keep);
    (void)sqlite3_exec(conn->db, "PRAGMA journal_size_limit=0", NULL, NULL, NULL);
    (void)sqlite3_finalize(conn->begin);
    (void)sqlite3_finalize(conn->commit);
    (void)sqlite3_close_v2(conn->db);
    free(conn);
}

static void conn_cleanup(struct store_conn **conn)
{
    sqlite_disconnect(*conn);
}

static void sqlite_close(struct store_db *db)
{
    if (!db)
        return;
    reserve(db);
    close_fd(&db->file_fd);
    close_fd(&db->log_fd);
    free(db->where);
    free(db->log);
    free(db);
}

static void db_cleanup(struct store_db **db)
{
    sqlite_close(*db);
}

static bool in_memory(const struct store_db *db)
{
    return strcmp(db->where, ":memory:") == 0;
}

static size_t sqlite_readers(const struct store_db *db)
{
    return in_memory(db) ? 0 : READERS;
}

/* Made by us before SQLite sees it, so that it is never readable by others; -wal and -shm get the
 * mode of the main file. */
static int make_file(struct store_db *db, struct error *err)
{
    char barred[PATH_MAX];

    if (in_memory(db))
        return 0;
    db->file_fd = open(db->where, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (db->file_fd < 0 && errno == EACCES && path_barred(db->where, barred, sizeof(barred)))
        return error_set(err, ERROR_FORBIDDEN,
                         "open store file '%s': the server (uid %u) may not pass '%s': "
                         "'chmod o+x' that folder, or choose another data directory (--data)",
                         db->where, (unsigned)geteuid(), barred);
    if (db->file_fd < 0)
        return error_set_errno(err, errno, "open store file '%s'", db->where);
    if (fchmod(db->file_fd, 0600) < 0)
        return error_set_errno(err, errno, "protect store file '%s'", db->where);
    return 0;
}

static int quick_check(struct store_conn *conn, struct error *err)
{
    sqlite3_stmt *stmt = NULL;
    const char *verdict;
    int rc, result = 0;

    if (sqlite3_prepare_v2(conn->db, "PRAGMA quick_check(1)", -1, &stmt, NULL) != SQLITE_OK)
        return fail(conn->db, "check", err);
    rc = sqlite3_step(stmt);
    verdict = rc == SQLITE_ROW ? (const char *)sqlite3_column_text(stmt, 0) : NULL;
    if (rc != SQLITE_ROW)
        result = fail(conn->db, "check", err);
    else if (!verdict || strcmp(verdict, "ok") != 0)
        result = set_damaged(err, conn->of->where, verdict ? verdict : "no answer");
    (void)sqlite3_finalize(stmt);
    return result;
}

static int sqlite_connect(struct store_db *db, enum store_role role, struct store_conn **out,
                          struct error *err)
{
    __attribute__((cleanup(conn_cleanup))) struct store_conn *conn = xcalloc(1, sizeof(*conn));
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX;
    int rc = sqlite3_open_v2(db->where, &conn->db, flags, NULL);

    conn->of = db;
    if (rc != SQLITE_OK)
        return error_set(err, code_of(rc), "open store file '%s': %s", db->where,
                         sqlite3_errstr(rc));
    (void)sqlite3_extended_result_codes(conn->db, 1);
    (void)sqlite3_busy_timeout(conn->db, BUSY_TIMEOUT_MS);
    (void)sqlite3_db_config(conn->db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    (void)sqlite3_db_config(conn->db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
    if (sqlite_exec(conn,
                    "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA foreign_keys=ON;"
                    "PRAGMA temp_store=MEMORY",
                    err) < 0 ||
        (role == STORE_WRITER ? quick_check(conn, err)
                              : sqlite_exec(conn, "PRAGMA query_only=ON", err)) < 0)
        return -1;
    if (role == STORE_WRITER && !in_memory(db))
        conn->log = sqlite_log_watch(conn->db, reserve_file, db);
    reserve(db);
    *out = take_ptr(&conn);
    return 0;
}

static int sqlite_open(const char *where, struct store_db **out, struct error *err)
{
    __attribute__((cleanup(db_cleanup))) struct store_db *db = xcalloc(1, sizeof(*db));

    db->where = xstrdup(where);
    db->log = xasprintf("%s-wal", where);
    db->file_fd = db->log_fd = -1;
    if (make_file(db, err) < 0)
        return -1;
    *out = take_ptr(&db);
    return 0;
}

static int unmark_copy(const char *path, struct error *err)
{
    sqlite3 *db = NULL;
    int result = 0;

    if (sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL) !=
            SQLITE_OK ||
        sqlite3_exec(db, "PRAGMA user_version = 0", NULL, NULL, NULL) != SQLITE_OK)
        result = fail(db, "unmark the copy", err);
    (void)sqlite3_close_v2(db);
    return result;
}

/* On a connection of its own: readers and writers of the others go on meanwhile. */
static int sqlite_backup(struct store_db *of, const char *path, struct error *err)
{
    sqlite3 *db = NULL;
    sqlite3_stmt *stmt = NULL;
    int result = -1;

    if (sqlite3_open_v2(of->where, &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL) !=
            SQLITE_OK ||
        sqlite3_busy_timeout(db, BUSY_TIMEOUT_MS) != SQLITE_OK ||
        sqlite3_prepare_v2(db, "VACUUM INTO ?1", -1, &stmt, NULL) != SQLITE_OK ||
        sqlite3_bind_text(stmt, 1, path, -1, SQLITE_STATIC) != SQLITE_OK ||
        sqlite3_step(stmt) != SQLITE_DONE)
        (void)fail(db, "backup", err);
    else
        result = 0;
    (void)sqlite3_finalize(stmt);
    (void)sqlite3_close_v2(db);
    return result < 0 ? -1 : unmark_copy(path, err);
}

static int set_level(struct store_conn *conn, bool raised, struct error *err)
{
    if (conn->raised == raised)
        return 0;
    if (sqlite_exec(conn, raised ? "PRAGMA synchronous=FULL" : "PRAGMA synchronous=NORMAL", err) <
        0)
        return -1;
    conn->raised = raised;
    return 0;
}

static int sqlite_begin(struct store_conn *conn, enum store_durability durability,
                        struct error *err)
{
    if (set_level(conn, durability == STORE_DURABLE, err) < 0)
        return -1;
    return run_kept(conn, &conn->begin, "BEGIN IMMEDIATE", err);
}

/* A commit that failed (disk full, locked) has to be undone, else the next begin fails too. */
static int sqlite_commit(struct store_conn *conn, struct error *err)
{
    struct error ignored;
    int result = run_kept(conn, &conn->commit, "COMMIT", err);

    if (result < 0 && !sqlite3_get_autocommit(conn->db))
        (void)sqlite_exec(conn, "ROLLBACK", &ignored);
    (void)set_level(conn, false, &ignored);
    if (++conn->commits % RESERVE_EVERY == 0)
        reserve(conn->of);
    return result;
}

static void sqlite_rollback(struct store_conn *conn)
{
    struct error ignored;

    if (!sqlite3_get_autocommit(conn->db))
        (void)sqlite_exec(conn, "ROLLBACK", &ignored);
    (void)set_level(conn, false, &ignored);
}

static int sqlite_prepare(struct store_conn *conn, const char *sql, struct store_stmt **out,
                          struct error *err)
{
    sqlite3_stmt *stmt = NULL;

    if (sqlite3_prepare_v3(conn->db, sql, -1, SQLITE_PREPARE_PERSISTENT, &stmt, NULL) != SQLITE_OK)
        return fail(conn->db, "prepare", err);
    *out = (struct store_stmt *)(void *)stmt;
    return 0;
}

static int sqlite_bind_text(struct store_stmt *stmt, int index, struct str text)
{
    int rc;

    if (!text.p)
        rc = sqlite3_bind_null(stmt_of(stmt), index);
    else
        rc = text.len > INT_MAX
                 ? SQLITE_TOOBIG
                 : sqlite3_bind_text(stmt_of(stmt), index, text.p, (int)text.len, SQLITE_TRANSIENT);
    return rc == SQLITE_OK ? 0 : -1;
}

static int sqlite_bind_int(struct store_stmt *stmt, int index, int64_t value)
{
    return sqlite3_bind_int64(stmt_of(stmt), index, value) == SQLITE_OK ? 0 : -1;
}

static int sqlite_step(struct store_stmt *stmt, struct error *err)
{
    int rc = sqlite3_step(stmt_of(stmt));

    if (rc == SQLITE_ROW)
        return 1;
    if (rc == SQLITE_DONE)
        return 0;
    return fail(sqlite3_db_handle(stmt_of(stmt)), "step", err);
}

static struct str sqlite_column_text(struct store_stmt *stmt, int column)
{
    const char *text = (const char *)sqlite3_column_text(stmt_of(stmt), column);
    int len = sqlite3_column_bytes(stmt_of(stmt), column);

    return text ? str_n(text, (size_t)len) : STR_NONE;
}

static int64_t sqlite_column_int(struct store_stmt *stmt, int column)
{
    return sqlite3_column_int64(stmt_of(stmt), column);
}

static void sqlite_reset(struct store_stmt *stmt)
{
    (void)sqlite3_reset(stmt_of(stmt));
    (void)sqlite3_clear_bindings(stmt_of(stmt));
}

static void sqlite_finalize(struct store_stmt *stmt)
{
    (void)sqlite3_finalize(stmt_of(stmt));
}

static int sqlite_marked(struct store_conn *conn, bool *out, struct error *err)
{
    sqlite3_stmt *stmt = NULL;
    int result = 0;

    if (sqlite3_prepare_v2(conn->db, "PRAGMA user_version", -1, &stmt, NULL) != SQLITE_OK ||
        sqlite3_step(stmt) != SQLITE_ROW)
        result = fail(conn->db, "read the mark", err);
    else
        *out = sqlite3_column_int(stmt, 0) != 0;
    (void)sqlite3_finalize(stmt);
    return result;
}

static int sqlite_mark(struct store_conn *conn, struct error *err)
{
    return sqlite_exec(conn, "PRAGMA user_version = 1", err);
}

const struct store_driver driver_sqlite = {
    .name = "sqlite",
    .whole = whole_schema,
    .open = sqlite_open,
    .close = sqlite_close,
    .readers = sqlite_readers,
    .connect = sqlite_connect,
    .disconnect = sqlite_disconnect,
    .backup = sqlite_backup,
    .marked = sqlite_marked,
    .mark = sqlite_mark,
    .exec = sqlite_exec,
    .begin = sqlite_begin,
    .commit = sqlite_commit,
    .rollback = sqlite_rollback,
    .prepare = sqlite_prepare,
    .bind_text = sqlite_bind_text,
    .bind_int = sqlite_bind_int,
    .step = sqlite_step,
    .column_text = sqlite_column_text,
    .column_int = sqlite_column_int,
    .reset = sqlite_reset,
    .finalize = sqlite_finalize,
};
