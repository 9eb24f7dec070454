/* Copies the log of an SQLite file to the file when it has grown, on a thread of its own. Left to SQLite, whoever
 * commits does it: every eightieth create would wait for the disk. */
#pragma once

#include <sqlite3.h>

struct sqlite_log;

/* From now on what `db`, which writes, adds to the log is watched; `copied` is called after each copy, on whatever thread. NULL
 * when there can be no thread; SQLite goes on as it does by itself then. */
struct sqlite_log *sqlite_log_watch(sqlite3 *db, void (*copied)(void *arg), void *arg);
/* Before the connection is closed. Waits for a copy that is under way. */
void sqlite_log_free(struct sqlite_log *log);
