/* What an authority looks for on port 80: files that `quicksand tls acme` left in DATA/tls/challenges. */
#pragma once

#include <stdbool.h>

struct http_exchange;

#define ACME_ANSWER_PREFIX "/.well-known/acme-challenge/"

/* True when there was one. */
bool acme_answer(struct http_exchange *ex, const char *data_dir);
