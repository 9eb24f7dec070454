/* The header WWW-Authenticate: how a registry wants to know who asks. */
#pragma once

#include <stdbool.h>

#include "base/str.h"

enum { CHALLENGE_TEXT_SIZE = 1024 };

enum challenge_kind { CHALLENGE_NONE, CHALLENGE_BASIC, CHALLENGE_BEARER };

struct challenge {
    enum challenge_kind kind;
    char realm[CHALLENGE_TEXT_SIZE]; /* of Bearer: where tokens are given out */
    char service[CHALLENGE_TEXT_SIZE], scope[CHALLENGE_TEXT_SIZE];
};

/* One header's value. Bearer counts more than Basic when both are offered; what is neither is CHALLENGE_NONE. */
void challenge_parse(struct str header, struct challenge *out);
