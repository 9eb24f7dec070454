/* The API's own description, as it was written. */
#include "edge/api_runtime/v1_openapi.h"
#include "base/alloc.h"
#include "edge/api_runtime/v1_internal.h"

int v1_openapi(struct v1_call *call, struct error *err)
{
    (void)err;
    call->text = xstrdup((const char *)v1_openapi_json);
    call->status = 200;
    return 0;
}
