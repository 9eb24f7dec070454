/* A request, as lines "METHOD TARGET", then the body: through endpoints, decoding and a handler. */
#include <stddef.h>
#include <stdint.h>

#include "base/log.h"
#include "edge/api_runtime/test/v1_fake.h"
#include "edge/api_runtime/v1_internal.h"
#include "protocol/json/json_shape.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Those that need a connection are not for here. */
static bool takes_part(const struct v1_endpoint *endpoint)
{
    return !(endpoint->flags & (V1_RAW | V1_UPGRADE | V1_STREAM));
}

static void handle(struct v1_call *call, struct str body)
{
    struct error err = {0};

    if (json_parse(body, &call->json, &err) < 0 || !json_is_object(call->json)) {
        json_decref(call->json);
        call->json = json_object();
    }
    if (call->endpoint->handler(call, &err) < 0)
        v1_fail(call, &err);
    if (call->status < 200 || call->status > 599)
        __builtin_trap();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct v1 v1;
    struct v1_call call = {.v1 = &v1, .request_id = "0123456789abcdef"};
    struct str body = str_n(data, size), head = str_split(&body, '\n');
    char allow[HTTP_ALLOW_SIZE];

    log_set_level(LOG_ERROR);
    v1_fake.asked[0] = '\0';
    call_pipe_init(&call.pipe, &call.call);
    call.method = str_split(&head, ' ');
    call.query = head;
    call.path = str_split(&call.query, '?');
    call.caller.team_id = STR("team-1");
    if (v1_endpoints_find(call.method, call.path, &call.arena, &call.endpoint, call.params,
                          allow) == CALL_FOUND &&
        takes_part(call.endpoint))
        handle(&call, body);
    free(call.text);
    json_decref(call.json);
    arena_done(&call.arena);
    call_pipe_done(&call.pipe);
    return 0;
}
