/* What a backend can do decides what a profile may ask for: nothing that it would not really
 * enforce. And the one form all records are brought into. */
#include "base/alloc.h"
#include "protocol/json/json_shape.h"
#include "runtime/backend/profile_parts.h"

static void move_up(json_t *flat, json_t *options, const char *from, const char *to)
{
    json_t *value = json_object_get(options, from);

    if (!value)
        return;
    if (!json_object_get(flat, to))
        (void)json_object_set(flat, to, value);
    (void)json_object_del(options, from);
}

json_t *profile_flatten(const json_t *record, bool *out_harness)
{
    const json_t *config = json_object_get(record, "config");
    json_t *flat, *options, *memory;

    *out_harness = json_is_object(config);
    if (!json_is_object(record))
        return NULL;
    flat = json_deep_copy(*out_harness ? config : record);
    options = json_object_get(flat, "options");
    if (json_is_object(options)) {
        move_up(flat, options, "template", "template");
        move_up(flat, options, "templateId", "template");
        move_up(flat, options, "workspaceRoot", "workspaceRoot");
    }
    memory = json_object_get(flat, "memoryLimit");
    if (memory && !json_object_get(json_object_get(flat, "limits"), "memoryMb")) {
        if (!json_object_get(flat, "limits"))
            (void)json_object_set_new(flat, "limits", json_object());
        (void)json_object_set(json_object_get(flat, "limits"), "memoryMb", memory);
    }
    (void)json_object_del(flat, "memoryLimit");
    return flat;
}

enum provider_egress profile_egress(const json_t *flat)
{
    struct str mode = json_get_str(json_object_get(flat, "network"), "mode");

    if (str_is(mode, "allow-all"))
        return EGRESS_ALLOW_ALL;
    return str_is(mode, "restricted") ? EGRESS_RESTRICTED : EGRESS_DENY_ALL;
}

static void check_egress(struct profile_check *check, const json_t *flat)
{
    enum provider_egress egress = profile_egress(flat);
    char list[64] = "";
    size_t len = 0;

    if (check->caps->egress & (unsigned)egress)
        return;
    if (strcmp(check->type, "e2b") == 0 && check->caps->egress == EGRESS_ALLOW_ALL) {
        profile_fault(check, "network.mode",
                      "e2b cannot enforce egress restrictions; set config.network.mode to"
                      " allow-all explicitly");
        return;
    }
    for (unsigned mode = EGRESS_ALLOW_ALL; mode <= EGRESS_RESTRICTED; mode <<= 1)
        if (check->caps->egress & mode)
            len += (size_t)snprintf(list + len, sizeof(list) - len, "%s%s", len ? ", " : "",
                                    provider_egress_name(mode));
    profile_fault(check, "network.mode", "provider '%s' cannot enforce %s%s; it enforces: %s",
                  check->backend_name, provider_egress_name(egress),
                  json_object_get(json_object_get(flat, "network"), "mode")
                      ? ""
                      : " (what it is when omitted)",
                  len ? list : "nothing");
}

static void check_idle(struct profile_check *check, const json_t *flat)
{
    const json_t *idle = json_object_get(json_object_get(flat, "lifecycle"), "idleTimeoutSeconds");

    if (check->ttl_max_s > 0 && json_integer_value(idle) > check->ttl_max_s)
        profile_fault(check, "lifecycle.idleTimeoutSeconds",
                      "must be at most %lld on provider '%s' (the server's setting max-hours)",
                      (long long)check->ttl_max_s, check->backend_name);
}

/* Plain processes of a host have its screens and its ports. */
static void check_equipment(struct profile_check *check, const json_t *flat)
{
    auto_json json_t *screen = profile_screen(flat), *servers = profile_gateway(flat);
    const char *why =
        check->caps->isolation == ISOLATION_NONE ? "runs plain processes" : "runs no commands";

    if (check->caps->isolation != ISOLATION_NONE && (check->caps->features & PROVIDER_EXEC))
        return;
    if (screen)
        profile_fault(check, "options", "provider '%s' %s: it has no screens", check->backend_name,
                      why);
    if (servers)
        profile_fault(check, "mcp", "provider '%s' %s: the MCP gateway needs a sandbox of its own",
                      check->backend_name, why);
}

void profile_check_caps(struct profile_check *check, const json_t *flat)
{
    const json_t *options = json_object_get(flat, "options");
    bool is_e2b = strcmp(check->type, "e2b") == 0;

    check_egress(check, flat);
    check_idle(check, flat);
    if ((json_array_size(json_object_get(flat, "onCreate")) ||
         json_array_size(json_object_get(flat, "onResume"))) &&
        !(check->caps->features & PROVIDER_HOOKS))
        profile_fault(check, "onCreate",
                      "config.onCreate and config.onResume are not supported by the %s provider%s",
                      is_e2b ? "e2b" : check->backend_name,
                      is_e2b ? "; use an E2B template or run setup commands explicitly" : "");
    if (json_object_get(flat, "workspace") || json_object_get(options, "workspace") ||
        json_object_get(options, "s3"))
        profile_fault(check, json_object_get(flat, "workspace") ? "workspace" : "options.workspace",
                      "a shared S3 workspace cannot be attached to a sandbox of the %s provider;"
                      " use it without a workspace",
                      is_e2b ? "e2b" : check->backend_name);
    if (json_object_size(json_object_get(json_object_get(flat, "network"), "peers")) &&
        !(check->caps->features & PROVIDER_PEERS))
        profile_fault(check, "network.peers", "provider '%s' does not support private networks",
                      check->backend_name);
    check_equipment(check, flat);
    if (json_array_size(json_object_get(flat, "mounts")) &&
        !(check->caps->features & PROVIDER_MOUNTS))
        profile_fault(check, "mounts", "provider '%s' does not support mounts",
                      check->backend_name);
}
