/* Aligned columns for people. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/str.h"

struct cli_table;

/* columns: headings, ended by NULL; must outlive the table. */
struct cli_table *cli_table_new(const char *const *columns);
void cli_table_free(struct cli_table *table);
/* Next cell, row by row. Control characters become '?': names come from outside. */
/* '?' for everything in the text that a terminal would obey: what others called their things, or what
 * an agent says, is shown and no more. lines: line breaks and tabs may stay. Returns text. */
char *cli_defuse(char *text, bool lines);

void cli_table_add(struct cli_table *table, struct str cell);
void cli_table_addf(struct cli_table *table, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* On a terminal, unless NO_COLOR is set, headings are bold and cells of a column STATE coloured by their word. */
void cli_table_print(const struct cli_table *table, FILE *to);

enum { CLI_AGE_SIZE = 16 };
/* "12s", "3m", "5h", "2d"; negative spans count as 0. */
void cli_age(int64_t span_us, char out[CLI_AGE_SIZE]);
