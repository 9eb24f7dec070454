/* Whether arguments are as a tool's schema says. The part of JSON Schema that tools.json uses: type (one or several),
 * properties, required, additionalProperties, items, enum, minimum, maximum. */
#pragma once

#include <jansson.h>

#include "base/error.h"

/* ERROR_INVALID names the member and what it must be. */
int mcp_schema_check(const json_t *schema, json_t *value, struct error *err);
