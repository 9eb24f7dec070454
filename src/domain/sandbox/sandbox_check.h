/* What a request for a sandbox may ask for, as far as the request alone says it. */
#pragma once

#include "domain/sandbox/sandbox.h"

enum {
    SANDBOX_NAME_MAX = 256,          /* of a template */
    SANDBOX_PAIRS_MAX = 512,         /* of metadata, and of variables */
    SANDBOX_PAIRS_BYTES = 64 * 1024, /* metadata as JSON; names and values of variables */
};

/* ERROR_INVALID. sandbox_create() begins with it. */
int sandbox_new_check(const struct sandbox_new *request, int64_t max_timeout_s, struct error *err);
/* ERROR_INVALID: too many, too long, or not text. */
int sandbox_metadata_check(const struct pair *pairs, size_t count, struct error *err);
/* "Timeout cannot be greater than ... hours" */
int sandbox_timeout_check(int64_t timeout_s, int64_t max_timeout_s, struct error *err);
