#include "extra/mcp/mcp_schema.h"

#include <stdio.h>
#include <string.h>

#include "protocol/json/json_shape.h"

static int check(const json_t *schema, json_t *value, const char *name, int depth,
                 struct error *err);

enum { DEPTH_MAX = 8 };

static bool is_type(const json_t *value, const char *type)
{
    static const struct {
        const char *name;
        json_type type;
    } types[] = {{"string", JSON_STRING},
                 {"integer", JSON_INTEGER},
                 {"object", JSON_OBJECT},
                 {"array", JSON_ARRAY},
                 {"null", JSON_NULL}};

    if (strcmp(type, "boolean") == 0)
        return json_is_boolean(value);
    if (strcmp(type, "number") == 0)
        return json_is_number(value);
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
        if (strcmp(type, types[i].name) == 0)
            return json_typeof(value) == types[i].type;
    return false;
}

static int check_type(const json_t *schema, const json_t *value, const char *name,
                      struct error *err)
{
    json_t *type = json_object_get(schema, "type"), *one;
    size_t i;

    if (json_is_string(type) && !is_type(value, json_string_value(type)))
        return error_set(err, ERROR_INVALID, "'%.100s' must be of the type %s", name,
                         json_string_value(type));
    if (!json_is_array(type))
        return 0;
    json_array_foreach (type, i, one) {
        if (is_type(value, json_string_value(one)))
            return 0;
    }
    return error_set(err, ERROR_INVALID, "'%.100s' is of a wrong type", name);
}

static int check_enum(const json_t *schema, const json_t *value, const char *name,
                      struct error *err)
{
    json_t *list = json_object_get(schema, "enum"), *one;
    auto_buf struct buf names = {0};
    size_t i;

    buf_init(&names, 200);
    json_array_foreach (list, i, one) {
        if (json_equal(one, value))
            return 0;
        (void)buf_printf(&names, "%s%s", i ? ", " : "", json_string_value(one));
    }
    return list ? error_set(err, ERROR_INVALID, "'%.100s' must be one of %s", name, names.p) : 0;
}

static int check_range(const json_t *schema, const json_t *value, const char *name,
                       struct error *err)
{
    const json_t *min = json_object_get(schema, "minimum");
    const json_t *max = json_object_get(schema, "maximum");

    if (!json_is_integer(value))
        return 0;
    if ((min && json_integer_value(value) < json_integer_value(min)) ||
        (max && json_integer_value(value) > json_integer_value(max)))
        return error_set(err, ERROR_INVALID, "'%.100s' must be from %lld to %lld", name,
                         (long long)json_integer_value(min), (long long)json_integer_value(max));
    return 0;
}

static int check_member(const json_t *schema, const char *key, json_t *value, int depth,
                        struct error *err)
{
    const json_t *known = json_object_get(json_object_get(schema, "properties"), key);
    const json_t *others = json_object_get(schema, "additionalProperties");

    if (known)
        return check(known, value, key, depth, err);
    if (json_is_false(others))
        return error_set(err, ERROR_INVALID, "there is no argument '%.100s'", key);
    return json_is_object(others) ? check(others, value, key, depth, err) : 0;
}

static int check_object(const json_t *schema, json_t *value, int depth, struct error *err)
{
    json_t *required = json_object_get(schema, "required"), *one, *member;
    const char *key;
    size_t i;

    json_array_foreach (required, i, one) {
        if (!json_object_get(value, json_string_value(one)))
            return error_set(err, ERROR_INVALID, "the argument '%s' is missing",
                             json_string_value(one));
    }
    json_object_foreach (value, key, member) {
        if (check_member(schema, key, member, depth, err) < 0)
            return -1;
    }
    return 0;
}

static int check(const json_t *schema, json_t *value, const char *name, int depth,
                 struct error *err)
{
    json_t *items = json_object_get(schema, "items"), *one;
    size_t i;

    if (depth > DEPTH_MAX)
        return error_set(err, ERROR_INVALID, "'%.100s' is too deep", name);
    if (check_type(schema, value, name, err) < 0 || check_enum(schema, value, name, err) < 0 ||
        check_range(schema, value, name, err) < 0)
        return -1;
    json_array_foreach (value, i, one) {
        if (items && check(items, one, name, depth + 1, err) < 0)
            return -1;
    }
    return json_is_object(value) ? check_object(schema, value, depth + 1, err) : 0;
}

int mcp_schema_check(const json_t *schema, json_t *value, struct error *err)
{
    return check(schema, value, "arguments", 0, err);
}
