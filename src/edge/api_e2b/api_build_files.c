/* Files of COPY steps. A client asks for a link by the name it gave to the content (a hash), and puts a tar there
 * without an API key: the link says whose it is and until when, and is signed.
 *
 *   /templates/uploads/HASH?team=ID&expires=SECONDS[&length=BYTES]&signature=HEX
 *
 * A body whose length is not told has an end of its own (older SDKs send such): half of one is none either.
 *
 * Who may put something there is decided on the loop, before the first byte of the body is asked for. The body goes to
 * a file. */
#include "base/clock.h"
#include "domain/account/team.h"
#include "domain/build/build.h"
#include "domain/sandbox/sandbox_check.h"
#include "domain/secret/secret.h"
#include "domain/template/template.h"
#include "edge/api_e2b/api_builds.h"
#include "edge/api_e2b/api_query.h"
#include "protocol/json/json_shape.h"

#define PURPOSE "upload"

enum { LINK_S = 3600, HASH_LEN = 64, HOST_MAX = 255 };

struct link {
    struct str team_id, hash;
    int64_t expires_s;
    int64_t length; /* -1 = any */
};

static bool is_hash(struct str text)
{
    for (size_t i = 0; i < text.len; i++)
        if (!((text.p[i] >= '0' && text.p[i] <= '9') || (text.p[i] >= 'a' && text.p[i] <= 'f')))
            return false;
    return text.len == HASH_LEN;
}

static struct str link_text(const struct link *link, struct arena *arena)
{
    return str_of(arena_printf(arena, "%.*s %.*s %lld %lld", STR_ARG(link->team_id),
                               STR_ARG(link->hash), (long long)link->expires_s,
                               (long long)link->length));
}

/* ---- the link ---- */

static bool host_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '-' || c == ':' || c == '[' || c == ']' || c == '_';
}

/* What the client reached us by; behind a proxy that ends TLS, what that says. */
static struct str origin(struct api_call *call)
{
    struct str host = call->host;
    bool good = host.len > 0 && host.len <= HOST_MAX;

    for (size_t i = 0; good && i < host.len; i++)
        good = host_char(host.p[i]);
    if (!good)
        return str_of(call->api->config.url ? call->api->config.url : "");
    return str_of(arena_printf(
        &call->arena, "%s://%.*s",
        str_eq_nocase(call->forwarded_proto, STR("https")) ? "https" : "http", STR_ARG(host)));
}

static struct str make_url(struct api_call *call, const struct link *link)
{
    char signature[SECRET_SIGNATURE_SIZE], length[48] = "";

    secret_sign(call->api->config.secrets, PURPOSE, link_text(link, &call->arena), signature);
    if (link->length >= 0)
        (void)snprintf(length, sizeof(length), "&length=%lld", (long long)link->length);
    return str_of(arena_printf(&call->arena,
                               "%.*s/templates/uploads/%.*s?team=%.*s&expires=%lld%s&signature=%s",
                               STR_ARG(origin(call)), STR_ARG(link->hash), STR_ARG(link->team_id),
                               (long long)link->expires_s, length, signature));
}

/* "length" binds the link to it; E2B's clients do not say. */
static int read_length(struct str query, struct arena *arena, int64_t max, int64_t *out,
                       struct error *err)
{
    struct str text;
    uint64_t length;

    *out = -1;
    if (api_query_get(query, "length", arena, &text, err) < 0 ||
        api_query_number(query, "length", arena, 0, (uint64_t)max, &length, err) < 0)
        return -1;
    if (text.p)
        *out = (int64_t)length;
    return 0;
}

