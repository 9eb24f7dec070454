/* Frames, languages and how cells are told to shells. Kernels at work are tried with the published client, in
 * tests/compat/interpreter.test.mjs. */
#include <fcntl.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/process.h"
#include "base/test.h"
#include "extra/interpreter/program/frame.h"
#include "extra/interpreter/program/interpreter.h"
#include "extra/interpreter/program/language.h"
#include "protocol/json/json_shape.h"

/* All events of a text that comes in pieces, as a line: kinds, bodies in brackets, '.' for ends, '!' for a fault. */
static void read_in_pieces(const char *text, size_t piece, struct buf *out)
{
    struct frame_reader reader = {0};
    struct str all = str_of(text);

    buf_init(out, 4096);
    while (all.len) {
        struct str part = str_n(all.p, all.len < piece ? all.len : piece), body = STR_NONE;
        enum frame_event event;

        all = str_skip(all, part.len);
        while ((event = frame_read(&reader, &part, &body)) != FRAME_MORE) {
            if (event == FRAME_BAD) {
                (void)buf_add_char(out, '!');
                return;
            }
            if (event == FRAME_BODY)
                (void)buf_add_str(out, body);
            else
                (void)buf_add_char(out, event == FRAME_BEGIN ? reader.kind : '.');
        }
    }
}

#define CHECK_FRAMES(text, want)                  \
    for (size_t piece = 1; piece < 12; piece++) { \
        auto_buf struct buf seen_ = {0};          \
        read_in_pieces(text, piece, &seen_);      \
        CHECK_STR(buf_str(&seen_), want);         \
    }

TEST(frames_in_any_pieces)
{
    CHECK_FRAMES("k 0\nr 5\nhellod 0\n", "k.rhello.d.");
    CHECK_FRAMES("r 2\n\n\ne 0\n", "r\n\n.e.");
    CHECK_FRAMES("r 10\nshort", "rshort");
}

TEST(frames_that_are_none)
{
    CHECK_FRAMES("r\n", "!");
    CHECK_FRAMES("R 1\nx", "!");
    CHECK_FRAMES("r -1\n", "!");
    CHECK_FRAMES("r 1x\n", "!");
    CHECK_FRAMES("rr 1\n", "!");
    CHECK_FRAMES("r 99999999999\n", "!");
    CHECK_FRAMES("r 00000000000000000000000000001\n", "!");
    CHECK_FRAMES("d 0\nnonsense that never ends", "d.!");
}

TEST(a_line_is_told_once_it_has_ended)
{
    CHECK_INT(cell_text_due(STR("one\ntwo"), 0, 0), 4);
    CHECK_INT(cell_text_due(STR("err"), 0, 60), 0);
    CHECK_INT(cell_text_due(STR("err"), 150, 150), 0);
    CHECK_INT(cell_text_due(STR("err\n"), 0, 60), 4);
    /* Of a writer that does not end it. */
    CHECK_INT(cell_text_due(STR("Name? "), 200, 200), 6);
    CHECK_INT(cell_text_due(STR("......"), 5, 250), 6);
    CHECK_INT(cell_text_due(STR("x\xc3"), 200, 250), 1);
    CHECK_INT(cell_text_due(STR(""), 200, 250), 0);
}

TEST(languages_by_their_names)
{
    CHECK_STR(str_of(language_find(STR_NONE)->name), "python");
    CHECK_STR(str_of(language_find(STR(" PyThon\n"))->name), "python");
    CHECK_STR(str_of(language_find(STR("js"))->name), "javascript");
    CHECK_STR(str_of(language_find(STR("TS"))->name), "typescript");
    CHECK_STR(str_of(language_find(STR("ts"))->kernel), "javascript");
    CHECK_STR(str_of(language_find(STR("bash"))->name), "bash");
    CHECK_STR(str_of(language_find(STR("R"))->name), "r");
    CHECK_STR(str_of(language_find(STR("java"))->name), "java");
    CHECK(!language_find(STR("cobol")));
}

