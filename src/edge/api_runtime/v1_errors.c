/* Error bodies of the runtime's API: {"error":{"code","message","retryable","details"}}. */
#include "edge/api_runtime/v1_internal.h"

#include <assert.h>
#include <errno.h>

#include "base/log.h"
#include "protocol/json/json_shape.h"

static const struct {
    int status;
    const char *code;
    bool retryable;
} table[] = {
    [ERROR_NONE] = {500, "internal", false},
    [ERROR_INVALID] = {400, "invalid", false},
    /* Our own 401 never comes this way (see v1_fail()): here a provider has refused our key. */
    [ERROR_UNAUTHORIZED] = {502, "provider_unauthorized", false},
    [ERROR_FORBIDDEN] = {403, "forbidden", false},
    [ERROR_NOT_FOUND] = {404, "not_found", false},
    [ERROR_CONFLICT] = {409, "conflict", false},
    [ERROR_EXISTS] = {409, "exists", false},
    [ERROR_LIMIT] = {413, "too_large", false},
    [ERROR_QUOTA] = {429, "quota", true},
    [ERROR_NO_SPACE] = {507, "no_space", false},
    [ERROR_TIMEOUT] = {504, "timeout", true},
    [ERROR_UNAVAILABLE] = {502, "provider", true},
    [ERROR_UNSUPPORTED] = {409, "unsupported", false},
    [ERROR_INTERNAL] = {500, "internal", false},
};
static_assert(sizeof(table) / sizeof(table[0]) == ERROR_CODE_COUNT, "one row per error code");

char *v1_error_text(const char *code, const char *message, bool retryable, json_t *details)
{
    auto_json json_t *body = json_pack("{s:{s:s, s:o, s:b, s:o}}", "error", "code", code, "message",
                                       json_str(str_of(message)), "retryable", (int)retryable,
                                       "details", details ? json_incref(details) : json_object());

    return json_text(body);
}

static void set(struct v1_call *call, int status, int retry_after_s, char *text_consume)
{
    free(call->text);
    call->text = text_consume;
    call->content_type = NULL;
    call->status = status;
    call->header_count = 0;
    if (!retry_after_s && status == 429)
        retry_after_s = 5;
    else if (!retry_after_s && status == 503)
        retry_after_s = 1;
    if (retry_after_s > 0)
        call_header(&call->call, "Retry-After",
                    str_of(arena_printf(&call->arena, "%d", retry_after_s)));
    if (status == 401)
        call_header(&call->call, "WWW-Authenticate", STR("Bearer"));
}

void v1_refuse(struct v1_call *call, int status, const char *code, const char *message,
               json_t *details)
{
    set(call, status, 0, v1_error_text(code, message, status == 503, details));
}

/* *out_status: the answer's, where that has not begun. */
static char *tell(struct v1_call *call, const struct error *err, int *out_status)
{
    unsigned row = (unsigned)err->code < ERROR_CODE_COUNT ? err->code : ERROR_INTERNAL;
    auto_json json_t *details = json_pack("{s:s}", "request_id", call->request_id);
    char general[96], told[sizeof(err->message)];
    bool ours = row == ERROR_INTERNAL || row == ERROR_NONE;
    bool again = err->retry_after_s != ERROR_RETRY_NEVER;

    /* A provider's words may repeat the key it was asked with. */
    (void)snprintf(told, sizeof(told), "%s", err->message);
    runtime_mask(call->v1->config.runtime, call->caller.team_id, told);
    if (ours || table[row].status >= 500)
        log_write(ours ? LOG_ERROR : LOG_WARN, "v1", "request=%s %.*s %.*s agent=%.*s: %s",
                  call->request_id, STR_ARG(call->method), STR_ARG(call->path),
                  STR_ARG(call->caller.agent_id), told);
    if (ours) {
        (void)snprintf(general, sizeof(general),
                       "internal error; the server's log has the details under request=%s",
                       call->request_id);
        *out_status = 500;
        return v1_error_text("internal", general, false, details);
    }
    if (row == ERROR_UNAUTHORIZED && !call->caller.team_id.len) {
        *out_status = 401;
        return v1_error_text("unauthorized", told, false, details);
    }
    if (row == ERROR_UNAVAILABLE && err->errnum == EBUSY) {
        *out_status = 503;
        return v1_error_text("unavailable", told, again, details);
    }
    *out_status = table[row].status;
    return v1_error_text(table[row].code, told, table[row].retryable && again, details);
}

void v1_fail(struct v1_call *call, const struct error *err)
{
    int status;
    char *text = tell(call, err, &status);

    set(call, status, err->retry_after_s, text);
}

char *v1_fail_text(struct v1_call *call, const struct error *err)
{
    int status;

    return tell(call, err, &status);
}
