/* A copy does not hold up writers, who add to the log meanwhile; it is begun anew only when all of it was copied. So under
 * a load without any pause it goes on growing, until who commits has to wait after all: the disk has no more than so many
 * blocks ahead for it (driver_sqlite.c). */
#include "store/driver/sqlite_log.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/thread.h"

enum { WANTED_PAGES = 1000, WAIT_PAGES = 1900 };

struct sqlite_log {
    char *where;
    void (*copied)(void *arg);
    void *arg;
    struct thread thread;
};

/* On a connection of its own, which is never the last one: that would remove the log. It knows that there is one
 * when it has read something. */
static void copy(const char *where)
{
    sqlite3 *db = NULL;

    if (sqlite3_open_v2(where, &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL) ==
            SQLITE_OK &&
        sqlite3_exec(db, "PRAGMA schema_version", NULL, NULL, NULL) == SQLITE_OK)
        (void)sqlite3_wal_checkpoint_v2(db, NULL, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
    (void)sqlite3_close_v2(db);
}

static void run(void *arg)
{
    struct sqlite_log *log = arg;

    while (thread_wait(&log->thread)) {
        copy(log->where);
        log->copied(log->arg);
    }
}

/* After each commit. */
static int on_commit(void *arg, sqlite3 *db, const char *name, int pages)
{
    struct sqlite_log *log = arg;

    if (pages >= WAIT_PAGES) {
        (void)sqlite3_wal_checkpoint_v2(db, name, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
        log->copied(log->arg);
    } else if (pages >= WANTED_PAGES) {
        thread_wake(&log->thread);
    }
    return SQLITE_OK;
}

static void log_free(struct sqlite_log *log)
{
    free(log->where);
    free(log);
}

struct sqlite_log *sqlite_log_watch(sqlite3 *db, void (*copied)(void *arg), void *arg)
{
    struct sqlite_log *log = xcalloc(1, sizeof(*log));

    log->copied = copied;
    log->arg = arg;
    log->where = xstrdup(sqlite3_db_filename(db, "main"));
    if (thread_start(&log->thread, "wal", THREAD_STACK_DEFAULT, run, log, NULL) < 0) {
        log_free(log);
        return NULL;
    }
    (void)sqlite3_wal_hook(db, on_commit, log);
    return log;
}

void sqlite_log_free(struct sqlite_log *log)
{
    if (!log)
        return;
    thread_stop(&log->thread);
    log_free(log);
}
