/* What terminals are told: colours, and how far long work is. */
#include "cli/core/cli_screen.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "base/test.h"
#include "cli/core/cli_progress.h"

TEST(colours_follow_the_terminal_and_no_color)
{
    auto_close int terminal = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    auto_close int file = open("/dev/null", O_WRONLY | O_CLOEXEC);

    CHECK(terminal >= 0 && isatty(terminal));
    CHECK(setenv("TERM", "xterm", 1) == 0 && unsetenv("NO_COLOR") == 0);
    CHECK(cli_screen_is(terminal) && cli_screen_colours(terminal));
    CHECK(!cli_screen_is(file) && !cli_screen_colours(file));
    CHECK(setenv("NO_COLOR", "1", 1) == 0);
    CHECK(cli_screen_is(terminal) && !cli_screen_colours(terminal));
    CHECK(setenv("NO_COLOR", "", 1) == 0 && cli_screen_colours(terminal));
    CHECK(setenv("TERM", "dumb", 1) == 0);
    CHECK(!cli_screen_is(terminal) && !cli_screen_colours(terminal));
}

TEST(progress_tells_rate_and_rest)
{
    char text[CLI_PROGRESS_SIZE];

    cli_progress_text("files", 3, 50000000, 100000000, 2, text);
    CHECK_STR(str_of(text), "3 files, 47.7 MiB of 95.4 MiB, 23.8 MiB/s, 2 s left");
    cli_progress_text("files", 1, 999, 0, 1, text);
    CHECK_STR(str_of(text), "1 files, 999 B, 999 B/s");
    cli_progress_text(NULL, 0, 50000000, 100000000, 2, text);
    CHECK_STR(str_of(text), "47.7 MiB of 95.4 MiB, 23.8 MiB/s, 2 s left");
    cli_progress_text("files", 0, 0, 100, 0, text);
    CHECK_STR(str_of(text), "0 files, 0 B, 0 B/s");
}
