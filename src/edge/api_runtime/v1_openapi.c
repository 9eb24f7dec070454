/* The API's own description, as it was written. */
#include "edge/api_runtime/v1_openapi.h"
#include "edge/api_runtime/v1_internal.h"

int v1_openapi(struct v1_call *call, struct error *err)
{
    (void)err;
    call_answer_static(&call->call, 200, str_of((const char *)v1_openapi_json));
    return 0;
}
