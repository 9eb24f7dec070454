/* Messages of envd as JSON, by the tables made from the .proto files: for tests and fakes that are to know nothing
 * of how the client reads and writes them. */
#pragma once

#include <jansson.h>

#include "base/buf.h"
#include "base/str.h"

/* The answer of a method, "/process.Process/Start", that JSON describes; in an envelope when framed. */
void envd_test_answer(struct buf *out, const char *method, const char *json, bool framed);
/* A request of it; NULL when it is not one. The caller's. */
json_t *envd_test_request(struct str path, struct str message);
