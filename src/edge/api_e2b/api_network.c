/* The network of a sandbox, at create and by PUT /sandboxes/{id}/network, where what is not given is
 * cleared. Lists of addresses cannot be enforced yet, except the one that denies everything. */
#include <arpa/inet.h>

#include "domain/sandbox/sandbox.h"
#include "edge/api_e2b/api_internal.h"
#include "edge/api_e2b/api_sandboxes.h"
#include "edge/api_e2b/api_types.h"
#include "protocol/json/json_shape.h"

#define EVERYTHING API_NETWORK_EVERYTHING

struct network_body {
    json_t *allow_out, *deny_out, *rules, *egress_proxy;
    bool internet;
};

static const struct json_field network_fields[] = {
    JSON_FIELD(struct network_body, allow_out, "allowOut", 0),
    JSON_FIELD(struct network_body, deny_out, "denyOut", 0),
    JSON_FIELD(struct network_body, rules, "rules", 0),
    JSON_FIELD(struct network_body, egress_proxy, "egressProxy", 0),
    JSON_FIELD(struct network_body, internet, "allow_internet_access", 0),
    JSON_END,
};

/* An address, or an address and the length of a prefix. */
static bool is_cidr(struct str text)
{
    struct str address = str_split(&text, '/');
    unsigned char bytes[16];
    uint64_t bits;
    char copy[INET6_ADDRSTRLEN];
    bool v6;

    if (!str_copy(address, copy, sizeof(copy)))
        return false;
    v6 = inet_pton(AF_INET6, copy, bytes) == 1;
    return (v6 || inet_pton(AF_INET, copy, bytes) == 1) &&
           (!text.p || (str_to_u64(text, &bits) && bits <= (v6 ? 128 : 32)));
}

static int check_strings(const json_t *array, const char *name, struct error *err)
{
    const json_t *item;
    size_t i;

    if (array && !json_is_null(array) && !json_is_array(array))
        return error_set(err, ERROR_INVALID, "'%s' must be an array", name);
    json_array_foreach (array, i, item) {
        if (!json_is_string(item))
            return error_set(err, ERROR_INVALID, "'%s' must be an array of strings", name);
    }
    return 0;
}

int api_network_lists(const json_t *allow_out, const json_t *deny_out, bool *out_deny_all,
                      struct error *err)
{
    const json_t *item;
    size_t i;

    *out_deny_all = false;
    if (check_strings(allow_out, "allowOut", err) < 0 ||
        check_strings(deny_out, "denyOut", err) < 0)
        return -1;
    json_array_foreach (deny_out, i, item) {
        if (!is_cidr(str_of(json_string_value(item))))
            return error_set(err, ERROR_INVALID, "invalid denied CIDR %.100s",
                             json_string_value(item));
        *out_deny_all |= strcmp(json_string_value(item), EVERYTHING) == 0;
    }
    json_array_foreach (allow_out, i, item) {
        if (!is_cidr(str_of(json_string_value(item))) && !*out_deny_all)
            return error_set(err, ERROR_INVALID,
                             "domains in 'allowOut' need '" EVERYTHING "' in 'denyOut'");
    }
    return 0;
}

static bool is_empty(const json_t *value)
{
    return !value || json_is_null(value) || (json_is_array(value) && !json_array_size(value)) ||
           (json_is_object(value) && !json_object_size(value));
}

int api_sandboxes_network(struct api_call *call, struct error *err)
{
    struct network_body body = {.internet = true};
    auto_json json_t *tree = NULL;
    bool deny_all;
    struct str id;

    if (api_sandboxes_get_id(call, &id, err) < 0 ||
        json_parse_as(network_fields, call->body.len ? call->body : STR("{}"), &body, &tree, err) <
            0 ||
        api_network_lists(body.allow_out, body.deny_out, &deny_all, err) < 0)
        return -1;
    if (!is_empty(body.allow_out) || !is_empty(body.rules) || !is_empty(body.egress_proxy) ||
        (!is_empty(body.deny_out) && !deny_all))
        return error_set(err, ERROR_UNSUPPORTED,
                         "network rules beyond all or nothing ('allow_internet_access', or "
                         "'denyOut' with '" EVERYTHING "') are not supported by this server yet");
    if (sandbox_set_internet(call->api->config.sandboxes, call->team_id, id,
                             body.internet && !deny_all, err) < 0)
        return -1;
    call_answer(&call->call, 204, NULL);
    return 0;
}
