#include "cli/core/cli_screen.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool cli_screen_is(int fd)
{
    const char *kind = getenv("TERM");

    return isatty(fd) && kind && strcmp(kind, "dumb") != 0;
}

void cli_screen_begin(void)
{
    if (cli_screen_is(STDOUT_FILENO))
        printf("\033[H\033[J");
}

void cli_screen_end(void)
{
    (void)fflush(stdout);
}

bool cli_screen_colours(int fd)
{
    const char *none = getenv("NO_COLOR");

    return cli_screen_is(fd) && (!none || !none[0]);
}
