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
    char general[96];
    const char *message = err->message;
    int status = http_error_status(err->code);

    if (err->code == ERROR_INTERNAL || err->code == ERROR_NONE) {
        log_error("api", "request=%s %.*s %.*s: %s", call->request_id, STR_ARG(call->method),
                  STR_ARG(call->path), err->message);
        (void)snprintf(general, sizeof(general),
                       "internal error; the server's log has the details under request=%s",
                       call->request_id);
        message = general;
        status = 500;
    }
    free(call->text);
    call->text = api_error_text(status, message);
    call->content_type = NULL;
    call->status = status;
    call->header_count = 0;
    if (status == 503 || status == 429)
        call_header(&call->call, "Retry-After", STR("1"));
}

int api_unsupported(struct api_call *call, struct error *err)
{
    return error_set(err, ERROR_UNSUPPORTED, "%s is not supported by this server yet",
                     call->endpoint->feature);
}
