#include "base/program.h"

#include <fcntl.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/test.h"

static int run(const struct program *program, struct buf *said, struct error *err)
{
    buf_init(said, 64);
    return program_run(program, said, err);
}

TEST(program_says_and_ends)
{
    const struct program talker = {
        .name = "sh", .args = {"-c", "cat; echo more >&2; exit 7"}, .input = STR("read ")};
    auto_buf struct buf said = {0};
    struct error err = {0};

    CHECK_INT(run(&talker, &said, &err), 7);
    CHECK_STR(buf_str(&said), "read more\n");
}

TEST(program_is_killed)
{
    const struct program victim = {.name = "sh", .args = {"-c", "kill -9 $$"}};
    auto_buf struct buf said = {0};
    struct error err = {0};

    CHECK_INT(run(&victim, &said, &err), 128 + 9);
}

/* Its output is taken as far as there is room. */
TEST(program_talks_too_much)
{
    const struct program talker = {
        .name = "sh", .args = {"-c", "i=0; while [ $i -lt 999 ]; do echo line; i=$((i+1)); done"}};
    auto_buf struct buf said = {0};
    struct error err = {0};

    CHECK_INT(run(&talker, &said, &err), 0);
    CHECK(said.len <= 64);
}

TEST(program_gets_nothing_of_ours)
{
    const struct program looker = {
        .name = "sh",
        .args = {"-c", "[ -e /proc/$$/fd/200 ] || echo closed; echo \"(${SECRET-unset})\""}};
    auto_close int null = open("/dev/null", O_RDONLY), open_to_all = fcntl(null, F_DUPFD, 200);
    auto_buf struct buf said = {0};
    struct error err = {0};

    CHECK_INT(open_to_all, 200);
    (void)setenv("SECRET", "x", 1);
    CHECK_INT(run(&looker, &said, &err), 0);
    (void)unsetenv("SECRET");
    CHECK_STR(buf_str(&said), "closed\n(unset)\n");
}

TEST(program_is_missing)
{
    const struct program missing = {.name = "no-such-program", .package = "no-such-package"};
    auto_buf struct buf said = {0};
    struct error err = {0};

    CHECK_INT(run(&missing, &said, &err), -1);
    CHECK_INT(err.code, ERROR_UNAVAILABLE);
    CHECK(strstr(err.message, "no-such-package"));
}
