/* The part of "network" that is about the way in: "allowPublicTraffic", "maskRequestHost", "httpsPorts". */
#include "domain/sandbox/sandbox.h"
#include "edge/api_e2b/api_types.h"
#include "protocol/json/json_shape.h"

bool api_ingress_has(const char *name)
{
    return strcmp(name, "allowPublicTraffic") == 0 || strcmp(name, "maskRequestHost") == 0 ||
           strcmp(name, "httpsPorts") == 0;
}

static int read_public(const json_t *value, struct api_new_sandbox *body, struct error *err)
{
    if (value && !json_is_boolean(value) && !json_is_null(value))
        return error_set(err, ERROR_INVALID, "'network.allowPublicTraffic' must be true or false");
    body->is_private = json_is_false(value);
    if (body->is_private && !body->secure)
        return error_set(err, ERROR_INVALID,
                         "You cannot create a sandbox without public access unless you enable "
                         "secure envd access via 'secure' flag.");
    return 0;
}

static int read_mask(const json_t *value, struct ingress *out, struct error *err)
{
    if (!value || json_is_null(value))
        return 0;
    if (!json_is_string(value))
        return error_set(err, ERROR_INVALID, "'network.maskRequestHost' must be a string");
    if (json_string_length(value) &&
        !ingress_set_mask(out, str_n(json_string_value(value), json_string_length(value))))
        return error_set(
            err, ERROR_INVALID,
            "mask request host is not valid: '%.100s' is no ASCII host with an optional "
            "port, in which ${PORT} stands for the port",
            json_string_value(value));
    return 0;
}

static int read_https(const json_t *ports, struct ingress *out, struct error *err)
{
    const json_t *port;
    size_t i;

    if (!ports || json_is_null(ports))
        return 0;
    if (!json_is_array(ports))
        return error_set(err, ERROR_INVALID, "'network.httpsPorts' must be an array");
    json_array_foreach (ports, i, port) {
        json_int_t number = json_integer_value(port);

        if (!json_is_integer(port) || number < 1 || number > UINT16_MAX)
            return error_set(err, ERROR_INVALID,
                             "'network.httpsPorts' must be numbers from 1 to 65535");
        if (!ingress_add_https(out, (uint16_t)number))
            return error_set(err, ERROR_INVALID, "'network.httpsPorts' has more than %d ports",
                             INGRESS_HTTPS_MAX);
    }
    return 0;
}

int api_ingress_read(const json_t *network, struct api_new_sandbox *body, struct error *err)
{
    if (read_public(json_object_get(network, "allowPublicTraffic"), body, err) < 0 ||
        read_mask(json_object_get(network, "maskRequestHost"), &body->ingress, err) < 0)
        return -1;
    return read_https(json_object_get(network, "httpsPorts"), &body->ingress, err);
}

void api_ingress_write(const struct sandbox_view *view, json_t *network)
{
    struct ingress ingress;
    json_t *ports;

    ingress_read(view->ingress, &ingress);
    (void)json_object_set_new(network, "allowPublicTraffic",
                              json_boolean(!view->traffic_token.len));
    if (ingress.mask[0])
        (void)json_object_set_new(network, "maskRequestHost", json_string(ingress.mask));
    if (!ingress.https_count)
        return;
    ports = json_array();
    for (size_t i = 0; i < ingress.https_count; i++)
        (void)json_array_append_new(ports, json_integer(ingress.https_ports[i]));
    (void)json_object_set_new(network, "httpsPorts", ports);
}
