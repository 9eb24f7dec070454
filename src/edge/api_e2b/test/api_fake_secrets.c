/* Secrets: tested with the real ones in team_secret_test.c. Here the team has one, "known". */
#include "domain/secret/team_secret.h"
#include "edge/api_e2b/test/api_fake.h"

static struct store_secret known(struct str team_id)
{
    return (struct store_secret){.id = STR("sec_1"),
                                 .team_id = team_id,
                                 .name = STR("known"),
                                 .value = STR("5ea1ed"),
                                 .hosts = STR("a.example\n*.b.example"),
                                 .metadata = STR("{\"of\":\"me\"}"),
                                 .version = 3,
                                 .created_at_us = 1000000,
                                 .updated_at_us = 2000000};
}

static void keep(const struct team_secret_words *words)
{
    (void)str_copy(words->value, api_fake.password, sizeof(api_fake.password));
    api_fake.hosts = words->hosts_given ? (int)words->host_count : -1;
    (void)str_copy(words->metadata, api_fake.metadata, sizeof(api_fake.metadata));
}

int team_secret_create(struct store *store, const struct secrets *secrets, struct str team_id,
                       const struct team_secret_words *words, struct arena *arena,
                       struct store_secret *out, struct error *err)
{
    (void)store, (void)secrets, (void)arena;
    if (str_is(words->name, "known"))
        return error_set(err, ERROR_EXISTS, "there is one");
    keep(words);
    *out = known(team_id);
    out->name = words->name;
    return 0;
}

int team_secret_find(struct store *store, struct str team_id, struct str name, struct arena *arena,
                     struct store_secret *out, struct error *err)
{
    (void)store, (void)arena;
    *out = known(team_id);
    return str_is(name, "known") ? 0 : error_set(err, ERROR_NOT_FOUND, "there is none");
}

int team_secret_change(struct store *store, const struct secrets *secrets, struct str team_id,
                       struct str name, const struct team_secret_words *words, struct arena *arena,
                       struct store_secret *out, struct error *err)
{
    (void)secrets;
    keep(words);
    return team_secret_find(store, team_id, name, arena, out, err);
}

int team_secret_delete(struct store *store, struct str team_id, struct str name,
                       struct arena *arena, struct store_secret *out, struct error *err)
{
    return team_secret_find(store, team_id, name, arena, out, err);
}

void sandboxes_secret_changed(struct sandboxes *all, struct str team_id, struct str name)
{
    (void)all, (void)team_id;
    (void)str_copy(name, api_fake.changed, sizeof(api_fake.changed));
}

int store_secret_list(struct store *store, struct str team_id, struct str after, int64_t limit,
                      struct arena *arena, struct store_secret **out, size_t *out_count,
                      struct error *err)
{
    (void)store, (void)err;
    *out = arena_alloc(arena, 3 * sizeof(**out));
    *out_count = 0;
    for (char c = 'a'; c <= 'c' && (int64_t)*out_count < limit; c++) {
        struct str name = arena_str(arena, str_n(&c, 1));

        if (str_cmp(name, after) <= 0)
            continue;
        (*out)[*out_count] = known(team_id);
        (*out)[(*out_count)++].name = name;
    }
    return 0;
}
