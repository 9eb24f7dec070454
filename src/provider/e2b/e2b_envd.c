/* What happens inside a sandbox, through its envd; and where its ports are. */
#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "provider/e2b/e2b.h"

enum { ADDRESS_SIZE = 512 };

/* An envd's address and the memory of its strings. */
struct place {
    struct envd_address address;
    struct arena arena;
    char base[ADDRESS_SIZE], socket[128];
};

#define auto_place __attribute__((cleanup(place_done)))

static void place_done(struct place *place)
{
    arena_done(&place->arena);
}

static void add_header(struct place *place, struct str name, struct str value)
{
    place->address.extra[place->address.extra_count++] = (struct http_header){name, value};
}

static int find_base(struct provider *provider, const struct provider_ref *ref, struct place *place,
                     struct error *err)
{
    const struct provider_embedded *engine = provider->embedded;
    const struct e2b *e2b = provider->impl;
    int len;

    if (!e2b->api_url) {
        if (engine->envd_socket(engine->arg, ref->id, place->socket, sizeof(place->socket), err) <
            0)
            return error_prefix(err, "%s", e2b->who);
        place->address.unix_path = place->socket;
        (void)str_copy(STR("http://localhost"), place->base, sizeof(place->base));
        return 0;
    }
    if (e2b->envd_url) {
        len = snprintf(place->base, sizeof(place->base), "%s", e2b->envd_url);
    } else {
        add_header(place, STR("E2b-Sandbox-Id"), ref->id);
        add_header(place, STR("E2b-Sandbox-Port"), STR("49983"));
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

/* The token is asked for when the caller has none: a sandbox may have been found by its labels. */
static int find_place(struct provider *provider, const struct provider_ref *ref,
                      struct place *place, struct error *err)
{
    const struct e2b *e2b = provider->impl;
    struct provider_sandbox sandbox = {0};

    *place = (struct place){.address = {.fetch = provider->fetch, .who = e2b->who}};
    place->address.base = place->base;
    place->address.token = ref->token;
    if (!rest_id_valid(ref->id))
        return error_set(err, ERROR_INVALID, "%s: this is not the id of a sandbox", e2b->who);
    if (e2b->secure && !ref->token.len) {
        if (e2b_get(provider, ref, &place->arena, &sandbox, err) < 0)
            return -1;
        place->address.token = sandbox.token;
    }
    return find_base(provider, ref, place, err);
}

/* Whether envd may have got the request: a proxy tells it by its words only. */
static bool may_have_begun(const struct error *err)
{
    return err->errnum == ECONNABORTED || strstr(err->message, "before it answered") ||
           strstr(err->message, "closed the connection");
}

/* "Not there" of a proxy or of a socket: only the API knows whether it is paused or gone. It may also
 * have been paused just then and run again by now. */
static int explain(struct provider *provider, const struct provider_ref *ref, struct error *err)
{
    const struct e2b *e2b = provider->impl;
    auto_arena struct arena arena = {0};
    struct provider_sandbox sandbox = {0};
    bool begun = may_have_begun(err);
    struct error why = {0};

    if (err->code != ERROR_UNAVAILABLE && err->code != ERROR_CONFLICT)
        return -1;
    if (e2b_get(provider, ref, &arena, &sandbox, &why) < 0 && why.code == ERROR_NOT_FOUND) {
        *err = why;
        return -1;
    }
    if ((!why.code && sandbox.state == PROVIDER_PAUSED) ||
        strstr(err->message, "The sandbox is paused")) {
        (void)error_set(err, ERROR_CONFLICT, "%s: the sandbox '%.*s' %s", e2b->who,
                        STR_ARG(ref->id), begun ? "was paused before it answered" : "is paused");
        err->errnum = EHOSTDOWN;
    }
    if (begun)
        err->errnum = ECONNABORTED;
    return -1;
}

int e2b_start(struct provider *provider, const struct provider_ref *ref,
              const struct provider_command *command, struct provider_process **out,
              struct error *err)
{
    auto_place struct place place = {0};

    if (find_place(provider, ref, &place, err) < 0 ||
        envd_start(&place.address, command, out, err) < 0)
        return explain(provider, ref, err);
    return 0;
}

int e2b_attach(struct provider *provider, const struct provider_ref *ref, const char *tag,
               int64_t pid, struct provider_process **out, struct error *err)
{
    auto_place struct place place = {0};

    if (find_place(provider, ref, &place, err) < 0 ||
        envd_attach(&place.address, tag, pid, out, err) < 0)
        return explain(provider, ref, err);
    return 0;
}

int e2b_read(struct provider *provider, const struct provider_ref *ref, const char *path,
             provider_sink_fn *sink, void *arg, struct error *err)
{
    auto_place struct place place = {0};

    if (find_place(provider, ref, &place, err) < 0 ||
        envd_read(&place.address, path, sink, arg, err) < 0)
        return explain(provider, ref, err);
    return 0;
}

int e2b_write(struct provider *provider, const struct provider_ref *ref, const char *path,
              provider_source_fn *source, void *arg, int64_t length, struct error *err)
{
    auto_place struct place place = {0};

    if (find_place(provider, ref, &place, err) < 0 ||
        envd_write(&place.address, path, source, arg, length, err) < 0)
        return explain(provider, ref, err);
    return 0;
}

int e2b_list(struct provider *provider, const struct provider_ref *ref, const char *path,
             struct arena *arena, struct provider_file **out, size_t *out_count, struct error *err)
{
    auto_place struct place place = {0};

    if (find_place(provider, ref, &place, err) < 0 ||
        envd_list(&place.address, path, arena, out, out_count, err) < 0)
        return explain(provider, ref, err);
    return 0;
}

int e2b_remove(struct provider *provider, const struct provider_ref *ref, const char *path,
               struct error *err)
{
    auto_place struct place place = {0};

    if (find_place(provider, ref, &place, err) < 0 || envd_remove(&place.address, path, err) < 0)
        return explain(provider, ref, err);
    return 0;
}

/* ---- ports ---- */

/* "http://127.0.0.1:3000" and "example.org" make "http://8080-ID.example.org:3000": a server of ours
 * takes any name that begins so. */
static char *named_url(const char *server, const char *domain, struct str id, uint16_t port,
                       struct arena *arena)
{
    struct str rest = str_of(server), scheme, number = STR_NONE;
    ptrdiff_t colon;

    scheme = str_n(rest.p, (size_t)str_find_str(rest, STR("://")));
    rest = str_skip(rest, scheme.len + 3);
    rest = str_split(&rest, '/');
    colon = rest.len && rest.p[rest.len - 1] != ']' ? (ptrdiff_t)rest.len - 1 : -1;
    while (colon >= 0 && rest.p[colon] != ':')
        colon--;
    if (colon >= 0)
        number = str_skip(rest, (size_t)colon);
    return arena_printf(arena, "%.*s://%u-%.*s.%s%.*s", STR_ARG(scheme), port, STR_ARG(id), domain,
                        STR_ARG(number));
}

int e2b_address(struct provider *provider, const struct provider_ref *ref, uint16_t port,
                struct arena *arena, struct provider_address *out, struct error *err)
{
    const struct e2b *e2b = provider->impl;
    const char *server = e2b->api_url ? e2b->sandbox_url : provider->embedded->proxy_url;

    if (!rest_id_valid(ref->id))
        return error_set(err, ERROR_INVALID, "%s: this is not the id of a sandbox", e2b->who);
    if (!server) {
        out->url =
            str_of(arena_printf(arena, "https://%u-%.*s.%s", port, STR_ARG(ref->id), e2b->domain));
        out->local_url = out->url;
        return 0;
    }
    out->local_url = arena_str(arena, str_of(server));
    out->url =
        str_of(named_url(server, e2b->domain ? e2b->domain : "localhost", ref->id, port, arena));
    out->headers = arena_alloc(arena, 2 * sizeof(*out->headers));
    out->headers[0] = (struct provider_label){STR("E2b-Sandbox-Id"), arena_str(arena, ref->id)};
    out->headers[1] =
        (struct provider_label){STR("E2b-Sandbox-Port"), str_of(arena_printf(arena, "%u", port))};
    out->header_count = 2;
    return 0;
}
