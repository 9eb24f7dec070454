#include "domain/secret/registry_login.h"

#include "base/clock.h"
#include "domain/secret/secret.h"
#include "store/platform/store_registry.h"

static bool is_text(struct str s, size_t max)
{
    return s.len > 0 && s.len <= max && !memchr(s.p, '\0', s.len) && str_valid_utf8(s);
}

static bool host_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' || c == '-' || c == ':' ||
           c == '[' || c == ']';
}

int registry_host(struct str text, struct arena *arena, struct str *out, struct error *err)
{
    static const char *const docker[] = {"index.docker.io", "registry-1.docker.io",
                                         "registry.hub.docker.com", "hub.docker.com"};
    struct str host = arena_lower(arena, str_trim(text));

    for (size_t i = 0; i < host.len; i++)
        if (host.len > REGISTRY_HOST_MAX || !host_char(host.p[i]))
            return error_set(err, ERROR_INVALID,
                             "a registry is called by its host, with a port where it needs one: "
                             "'ghcr.io', 'registry.example.com:5000'");
    if (!host.len)
        return error_set(err, ERROR_INVALID, "the registry has no name");
    for (size_t i = 0; i < sizeof(docker) / sizeof(docker[0]); i++)
        if (str_is(host, docker[i]))
            host = STR("docker.io");
    *out = host;
    return 0;
}

/* Sealed so that a row that is moved to another team or host is worth nothing. */
static struct str about(struct str team_id, struct str host, struct arena *arena)
{
    return str_of(arena_printf(arena, "registry %.*s %.*s", STR_ARG(team_id), STR_ARG(host)));
}

int registry_login_put(struct store *store, const struct secrets *secrets, struct str team_id,
                       const struct registry_login *login, struct error *err)
{
    auto_arena struct arena arena = {0};
    struct store_registry row = {
        .team_id = team_id, .username = login->username, .made_at_us = clock_wall_us()};

    if (registry_host(login->host, &arena, &row.host, err) < 0)
        return -1;
    if (!is_text(login->username, REGISTRY_USERNAME_MAX))
        return error_set(err, ERROR_INVALID, "'username' must have 1 to %d bytes of text",
                         REGISTRY_USERNAME_MAX);
    if (!is_text(login->password, REGISTRY_PASSWORD_MAX))
        return error_set(err, ERROR_INVALID, "'password' must have 1 to %d bytes of text",
                         REGISTRY_PASSWORD_MAX);
    if (secret_seal(secrets, about(team_id, row.host, &arena), login->password, &arena, &row.secret,
                    err) < 0)
        return -1;
    return store_registry_put(store, &row, REGISTRY_LOGINS_MAX, err);
}

int registry_login_find(struct store *store, const struct secrets *secrets, struct str team_id,
                        struct str host, struct arena *arena, struct registry_login *out,
                        struct error *err)
{
    struct store_registry row = {0};

    if (store_registry_find(store, team_id, host, arena, &row, err) < 0)
        return -1;
    *out = (struct registry_login){.host = row.host, .username = row.username};
    return secret_unseal(secrets, about(team_id, row.host, arena), row.secret, arena,
                         &out->password, err);
}

int registry_login_delete(struct store *store, struct str team_id, struct str host,
                          struct error *err)
{
    auto_arena struct arena arena = {0};
    struct str name;

    if (registry_host(host, &arena, &name, err) < 0)
        return -1;
    return store_registry_delete(store, team_id, name, err);
}
