#include "domain/secret/team_secret.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/id.h"
#include "domain/network/network_policy.h"
#include "domain/network/network_secret.h"
#include "domain/secret/secret.h"

static int check_name(struct str name, struct error *err)
{
    if (str_starts(name, STR(TEAM_SECRET_ID_PREFIX)))
        return error_set(err, ERROR_INVALID,
                         "a secret's name does not begin with '" TEAM_SECRET_ID_PREFIX
                         "': that is how ids begin");
    if (!network_secret_name_valid(name))
        return error_set(err, ERROR_INVALID,
                         "a secret's name has 1 to %d letters, digits, '.', '_' and '-', and "
                         "begins with a letter or digit",
                         NETWORK_SECRET_NAME_MAX);
    return 0;
}

/* The value itself is never quoted. */
static int check_value(struct str value, struct error *err)
{
    if (!network_secret_value_valid(value))
        return error_set(err, ERROR_INVALID,
                         "a secret's 'value' has 1 to %d bytes of text without line ends or other "
                         "control characters: it becomes part of a header",
                         NETWORK_SECRET_VALUE_MAX);
    return 0;
}

static int hosts_text(const struct team_secret_words *words, struct arena *arena, struct str *out,
                      struct error *err)
{
    auto_buf struct buf text = {0};

    if (words->host_count > TEAM_SECRET_HOSTS_MAX)
        return error_set(err, ERROR_INVALID, "a secret has at most %d 'hosts'",
                         TEAM_SECRET_HOSTS_MAX);
    buf_init(&text, (size_t)TEAM_SECRET_HOSTS_MAX * (NETWORK_NAME_MAX + 4));
    for (size_t i = 0; i < words->host_count; i++) {
        struct str host = words->hosts[i];

        if (!network_name_valid(host))
            return error_set(err, ERROR_INVALID,
                             "'%.*s' in 'hosts' is no host's name, nor '*.' and one",
                             (int)(host.len < 100 ? host.len : 100), host.p);
        (void)buf_printf(&text, "%s%.*s", text.len ? "\n" : "", STR_ARG(arena_lower(arena, host)));
    }
    *out = text.len ? arena_str(arena, buf_str(&text)) : STR("");
    return 0;
}

/* Sealed so that a row that is moved to another team or secret is worth nothing. */
static struct str about(const struct store_secret *secret, struct arena *arena)
{
    return str_of(
        arena_printf(arena, "secret %.*s %.*s", STR_ARG(secret->team_id), STR_ARG(secret->id)));
}

static int set_words(const struct secrets *secrets, const struct team_secret_words *words,
                     struct arena *arena, struct store_secret *secret, struct error *err)
{
    if (check_value(words->value, err) < 0 ||
        (words->hosts_given && hosts_text(words, arena, &secret->hosts, err) < 0))
        return -1;
    if (words->metadata.p)
        secret->metadata = words->metadata;
    secret->updated_at_us = clock_wall_us();
    return secret_seal(secrets, about(secret, arena), words->value, arena, &secret->value, err);
}

int team_secret_create(struct store *store, const struct secrets *secrets, struct str team_id,
                       const struct team_secret_words *words, struct arena *arena,
                       struct store_secret *out, struct error *err)
{
    char id[UUID_SIZE];

    id_uuid(id);
    *out = (struct store_secret){
        .id = str_of(arena_printf(arena, TEAM_SECRET_ID_PREFIX "%s", id)),
        .team_id = team_id,
        .name = arena_lower(arena, words->name),
        .hosts = STR(""),
        .metadata = STR("{}"),
        .version = 1,
    };
    if (check_name(out->name, err) < 0 || set_words(secrets, words, arena, out, err) < 0)
        return -1;
    out->created_at_us = out->updated_at_us;
    if (store_secret_insert(store, out, TEAM_SECRETS_MAX, err) == 0)
        return 0;
    if (err->code == ERROR_EXISTS)
        return error_set(err, ERROR_EXISTS, "the team has a secret '%.*s' already",
                         STR_ARG(out->name));
    return -1;
}

int team_secret_find(struct store *store, struct str team_id, struct str name, struct arena *arena,
                     struct store_secret *out, struct error *err)
{
    return store_secret_find(store, team_id, arena_lower(arena, name), arena, out, err);
}

int team_secret_change(struct store *store, const struct secrets *secrets, struct str team_id,
                       struct str name, const struct team_secret_words *words, struct arena *arena,
                       struct store_secret *out, struct error *err)
{
    if (team_secret_find(store, team_id, name, arena, out, err) < 0 ||
        set_words(secrets, words, arena, out, err) < 0)
        return -1;
    return store_secret_update(store, out, err);
}

int team_secret_delete(struct store *store, struct str team_id, struct str name,
                       struct arena *arena, struct store_secret *out, struct error *err)
{
    if (team_secret_find(store, team_id, name, arena, out, err) < 0)
        return -1;
    return store_secret_delete(store, team_id, out->id, err);
}

int team_secret_value(const struct secrets *secrets, const struct store_secret *secret,
                      struct arena *arena, struct str *out, struct error *err)
{
    return secret_unseal(secrets, about(secret, arena), secret->value, arena, out, err);
}

bool team_secret_is_for(const struct store_secret *secret, struct str host)
{
    struct str rest = secret->hosts;

    if (!rest.len)
        return true;
    while (rest.p)
        if (network_host_covers(str_split(&rest, '\n'), host))
            return true;
    return false;
}
