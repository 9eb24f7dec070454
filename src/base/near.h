/* The word that was probably meant. */
#pragma once

#include <stdbool.h>

#include "base/str.h"

/* Of the list (NULL at its end) the one with the fewest wrong, missing, doubled or swapped letters; NULL
 * when none is near. Case and '_' do not count. */
const char *near_word(struct str word, const char *const *known);

/* How many letters of a must be inserted, deleted, replaced or swapped with the next to get b; large when one of them is
 * too long. */
size_t near_changes(struct str a, struct str b);
/* How many changes a word of this length may have to count as a slip. */
size_t near_allowed(size_t len);

enum { NEAR_NAME_SIZE = 48 };
/* "agentId", "agentID" and "agent_id" are the last. False when it is too long. */
bool near_snake(const char *name, char out[NEAR_NAME_SIZE]);
