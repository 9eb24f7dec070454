/* A second driver. It is in the tests only: they show that the door fits another database. */
#pragma once

#include "store/driver/store_driver.h"

/* `where` is a connection string of libpq. */
extern const struct store_driver driver_postgres;
/* The SQL with its own marks: ?3 becomes $3, and ? the next one; not within quotes. malloc()ed. *out_count: the
 * highest number. */
char *postgres_translate(const char *sql, int *out_count);
