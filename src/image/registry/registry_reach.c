/* Where a registry may lead us. */
#include <stdio.h>
#include <string.h>

#include "image/registry/registry_internal.h"

/* "https://host:port" of a URL. */
static struct str origin_of(const char *url)
{
    const char *host = strstr(url, "://");

    return host ? str_n(url, (size_t)(host - url) + 3 + strcspn(host + 3, "/?#")) : STR_NONE;
}

bool registry_same_origin(const char *a, const char *b)
{
    return str_eq_nocase(origin_of(a), origin_of(b));
}

/* What the operator has named for this registry may be anywhere and plain; the rest is public and encrypted. What is
 * named for another registry counts as the rest: a registry must not lead into a network that it cannot reach. */
int registry_reach(const struct visit *visit, const char *url, enum fetch_reach *out,
                   struct error *err)
{
    *out = FETCH_ANYWHERE;
    for (size_t i = 0; visit->mirror && i < visit->mirror->url_count; i++)
        if (registry_same_origin(visit->mirror->urls[i], url))
            return 0;
    *out = FETCH_PUBLIC;
    if (str_starts(str_of(url), STR("https://")))
        return 0;
    return error_set(err, ERROR_FORBIDDEN, "the registry leads to an address without encryption");
}
