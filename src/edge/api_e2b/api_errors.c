/* Error bodies of the control plane: always {"code":<HTTP status>,"message":"..."}; the SDKs decide
 * "not found" from the code in the body. */
#include "edge/api_e2b/api_internal.h"

#include "base/log.h"
#include "protocol/http/http_errors.h"
#include "protocol/json/json_shape.h"

struct error_body {
    int64_t code;
    struct str message;
};

static const struct json_field error_body_fields[] = {
    JSON_FIELD(struct error_body, code, "code", 0),
    JSON_FIELD(struct error_body, message, "message", 0),
    JSON_END,
};

char *api_error_text(int status, const char *message)
{
    struct error_body body = {.code = status, .message = str_of(message)};
    auto_json json_t *json = json_write(error_body_fields, &body);

    return json_text(json);
}

void api_fail(struct api_call *call, const struct error *err)
{
    call_fault(&call->call, err, api_error_text);
}
