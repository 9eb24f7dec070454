#include "base/process.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "base/size.h"
#include "base/test.h"

static int run(const struct program *program, struct buf *said, struct error *err)
{
    buf_init(said, 64);
    return program_run(program, said, err);
}

TEST(sizes_have_one_form)
{
    static const struct {
        uint64_t bytes;
        const char *text;
    } rows[] = {{0, "0 B"},
                {1023, "1023 B"},
                {1024, "1 KiB"},
                {1536, "1.5 KiB"},
                {1048575, "1 MiB"},
                {512ull << 20, "512 MiB"},
                {536900000, "512 MiB"},
                {537500000, "512.6 MiB"},
                {10ull << 30, "10 GiB"},
                {UINT64_MAX, "16384 PiB"}};
    char text[SIZE_TEXT];

    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
        CHECK_STR(str_of(size_text(rows[i].bytes, text)), rows[i].text);
}

TEST(path_denied_names_the_closed_folder)
{
    char top[] = "/tmp/qs-denied-XXXXXX", folder[64], file[64], where[128];

    if (geteuid() != 0) {
        test_lacks("root");
        return;
    }
    CHECK(mkdtemp(top) != NULL && chmod(top, 0755) == 0);
    (void)snprintf(folder, sizeof(folder), "%s/folder", top);
    (void)snprintf(file, sizeof(file), "%s/file", folder);
    CHECK(mkdir(folder, 0755) == 0 && close(open(file, O_CREAT | O_WRONLY, 0644)) == 0);
    CHECK(chmod(folder, 0755) == 0 && chmod(file, 0644) == 0);
    CHECK_INT(path_denied_to(64737, file, R_OK, where, sizeof(where)), 0);
    CHECK_INT(path_denied_to(64737, file, X_OK, where, sizeof(where)), 1);
    CHECK_STR(str_of(where), file);
    CHECK(chmod(folder, 0750) == 0); /* root's own groups do not count */
    CHECK_INT(path_denied_to(64737, file, R_OK, where, sizeof(where)), 1);
    CHECK_STR(str_of(where), folder);
    CHECK(chmod(folder, 0755) == 0 && unlink(file) == 0);
    CHECK_INT(path_denied_to(64737, file, R_OK, where, sizeof(where)), 0);
    CHECK_INT(path_remove_tree(AT_FDCWD, top), 0);
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

TEST(process_start_failures_are_reported)
{
    static const char *const argv[] = {"no-such-program", NULL};
    pid_t pid;

    CHECK_INT(process_spawn(&(struct process_spec){.argv = argv}, &pid), -ENOENT);
    CHECK_INT(process_run(&(struct process_spec){.argv = argv, .path = "/dev/null"}, 0), -EACCES);
    CHECK_INT(
        process_run(&(struct process_spec){.argv = argv, .path = "/bin/true", .dir = "/none"}, 0),
        -ENOENT);
}

TEST(process_is_killed_after_its_time)
{
    static const char *const argv[] = {"sleep", "60", NULL};

    CHECK_INT(process_run(&(struct process_spec){.argv = argv}, 10), -ETIME);
}

static int give_up(void *arg)
{
    (void)arg;
    errno = EXDEV;
    return -1;
}

static int add_up(void *arg)
{
    int *number = arg;

    return (*number)++ + 40;
}

/* Also when its numbers are those of others, and none of the memory is shared. */
TEST(process_prepares_and_runs_in_a_copy)
{
    static const char *const argv[] = {"true", NULL};
    int number = 2;

    CHECK_INT(process_run(&(struct process_spec){.argv = argv, .prepare = give_up}, 0), -EXDEV);
    CHECK_INT(process_run(&(struct process_spec){.run = add_up, .arg = &number}, 0), 42);
    CHECK_INT(process_run(&(struct process_spec){.run = add_up, .prepare = give_up}, 0), 127);
    CHECK_INT(number, 2);
}

/* Descriptors keep their meaning when they change places; the number of a -1 and what is beyond stay closed. */
TEST(process_gets_descriptors_and_loses_rights)
{
    static const char *const argv[] = {
        "sh", "-c",
        "test \"$(cat <&3)\" = second -a \"$(cat <&5)\" = first || exit 1\n"
        "test ! -e /proc/self/fd/4 -a ! -e /proc/self/fd/200 || exit 2\n"
        "test \"$(id -u) $(id -g) $(id -G) $(pwd)\" = '64737 64737 64737 /' || exit 3\n"
        "grep -q 'NoNewPrivs:.1' /proc/self/status || exit 4\n"
        "grep -q 'CapEff:.0*$' /proc/self/status || exit 5\n"
        "test \"$(cut -d' ' -f6 /proc/$$/stat)\" = $$ || exit 6",
        NULL};
    int fds[2][2];

    if (geteuid() != 0) {
        test_lacks("root");
        return;
    }
    for (int i = 0; i < 2; i++) {
        const char *text = i ? "second" : "first";

        CHECK(pipe2(fds[i], O_CLOEXEC) == 0);
        CHECK(write(fds[i][1], text, strlen(text)) > 0 && close(fds[i][1]) == 0);
    }
    CHECK(dup2(fds[0][0], 3) == 3 && dup2(fds[1][0], 5) == 5 && dup2(fds[0][0], 200) == 200);
    CHECK_INT(process_run(&(struct process_spec){.argv = argv,
                                                 .path = "/bin/sh",
                                                 .fds = (int[]){5, -1, 3},
                                                 .fd_count = 3,
                                                 .first_fd = 3,
                                                 .session = true,
                                                 .dir = "/",
                                                 .close_rest = true,
                                                 .uid = 64737,
                                                 .end_with_parent = true,
                                                 .unblock = true},
                          10000),
              0);
    (void)close(3);
    (void)close(5);
    (void)close(200);
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
