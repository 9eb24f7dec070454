/* The tables of docs/internals/lanes.md, for the tests of the APIs: they must list every endpoint with its lane. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Fails the test unless the page has exactly one row for the endpoint, with this lane and a wait. */
void lanes_page_check(const char *method, const char *prefix, const char *pattern,
                      const char *lane);
/* Rows of endpoints whose path begins with /api/v1, or of the others. */
size_t lanes_page_count(bool v1);
