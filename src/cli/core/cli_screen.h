/* What is shown again and again: on a terminal in the same place, elsewhere one after the other. */
#pragma once

#include <stdbool.h>

/* Before a picture is printed to stdout, and behind it. */
void cli_screen_begin(void);
void cli_screen_end(void);
/* Is it a terminal that can be written to more than once? */
bool cli_screen_is(int fd);
/* May stderr (or stdout) be coloured: it is a terminal, not a dumb one, and NO_COLOR says nothing else? */
bool cli_screen_colours(int fd);
