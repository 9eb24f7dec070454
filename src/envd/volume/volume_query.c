/* What a request for a volume's content says, in its path and its query. */
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/encode.h"
#include "envd/volume/volume.h"

enum { QUERY_MAX = 3 * PATH_MAX, ID_MAX = INT32_MAX };

/* Parts joined by single slashes, with one in front; "/" for none. */
static int normalize(struct str path, char out[PATH_MAX], struct error *err)
{
    struct str rest = path;
    size_t len = 0;

    while (rest.p) {
        struct str part = str_split(&rest, '/');

        if (part.len == 0 || str_is(part, "."))
            continue;
        if (str_is(part, ".."))
            return error_set(err, ERROR_INVALID, "path has '..' in it");
        if (part.len > NAME_MAX || len + 1 + part.len >= PATH_MAX)
            return error_set(err, ERROR_INVALID, "path is too long");
        out[len++] = '/';
        memcpy(out + len, part.p, part.len);
        len += part.len;
    }
    if (len == 0)
        out[len++] = '/';
    out[len] = '\0';
    return 0;
}

static bool number_ok(int64_t n, int64_t max)
{
    return n >= -1 && n <= max;
}

int volume_query_check(const struct volume_query *query, struct error *err)
{
    if (!number_ok(query->uid, ID_MAX) || !number_ok(query->gid, ID_MAX) ||
        !number_ok(query->mode, 07777))
        return error_set(err, ERROR_INVALID, "'uid', 'gid' or 'mode' out of range");
    return 0;
}

int volume_query_number(struct str text, const char *name, int64_t *out, struct error *err)
{
    auto_buf struct buf value = {0};

    *out = -1;
    buf_init(&value, 64);
    if (!url_query_get(text, name, &value))
        return 0;
    return str_to_i64(buf_str(&value), out) && *out >= 0
               ? 0
               : error_set(err, ERROR_INVALID, "'%s' is not a number", name);
}

int volume_query_read(struct str text, struct volume_query *out, struct error *err)
{
    auto_buf struct buf path = {0}, force = {0};

    buf_init(&path, QUERY_MAX);
    buf_init(&force, 64);
    if (!url_query_get(text, "path", &path) || memchr(path.p, '\0', path.len))
        return error_set(err, ERROR_INVALID, "'path' is missing or broken");
    if (normalize(buf_str(&path), out->path, err) < 0)
        return -1;
    out->force_given = url_query_get(text, "force", &force);
    out->force = out->force_given && str_is(buf_str(&force), "true");
    if (volume_query_number(text, "uid", &out->uid, err) < 0 ||
        volume_query_number(text, "gid", &out->gid, err) < 0 ||
        volume_query_number(text, "mode", &out->mode, err) < 0 ||
        volume_query_number(text, "depth", &out->depth, err) < 0)
        return -1;
    return volume_query_check(out, err);
}

bool volume_query_kind(const char *id, struct str path, struct str *out)
{
    if (!str_starts(path, STR(VOLUME_PREFIX)))
        return false;
    path = str_skip(path, sizeof(VOLUME_PREFIX) - 1);
    if (!str_is(str_split(&path, '/'), id))
        return false;
    *out = path;
    return true;
}
