/* Names of providers, backends, profiles and runners. */
#pragma once

#include <stdbool.h>

#include "base/str.h"
#include "runtime/core/settings.h"

/* Trimmed and in lower case; false when it is empty or too long. */
bool runtime_provider_word(struct str name, char out[RUNTIME_NAME_MAX + 1]);
/* The type behind a word, which may be an alias ("local" is "process"); other words stay as they are. */
const char *runtime_provider_type(const char *word);
/* [a-z0-9][a-z0-9._-]*, at most RUNTIME_NAME_MAX: names of backends, profiles and runners. */
bool runtime_name_valid(struct str name);
