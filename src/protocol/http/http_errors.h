/* The one table from error codes to HTTP statuses and Connect codes. */
#pragma once

#include "base/error.h"

int http_error_status(enum error_code code);
/* "invalid_argument", "not_found", ...: Connect protocol names. */
const char *http_error_connect_code(enum error_code code);
