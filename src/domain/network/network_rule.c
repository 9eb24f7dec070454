#include "domain/network/network_rule.h"

#include <ctype.h>
#include <string.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "domain/network/network_policy.h"
#include "domain/network/network_secret.h"
#include "protocol/json/json_shape.h"

enum { WORD_SHOWN = 100 };

static bool is_none(const json_t *value)
{
    return !value || json_is_null(value);
}

static int unknown_member(const char *where, const char *name, struct error *err)
{
    return error_set(
        err, ERROR_UNSUPPORTED,
        "the option 'network.%s' has a member '%.60s', which this server does not know", where,
        name);
}

/* The first member of an object that is not among these; names ends with NULL. */
static const char *first_other(json_t *object, const char *const *names)
{
    const char *key;
    json_t *value;

    json_object_foreach (object, key, value) {
        const char *const *at = names;

        while (*at && strcmp(*at, key) != 0)
            at++;
        if (!*at)
            return key;
    }
    return NULL;
}

/* ---- headers ---- */

/* Headers that say where a message ends or where it goes. */
static bool is_taken(const char *name)
{
    static const char *const names[] = {"host",
                                        "content-length",
                                        "transfer-encoding",
                                        "connection",
                                        "keep-alive",
                                        "upgrade",
                                        "te",
                                        "trailer",
                                        "expect",
                                        "http2-settings"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strcasecmp(name, names[i]) == 0)
            return true;
    return strncasecmp(name, "proxy-", 6) == 0 || strncasecmp(name, "sec-websocket-", 14) == 0;
}

static int add_header(const char *host, const char *name, const json_t *value, json_t *out,
                      struct error *err)
{
    auto_buf struct buf text = {0};

    if (!str_is_token(str_of(name)) || strlen(name) > NETWORK_HEADER_NAME_MAX || is_taken(name))
        return error_set(
            err, ERROR_INVALID,
            "a rule for '%s' cannot set the header '%.60s': it is no header's name, or "
            "one of the connection itself",
            host, name);
    if (!json_is_string(value))
        return error_set(err, ERROR_INVALID, "a rule for '%s': the header '%.60s' must be a string",
                         host, name);
    buf_init(&text, NETWORK_HEADER_VALUE_MAX);
    if (network_secret_lower(str_n(json_string_value(value), json_string_length(value)), &text,
                             err) < 0)
        return error_prefix(err, "a rule for '%s', header '%.60s'", host, name);
    return json_object_set_new(out, name, json_str(buf_str(&text)));
}

static int read_headers(const char *host, json_t *headers, size_t *count, json_t **out,
                        struct error *err)
{
    auto_json json_t *made = json_object();
    const char *name;
    json_t *value;

    if (!is_none(headers) && !json_is_object(headers))
        return error_set(err, ERROR_INVALID, "a rule for '%s': 'headers' must be an object", host);
    json_object_foreach (headers, name, value) {
        if (++*count > NETWORK_RULE_HEADERS_MAX)
            return error_set(err, ERROR_INVALID, "the rules for '%s' set more than %d headers",
                             host, NETWORK_RULE_HEADERS_MAX);
        if (add_header(host, name, value, made, err) < 0)
            return -1;
    }
    *out = json_incref(made);
    return 0;
}

/* ---- rules ---- */

static int add_rule(const char *host, json_t *rule, size_t *count, json_t *out, struct error *err)
{
    static const char *const of_rule[] = {"transform", NULL}, *const of_transform[] = {"headers",
                                                                                       NULL};
    json_t *transform = json_object_get(rule, "transform"), *headers = NULL;
    const char *other = first_other(rule, of_rule);

    if (!json_is_object(rule) || (!is_none(transform) && !json_is_object(transform)))
        return error_set(err, ERROR_INVALID,
                         "a rule for '%s' must be an object, and so must its "
                         "'transform'",
                         host);
    if (!other)
        other = first_other(transform, of_transform);
    if (other)
        return unknown_member("rules", other, err);
    if (is_none(transform)) {
        (void)json_array_append_new(out, json_object());
        return 0;
    }
    if (read_headers(host, json_object_get(transform, "headers"), count, &headers, err) < 0)
        return -1;
    (void)json_array_append_new(out, json_pack("{s:{s:o}}", "transform", "headers", headers));
    return 0;
}

static int read_list(const char *host, const json_t *list, json_t *out, struct error *err)
{
    size_t i, headers = 0;
    json_t *rule;

    if (!json_is_array(list) || json_array_size(list) > NETWORK_RULES_MAX)
        return error_set(err, ERROR_INVALID, "the rules for '%s' must be an array of at most %d",
                         host, NETWORK_RULES_MAX);
    json_array_foreach (list, i, rule)
        if (add_rule(host, rule, &headers, out, err) < 0)
            return -1;
    return 0;
}

static bool read_host(const char *key, char out[NETWORK_NAME_MAX + 3])
{
    size_t len = strlen(key);

    if (len && key[len - 1] == '.')
        len--;
    if (len > NETWORK_NAME_MAX + 2 || !network_name_valid(str_n(key, len)))
        return false;
    str_lower(str_n(key, len), out);
    out[len] = '\0';
    return true;
}