static void check_refusal(const char *name, const char *kernels, const char *want)
{
    auto_buf struct buf out = {0};

    buf_init(&out, 1024);
    language_refusal(str_of(name), kernels, &out);
    CHECK_STR(buf_str(&out), want);
}

/* A folder has the kernel of Java when its jar is in it. */
TEST(languages_that_are_not_here)
{
    char kernels[] = "/tmp/quicksand-kernels-XXXXXX";
    auto_free char *jar = NULL;
    const char *more = access("/usr/bin/Rscript", R_OK) == 0 ? ", r" : "";
    char want[300];
    int fd;

    CHECK(mkdtemp(kernels));
    jar = xasprintf("%s/java.jar", kernels);
    CHECK(language_here(language_find(STR("python")), kernels));
    CHECK(!language_here(language_find(STR("java")), kernels));
    (void)snprintf(want, sizeof(want),
                   "the kernel of 'java' is not in this template, but in code-interpreter-full "
                   "(quicksand template build code-interpreter-full); here are python, javascript, "
                   "typescript, bash%s",
                   more);
    check_refusal(" Java", kernels, want);
    fd = open(jar, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    close_fd(&fd);
    CHECK(language_here(language_find(STR("java")), kernels));
    (void)snprintf(want, sizeof(want),
                   "there is no kernel for 'cobol'; here are python, javascript, typescript, "
                   "bash%s, java",
                   more);
    check_refusal("cobol", kernels, want);
    (void)unlink(jar);
    (void)rmdir(kernels);
}

TEST(cell_as_json)
{
    auto_json json_t *envs = json_pack("{s:s}", "A", "1"), *read = NULL;
    struct cell_text cell = {.code = STR("print(1)\n\x80"), .envs = envs};
    auto_buf struct buf out = {0};
    struct error err = {0};

    buf_init(&out, 4096);
    language_write(language_find(STR("ts")), &cell, &out);
    CHECK(out.len && out.p[out.len - 1] == '\n');
    CHECK(!memchr(out.p, '\n', out.len - 1));
    CHECK_INT(json_parse(buf_str(&out), &read, &err), 0);
    CHECK_STR(json_get_str(read, "code"), "print(1)\n\xef\xbf\xbd");
    CHECK_STR(json_get_str(read, "language"), "typescript");
    CHECK(json_equal(json_object_get(read, "envs"), envs));
    CHECK(!json_object_get(read, "globals"));
}

TEST(cell_as_frames)
{
    auto_json json_t *globals = json_pack("{s:s}", "G", ""),
                     *envs = json_pack("{s:s,s:i,s:s}", "A", "x=\n\"", "N", 1, "a=b", "c");
    struct cell_text cell = {.code = STR("1\n+ 1"), .globals = globals, .envs = envs};
    auto_buf struct buf out = {0};

    buf_init(&out, 4096);
    language_write(language_find(STR("r")), &cell, &out);
    CHECK_STR(buf_str(&out), "g 2\nG=v 6\nA=x=\n\"c 5\n1\n+ 1");
}

/* A real shell says what it understood. */
TEST(cell_for_a_shell)
{
    auto_json json_t *envs =
        json_pack("{s:s,s:s,s:i}", "A", "it's \\ $B\n\"", "no; name", "x", "N", 1);
    struct cell_text cell = {.code = STR("printf '%s|' \"$A\" 'x\\n' \\\n end"), .envs = envs};
    auto_buf struct buf script = {0}, said = {0};
    struct program bash = {.name = "bash", .package = "bash", .args = {"-s"}};
    struct error err = {0};

    buf_init(&script, 4096);
    buf_init(&said, 4096);
    (void)buf_add_str(&script, STR("__quicksand_variable() { export \"$1=$2\"; }\n"));
    language_write(language_find(STR("bash")), &cell, &script);
    bash.input = buf_str(&script);
    CHECK_INT(program_run(&bash, &said, &err), 0);
    CHECK_STR(buf_str(&said), "it's \\ $B\n\"|x\\n|end|");
}
