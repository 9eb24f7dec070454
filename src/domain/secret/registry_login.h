/* User names and passwords of teams for registries of images. The password is encrypted in the store. */
#pragma once

#include <stddef.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/str.h"

struct store;

struct secrets;

enum {
    REGISTRY_HOST_MAX = 255,
    REGISTRY_USERNAME_MAX = 256,
    REGISTRY_PASSWORD_MAX = 16 * 1024, /* some are whole key files */
    REGISTRY_LOGINS_MAX = 64,          /* of a team */
};

struct registry_login {
    struct str
        host; /* "ghcr.io", "127.0.0.1:5000"; the names of Docker's own are all "docker.io" */
    struct str username, password;
};

/* The one name of a registry, in the arena; ERROR_INVALID when it is none. */
int registry_host(struct str text, struct arena *arena, struct str *out, struct error *err);

/* ERROR_INVALID, ERROR_QUOTA. */
int registry_login_put(struct store *store, const struct secrets *secrets, struct str team_id,
                       const struct registry_login *login, struct error *err);
/* host: as registry_host() gives it. ERROR_NOT_FOUND when the team has none. */
int registry_login_find(struct store *store, const struct secrets *secrets, struct str team_id,
                        struct str host, struct arena *arena, struct registry_login *out,
                        struct error *err);
int registry_login_delete(struct store *store, struct str team_id, struct str host,
                          struct error *err);
