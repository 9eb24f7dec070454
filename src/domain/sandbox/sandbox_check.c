#include "domain/sandbox/sandbox_check.h"

#include <inttypes.h>
#include <string.h>

#include "base/env_name.h"

int sandbox_timeout_check(int64_t timeout_s, int64_t max_timeout_s, struct error *err)
{
    if (timeout_s <= max_timeout_s)
        return 0;
    return error_set(err, ERROR_INVALID, "Timeout cannot be greater than %" PRId64 " hours",
                     max_timeout_s / 3600);
}

static int check_text(const char *what, struct pair pair, struct error *err)
{
    if (!str_valid_utf8(pair.name) || !str_valid_utf8(pair.value))
        return error_set(err, ERROR_INVALID, "%s is not UTF-8 text", what);
    if (memchr(pair.name.p ? pair.name.p : "", '\0', pair.name.len) ||
        memchr(pair.value.p ? pair.value.p : "", '\0', pair.value.len))
        return error_set(err, ERROR_INVALID, "%s '%.*s' has a NUL byte", what,
                         (int)(pair.name.len < 64 ? pair.name.len : 64), pair.name.p);
    return 0;
}

/* As a string in JSON, with its quotes. */
static size_t json_len(struct str text)
{
    size_t len = text.len + 2;

    for (size_t i = 0; i < text.len; i++) {
        unsigned char c = (unsigned char)text.p[i];

        if (c == '"' || c == '\\' || (c < 0x20 && strchr("\b\f\n\r\t", c)))
            len += 1;
        else if (c < 0x20)
            len += 5;
    }
    return len;
}

int sandbox_metadata_check(const struct pair *pairs, size_t count, struct error *err)
{
    size_t bytes = 2;

    if (count > SANDBOX_PAIRS_MAX)
        return error_set(err, ERROR_INVALID, "metadata has more than %d members",
                         SANDBOX_PAIRS_MAX);
    for (size_t i = 0; i < count; i++) {
        if (check_text("metadata", pairs[i], err) < 0)
            return -1;
        bytes += json_len(pairs[i].name) + json_len(pairs[i].value) + 1 + (i > 0);
    }
    if (bytes > SANDBOX_PAIRS_BYTES)
        return error_set(err, ERROR_INVALID, "'metadata' is longer than %d bytes",
                         SANDBOX_PAIRS_BYTES);
    return 0;
}

static int check_env(const struct pair *pairs, size_t count, struct error *err)
{
    size_t bytes = 0;

    if (count > SANDBOX_PAIRS_MAX)
        return error_set(err, ERROR_INVALID, "envVars has more than %d members", SANDBOX_PAIRS_MAX);
    for (size_t i = 0; i < count; i++) {
        struct str name = pairs[i].name;

        if (env_name_check("envVars", name, err) < 0 || check_text("envVars", pairs[i], err) < 0)
            return -1;
        bytes += name.len + pairs[i].value.len;
    }
    if (bytes > SANDBOX_PAIRS_BYTES)
        return error_set(err, ERROR_INVALID, "envVars is larger than %d bytes",
                         SANDBOX_PAIRS_BYTES);
    return 0;
}

/* What happens at the end of its time. */
static int check_end(const struct sandbox_new *request, struct error *err)
{
    if (request->auto_pause_disk && !request->auto_pause)
        return error_set(err, ERROR_INVALID, "'autoPauseMemory' needs 'autoPause'");
    if (request->auto_pause_disk && request->auto_resume)
        return error_set(err, ERROR_INVALID,
                         "'autoPauseMemory: false' and 'autoResume' exclude each other: a sandbox "
                         "without its memory is not resumed by traffic");
    return 0;
}

int sandbox_new_check(const struct sandbox_new *request, int64_t max_timeout_s, struct error *err)
{
    if (request->template_name.len == 0 || request->template_name.len > SANDBOX_NAME_MAX)
        return error_set(err, ERROR_INVALID, "'templateID' must have 1 to %d characters",
                         SANDBOX_NAME_MAX);
    if (request->timeout_s <= 0)
        return error_set(err, ERROR_INVALID, "Timeout must be greater than 0");
    return sandbox_timeout_check(request->timeout_s, max_timeout_s, err) < 0 ||
                   sandbox_metadata_check(request->metadata, request->metadata_count, err) < 0 ||
                   check_env(request->env, request->env_count, err) < 0
               ? -1
               : check_end(request, err);
}
