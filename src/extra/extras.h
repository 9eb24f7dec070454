/* The extras of this build, NULL-terminated; made by tools/extras.py. */
#pragma once

#include "extra/core/extra.h"

extern const struct extra *const extras[];
