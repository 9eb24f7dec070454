/* Stores for tests: in memory or in a file (store_env_sqlite.c), or in a schema of the database that
 * QUICKSAND_TEST_POSTGRES names (store_env_postgres.c). */
#pragma once

#include "base/error.h"

struct store;

/* A new, empty one. */
struct store *store_env_new(void);

/* A place where a store can be opened again and again. */
struct store_env {
    char where[256];
    char folder[64];
};
void store_env_make(struct store_env *env);
/* With the schema that the first `count` migrations make, and nothing in it. */
void store_env_make_old(struct store_env *env, size_t count);
struct store *store_env_open(const struct store_env *env);
int store_env_try(const struct store_env *env, struct store **out, struct error *err);
/* Past the store. */
void store_env_exec(const struct store_env *env, const char *sql);
void store_env_done(struct store_env *env);

#define auto_store_env __attribute__((cleanup(store_env_done)))
