/* What a profile starts in a sandbox besides its template: a screen of some size (options.resolution, dpi, vncEnabled) and the
 * MCP gateway (servers of "mcp" that are packages or repositories, options.enableMcp). */
#include "protocol/json/json_shape.h"
#include "runtime/backend/profile_parts.h"

enum { SIDE_MIN = 64, SIDE_MAX = 7680, DPI_MIN = 24, DPI_MAX = 600, DPI = 96 };

static bool side(int64_t value, int *out)
{
    *out = (int)value;
    return value >= SIDE_MIN && value <= SIDE_MAX;
}

/* "1920x1080", [1920, 1080] or {"width": 1920, "height": 1080}. */
static bool read_size(const json_t *value, int *width, int *height)
{
    const json_t *w = json_object_get(value, "width"), *h = json_object_get(value, "height");
    struct str rest = json_is_string(value) ? str_of(json_string_value(value)) : STR_NONE, first;
    int64_t x = 0, y = 0;

    if (rest.p) {
        first = str_split(&rest, 'x');
        return str_to_i64(first, &x) && rest.p && str_to_i64(rest, &y) && side(x, width) &&
               side(y, height);
    }
    if (json_is_array(value) && json_array_size(value) == 2) {
        w = json_array_get(value, 0);
        h = json_array_get(value, 1);
    }
    return json_is_integer(w) && json_is_integer(h) && side(json_integer_value(w), width) &&
           side(json_integer_value(h), height);
}

static const json_t *said(const json_t *options, const char *name)
{
    const json_t *value = json_object_get(options, name);

    return value && !json_is_null(value) ? value : NULL;
}

void profile_check_screen(struct profile_check *check, const json_t *options)
{
    const json_t *size = said(options, "resolution"), *dpi = said(options, "dpi");
    static const char *const switches[] = {"vncEnabled", "enableMcp"};
    int width, height;

    if (size && !read_size(size, &width, &height))
        profile_fault(check, "options.resolution",
                      "must be like {\"width\": 1920, \"height\": 1080}, each from %d to %d",
                      SIDE_MIN, SIDE_MAX);
    if (dpi && (!json_is_integer(dpi) || json_integer_value(dpi) < DPI_MIN ||
                json_integer_value(dpi) > DPI_MAX))
        profile_fault(check, "options.dpi", "must be a whole number from %d to %d", DPI_MIN,
                      DPI_MAX);
    for (size_t i = 0; i < sizeof(switches) / sizeof(switches[0]); i++)
        if (said(options, switches[i]) && !json_is_boolean(said(options, switches[i]))) {
            char path[32];

            (void)snprintf(path, sizeof(path), "options.%s", switches[i]);
            profile_fault(check, path, "must be true or false");
        }
}

json_t *profile_screen(const json_t *flat)
{
    const json_t *options = json_object_get(flat, "options"), *dpi = said(options, "dpi");
    bool vnc = json_is_true(json_object_get(options, "vncEnabled"));
    int width = 1024, height = 768;
    char size[32];

    if (!said(options, "resolution") && !dpi && !vnc)
        return NULL;
    (void)read_size(said(options, "resolution"), &width, &height);
    (void)snprintf(size, sizeof(size), "%dx%d", width, height);
    return json_pack("{s:s, s:I, s:b}", "size", size, "dpi",
                     dpi ? json_integer_value(dpi) : (json_int_t)DPI, "vnc", (int)vnc);
}

bool profile_of_gateway(const char *name)
{
    return str_starts(str_of(name), STR("npm/")) || str_starts(str_of(name), STR("github/"));
}

json_t *profile_gateway(const json_t *flat)
{
    const json_t *enabled = said(json_object_get(flat, "options"), "enableMcp");
    json_t *mcp = json_object_get(flat, "mcp"), *servers = json_object(), *entry;
    const char *name;

    json_object_foreach (mcp, name, entry)
        if (profile_of_gateway(name))
            (void)json_object_set(servers, name, entry);
    if (json_is_true(enabled) || (json_object_size(servers) && !json_is_false(enabled)))
        return servers;
    json_decref(servers);
    return NULL;
}

bool profile_equips(const json_t *flat)
{
    auto_json json_t *screen = profile_screen(flat), *servers = profile_gateway(flat);

    return screen || servers;
}

json_t *profile_gateway_lines(const json_t *mcp)
{
    json_t *lines = json_array(), *entry;
    const char *name;

    json_object_foreach ((json_t *)(uintptr_t)mcp, name, entry) {
        const json_t *run = json_object_get(entry, "runCmd"),
                     *install = json_object_get(entry, "installCmd");

        if (!profile_of_gateway(name))
            continue;
        if (json_is_string(install))
            (void)json_array_append(lines, (json_t *)(uintptr_t)install);
        if (json_is_string(run))
            (void)json_array_append(lines, (json_t *)(uintptr_t)run);
        else
            (void)json_array_append_new(lines, json_sprintf("npx -y %s", name));
    }
    return lines;
}
