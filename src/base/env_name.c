#include "base/env_name.h"

#include <stdio.h>
#include <string.h>

enum { SHOWN_MAX = 60 }; /* bytes of the name */

static bool is_control(char c)
{
    return (unsigned char)c < ' ' || c == 0x7f;
}

bool env_name_ok(struct str name)
{
    for (size_t i = 0; i < name.len; i++)
        if (name.p[i] == '=' || is_control(name.p[i]))
            return false;
    return name.len > 0 && name.len <= ENV_NAME_MAX;
}

void env_name_show(struct str name, char out[ENV_NAME_SHOWN_SIZE])
{
    size_t len = name.len < SHOWN_MAX ? name.len : SHOWN_MAX, at = 0;

    /* A character of several bytes is not cut. */
    while (len < name.len && len > 0 && ((unsigned char)name.p[len] & 0xc0) == 0x80)
        len--;
    for (size_t i = 0; i < len && at + 8 < ENV_NAME_SHOWN_SIZE; i++) {
        char c = name.p[i];

        if (c == '\n' || c == '\t' || c == '\r' || c == '\'' || c == '\\') {
            out[at++] = '\\';
            out[at++] = (char)(c == '\n' ? 'n' : c == '\t' ? 't' : c == '\r' ? 'r' : c);
        } else if (is_control(c)) {
            at += (size_t)snprintf(out + at, 5, "\\x%02x", (unsigned char)c);
        } else {
            out[at++] = c;
        }
    }
    memcpy(out + at, "...", 4);
    if (len == name.len)
        out[at] = '\0';
}

int env_name_check(const char *where, struct str name, struct error *err)
{
    char shown[ENV_NAME_SHOWN_SIZE];

    if (env_name_ok(name))
        return 0;
    env_name_show(name, shown);
    return error_set(err, ERROR_INVALID,
                     "%s: '%s' is not a valid name of an environment variable: it must have 1 to "
                     "%d bytes, without '=' and control characters",
                     where, shown, ENV_NAME_MAX);
}
