#include "provider/envd/envd_machine.h"

#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "provider/core/rest.h"

#define auto_place __attribute__((cleanup(place_done)))

static void place_done(struct envd_place *place)
{
    arena_done(&place->arena);
}

int envd_place_token(struct provider *provider, const struct provider_ref *ref,
                     struct envd_place *place, struct error *err)
{
    struct provider_sandbox sandbox = {0};

    if (ref->token.len)
        return 0;
    if (provider->ops->get(provider, ref, &place->arena, &sandbox, err) < 0)
        return -1;
    place->address.token = sandbox.token;
    return 0;
}

static int find_place(struct provider *provider, const struct provider_ref *ref,
                      struct envd_place *place, struct error *err)
{
    const char *who = arena_printf(&place->arena, "provider '%s'", provider->name);

    place->address = (struct envd_address){
        .fetch = provider->fetch, .who = who, .base = place->base, .token = ref->token};
    if (!rest_id_valid(ref->id))
        return error_set(err, ERROR_INVALID, "%s: this is not the id of a sandbox", who);
    return provider->ops->envd(provider, ref, place, err);
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
    auto_arena struct arena arena = {0};
    struct provider_sandbox sandbox = {0};
    bool begun = may_have_begun(err);
    struct error why = {0};

    if (err->code != ERROR_UNAVAILABLE && err->code != ERROR_CONFLICT)
        return -1;
    if (provider->ops->get(provider, ref, &arena, &sandbox, &why) < 0 &&
        why.code == ERROR_NOT_FOUND) {
        *err = why;
        return -1;
    }
    if ((!why.code && (sandbox.state == PROVIDER_PAUSED || sandbox.state == PROVIDER_PAUSING)) ||
        strstr(err->message, "The sandbox is paused") ||
        (!why.code && strstr(err->message, "paused or ended before it answered"))) {
        (void)error_set(err, ERROR_CONFLICT, "provider '%s': the sandbox '%.*s' %s", provider->name,
                        STR_ARG(ref->id), begun ? "was paused before it answered" : "is paused");
        err->errnum = EHOSTDOWN;
    }
    if (begun)
        err->errnum = ECONNABORTED;
    return -1;
}

int envd_machine_start(struct provider *provider, const struct provider_ref *ref,
                       const struct provider_command *command, struct provider_process **out,
                       struct error *err)
{
    auto_place struct envd_place place = {0};

    if (find_place(provider, ref, &place, err) < 0 ||
        envd_start(&place.address, command, out, err) < 0)
        return explain(provider, ref, err);
    return 0;
}

int envd_machine_attach(struct provider *provider, const struct provider_ref *ref, const char *tag,
                        int64_t pid, struct provider_process **out, struct error *err)
{
    auto_place struct envd_place place = {0};

    if (find_place(provider, ref, &place, err) < 0 ||
        envd_attach(&place.address, tag, pid, out, err) < 0)
        return explain(provider, ref, err);
    return 0;
}

int envd_machine_read(struct provider *provider, const struct provider_ref *ref, const char *path,
                      provider_sink_fn *sink, void *arg, struct error *err)
{
    auto_place struct envd_place place = {0};

    if (find_place(provider, ref, &place, err) < 0 ||
        envd_read(&place.address, path, sink, arg, err) < 0)
        return explain(provider, ref, err);
    return 0;
}

int envd_machine_write(struct provider *provider, const struct provider_ref *ref, const char *path,
                       provider_source_fn *source, void *arg, int64_t length, struct error *err)
{
    auto_place struct envd_place place = {0};

    if (find_place(provider, ref, &place, err) < 0 ||
        envd_write(&place.address, path, source, arg, length, err) < 0)
        return explain(provider, ref, err);
    return 0;
}

int envd_machine_list(struct provider *provider, const struct provider_ref *ref, const char *path,
                      struct arena *arena, struct provider_file **out, size_t *out_count,
                      struct error *err)
{
    auto_place struct envd_place place = {0};

    if (find_place(provider, ref, &place, err) < 0 ||
        envd_list(&place.address, path, arena, out, out_count, err) < 0)
        return explain(provider, ref, err);
    return 0;
}

int envd_machine_remove(struct provider *provider, const struct provider_ref *ref, const char *path,
                        struct error *err)
{
    auto_place struct envd_place place = {0};

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

void envd_machine_address(const char *server, const char *domain, struct str id, uint16_t port,
                          struct arena *arena, struct provider_address *out)
{
    out->local_url = arena_str(arena, str_of(server));
    out->url = str_of(named_url(server, domain ? domain : "localhost", id, port, arena));
    out->headers = arena_alloc(arena, 3 * sizeof(*out->headers)); /* one more may be added */
    out->headers[0] = (struct provider_label){STR("E2b-Sandbox-Id"), arena_str(arena, id)};
    out->headers[1] =
        (struct provider_label){STR("E2b-Sandbox-Port"), str_of(arena_printf(arena, "%u", port))};
    out->header_count = 2;
}
