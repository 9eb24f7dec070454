/* A copy does not hold up writers, who add to the log meanwhile; it is begun anew only when all of it was copied. So under
 * a load without any pause it goes on growing, until who commits has to wait after all: the disk has no more than so many
 * blocks ahead for it (driver_sqlite.c). */
#include "store/driver/sqlite_log.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/alloc.h"

enum { WANTED_PAGES = 1000, WAIT_PAGES = 1900 };

struct sqlite_log {
    char *where;
    void (*copied)(void *arg);
    void *arg;
    pthread_t thread;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t changed;
    bool wanted, stopping;
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

static void *run(void *arg)
{
    struct sqlite_log *log = arg;

    (void)pthread_mutex_lock(&log->lock);
    while (!log->stopping) {
        if (!log->wanted) {
            (void)pthread_cond_wait(&log->changed, &log->lock);
            continue;
        }
        log->wanted = false;
        (void)pthread_mutex_unlock(&log->lock);
        copy(log->where);
        log->copied(log->arg);
        (void)pthread_mutex_lock(&log->lock);
    }
    (void)pthread_mutex_unlock(&log->lock);
    return NULL;
}

/* After each commit. */
static int on_commit(void *arg, sqlite3 *db, const char *name, int pages)
{
    struct sqlite_log *log = arg;

    if (pages >= WAIT_PAGES) {
        (void)sqlite3_wal_checkpoint_v2(db, name, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
        log->copied(log->arg);
    } else if (pages >= WANTED_PAGES) {
        (void)pthread_mutex_lock(&log->lock);
        log->wanted = true;
        (void)pthread_cond_signal(&log->changed);
        (void)pthread_mutex_unlock(&log->lock);
    }
    return SQLITE_OK;
}

static void log_free(struct sqlite_log *log)
{
    (void)pthread_mutex_destroy(&log->lock);
    (void)pthread_cond_destroy(&log->changed);
    free(log->where);
    free(log);
}

struct sqlite_log *sqlite_log_watch(sqlite3 *db, void (*copied)(void *arg), void *arg)
{
    struct sqlite_log *log = xcalloc(1, sizeof(*log));

    log->copied = copied;
    log->arg = arg;
    log->where = xstrdup(sqlite3_db_filename(db, "main"));
    (void)pthread_mutex_init(&log->lock, NULL);
    (void)pthread_cond_init(&log->changed, NULL);
    if (pthread_create(&log->thread, NULL, run, log) != 0) {
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
    (void)pthread_mutex_lock(&log->lock);
    log->stopping = true;
    (void)pthread_cond_signal(&log->changed);
    (void)pthread_mutex_unlock(&log->lock);
    (void)pthread_join(log->thread, NULL);
    log_free(log);
}
