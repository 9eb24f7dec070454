/* Names of environment variables: the one rule for all ways in (requests, profiles, templates, images, envd). */
#pragma once

#include <stdbool.h>

#include "base/error.h"
#include "base/str.h"

enum { ENV_NAME_MAX = 1024, ENV_NAME_SHOWN_SIZE = 160 };

/* 1 to ENV_NAME_MAX bytes, without '=' and control characters. */
bool env_name_ok(struct str name);
/* ERROR_INVALID unless it is. `where` says where the name was given: "envVars". */
int env_name_check(const char *where, struct str name, struct error *err);
/* The name for people: control characters, quotes and backslashes are escaped, a long one is cut. */
void env_name_show(struct str name, char out[ENV_NAME_SHOWN_SIZE]);
