/* Requests of any operation, for tests that make them at random: the member that belongs to the operation is filled from
 * one set of values. */
#pragma once

#include "host/engine/engine_wire.h"

struct any_request {
    const char *name; /* LAYER_NAME_SIZE bytes, which need not end */
    const struct box_spec *spec;
    uint32_t offset;
    uint8_t frozen;
};

static inline void any_request_fill(struct engine_request *request, const struct any_request *from)
{
    const struct box_spec *spec = from->spec;

    if (request->op == ENGINE_OP_START || request->op == ENGINE_OP_CLAIM) {
        request->spec = *spec;
        return;
    }
    switch (request->op) {
    case ENGINE_OP_LIST:
        request->list.offset = from->offset;
        return;
    case ENGINE_OP_LAYER_PUBLISH:
        memcpy(request->layer_publish.snapshot, spec->layers[0], LAYER_NAME_SIZE);
        request->layer_publish.limit_bytes = spec->limits.disk_bytes;
        memcpy(request->layer_publish.layer, from->name, LAYER_NAME_SIZE);
        return;
    case ENGINE_OP_VOLUME_CREATE:
        request->volume_create.disk_bytes = spec->limits.disk_bytes;
        memcpy(request->volume_create.name, from->name, LAYER_NAME_SIZE);
        return;
    case ENGINE_OP_LAYER_LIST:
    case ENGINE_OP_LAYER_DELETE:
    case ENGINE_OP_LAYER_SEAL:
    case ENGINE_OP_LAYER_CHECK:
    case ENGINE_OP_VOLUME_DELETE:
    case ENGINE_OP_VOLUME_USAGE:
        memcpy(request->named.name, from->name, LAYER_NAME_SIZE);
        return;
    default:
        memcpy(request->box.id, spec->id, ID_SIZE);
    }
    if (request->op == ENGINE_OP_LIMIT)
        request->limit.limits = spec->limits;
    else if (request->op == ENGINE_OP_NETWORK)
        request->network.network = spec->network;
    else if (request->op == ENGINE_OP_FREEZE)
        request->freeze.frozen = from->frozen;
    else if (request->op == ENGINE_OP_SNAPSHOT)
        memcpy(request->snapshot.layer, from->name, LAYER_NAME_SIZE);
}
