/* Brings the schema of a store up to date. */
#pragma once

#include "base/error.h"

struct store;

/* Applies what is missing, each in a transaction of its own; to an empty store `whole`, if there is one, in their stead. A
 * schema newer than the last one known is ERROR_UNSUPPORTED. `where` names the store in messages. */
int migrate_store(struct store *store, const char *where, const char *whole, struct error *err);
