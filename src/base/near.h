/* The word that was probably meant. */
#pragma once

#include <stdbool.h>

#include "base/str.h"

/* Of the list (NULL at its end) the one with the fewest wrong, missing, doubled or swapped letters; NULL
 * when none is near. Case and '_' do not count. */
const char *near_word(struct str word, const char *const *known);

enum { NEAR_NAME_SIZE = 48 };
/* "agentId", "agentID" and "agent_id" are the last. False when it is too long. */
bool near_snake(const char *name, char out[NEAR_NAME_SIZE]);
