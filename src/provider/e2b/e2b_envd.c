/* Where the envd of a sandbox and its ports are reached. */
#include "provider/e2b/e2b.h"

static void add_header(struct envd_address *address, struct str name, struct str value)
{
    address->extra[address->extra_count++] = (struct pair){name, value};
}

int e2b_envd(struct provider *provider, const struct provider_ref *ref, struct envd_place *place,
             struct error *err)
{
    const struct e2b *e2b = provider->impl;
    int len;

    if (e2b->secure && envd_place_token(provider, ref, place, err) < 0)
        return -1;
    if (e2b->envd_url) {
        len = snprintf(place->base, sizeof(place->base), "%s", e2b->envd_url);
    } else {
        add_header(&place->address, STR("E2b-Sandbox-Id"), ref->id);
        add_header(&place->address, STR("E2b-Sandbox-Port"), STR("49983"));
        if (e2b->sandbox_url)
            len = snprintf(place->base, sizeof(place->base), "%s", e2b->sandbox_url);
        else
            len = snprintf(place->base, sizeof(place->base), "https://%d-%.*s.%s", ENVD_PORT,
                           STR_ARG(ref->id), e2b->domain);
    }
    if (len < 0 || (size_t)len >= sizeof(place->base))
        return error_set(err, ERROR_INVALID, "%s: the address of envd is too long", e2b->who);
    return 0;
}

int e2b_address(struct provider *provider, const struct provider_ref *ref, uint16_t port,
                struct arena *arena, struct provider_address *out, struct error *err)
{
    const struct e2b *e2b = provider->impl;

    if (!rest_id_valid(ref->id))
        return error_set(err, ERROR_INVALID, "%s: this is not the id of a sandbox", e2b->who);
    if (e2b->sandbox_url) {
        envd_machine_address(e2b->sandbox_url, e2b->domain, ref->id, port, arena, out);
        return 0;
    }
    out->url =
        str_of(arena_printf(arena, "https://%u-%.*s.%s", port, STR_ARG(ref->id), e2b->domain));
    out->local_url = out->url;
    return 0;
}
