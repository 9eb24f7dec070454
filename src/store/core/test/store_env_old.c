/* Stores that earlier versions made. */
#include <stdio.h>

#include "store/core/test/store_env.h"
#include "store/migrations/migrations.h"

void store_env_make_old(struct store_env *env, size_t count)
{
    char version[96];

    store_env_make(env);
    store_env_exec(env, "CREATE TABLE schema_migrations (version BIGINT PRIMARY KEY,"
                        " name TEXT NOT NULL, applied_at_us BIGINT NOT NULL)");
    for (size_t i = 0; i < count; i++)
        store_env_exec(env, migrations[i].sql);
    (void)snprintf(version, sizeof(version),
                   "/* old */ INSERT INTO schema_migrations VALUES (%zu, '', 0)", count);
    store_env_exec(env, version);
}
