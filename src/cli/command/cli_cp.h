/* What the tests of this folder need of cp. */
#pragma once

#include <stdbool.h>

#include "base/str.h"

/* Is it SANDBOX:PATH? */
bool cli_cp_split(const char *operand, struct str *out_id, const char **out_path);
