/* Records without their secrets, and back. Secret is every value of an environment, and every string
 * whose name says so. */
#include <ctype.h>
#include <openssl/evp.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/encode.h"
#include "protocol/json/json_shape.h"
#include "runtime/backend/profile_parts.h"

static bool secret_name(const char *name)
{
    static const char *const ends[] = {"key", "token", "secret", "password", "authorization"};
    size_t len = strlen(name);

    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
        size_t end = strlen(ends[i]);

        if (len >= end && strcasecmp(name + len - end, ends[i]) == 0)
            return true;
    }
    return false;
}

static bool environment_name(const char *name)
{
    return strcmp(name, "envVars") == 0 || strcmp(name, "envs") == 0 || strcmp(name, "env") == 0;
}

static void redact(json_t *value, bool all)
{
    const char *name;
    json_t *inner;
    size_t i;
    void *next;

    json_object_foreach_safe (value, next, name, inner) {
        if (json_is_string(inner) && (all || secret_name(name)))
            (void)json_object_set_new(value, name, json_string(PROFILE_REDACTED));
        else
            redact(inner, all || environment_name(name));
    }
    json_array_foreach (value, i, inner)
        redact(inner, all);
}

json_t *profile_redacted(const json_t *record)
{
    json_t *copy = json_deep_copy(record);

    redact(copy, false);
    return copy;
}

char *profile_restore(json_t *record, const json_t *old)
{
    const char *name;
    json_t *inner;
    void *next;

    json_object_foreach_safe (record, next, name, inner) {
        json_t *before = json_object_get(old, name);
        auto_free char *path = NULL;

        if (json_is_object(inner)) {
            path = profile_restore(inner, before);
            if (path)
                return xasprintf("%s.%s", name, path);
        } else if (json_is_string(inner) &&
                   strcmp(json_string_value(inner), PROFILE_REDACTED) == 0) {
            if (!json_is_string(before))
                return xstrdup(name);
            (void)json_object_set(record, name, before);
        }
    }
    return NULL;
}

void profile_key_digest(struct str key, char out[KEY_DIGEST_SIZE])
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned len = 0;

    if (EVP_Digest(key.p, key.len, digest, &len, EVP_sha256(), NULL) != 1)
        abort();
    hex_encode(out, digest, (KEY_DIGEST_SIZE - 1) / 2);
}
