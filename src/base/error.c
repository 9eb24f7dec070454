#include "base/error.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char *const code_names[] = {
    [ERROR_NONE] = "none",
    [ERROR_INVALID] = "invalid",
    [ERROR_UNAUTHORIZED] = "unauthorized",
    [ERROR_FORBIDDEN] = "forbidden",
    [ERROR_NOT_FOUND] = "not_found",
    [ERROR_CONFLICT] = "conflict",
    [ERROR_EXISTS] = "exists",
    [ERROR_LIMIT] = "limit",
    [ERROR_QUOTA] = "quota",
    [ERROR_NO_SPACE] = "no_space",
    [ERROR_TIMEOUT] = "timeout",
    [ERROR_UNAVAILABLE] = "unavailable",
    [ERROR_UNSUPPORTED] = "unsupported",
    [ERROR_INTERNAL] = "internal",
};
static_assert(sizeof(code_names) / sizeof(*code_names) == ERROR_CODE_COUNT, "one name per code");

const char *error_code_name(enum error_code code)
{
    return code_names[code];
}

int error_set(struct error *err, enum error_code code, const char *fmt, ...)
{
    va_list args;

    err->code = code;
    err->errnum = 0;
    err->retry_after_s = 0;
    va_start(args, fmt);
    (void)vsnprintf(err->message, sizeof(err->message), fmt, args);
    va_end(args);
    return -1;
}

static enum error_code code_of_errno(int errnum)
{
    switch (errnum) {
    case ENOENT:
        return ERROR_NOT_FOUND;
    case EEXIST:
        return ERROR_EXISTS;
    case ENOSPC:
    case EDQUOT:
        return ERROR_NO_SPACE;
    case ETIMEDOUT:
        return ERROR_TIMEOUT;
    default:
        return ERROR_INTERNAL;
    }
}

int error_set_errno(struct error *err, int errnum, const char *fmt, ...)
{
    va_list args;
    int len;

    err->code = code_of_errno(errnum);
    err->errnum = errnum;
    err->retry_after_s = 0;
    va_start(args, fmt);
    len = vsnprintf(err->message, sizeof(err->message), fmt, args);
    va_end(args);
    if (len >= 0 && (size_t)len < sizeof(err->message))
        (void)snprintf(err->message + len, sizeof(err->message) - (size_t)len, ": %s",
                       strerror(errnum));
    return -1;
}

int error_prefix(struct error *err, const char *fmt, ...)
{
    char old[sizeof(err->message)];
    va_list args;
    int len;

    memcpy(old, err->message, sizeof(old));
    va_start(args, fmt);
    len = vsnprintf(err->message, sizeof(err->message), fmt, args);
    va_end(args);
    if (len >= 0 && (size_t)len < sizeof(err->message))
        (void)snprintf(err->message + len, sizeof(err->message) - (size_t)len, ": %s", old);
    return -1;
}
