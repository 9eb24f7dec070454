/* The tables of docs/internals/lanes.md, for the tests of the APIs: they must list every endpoint and tool with its lane
 * and its longest wait. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Fails the test unless that section of the page has exactly one row of this name, with this lane and a wait. */
void lanes_page_check(const char *section, const char *name, const char *lane);
/* The same for an endpoint: the name is `METHOD PREFIXPATTERN`. */
void lanes_page_check_endpoint(const char *section, const char *method, const char *prefix,
                               const char *pattern, const char *lane);
/* Rows of that section. */
size_t lanes_page_count(const char *section);
/* Fails the test unless each number in the column of longest waits is the one in the source. All sections. */
void lanes_page_check_waits(void);
