/* What a fresh installation needs before anybody can do anything. */
#pragma once

#include "base/error.h"
#include "domain/account/api_key.h"

struct store;

/* Makes the default team. When there is no key at all and none was given by configuration, makes
 * one, which is then in out_generated to be shown once; else out_generated is "". */
int account_ensure_default(struct store *store, const char *given_key,
                           char out_generated[API_KEY_SIZE], struct error *err);
