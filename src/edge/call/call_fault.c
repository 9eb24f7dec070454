/* What APIs do alike with a body of JSON, and with a failure: our own faults are told in full in the log only. */
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "edge/call/call.h"
#include "protocol/http/http_errors.h"
#include "protocol/json/json_shape.h"

int call_json(const struct call *call, json_t **out, struct error *err)
{
    if (str_trim(call->body).len == 0) {
        *out = json_object();
        return 0;
    }
    if (json_parse(call->body, out, err) < 0)
        return -1;
    return json_is_object(*out) ? 0
                                : error_set(err, ERROR_INVALID, "the body must be a JSON object");
}

void call_fault(struct call *call, const struct error *err,
                char *(*write)(int status, const char *message))
{
    int status = http_error_status(err->code);
    const char *message = err->message;
    char general[96];

    if (err->code == ERROR_INTERNAL || err->code == ERROR_NONE) {
        log_error(call->desk->ops->name, "request=%s %.*s %.*s: %s", call->request_id,
                  STR_ARG(call->method), STR_ARG(call->path), err->message);
        (void)snprintf(general, sizeof(general),
                       "internal error; the server's log has the details under request=%s",
                       call->request_id);
        message = general;
        status = 500;
    }
    free(call->text);
    call->text = write(status, message);
    call->content_type = NULL;
    call->status = status;
    call->header_count = 0;
    if (status == 503 || status == 429)
        call_header(call, "Retry-After", STR("1"));
}
