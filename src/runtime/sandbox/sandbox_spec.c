/* What is asked for: whether it makes sense, and its hash. The hash
 * covers what cannot be changed once a machine runs; environment and timeouts can. */
#include <stdlib.h>

#include "base/cleanup.h"
#include "protocol/json/json_shape.h"
#include "runtime/sandbox/workspace.h"

enum { KEY_MAX = 512, NAME_MAX_BYTES = 256, METADATA_MAX = 64 };

static void hash_text(uint64_t *hash, struct str text)
{
    /* FNV-1a: stable, and only a team's own keys could collide. */
    for (size_t i = 0; i < text.len; i++)
        *hash = (*hash ^ (unsigned char)text.p[i]) * 0x100000001b3ULL;
    *hash = (*hash ^ 0x0aU) * 0x100000001b3ULL;
}

static void hash_json(uint64_t *hash, const json_t *json)
{
    auto_free char *text =
        json ? json_dumps(json, JSON_COMPACT | JSON_SORT_KEYS | JSON_ENCODE_ANY) : NULL;

    hash_text(hash, str_of(text));
}

struct str runtime_spec_hash(const struct profile *profile, const struct runtime_ensure *request,
                             struct arena *arena)
{
    uint64_t hash = 0xcbf29ce484222325ULL;
    char numbers[96];

    (void)snprintf(numbers, sizeof(numbers), "%d %lld %lld", (int)profile->egress,
                   (long long)profile->cpu, (long long)profile->mem_mb);
    hash_text(&hash, str_of(backend_name(profile->backend)));
    hash_text(&hash, profile->image);
    hash_text(&hash, str_of(numbers));
    if (profile->disk_mb) {
        (void)snprintf(numbers, sizeof(numbers), "disk %lld", (long long)profile->disk_mb);
        hash_text(&hash, str_of(numbers));
    }
    hash_json(&hash, profile->allow_domains);
    hash_json(&hash, profile->allow_cidrs);
    if (profile->peers)
        hash_json(&hash, profile->peers);
    hash_json(&hash, profile->mounts);
    hash_json(&hash, profile->options);
    hash_text(&hash, profile->workspace_root);
    if (request->repo.len) {
        hash_text(&hash, request->repo);
        hash_text(&hash, request->branch);
    }
    return str_of(arena_printf(arena, "%016llx", (unsigned long long)hash));
}

static int check_text(const char *what, struct str text, size_t max, struct error *err)
{
    if (text.len > max || (text.p && (memchr(text.p, '\0', text.len) || !str_valid_utf8(text))))
        return error_set(err, ERROR_INVALID, "%s must be at most %zu bytes of text", what, max);
    return 0;
}

int runtime_spec_check(const struct runtime_ensure *request, struct error *err)
{
    const char *name;
    json_t *value;

    if (request->key.p && !request->key.len)
        return error_set(err, ERROR_INVALID, "key must not be empty");
    if (check_text("key", request->key, KEY_MAX, err) < 0 ||
        check_text("agent_id", request->agent_id, NAME_MAX_BYTES, err) < 0 ||
        check_text("task_id", request->task_id, NAME_MAX_BYTES, err) < 0 ||
        workspace_check(request, err) < 0)
        return -1;
    if (request->metadata &&
        (!json_is_object(request->metadata) || json_object_size(request->metadata) > METADATA_MAX))
        return error_set(err, ERROR_INVALID, "metadata must be an object of at most %d strings",
                         METADATA_MAX);
    json_object_foreach (request->metadata, name, value)
        if (!json_is_string(value))
            return error_set(err, ERROR_INVALID, "metadata '%.100s' must be a string", name);
    return 0;
}

const char *runtime_tier_name(enum runtime_tier tier)
{
    static const char *const names[] = {"resumed", "restored", "created"};

    return names[tier];
}
