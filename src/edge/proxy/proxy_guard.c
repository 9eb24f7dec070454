/* A path is compared after everything was undone that some server between here and a handler might
 * undo: escapes (also escaped escapes), empty and dot segments, trailing slashes, parameters behind
 * a ';', case. Refusing a spelling that envd would not understand costs nothing. */
#include "edge/proxy/proxy_guard.h"

#include <openssl/crypto.h>
#include <string.h>

#include "base/buf.h"
#include "base/encode.h"
#include "edge/proxy/proxy_host.h"

enum { DECODE_ROUNDS = 4, SEGMENTS_MAX = 64 };

/* Decodes valid escapes and keeps broken ones as they are. */
static void decode_lenient(struct str in, struct buf *out)
{
    while (in.len) {
        size_t len = in.p[0] == '%' && in.len >= 3 ? 3 : 1;

        if (len == 3 && url_decode(str_n(in.p, 3), false, out)) {
            in = str_skip(in, 3);
            continue;
        }
        (void)buf_add_char(out, in.p[0]);
        in = str_skip(in, 1);
    }
}

static bool is_control_name(struct str segment)
{
    static const char *const names[] = {"init",     "freeze", "unfreeze", "collapse",
                                        "fsfreeze", "fsthaw", "upgrade",  "journal"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (str_eq_nocase(segment, str_of(names[i])))
            return true;
    }
    return false;
}

/* First segment of a decoded path after "." and ".." were resolved; STR_NONE for the root. */
static struct str first_segment(struct str path)
{
    struct str stack[SEGMENTS_MAX];
    size_t depth = 0, deeper = 0; /* those that found no room on the stack */

    while (path.p) {
        size_t i = 0;
        struct str segment;

        while (i < path.len && path.p[i] != '/' && path.p[i] != '\\')
            i++;
        segment = str_n(path.p, i);
        path = i < path.len ? str_skip(path, i + 1) : STR_NONE;
        for (i = 0; i < segment.len && !strchr(";?#", segment.p[i]); i++) /* NUL ends it, too */
            ;
        segment.len = i;
        segment = str_trim(segment);
        if (!segment.len || str_is(segment, "."))
            continue;
        if (str_is(segment, "..")) {
            if (deeper)
                deeper--;
            else
                depth -= depth > 0;
        } else if (depth < SEGMENTS_MAX) {
            stack[depth++] = segment;
        } else {
            deeper++;
        }
    }
    return depth ? stack[0] : STR_NONE;
}

bool proxy_guard_is_control(struct str path)
{
    auto_buf struct buf now = {0};

    buf_init(&now, path.len + 1);
    (void)buf_add_str(&now, path);
    for (int round = 0; round < DECODE_ROUNDS; round++) {
        struct buf next;
        size_t before = now.len;

        if (is_control_name(first_segment(buf_str(&now))))
            return true;
        buf_init(&next, path.len + 1);
        decode_lenient(buf_str(&now), &next);
        buf_done(&now);
        now = next;
        if (now.len == before)
            break;
    }
    return is_control_name(first_segment(buf_str(&now)));
}

bool proxy_guard_is_envds(struct str path)
{
    static const char *const roots[] = {"/health", "/metrics",         "/envs",
                                        "/files",  "/process.Process", "/filesystem.Filesystem"};

    for (size_t i = 0; i < sizeof(roots) / sizeof(roots[0]); i++) {
        struct str root = str_of(roots[i]);

        if (str_starts(path, root) && (path.len == root.len || path.p[root.len] == '/'))
            return true;
    }
    return proxy_guard_is_control(path);
}

bool proxy_guard_is_script(const struct http_request *request)
{
    static const char *const dests[] = {"serviceworker", "sharedworker", "worker", "audioworklet",
                                        "paintworklet",  "script",       "style",  "xslt"};
    struct str dest = http_headers_get(&request->headers, "sec-fetch-dest");

    if (http_headers_get(&request->headers, "service-worker").p)
        return true;
    for (size_t i = 0; i < sizeof(dests) / sizeof(dests[0]); i++) {
        if (str_eq_nocase(dest, str_of(dests[i])))
            return true;
    }
    return false;
}

bool proxy_guard_secret(struct str given, const char *secret)
{
    size_t len = strlen(secret);

    return given.len == len && CRYPTO_memcmp(given.p, secret, len) == 0;
}

enum proxy_traffic proxy_guard_traffic(const struct route *route, uint16_t port, struct str token)
{
    if (port == PROXY_ENVD_PORT || !route->traffic_token[0])
        return PROXY_TRAFFIC_OK;
    if (!token.len)
        return PROXY_TRAFFIC_MISSING;
    return proxy_guard_secret(token, route->traffic_token) ? PROXY_TRAFFIC_OK
                                                           : PROXY_TRAFFIC_INVALID;
}
