/* The types of providers of this build, for programs and for libquicksand; made by tools/extras.py. */
#pragma once

#include "provider/core/provider_ops.h"

extern const struct provider_type *const extra_providers[];