static int add_host(const char *key, const json_t *list, json_t *out, struct error *err)
{
    char host[NETWORK_NAME_MAX + 3];
    json_t *made;

    if (!read_host(key, host))
        return error_set(err, ERROR_INVALID,
                         "'%.100s' in 'rules' is no host's name, nor '*.' and one", key);
    if (json_object_get(out, host))
        return error_set(err, ERROR_INVALID, "'rules' has '%s' twice", host);
    made = json_array();
    (void)json_object_set_new(out, host, made);
    return read_list(host, list, made, err);
}

int network_rules_read(const json_t *rules, json_t **out, struct error *err)
{
    auto_json json_t *made = json_object();

    *out = NULL;
    if (is_none(rules) || (json_is_object(rules) && !json_object_size(rules)))
        return 0;
    if (!json_is_object(rules) || json_object_size(rules) > NETWORK_RULE_HOSTS_MAX)
        return error_set(err, ERROR_INVALID, "'rules' must be an object of at most %d hosts",
                         NETWORK_RULE_HOSTS_MAX);
    /* json_object_foreach() wants a non-const object although it only reads. */
    for (void *at = json_object_iter((json_t *)(uintptr_t)rules); at;
         at = json_object_iter_next((json_t *)(uintptr_t)rules, at))
        if (add_host(json_object_iter_key(at), json_object_iter_value(at), made, err) < 0)
            return -1;
    *out = json_incref(made);
    return 0;
}

/* ---- the proxy ---- */

static bool port_valid(struct str text)
{
    uint64_t port;

    return text.len <= 5 && str_to_u64(text, &port) && port >= 1 && port <= 65535;
}

static bool is_address(struct str host)
{
    size_t dots = 0;

    for (size_t i = 0; i < host.len; i++) {
        if (host.p[i] != '.' && !isdigit((unsigned char)host.p[i]))
            return false;
        dots += host.p[i] == '.';
    }
    return dots == 3 && network_address_valid(host);
}

/* "host:port", "socks5://host:port" (the same) or "http://host:port"; in lower case. */
static int read_address(struct str given, char *out, size_t size, struct error *err)
{
    struct str rest = given, host;
    bool is_http = false;

    if (str_starts(rest, STR("socks5://")))
        rest = str_skip(rest, strlen("socks5://"));
    else if ((is_http = str_starts(rest, STR("http://"))))
        rest = str_skip(rest, strlen("http://"));
    host = str_split(&rest, ':');
    if (!rest.p || !port_valid(rest) ||
        !(is_address(host) || (network_name_valid(host) && !str_starts(host, STR("*.")))))
        return error_set(err, ERROR_INVALID,
                         "'egressProxy.address' must be HOST:PORT of a SOCKS5 proxy, or "
                         "http://HOST:PORT of one that speaks HTTP; not '%.*s'",
                         (int)(given.len < WORD_SHOWN ? given.len : WORD_SHOWN), given.p);
    (void)snprintf(out, size, "%s%.*s:%.*s", is_http ? "http://" : "", STR_ARG(host),
                   STR_ARG(rest));
    str_lower(str_of(out), out);
    return 0;
}

struct proxy_words {
    struct str address, username, password, sealed;
};

static const struct json_field proxy_fields[] = {
    JSON_FIELD(struct proxy_words, address, "address", JSON_REQUIRED),
    JSON_FIELD(struct proxy_words, username, "username", 0),
    JSON_FIELD(struct proxy_words, password, "password", 0),
    JSON_FIELD(struct proxy_words, sealed, "sealed", 0),
    JSON_END,
};

static int check_word(const char *name, struct str word, struct error *err)
{
    if (word.p && (word.len > NETWORK_PROXY_WORD_MAX || !network_secret_value_valid(word)))
        return error_set(err, ERROR_INVALID,
                         "'egressProxy.%s' must have 1 to %d bytes of text without control "
                         "characters",
                         name, NETWORK_PROXY_WORD_MAX);
    return 0;
}

static json_t *proxy_json(const char *address, const struct proxy_words *words)
{
    json_t *made = json_pack("{s:s}", "address", address);

    if (words->username.p)
        (void)json_object_set_new(made, "username", json_str(words->username));
    if (words->password.p)
        (void)json_object_set_new(made, "password", json_str(words->password));
    if (words->sealed.p)
        (void)json_object_set_new(made, "sealed", json_str(words->sealed));
    return made;
}

int network_proxy_read(const json_t *proxy, bool stored, json_t **out, struct error *err)
{
    static const char *const known[] = {"address", "username", "password", "sealed", NULL};
    char address[sizeof("http://:65535") + NETWORK_NAME_MAX];
    struct proxy_words words = {.address = STR_NONE};
    const char *other;

    *out = NULL;
    if (is_none(proxy))
        return 0;
    if (!json_is_object(proxy))
        return error_set(err, ERROR_INVALID, "'egressProxy' must be an object");
    other = first_other((json_t *)(uintptr_t)proxy, known);
    if (!other && !stored && json_object_get(proxy, "sealed"))
        other = "sealed";
    if (other)
        return unknown_member("egressProxy", other, err);
    if (json_read(proxy_fields, proxy, &words, err) < 0)
        return error_prefix(err, "'egressProxy'");
    if (read_address(words.address, address, sizeof(address), err) < 0 ||
        check_word("username", words.username, err) < 0 ||
        check_word("password", words.password, err) < 0)
        return -1;
    if ((words.password.p || words.sealed.p) && !words.username.p)
        return error_set(err, ERROR_INVALID, "'egressProxy.password' needs a 'username'");
    *out = proxy_json(address, &words);
    return 0;
}
