#include "domain/account/account.h"

#include "domain/account/team.h"

int account_ensure_default(struct store *store, const char *given_key,
                           char out_generated[API_KEY_SIZE], struct error *err)
{
    size_t count = 0;

    out_generated[0] = '\0';
    if (given_key && strlen(given_key) > API_KEY_GIVEN_MAX)
        return error_set(err, ERROR_INVALID, "the API key given is longer than %d characters",
                         API_KEY_GIVEN_MAX);
    if (team_ensure_default(store, err) < 0)
        return -1;
    if (given_key && given_key[0])
        return 0;
    if (store_key_count(store, &count, err) < 0)
        return -1;
    if (count > 0)
        return 0;
    return api_key_create(store, STR(TEAM_DEFAULT_ID), STR("default"), out_generated, err);
}
