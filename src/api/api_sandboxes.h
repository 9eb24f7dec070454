/* What the tests of this folder need of the sandbox resource. */
#pragma once

#include <stdbool.h>

#include "base/str.h"

/* The sandbox id in a path parameter: "<id>" or "<id>-<clientID>". */
bool api_sandboxes_id(struct str param, struct str *out);