int api_build_files_link(struct api_call *call, struct error *err)
{
    struct link link = {.team_id = call->team_id,
                        .hash = call->params[1],
                        .expires_s = clock_wall_us() / 1000000 + LINK_S};
    struct template_view view = {0};
    bool present = false;

    if (!is_hash(link.hash))
        return error_set(err, ERROR_INVALID, "Invalid files hash");
    if (call->params[0].len > SANDBOX_NAME_MAX)
        return error_set(err, ERROR_NOT_FOUND, "there is no template of that name");
    if (read_length(call->query, &call->arena, call->api->config.upload_max, &link.length, err) <
            0 ||
        template_view(call->api->config.store, call->team_id, call->params[0], &call->arena, &view,
                      err) < 0 ||
        build_file_find(call->api->config.builds, call->team_id, link.hash, &present, err) < 0)
        return -1;
    call_answer(&call->call, 201,
                json_pack("{s:b,s:o}", "present", present, "url", json_str(make_url(call, &link))));
    return 0;
}

/* ---- the upload ---- */

static int read_link(struct api_call *call, struct link *out, struct str *out_signature,
                     struct error *err)
{
    uint64_t expires_s;

    *out = (struct link){.hash = call->params[0]};
    if (api_query_get(call->query, "team", &call->arena, &out->team_id, err) < 0 ||
        api_query_number(call->query, "expires", &call->arena, 0, INT64_MAX, &expires_s, err) < 0 ||
        read_length(call->query, &call->arena, INT64_MAX, &out->length, err) < 0 ||
        api_query_get(call->query, "signature", &call->arena, out_signature, err) < 0)
        return -1;
    out->expires_s = (int64_t)expires_s;
    return 0;
}

static int check_link(struct api_call *call, struct link *out, struct error *err)
{
    struct str signature;

    if (read_link(call, out, &signature, err) < 0)
        return -1;
    if (!out->team_id.len || out->team_id.len >= sizeof(call->who.team_id) || !signature.len ||
        !secret_signed(call->api->config.secrets, PURPOSE, link_text(out, &call->arena), signature))
        return error_set(err, ERROR_FORBIDDEN,
                         "this is not a link of this server: ask for one with GET "
                         "/templates/{templateID}/files/{hash}");
    if (out->expires_s < clock_wall_us() / 1000000)
        return error_set(err, ERROR_FORBIDDEN,
                         "the link has expired: ask for a new one with GET "
                         "/templates/{templateID}/files/{hash}");
    return 0;
}

int api_build_files_admit(struct api_call *call, int64_t length, struct error *err)
{
    struct link link;

    if (check_link(call, &link, err) < 0)
        return -1;
    if (length < 0 && link.length >= 0) {
        (void)error_set(err, ERROR_INVALID, "the upload must say how long it is: Content-Length");
        return 411;
    }
    if (link.length >= 0 && link.length != length)
        return error_set(err, ERROR_INVALID, "the link is for %lld bytes, and the body has %lld",
                         (long long)link.length, (long long)length);
    if (length == 0)
        return error_set(err, ERROR_INVALID, "the upload is empty");
    if (length > call->api->config.upload_max)
        return error_set(err, ERROR_LIMIT, "an upload has at most %lld MiB here",
                         (long long)(call->api->config.upload_max >> 20));
    (void)str_copy(link.team_id, call->who.team_id, sizeof(call->who.team_id));
    call->vouched = true;
    call->upload_length = length;
    call->file_max = length < 0 ? call->api->config.upload_max : length;
    call->file_kept = true;
    return 0;
}

int api_build_files_upload(struct api_call *call, struct error *err)
{
    struct store_team team;

    if (team_get(call->api->config.store, call->team_id, &call->arena, &team, err) < 0)
        return -1;
    if (team.banned)
        return error_set(err, ERROR_FORBIDDEN, "team is banned");
    if (call->body_length == 0)
        return error_set(err, ERROR_INVALID, "the upload is empty");
    if (build_file_add(call->api->config.builds, call->team_id, call->params[0], call->body_fd,
                       call->upload_length, err) < 0)
        return -1;
    call_answer(&call->call, 200, json_object());
    return 0;
}
