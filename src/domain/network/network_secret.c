#include "domain/network/network_secret.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "domain/network/network_rule.h"
#include "protocol/json/json_out.h"
#include "protocol/json/json_shape.h"

#define IDENTITY_OPEN "${e2b.identity."

static bool is_plain(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

bool network_secret_name_valid(struct str name)
{
    if (name.len == 0 || name.len > NETWORK_SECRET_NAME_MAX || !is_plain(name.p[0]))
        return false;
    for (size_t i = 0; i < name.len; i++)
        if (!is_plain(name.p[i]) && name.p[i] != '.' && name.p[i] != '_' && name.p[i] != '-')
            return false;
    return true;
}

static bool is_header_text(struct str value)
{
    for (size_t i = 0; i < value.len; i++) {
        unsigned char c = (unsigned char)value.p[i];

        if ((c < 0x20 && c != '\t') || c == 0x7f)
            return false;
    }
    return str_valid_utf8(value);
}

bool network_secret_value_valid(struct str value)
{
    return value.len > 0 && value.len <= NETWORK_SECRET_VALUE_MAX && is_header_text(value);
}

bool network_host_covers(struct str pattern, struct str host)
{
    if (str_eq(pattern, host))
        return true;
    if (!str_starts(pattern, STR("*.")))
        return false;
    pattern = str_skip(pattern, 1);
    return host.len > pattern.len && str_ends(host, pattern);
}

void network_wipe(struct buf *buf)
{
    if (buf->p)
        explicit_bzero(buf->p, buf->len);
    buf_done(buf);
}

/* ---- placeholders ---- */

/* What stands before the next placeholder goes to *out_before, its name to *out_name (STR_NONE when there is none), and *rest
 * is what follows. */
static void next_placeholder(struct str *rest, struct str *out_before, struct str *out_name)
{
    const struct str open = STR(NETWORK_SECRET_OPEN);
    ptrdiff_t at = str_find_str(*rest, open), end;

    *out_name = STR_NONE;
    *out_before = *rest;
    if (at < 0) {
        *rest = STR_NONE;
        return;
    }
    *out_before = str_n(rest->p, (size_t)at);
    *rest = str_skip(*rest, (size_t)at + open.len);
    end = str_find(*rest, NETWORK_SECRET_CLOSE[0]);
    *out_name = end < 0 ? STR("") : str_n(rest->p, (size_t)end);
    *rest = end < 0 ? STR_NONE : str_skip(*rest, (size_t)end + 1);
}

static int add_lower(struct str name, struct buf *out, struct error *err)
{
    char lower[NETWORK_SECRET_NAME_MAX];
    bool fits = name.len <= sizeof(lower);

    if (fits)
        str_lower(name, lower);
    if (!fits || !network_secret_name_valid(str_n(lower, name.len)))
        return error_set(err, ERROR_INVALID,
                         "a placeholder is '" NETWORK_SECRET_OPEN "NAME" NETWORK_SECRET_CLOSE
                         "' with the name of a secret");
    (void)buf_printf(out, NETWORK_SECRET_OPEN "%.*s" NETWORK_SECRET_CLOSE, (int)name.len, lower);
    return 0;
}

int network_secret_lower(struct str value, struct buf *out, struct error *err)
{
    struct str rest = value, before, name;

    if (!is_header_text(value))
        return error_set(err, ERROR_INVALID,
                         "its value must be text without line ends or other control characters");
    if (str_find_str(value, STR(IDENTITY_OPEN)) >= 0)
        return error_set(err, ERROR_UNSUPPORTED,
                         "placeholders '" IDENTITY_OPEN "…' are not supported by this server yet");
    while (rest.p) {
        next_placeholder(&rest, &before, &name);
        (void)buf_add_str(out, before);
        if (name.p && add_lower(name, out, err) < 0)
            return -1;
    }
    if (out->overflowed)
        return error_set(err, ERROR_INVALID, "its value has more than %d bytes",
                         NETWORK_HEADER_VALUE_MAX);
    return 0;
}

/* ---- filling in ---- */

/* No list has a quotation mark in it. */
bool network_has_rules(struct str policy)
{
    return str_find_str(policy, STR("\"rules\":")) >= 0;
}

bool network_fill_needed(struct str policy)
{
    return str_find_str(policy, STR(NETWORK_SECRET_OPEN)) >= 0 ||
           str_find_str(policy, STR("\"sealed\":")) >= 0;
}

static bool is_missing(const struct error *err)
{
    return err->code == ERROR_NOT_FOUND || err->code == ERROR_FORBIDDEN;
}

/* 0; 1: it has a secret that is not there; -1. */
static int fill_value(struct str value, struct str host, const struct network_filler *filler,
                      struct buf *out, struct error *err)
{
    struct str before, name;

    while (value.p) {
        next_placeholder(&value, &before, &name);
        (void)buf_add_str(out, before);
        if (name.p && filler->secret(filler->arg, name, host, out, err) < 0)
            return is_missing(err) && !filler->strict ? 1 : -1;
    }
    if (out->overflowed)
        return error_set(err, ERROR_INVALID,
                         "a header for '%.*s' has more than %d bytes with its secrets filled in",
                         STR_ARG(host), NETWORK_HEADER_VALUE_MAX);
    return 0;
}

static int fill_headers(json_t *headers, struct str host, const struct network_filler *filler,
                        struct buf *out, struct error *err)
{
    const char *name;
    json_t *value;

    json_out_open(out, NULL, '{');
    json_out_open(out, "transform", '{');
    json_out_open(out, "headers", '{');
    json_object_foreach (headers, name, value) {
        auto_wiped struct buf filled = {0};
        int r;

        buf_init(&filled, NETWORK_HEADER_VALUE_MAX);
        r = fill_value(str_n(json_string_value(value), json_string_length(value)), host, filler,
                       &filled, err);
        if (r < 0)
            return -1;
        json_out_name(out, str_of(name));
        if (r > 0)
            json_out_null(out, NULL);
        else
            json_out_str(out, NULL, buf_str(&filled));
    }
    json_out_close(out, "}}}");
    return 0;
}

static int fill_rules(json_t *rules, const struct network_filler *filler, struct buf *out,
                      struct error *err)
{
    const char *host;
    json_t *list, *rule;
    size_t i;

    json_out_open(out, NULL, '{');
    json_object_foreach (rules, host, list) {
        json_out_name(out, str_of(host));
        json_out_open(out, NULL, '[');
        json_array_foreach (list, i, rule) {
            json_t *transform = json_object_get(rule, "transform");

            if (fill_headers(json_object_get(transform, "headers"), str_of(host), filler, out,
                             err) < 0)
                return -1;
        }
        json_out_close(out, "]");
    }
    json_out_close(out, "}");
    return 0;
}

static int fill_proxy(const json_t *proxy, const struct network_filler *filler, struct buf *out,
                      struct error *err)
{
    struct str username = json_get_str(proxy, "username"), sealed = json_get_str(proxy, "sealed");
    auto_wiped struct buf password = {0};

    buf_init(&password, NETWORK_PROXY_WORD_MAX);
    if (sealed.p && filler->unseal(filler->arg, sealed, &password, err) < 0)
        return error_prefix(err, "the password of the egress proxy");
    json_out_open(out, NULL, '{');
    json_out_str(out, "address", json_get_str(proxy, "address"));
    if (username.p)
        json_out_str(out, "username", username);
    if (sealed.p)
        json_out_str(out, "password", buf_str(&password));
    json_out_close(out, "}");
    return 0;
}

static int fill_member(const char *name, json_t *value, const struct network_filler *filler,
                       struct buf *out, struct error *err)
{
    auto_free char *text = NULL;

    if (strcmp(name, "rules") == 0)
        return fill_rules(value, filler, out, err);
    if (strcmp(name, "egressProxy") == 0)
        return fill_proxy(value, filler, out, err);
    text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
    json_out_raw(out, NULL, str_of(text));
    return 0;
}

int network_fill(struct str policy, const struct network_filler *filler, struct buf *out,
                 struct error *err)
{
    auto_json json_t *tree = json_loadb(policy.p, policy.len, 0, NULL);
    const char *name;
    json_t *value;

    if (!tree)
        return error_set(err, ERROR_INTERNAL, "bad network of a sandbox in the store");
    buf_init(out, NETWORK_FILLED_MAX);
    json_out_open(out, NULL, '{');
    json_object_foreach (tree, name, value) {
        json_out_name(out, str_of(name));
        if (fill_member(name, value, filler, out, err) < 0)
            return -1;
    }
    json_out_close(out, "}");
    if (out->overflowed)
        return error_set(err, ERROR_INVALID,
                         "a sandbox's network has at most %d bytes with its secrets filled in",
                         NETWORK_FILLED_MAX);
    return 0;
}
