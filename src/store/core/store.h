/* What must outlive the process: teams, keys, templates and sandboxes. Each function is one
 * transaction; strings it returns live in the caller's arena. Safe from any thread: one writes at a
 * time, several read beside it. All text given must be free of NUL bytes. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/str.h"
#include "store/core/sandbox_state.h"

struct store;
struct store_driver;
struct conn;

/* What else belongs in a transaction: it is run last, by whoever holds the transaction's connection, and asks for no other.
 * When it fails nothing of the transaction happens. */
struct store_also {
    int (*run)(void *arg, struct conn *conn, struct error *err);
    void *arg;
};

/* Opens or makes the file (mode 0600, the folder must exist) or ":memory:", checks it and applies
 * migrations. */
int store_open(const char *where, struct store **out, struct error *err);
/* With a driver other than SQLite. */
int store_open_driver(const struct store_driver *driver, const char *where, struct store **out,
                      struct error *err);
void store_close(struct store *store); /* NULL is fine */

#define auto_store __attribute__((cleanup(store_cleanup)))
static inline void store_cleanup(struct store **store)
{
    store_close(*store);
}

/* ---- copies (store_backup.c) ---- */

/* Makes a copy beside the store's file, unless the last one is younger. The last three are kept. */
int store_backup(struct store *store, int64_t min_age_us, struct error *err);

/* ---- what a copy does not know (store_aside.c) ---- */

#define STORE_ASIDE "kept-aside" /* the list's file, beside the store */

/* A server starts with this store for the first time: it is new, or a copy that was put in its place. */
int store_is_strange(struct store *store, bool *out, struct error *err);
/* From now on the store knows everything on the host except what the list names. */
int store_is_familiar(struct store *store, struct error *err);
/* The list of what is kept although the store does not know it: lines "box ID" and "layer NAME". Empty when there is no
 * file, and for a store in memory. */
int store_aside_read(struct store *store, struct arena *arena, struct str *out, struct error *err);
/* On disk when it returns. An empty list removes the file. */
int store_aside_write(struct store *store, struct str list, struct error *err);

/* ---- the host's clock (store_clock.c) ---- */

/* What was noted in this boot of the host; *out stays when nothing was. */
int store_clock_get(struct store *store, struct str boot_id, int64_t *out_us, struct error *err);
/* Notes it, and moves the ends of all that run. */
int store_clock_set(struct store *store, struct str boot_id, int64_t clock_us, int64_t move_us,
                    struct error *err);
