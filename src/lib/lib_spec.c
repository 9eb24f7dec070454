/* A spec: the JSON of quicksand.h as a request of the runtime. What is not known is refused, not
 * passed over: a misspelt limit would be none. */
#include "lib/lib_internal.h"
#include "protocol/json/json_shape.h"

enum kind { TEXT, WHOLE, FLAG, OBJECT, STRINGS, LIST };

struct member {
    const char *name;
    enum kind kind;
    size_t offset;
};

#define AT(field) offsetof(struct runtime_ensure, field)

static const struct member members[] = {
    {"provider", TEXT, AT(overrides.provider)},
    {"profile", TEXT, AT(overrides.profile)},
    {"template", TEXT, AT(overrides.image)},
    {"agent_type", TEXT, AT(overrides.agent_type)},
    {"workspace_root", TEXT, AT(overrides.workspace_root)},
    {"network", OBJECT, AT(overrides.network)},
    {"lifecycle", OBJECT, AT(overrides.lifecycle)},
    {"limits", OBJECT, AT(overrides.limits)},
    {"env", STRINGS, AT(overrides.env)},
    {"mcp", OBJECT, AT(overrides.mcp)},
    {"mounts", LIST, AT(overrides.mounts)},
    {"options", OBJECT, AT(overrides.options)},
    {"timeout", WHOLE, AT(overrides.timeout_s)},
    {"output_limit", WHOLE, AT(overrides.output_limit)},
    {"persistent", FLAG, AT(overrides.persistent)},
    {"agent_id", TEXT, AT(agent_id)},
    {"task_id", TEXT, AT(task_id)},
    {"snapshot", TEXT, AT(snapshot)},
    {"repo", TEXT, AT(repo)},
    {"branch", TEXT, AT(branch)},
    {"git_token", TEXT, AT(git_token)},
    {"metadata", STRINGS, AT(metadata)},
};

static bool all_strings(const json_t *object)
{
    const char *name;
    json_t *value;

    json_object_foreach ((json_t *)(uintptr_t)object, name, value)
        if (!json_is_string(value))
            return false;
    return json_is_object(object);
}

/* False when it is of another kind. */
static bool take(const struct member *member, json_t *value, char *out)
{
    switch (member->kind) {
    case TEXT:
        *(struct str *)(void *)(out + member->offset) =
            str_n(json_string_value(value), json_string_length(value));
        return json_is_string(value) &&
               strlen(json_string_value(value)) == json_string_length(value);
    case WHOLE:
        *(int64_t *)(void *)(out + member->offset) = json_integer_value(value);
        return json_is_integer(value) && json_integer_value(value) >= 0 &&
               json_integer_value(value) <= INT32_MAX;
    case FLAG:
        *(bool *)(out + member->offset) = json_is_true(value);
        return json_is_boolean(value);
    case OBJECT:
    case STRINGS:
    case LIST:
        *(json_t **)(void *)(out + member->offset) = value;
        if (member->kind == LIST)
            return json_is_array(value);
        return member->kind == OBJECT ? json_is_object(value) : all_strings(value);
    }
    return false;
}

static const struct member *find(const char *name)
{
    for (size_t i = 0; i < sizeof(members) / sizeof(members[0]); i++)
        if (strcmp(members[i].name, name) == 0)
            return &members[i];
    return NULL;
}

int lib_spec_read(const char *text, struct runtime_ensure *out, json_t **out_tree,
                  struct error *err)
{
    const char *name;
    json_t *value;

    if (!text)
        return 0;
    if (json_parse(str_of(text), out_tree, err) < 0)
        return error_prefix(err, "the spec");
    if (!json_is_object(*out_tree))
        return error_set(err, ERROR_INVALID, "the spec is no JSON object");
    json_object_foreach (*out_tree, name, value) {
        const struct member *member = find(name);

        if (!member)
            return error_set(err, ERROR_INVALID, "the spec has an unknown member '%s'", name);
        if (!json_is_null(value) && !take(member, value, (char *)out))
            return error_set(err, ERROR_INVALID, "'%s' of the spec is of a wrong type", name);
    }
    out->overrides.persistent_given = json_is_boolean(json_object_get(*out_tree, "persistent"));
    return 0;
}
