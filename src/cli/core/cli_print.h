/* What commands print: JSON for programs, tables for people. */
#pragma once

#include <jansson.h>

#include "cli/core/cli_command.h"

void cli_print_json(const json_t *json);
/* The same; takes the reference. */
void cli_print_json_new(json_t *json_consume);
/* One line per member, but for those that are secrets (these are left to --json). */
void cli_print_members(const json_t *json);

struct cli_column {
    const char *title;
    const char *member;               /* "a" or "a.b" */
    bool age;                         /* a time, shown as how long ago */
    char *(*text)(const json_t *row); /* or made of the whole row; malloc()ed */
};

/* One line per object of an array; columns end with a title of NULL. */
void cli_print_rows(const json_t *rows, const struct cli_column *columns);
/* The array `member` of an answer, as the option --json says. */
void cli_print_list(const struct cli *cli, const json_t *answer, const char *member,
                    const struct cli_column *columns);
/* The id of what was made, or all of the answer, as the option --json says. */
void cli_print_id(const struct cli *cli, const json_t *answer);
/* The member "a" or "a.b" of an object; NULL when it is not there. */
const json_t *cli_print_member(const json_t *row, const char *path);
/* Text of a value as a cell shows it; malloc()ed. */
char *cli_print_text(const json_t *value);
/* A member's text for people, defused; malloc()ed, "" when there is none. */
char *cli_print_str(const json_t *object, const char *member);
