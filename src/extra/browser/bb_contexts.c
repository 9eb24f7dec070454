/* Contexts. The service lets clients upload an encrypted profile to one; here only sessions fill them, so there is no address for it. */
#include "extra/browser/bb_internal.h"
#include "protocol/json/json_shape.h"

int bb_contexts_create(struct bb_call *call, struct error *err)
{
    struct store_browser_context context = {0};

    if (bb_check_project(call, call->json, err) < 0 ||
        browser_context_create(call->bb->config.browsers, call->team_id, &call->arena, &context,
                               err) < 0)
        return -1;
    call_answer(&call->call, 201,
                json_pack("{s:o, s:s, s:s, s:s, s:i}", "id", json_str(context.id), "uploadUrl", "",
                          "publicKey", "", "cipherAlgorithm", "", "initializationVectorSize", 0));
    return 0;
}

int bb_contexts_get(struct bb_call *call, struct error *err)
{
    struct store_browser_context context = {0};

    if (browser_context_get(call->bb->config.browsers, call->team_id, call->params[0], &call->arena,
                            &context, err) < 0)
        return -1;
    call_answer(&call->call, 200,
                json_pack("{s:o, s:o, s:o, s:o}", "id", json_str(context.id), "projectId",
                          json_str(context.team_id), "createdAt", bb_time(context.created_at_us),
                          "updatedAt", bb_time(context.updated_at_us)));
    return 0;
}

int bb_contexts_delete(struct bb_call *call, struct error *err)
{
    if (browser_context_delete(call->bb->config.browsers, call->team_id, call->params[0], err) < 0)
        return -1;
    call_answer(&call->call, 204, NULL);
    return 0;
}
