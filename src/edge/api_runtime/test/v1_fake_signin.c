/* Accounts as the tests of the edge need them: one team, one browser, one link. */
#include "domain/account/signin.h"
#include "domain/account/team.h"
#include "domain/history/history.h"
#include "store/platform/store_history.h"

void api_keys_refresh(struct api_keys *keys)
{
    (void)keys;
}

const char *api_role_name(enum api_role role, struct str team_id)
{
    (void)role, (void)team_id;
    return "member";
}

int signin_browser(struct store *store, struct str key, char out_token[SIGNIN_TOKEN_SIZE],
                   struct error *err)
{
    (void)store, (void)key, (void)err;
    (void)str_copy(STR("qsb_fake"), out_token, SIGNIN_TOKEN_SIZE);
    return 0;
}

int signin_link(struct store *store, struct str key, char out_link[SIGNIN_TOKEN_SIZE],
                struct error *err)
{
    (void)store, (void)key, (void)err;
    (void)str_copy(STR("qsl_fake"), out_link, SIGNIN_TOKEN_SIZE);
    return 0;
}

int signin_redeem(struct store *store, struct str link, char out_token[SIGNIN_TOKEN_SIZE],
                  struct error *err)
{
    (void)store, (void)err;
    if (!str_is(link, "qsl_fake"))
        return error_set(err, ERROR_UNAUTHORIZED, "this link was used already or is too old");
    (void)str_copy(STR("qsb_fake"), out_token, SIGNIN_TOKEN_SIZE);
    return 0;
}

int signin_end(struct store *store, struct str token, struct error *err)
{
    (void)store, (void)token, (void)err;
    return 0;
}

int team_get(struct store *store, struct str id, struct arena *arena, struct store_team *out,
             struct error *err)
{
    (void)store, (void)arena, (void)err;
    *out = (struct store_team){.id = id, .name = STR("team")};
    return 0;
}

int store_history_list(struct store *store, int64_t step_s, int64_t from_us, struct arena *arena,
                       struct store_history **out, size_t *out_count, struct error *err)
{
    (void)store, (void)step_s, (void)from_us, (void)arena, (void)err;
    *out = NULL;
    *out_count = 0;
    return 0;
}

void history_now(struct history *history, struct history_now *out)
{
    (void)history;
    *out = (struct history_now){.running = 3, .creates = 2, .disk_used = 5, .egress_up = true};
}
