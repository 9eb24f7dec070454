#include "domain/account/account.h"

#include <ctype.h>

#include "base/clock.h"
#include "base/test.h"
#include "domain/account/signin.h"
#include "domain/account/team.h"

#define auto_keys __attribute__((cleanup(keys_cleanup)))
static void keys_cleanup(struct api_keys **keys)
{
    api_keys_free(*keys);
}

static struct store *open_store(void)
{
    struct store *store = NULL;

    OK(store_open(":memory:", &store, &err));
    return store;
}

TEST(hash_is_sha256)
{
    char hash[API_KEY_HASH_SIZE];

    api_key_hash(STR("abc"), hash);
    CHECK_STR(str_of(hash), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(keys_look_like_the_originals)
{
    char key[API_KEY_SIZE], other[API_KEY_SIZE], mask[API_KEY_MASK_SIZE];

    api_key_make(key);
    api_key_make(other);
    CHECK_INT(strlen(key), 44);
    CHECK(strncmp(key, "e2b_", 4) == 0 && strcmp(key, other) != 0);
    for (size_t i = 4; i < 44; i++)
        CHECK(isdigit((unsigned char)key[i]) || (key[i] >= 'a' && key[i] <= 'f'));
    api_key_mask(str_of(key), mask);
    CHECK_INT(strlen(mask), 13);
    api_key_mask(STR("short"), mask);
    CHECK_STR(str_of(mask), "...");
}

TEST(first_start_makes_one_key)
{
    auto_store struct store *store = open_store();
    auto_keys struct api_keys *keys = api_keys_new(store, NULL);
    char key[API_KEY_SIZE], again[API_KEY_SIZE];
    struct api_key_owner owner;

    OK(account_ensure_default(store, NULL, key, &err));
    CHECK_INT(strlen(key), 44);
    OK(account_ensure_default(store, NULL, again, &err));
    CHECK_STR(str_of(again), "");
    CHECK_INT(api_keys_peek(keys, str_of(key), &owner), API_KEY_UNSEEN);
    OK(api_keys_find(keys, str_of(key), &owner, &err));
    owner = (struct api_key_owner){0};
    CHECK_INT(api_keys_peek(keys, str_of(key), &owner), API_KEY_KNOWN);
    CHECK(owner.team_id[0]);
    CHECK_STR(str_of(owner.team_id), TEAM_DEFAULT_ID);
    key[43] ^= 1;
    FAILS(api_keys_find(keys, str_of(key), &owner, &err), ERROR_UNAUTHORIZED);
    FAILS(api_keys_find(keys, str_of(key), &owner, &err), ERROR_UNAUTHORIZED);
    CHECK_INT(api_keys_peek(keys, str_of(key), &owner), API_KEY_REFUSED); /* asked just now */
    FAILS(api_keys_find(keys, STR(""), &owner, &err), ERROR_UNAUTHORIZED);
    FAILS(api_keys_find(keys, STR_NONE, &owner, &err), ERROR_UNAUTHORIZED);
}

TEST(given_key_is_accepted_and_not_stored)
{
    auto_store struct store *store = open_store();
    auto_keys struct api_keys *keys = api_keys_new(store, "e2b_given");
    char key[API_KEY_SIZE];
    struct api_key_owner owner;
    size_t count = 1;

    OK(account_ensure_default(store, "e2b_given", key, &err));
    CHECK_STR(str_of(key), "");
    OK(store_key_count(store, &count, &err));
    CHECK_INT(count, 0);
    OK(api_keys_find(keys, STR("e2b_given"), &owner, &err));
    CHECK_STR(str_of(owner.key_id), "");
    FAILS(api_keys_find(keys, STR("e2b_give"), &owner, &err), ERROR_UNAUTHORIZED);
    /* Stored keys work beside it. */
    OK(api_key_create(store, STR(TEAM_DEFAULT_ID), STR("second"), key, &err));
    OK(api_keys_find(keys, str_of(key), &owner, &err));
}

TEST(keys_are_made_listed_and_deleted)
{
    auto_store struct store *store = open_store();
    auto_keys struct api_keys *keys = api_keys_new(store, NULL);
    auto_arena struct arena arena = {0};
    char key[API_KEY_SIZE];
    char long_name[API_KEY_NAME_MAX + 1];
    struct api_key_owner owner;
    struct store_key *list;
    size_t count;

    OK(team_ensure_default(store, &err));
    OK(team_ensure_default(store, &err));
    memset(long_name, 'x', sizeof(long_name));
    FAILS(api_key_create(store, STR(TEAM_DEFAULT_ID), STR(""), key, &err), ERROR_INVALID);
    FAILS(
        api_key_create(store, STR(TEAM_DEFAULT_ID), str_n(long_name, sizeof(long_name)), key, &err),
        ERROR_INVALID);
    FAILS(api_key_create(store, STR(TEAM_DEFAULT_ID), STR("a\0b"), key, &err), ERROR_INVALID);
    OK(api_key_create(store, STR(TEAM_DEFAULT_ID), STR("ci"), key, &err));
    OK(api_keys_find(keys, str_of(key), &owner, &err));
    OK(api_key_list(store, STR(TEAM_DEFAULT_ID), &arena, &list, &count, &err));
    CHECK_INT(count, 1);
    CHECK_STR(list[0].name, "ci");
    CHECK(list[0].last_used_at_us > 0);
    CHECK(str_find_str(list[0].mask, STR("...")) > 0);
    CHECK(!str_eq(list[0].hash, str_of(key)));
    OK(api_key_delete(store, STR(TEAM_DEFAULT_ID), list[0].id, &err));
    api_keys_refresh(keys);
    FAILS(api_keys_find(keys, str_of(key), &owner, &err), ERROR_UNAUTHORIZED);
}

/* A key tried too early works soon after it was made elsewhere. */
TEST(unknown_keys_are_asked_again)
{
    auto_store struct store *store = open_store();
    auto_keys struct api_keys *keys = api_keys_new(store, NULL);
    char hash[API_KEY_HASH_SIZE];
    struct api_key_owner owner;
    struct store_key key = {.id = STR("k"),
                            .team_id = STR(TEAM_DEFAULT_ID),
                            .name = STR("n"),
                            .mask = STR("m"),
                            .created_at_us = 1};

    OK(team_ensure_default(store, &err));
    FAILS(api_keys_find(keys, STR("e2b_later"), &owner, &err), ERROR_UNAUTHORIZED);
    api_key_hash(STR("e2b_later"), hash);
    key.hash = str_of(hash);
    OK(store_key_insert(store, &key, 0, &err));
    WAIT_FOR(api_keys_find(keys, STR("e2b_later"), &owner, &(struct error){0}) == 0);
}

TEST(teams)
{
    auto_store struct store *store = open_store();
    auto_keys struct api_keys *keys = api_keys_new(store, NULL);
    auto_arena struct arena arena = {0};
    struct store_team team = {.name = STR("acme"), .limits = {.sandboxes = 3}}, found, *list;
    struct api_key_owner owner;
    struct store_key key;
    char text[API_KEY_SIZE];
    size_t count;

    OK(team_ensure_default(store, &err));
    OK(team_create(store, &team, &arena, &err));
    OK(team_get(store, team.id, &arena, &found, &err));
    CHECK_STR(found.name, "acme");
    CHECK_INT(found.limits.sandboxes, 3);
    OK(team_list(store, &arena, &list, &count, &err));
    CHECK_INT(count, 2);
    OK(api_key_new(store, &(struct api_key_wanted){.team_id = team.id, .name = STR("k")}, &arena,
                   &key, text, &err));
    OK(api_keys_find(keys, str_of(text), &owner, &err));
    CHECK(str_is(team.id, owner.team_id) && str_is(key.id, owner.key_id) && !owner.banned);
    found.banned = true;
    found.limits.sandboxes = 4;
    OK(team_update(store, &found, &err));
    api_keys_refresh(keys);
    OK(api_keys_find(keys, str_of(text), &owner, &err));
    CHECK(owner.banned);
    OK(api_key_rename(store, team.id, key.id, STR("other"), &err));
    FAILS(api_key_rename(store, STR(TEAM_DEFAULT_ID), key.id, STR("x"), &err), ERROR_NOT_FOUND);
    FAILS(api_key_rename(store, team.id, key.id, STR(""), &err), ERROR_INVALID);
    found.limits.cpu = -1;
    FAILS(team_update(store, &found, &err), ERROR_INVALID);
    team.name = STR("");
    FAILS(team_create(store, &team, &arena, &err), ERROR_INVALID);
    list[0].banned = true;
    CHECK_STR(list[0].id, TEAM_DEFAULT_ID);
    FAILS(team_update(store, &list[0], &err), ERROR_INVALID);
}

TEST(browsers_are_signed_in_by_keys_and_links)
{
    auto_store struct store *store = open_store();
    auto_keys struct api_keys *keys = api_keys_new(store, "given");
    auto_arena struct arena arena = {0};
    char text[API_KEY_SIZE], token[SIGNIN_TOKEN_SIZE], link[SIGNIN_TOKEN_SIZE];
    struct api_key_owner owner;
    struct store_key key;

    OK(team_ensure_default(store, &err));
    OK(api_key_new(store,
                   &(struct api_key_wanted){
                       .team_id = STR(TEAM_DEFAULT_ID), .name = STR("k"), .role = API_ROLE_VIEWER},
                   &arena, &key, text, &err));
    OK(signin_browser(store, str_of(text), token, &err));
    OK(api_keys_find(keys, str_of(token), &owner, &err));
    CHECK_STR(key.id, owner.key_id);
    CHECK_INT(owner.role, API_ROLE_VIEWER);
    /* A link is no key, and works once; a browser can make one, too. */
    OK(signin_link(store, str_of(token), link, &err));
    FAILS(api_keys_find(keys, str_of(link), &owner, &err), ERROR_UNAUTHORIZED);
    FAILS(signin_redeem(store, str_of(token), token, &err), ERROR_UNAUTHORIZED);
    OK(signin_redeem(store, str_of(link), token, &err));
    FAILS(signin_redeem(store, str_of(link), link, &err), ERROR_UNAUTHORIZED);
    OK(api_keys_find(keys, str_of(token), &owner, &err));
    CHECK_STR(key.id, owner.key_id);
    OK(api_key_delete(store, STR(TEAM_DEFAULT_ID), key.id, &err));
    api_keys_refresh(keys);
    FAILS(api_keys_find(keys, str_of(token), &owner, &err), ERROR_UNAUTHORIZED);
    /* The key of the configuration, which has no row. */
    OK(signin_browser(store, STR("given"), token, &err));
    OK(api_keys_find(keys, str_of(token), &owner, &err));
    CHECK(str_is(STR(TEAM_DEFAULT_ID), owner.team_id) && !owner.key_id[0]);
    OK(signin_end(store, str_of(token), &err));
    OK(signin_end(store, str_of(token), &err));
    api_keys_refresh(keys);
    FAILS(api_keys_find(keys, str_of(token), &owner, &err), ERROR_UNAUTHORIZED);
}

TEST(a_browser_is_not_signed_in_for_ever)
{
    auto_store struct store *store = open_store();
    char hash[API_KEY_HASH_SIZE], first[SIGNIN_TOKEN_SIZE], token[SIGNIN_TOKEN_SIZE];

    OK(signin_browser(store, STR("some key"), first, &err));
    OK(signin_key_hash(store, str_of(first), hash, &err));
    for (int i = 0; i < SIGNIN_KEY_MAX; i++)
        OK(signin_browser(store, STR("some key"), token, &err));
    FAILS(signin_key_hash(store, str_of(first), hash, &err), ERROR_NOT_FOUND);
    OK(signin_key_hash(store, str_of(token), hash, &err));
    clock_test_pass((SIGNIN_BROWSER_S + 1) * INT64_C(1000000));
    FAILS(signin_key_hash(store, str_of(token), hash, &err), ERROR_NOT_FOUND);
}

TEST(roles_give_no_more_than_they_are)
{
    struct str operators = STR(TEAM_DEFAULT_ID), team = STR("t");
    enum api_role role;

    OK(api_role_give(API_ROLE_FULL, operators, STR(""), &role, &err));
    CHECK_INT(role, API_ROLE_FULL);
    OK(api_role_give(API_ROLE_FULL, operators, STR("member"), &role, &err));
    CHECK_INT(role, API_ROLE_MEMBER);
    OK(api_role_give(API_ROLE_FULL, operators, STR("metrics"), &role, &err));
    OK(api_role_give(API_ROLE_MEMBER, operators, STR_NONE, &role, &err));
    CHECK_INT(role, API_ROLE_MEMBER);
    OK(api_role_give(API_ROLE_MEMBER, operators, STR("viewer"), &role, &err));
    CHECK_INT(role, API_ROLE_VIEWER);
    FAILS(api_role_give(API_ROLE_MEMBER, operators, STR("operator"), &role, &err), ERROR_FORBIDDEN);
    FAILS(api_role_give(API_ROLE_MEMBER, operators, STR("metrics"), &role, &err), ERROR_FORBIDDEN);
    OK(api_role_give(API_ROLE_FULL, team, STR("member"), &role, &err));
    CHECK_STR(str_of(api_role_name(role, team)), "member");
    FAILS(api_role_give(API_ROLE_FULL, team, STR("operator"), &role, &err), ERROR_INVALID);
    FAILS(api_role_give(API_ROLE_FULL, team, STR("metrics"), &role, &err), ERROR_INVALID);
    FAILS(api_role_give(API_ROLE_FULL, operators, STR("king"), &role, &err), ERROR_INVALID);
}

TEST(what_was_found_holds_for_five_seconds_or_until_keys_change)
{
    auto_store struct store *store = open_store();
    auto_keys struct api_keys *keys = api_keys_new(store, "e2b_given");
    char key[API_KEY_SIZE];
    struct api_key_owner owner, given;

    OK(team_ensure_default(store, &err));
    OK(api_key_create(store, STR(TEAM_DEFAULT_ID), STR("ci"), key, &err));
    OK(api_keys_find(keys, str_of(key), &owner, &err));
    CHECK(api_keys_current(keys, &owner));
    CHECK_INT(api_keys_peek(keys, str_of(key), &owner), API_KEY_KNOWN);
    CHECK(api_keys_current(keys, &owner));
    CHECK_INT(api_keys_peek(keys, STR("e2b_given"), &given), API_KEY_KNOWN);
    CHECK(api_keys_current(keys, &given));
    api_keys_refresh(keys);
    CHECK(!api_keys_current(keys, &owner));
    CHECK(!api_keys_current(keys, &given));
    OK(api_keys_find(keys, str_of(key), &owner, &err));
    clock_test_pass(5 * INT64_C(1000000));
    CHECK(!api_keys_current(keys, &owner));
    /* Known, but the store must say so again. */
    CHECK_INT(api_keys_peek(keys, str_of(key), &owner), API_KEY_KNOWN);
    CHECK(!api_keys_current(keys, &owner));
    OK(api_keys_find(keys, str_of(key), &owner, &err));
    CHECK(api_keys_current(keys, &owner));
}

TEST(the_time_of_use_is_written_by_who_asks_again)
{
    auto_store struct store *store = open_store();
    auto_keys struct api_keys *keys = api_keys_new(store, NULL);
    char key[API_KEY_SIZE];
    struct api_key_owner owner;

    OK(team_ensure_default(store, &err));
    OK(api_key_create(store, STR(TEAM_DEFAULT_ID), STR("ci"), key, &err));
    OK(api_keys_find(keys, str_of(key), &owner, &err));
    clock_test_pass(58 * INT64_C(1000000));
    OK(api_keys_find(keys, str_of(key), &owner, &err));
    clock_test_pass(3 * INT64_C(1000000));
    CHECK_INT(api_keys_peek(keys, str_of(key), &owner), API_KEY_KNOWN);
    CHECK(!api_keys_current(keys, &owner));
    OK(api_keys_find(keys, str_of(key), &owner, &err));
    CHECK_INT(api_keys_peek(keys, str_of(key), &owner), API_KEY_KNOWN);
    CHECK(api_keys_current(keys, &owner));
}
