/* An environment: "NAME=value" strings, each name once, the last one set wins. */
#pragma once

#include <jansson.h>

#include "base/error.h"
#include "base/str.h"

enum { ENV_COUNT_MAX = 4096 };

struct env {
    char **items; /* NULL-terminated once anything was set */
    size_t count, cap;
};

#define auto_env __attribute__((cleanup(env_done)))

void env_done(struct env *env);
int env_set(struct env *env, struct str name, struct str value, struct error *err);
struct str env_get(const struct env *env, const char *name);
int env_add_all(struct env *env, const struct env *from, struct error *err);
/* Members of an object whose values must be strings; NULL is fine. */
int env_add_json(struct env *env, const json_t *object, struct error *err);
