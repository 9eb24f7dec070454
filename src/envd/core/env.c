#include "envd/core/env.h"

#include "base/alloc.h"
#include "base/env_name.h"

void env_done(struct env *env)
{
    for (size_t i = 0; i < env->count; i++)
        free(env->items[i]);
    free(env->items);
    *env = (struct env){0};
}

/* Index of the name, or count. */
static size_t find(const struct env *env, struct str name)
{
    size_t i;

    for (i = 0; i < env->count; i++)
        if (strncmp(env->items[i], name.p, name.len) == 0 && env->items[i][name.len] == '=')
            break;
    return i;
}

int env_set(struct env *env, struct str name, struct str value, struct error *err)
{
    size_t i;

    if (env_name_check("environment", name, err) < 0)
        return -1;
    if (value.len > 0 && memchr(value.p, '\0', value.len))
        return error_set(err, ERROR_INVALID, "environment variable '%.*s' has a NUL character",
                         STR_ARG(name));
    i = find(env, name);
    if (i == env->count) {
        if (env->count == ENV_COUNT_MAX)
            return error_set(err, ERROR_LIMIT, "more than %d environment variables", ENV_COUNT_MAX);
        if (env->count + 1 >= env->cap) {
            env->cap = env->cap ? env->cap * 2 : 16;
            env->items = xrealloc(env->items, env->cap * sizeof(*env->items));
        }
        env->items[++env->count] = NULL;
    } else {
        free(env->items[i]);
    }
    env->items[i] = xasprintf("%.*s=%.*s", STR_ARG(name), STR_ARG(value));
    return 0;
}

struct str env_get(const struct env *env, const char *name)
{
    struct str key = str_of(name);
    size_t i = find(env, key);

    return i < env->count ? str_of(env->items[i] + key.len + 1) : STR_NONE;
}

int env_add_all(struct env *env, const struct env *from, struct error *err)
{
    for (size_t i = 0; i < from->count; i++) {
        struct str value = str_of(from->items[i]);
        struct str name = str_split(&value, '=');

        if (env_set(env, name, value, err) != 0)
            return -1;
    }
    return 0;
}

int env_add_json(struct env *env, const json_t *object, struct error *err)
{
    const char *name;
    json_t *value;

    if (!object)
        return 0;
    if (!json_is_object(object))
        return error_set(err, ERROR_INVALID, "environment variables must be an object");
    /* jansson's iteration macro wants a mutable object but does not change it. */
    json_object_foreach ((json_t *)(uintptr_t)object, name, value) {
        if (!json_is_string(value))
            return error_set(err, ERROR_INVALID, "environment variable '%s' must be a string",
                             name);
        if (env_set(env, str_of(name), str_n(json_string_value(value), json_string_length(value)),
                    err) != 0)
            return -1;
    }
    return 0;
}
