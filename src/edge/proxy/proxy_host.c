#include "edge/proxy/proxy_host.h"

static bool fail(const char **out_error, const char *error)
{
    *out_error = error;
    return false;
}

static bool take_port(struct str text, uint16_t *out)
{
    uint64_t value;

    if (text.len > 5 || !str_to_u64(text, &value) || value < 1 || value > UINT16_MAX)
        return false;
    *out = (uint16_t)value;
    return true;
}

/* An id, cut off before a '-': older clients append "-<client id>". */
static bool take_id(struct str text, char out[PROXY_ID_SIZE])
{
    struct str rest = text, id = str_split(&rest, '-');

    if (!id.len || id.len >= PROXY_ID_SIZE)
        return false;
    for (size_t i = 0; i < id.len; i++) {
        char c = ascii_lower(id.p[i]); /* host names have no case */

        if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9')))
            return false;
        out[i] = c;
    }
    out[id.len] = '\0';
    return true;
}

static struct str without_port(struct str host)
{
    ptrdiff_t at;

    if (host.len && host.p[0] == '[') { /* [v6]:port */
        at = str_find(host, ']');
        return at < 0 ? host : str_n(host.p, (size_t)at + 1);
    }
    at = str_find(host, ':');
    return at < 0 ? host : str_n(host.p, (size_t)at);
}

/* "<digits>-" in front and a dot somewhere behind. */
static bool has_label_form(struct str host)
{
    size_t digits = 0;

    while (digits < host.len && host.p[digits] >= '0' && host.p[digits] <= '9')
        digits++;
    return digits && digits < host.len && host.p[digits] == '-' && str_find(host, '.') > 0;
}

static bool parse_label(struct str host, struct proxy_target *out, const char **out_error)
{
    struct str rest = host, label = str_split(&rest, '.'), port = str_split(&label, '-');

    if (!take_port(port, &out->port) || !rest.len)
        return fail(out_error, "Invalid host");
    if (!take_id(label, out->id))
        return fail(out_error, "Invalid sandbox ID");
    return true;
}

static bool parse_headers(struct str id, struct str port, struct proxy_target *out,
                          const char **out_error)
{
    if (!id.len || !port.len)
        return fail(out_error, "missing header");
    if (!take_id(id, out->id))
        return fail(out_error, "Invalid sandbox ID");
    if (!take_port(port, &out->port))
        return fail(out_error, "Invalid sandbox port");
    return true;
}

enum proxy_host proxy_host_parse(struct str host, struct str id, struct str port,
                                 struct proxy_target *out, const char **out_error)
{
    bool ok;

    host = without_port(host);
    if (has_label_form(host))
        ok = parse_label(host, out, out_error);
    else if (!id.p && !port.p && !str_starts(host, STR("sandbox.")))
        return PROXY_HOST_NONE;
    else
        ok = parse_headers(id, port, out, out_error);
    out->place = has_label_form(host) || str_starts(host, STR("sandbox.")) ? PROXY_PLACE_OWN
                                                                           : PROXY_PLACE_HEADER;
    return ok ? PROXY_HOST_OK : PROXY_HOST_BAD;
}
