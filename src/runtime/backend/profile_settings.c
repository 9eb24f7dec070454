/* What operations after the create need of a profile, as the row of its sandbox keeps it. */
#include <stdlib.h>

#include "base/cleanup.h"
#include "protocol/json/json_shape.h"
#include "runtime/backend/profile.h"

static void set_if(json_t *object, const char *name, json_t *value_consume)
{
    if (value_consume)
        (void)json_object_set_new(object, name, value_consume);
}

struct str profile_settings(const struct profile *profile, struct arena *arena)
{
    auto_json json_t *settings =
        json_pack("{s:I, s:I, s:s, s:O*, s:O*}", "timeout", (json_int_t)profile->timeout_s,
                  "output", (json_int_t)profile->output_limit, "permission",
                  name_of(&permission_names, profile->permission), "env", profile->env, "on_resume",
                  profile->on_resume);
    auto_free char *text = NULL;

    if (profile->expire_s > 0)
        (void)json_object_set_new(settings, "expire_after", json_integer(profile->expire_s));
    if (json_object_size(json_object_get(profile->tree, "limits")))
        (void)json_object_set(settings, "limits", json_object_get(profile->tree, "limits"));
    if (profile->keep_output)
        (void)json_object_set_new(settings, "keep_output", json_true());
    if (profile->workspace_root.p)
        (void)json_object_set_new(settings, "workspace_root", json_str(profile->workspace_root));
    set_if(settings, "screen", profile_screen(profile->tree));
    set_if(settings, "mcp", profile_gateway(profile->tree));
    text = json_text(settings);
    return arena_str(arena, str_of(text));
}
