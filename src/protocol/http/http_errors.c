#include "protocol/http/http_errors.h"

#include <assert.h>

static const struct {
    int status;
    const char *connect_code;
} table[] = {
    [ERROR_NONE] = {500, "internal"}, /* an error without a code is our fault */
    [ERROR_INVALID] = {400, "invalid_argument"},
    [ERROR_UNAUTHORIZED] = {401, "unauthenticated"},
    [ERROR_FORBIDDEN] = {403, "permission_denied"},
    [ERROR_NOT_FOUND] = {404, "not_found"},
    [ERROR_CONFLICT] = {409, "failed_precondition"},
    [ERROR_EXISTS] = {409, "already_exists"},
    [ERROR_LIMIT] = {413, "resource_exhausted"},
    [ERROR_QUOTA] = {429, "resource_exhausted"},
    [ERROR_NO_SPACE] = {507, "resource_exhausted"},
    [ERROR_TIMEOUT] = {504, "deadline_exceeded"},
    [ERROR_UNAVAILABLE] = {503, "unavailable"},
    [ERROR_UNSUPPORTED] = {501, "unimplemented"},
    [ERROR_INTERNAL] = {500, "internal"},
};
static_assert(sizeof(table) / sizeof(table[0]) == ERROR_CODE_COUNT, "one row per error code");

int http_error_status(enum error_code code)
{
    return (unsigned)code < ERROR_CODE_COUNT ? table[code].status : 500;
}

const char *http_error_connect_code(enum error_code code)
{
    return (unsigned)code < ERROR_CODE_COUNT ? table[code].connect_code : "internal";
}
