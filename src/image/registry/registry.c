#include "image/registry/registry.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "image/registry/registry_internal.h"

enum { STALL_MS = 30 * 1000 };

static bool add_place(struct registry_mirror *mirror, struct str url)
{
    char *place;

    if (mirror->url_count == REGISTRY_PLACES_MAX)
        return false;
    place = mirror->urls[mirror->url_count];
    while (url.len > 0 && url.p[url.len - 1] == '/')
        url.len--;
    if (!str_copy(url, place, sizeof(mirror->urls[0])) || !fetch_url_ok(place))
        return false;
    mirror->url_count++;
    return true;
}

static int add_mirror(struct registry *registry, struct str text, struct error *err)
{
    struct registry_mirror *mirror = &registry->mirrors[registry->mirror_count];
    struct str urls = text, host = str_split(&urls, '=');
    bool ok;

    if (registry->mirror_count == REGISTRY_MIRRORS_MAX)
        return error_set(err, ERROR_LIMIT, "more than %d mirrors of registries",
                         REGISTRY_MIRRORS_MAX);
    host = str_trim(host);
    ok = host.len > 0 && str_copy(host, mirror->host, sizeof(mirror->host));
    while (ok && urls.p) {
        struct str one = str_split(&urls, ' ');

        ok = one.len == 0 || add_place(mirror, one);
    }
    if (!ok || mirror->url_count == 0)
        return error_set(err, ERROR_INVALID,
                         "'%.*s' is not a mirror of a registry: write it like "
                         "docker.io=http://127.0.0.1:5000",
                         (int)(text.len < 100 ? text.len : 100), text.p);
    registry->mirror_count++;
    return 0;
}

static int read_mirrors(struct registry *registry, const char *mirrors, struct error *err)
{
    struct str rest = str_of(mirrors);

    while (rest.p) {
        struct str one = str_trim(str_split(&rest, ','));

        if (one.len > 0 && add_mirror(registry, one, err) < 0)
            return -1;
    }
    return 0;
}

int registry_mirrors_check(const char *mirrors, struct error *err)
{
    struct registry *registry = xcalloc(1, sizeof(*registry));
    int r = read_mirrors(registry, mirrors, err);

    free(registry);
    return r;
}

int registry_open(const struct registry_config *config, struct registry **out, struct error *err)
{
    struct registry *registry = xcalloc(1, sizeof(*registry));

    if (read_mirrors(registry, config->mirrors ? config->mirrors : "", err) < 0 ||
        blobs_open(config->blobs, &registry->blobs, err) < 0) {
        free(registry);
        return -1;
    }
    registry->stall_ms = config->stall_ms ? config->stall_ms : STALL_MS;
    registry->fetch = fetch_new();
    *out = registry;
    return 0;
}

void registry_close(struct registry *registry)
{
    if (!registry)
        return;
    fetch_free(registry->fetch);
    blobs_close(registry->blobs);
    free(registry);
}

struct blobs *registry_blobs(const struct registry *registry)
{
    return registry->blobs;
}
