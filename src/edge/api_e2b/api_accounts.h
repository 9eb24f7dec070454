/* Shared by the endpoints of teams and those of the operator. */
#pragma once

#include "domain/account/api_key.h"
#include "edge/api_e2b/api_internal.h"

/* secret: the key itself, only when it was just made; else NULL. */
json_t *api_accounts_key(const struct store_key *key, const char *secret);
/* Makes the key that the body {"name"} asks for. */
int api_accounts_new_key(struct api_call *call, struct str team_id, struct store_key *out,
                         char out_secret[API_KEY_SIZE], struct error *err);
