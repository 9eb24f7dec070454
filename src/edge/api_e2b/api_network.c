/* The network of a running sandbox, by PUT /sandboxes/{id}/network: what is not given is cleared, but for the private network, of which
 * the SDKs know nothing: it is left by "peers": null. */
#include "domain/network/network_policy.h"
#include "domain/sandbox/sandbox.h"
#include "edge/api_e2b/api_internal.h"
#include "edge/api_e2b/api_sandboxes.h"
#include "edge/api_e2b/api_types.h"
#include "protocol/json/json_shape.h"

struct network_body {
    bool internet;
};

static const struct json_field network_fields[] = {
    JSON_FIELD(struct network_body, internet, "allow_internet_access", 0),
    JSON_END,
};

static int keep_peers(struct api_call *call, struct str id, json_t *tree, struct error *err)
{
    auto_json json_t *network = NULL;
    struct sandbox_view view;
    json_t *peers;

    if (json_object_get(tree, "peers"))
        return 0;
    if (sandbox_get(call->api->config.sandboxes, call->team_id, id, &call->arena, &view, err) < 0)
        return -1;
    if (view.network.len && json_parse(view.network, &network, err) < 0)
        return -1;
    peers = json_object_get(network, "peers");
    if (peers)
        (void)json_object_set(tree, "peers", peers);
    return 0;
}

int api_sandboxes_network(struct api_call *call, struct error *err)
{
    struct network_body body = {.internet = true};
    auto_json json_t *tree = NULL;
    struct network_policy policy;
    struct str id;

    if (api_sandboxes_get_id(call, &id, err) < 0 ||
        json_parse_as(network_fields, call->body.len ? call->body : STR("{}"), &body, &tree, err) <
            0 ||
        keep_peers(call, id, tree, err) < 0 ||
        network_policy_read(tree, body.internet, &call->arena, &policy, err) < 0)
        return -1;
    if (sandbox_set_network(call->api->config.sandboxes, call->team_id, id, &policy, err) < 0)
        return -1;
    call_answer(&call->call, 204, NULL);
    return 0;
}
