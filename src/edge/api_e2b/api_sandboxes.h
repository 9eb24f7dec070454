/* Ids of sandboxes as they come in paths. */
#pragma once

#include <stdbool.h>

#include "base/error.h"
#include "base/str.h"

struct api_call;

/* A sandbox id as it stands in a path: "<id>" or "<id>-<clientID>". False when it is none. */
bool api_sandboxes_id(struct str param, struct str *out);
/* The same for the first parameter of a path; also one that only the runtime knows it by. What is no id is
 * ERROR_NOT_FOUND. */
int api_sandboxes_get_id(struct api_call *call, struct str *out, struct error *err);
