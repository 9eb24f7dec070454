/* Commands that have ended and whose output was kept. */
#include "edge/api_runtime/v1_types.h"
#include "protocol/json/json_shape.h"
#include "runtime/sandbox/kept.h"

enum { LIMIT_DEFAULT = 100, LIMIT_MAX = 1000 };

int v1_executions_list(struct v1_call *call, struct error *err)
{
    struct store_execution *items = NULL;
    struct store_execution_page page = {0};
    int64_t limit = LIMIT_DEFAULT;
    json_t *array, *next;
    size_t count = 0;

    if (v1_query_int(call, "before", 0, INT64_MAX, &page.before_us, err) < 0 ||
        v1_query_int(call, "limit", 1, LIMIT_MAX, &limit, err) < 0)
        return -1;
    page.limit = (size_t)limit;
    if (runtime_execution_list(call->v1->config.runtime, &call->caller, call->params[0], &page,
                               &call->arena, &items, &count, err) < 0)
        return -1;
    array = json_array();
    for (size_t i = 0; i < count; i++)
        (void)json_array_append_new(array, v1_types_execution(&items[i]));
    next = count == page.limit ? json_integer(items[count - 1].ended_at_us) : json_null();
    call_answer(&call->call, 200, json_pack("{s:o, s:o}", "executions", array, "next", next));
    return 0;
}

int v1_executions_get(struct v1_call *call, struct error *err)
{
    struct str sandbox_id = str_is(call->params[0], "-") ? STR_NONE : call->params[0];
    struct store_execution item = {0};
    json_t *out;

    if (runtime_execution_get(call->v1->config.runtime, &call->caller, sandbox_id, call->params[1],
                              &call->arena, &item, err) < 0)
        return -1;
    out = v1_types_execution(&item);
    (void)json_object_set_new(out, "stdout", json_str(item.out));
    (void)json_object_set_new(out, "stderr", json_str(item.err));
    call_answer(&call->call, 200, out);
    return 0;
}
