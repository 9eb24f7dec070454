/* Names against patterns, and .dockerignore. */
#include "base/test.h"
#include "dockerfile/pattern.h"

static bool match(const char *pattern, const char *path)
{
    return pattern_match(str_of(pattern), str_of(path), true);
}

TEST(stars_stay_in_a_directory)
{
    CHECK(match("*.js", "a.js"));
    CHECK(!match("*.js", "src/a.js"));
    CHECK(match("src/*.js", "src/a.js"));
    CHECK(match("*a*b*", "xaayybz"));
    CHECK(!match("*a*b", "xaayybz"));
    CHECK(match("?at", "cat"));
    CHECK(!match("?at", "/at"));
    CHECK(match("*", "x") && !match("*", "x/y"));
    CHECK(match("*/b*/c", "aa/bb/c"));
    CHECK(!pattern_match(STR("**/c"), STR("a/b/c"), false));
}

TEST(two_stars_cross_directories)
{
    CHECK(match("**/*.go", "a/b/c.go"));
    CHECK(match("**/*.go", "c.go"));
    CHECK(match("**", "a/b"));
    CHECK(match("a/**/z", "a/z"));
    CHECK(match("a/**/z", "a/b/c/z"));
    CHECK(!match("a/**/z", "a/bz"));
    CHECK(match("a/**", "a/b/c"));
    CHECK(match("**/node_modules", "x/y/node_modules"));
    CHECK(!match("**/node_modules", "x/y/my_node_modules"));
    CHECK(match("**/a*/b", "x/aa/y/ab/b"));
}

TEST(classes_and_escapes)
{
    CHECK(match("[a-c]x", "bx") && !match("[a-c]x", "dx"));
    CHECK(match("[^a-c]x", "dx") && !match("[^a-c]x", "ax"));
    CHECK(match("\\*x", "*x") && !match("\\*x", "ax"));
    CHECK(match("[]a]", "]") && match("[\\]]", "]"));
    CHECK(!match("[a", "a"));
    CHECK(!match("[^a]", "/"));
}

/* What takes a matcher that tries every way years. */
TEST(patterns_that_are_slow_elsewhere)
{
    char path[201], pattern[121];

    memset(path, 'a', 200);
    path[200] = '\0';
    for (size_t i = 0; i < 120; i += 2)
        memcpy(pattern + i, "a*", 2);
    pattern[119] = 'b';
    pattern[120] = '\0';
    CHECK(!match(pattern, path));
    for (size_t i = 0; i < 120; i += 4)
        memcpy(pattern + i, "**/a", 4);
    CHECK(!match(pattern, path));
}

static bool ignored(const char *text, const char *path)
{
    auto_arena struct arena arena = {0};
    struct ignore ignore;

    OK(ignore_parse(str_of(text), ".dockerignore", &arena, &ignore, &err));
    return ignore_matches(&ignore, str_of(path));
}

TEST(dockerignore)
{
    CHECK(ignored("node_modules\n", "node_modules/a/b"));
    CHECK(!ignored("node_modules\n", "src/node_modules/a"));
    CHECK(ignored("**/node_modules\n", "src/node_modules/a"));
    CHECK(ignored("*.md\n!README.md\n", "x.md"));
    CHECK(!ignored("*.md\n!README.md\n", "README.md"));
    CHECK(ignored("!README.md\n*.md\n", "README.md"));
    CHECK(ignored("/dist/\r\n", "dist/x"));
    CHECK(!ignored("# dist\n\n  \n", "dist"));
    CHECK(ignored("  ./a//b/ \n", "a/b"));
    CHECK(ignored("*\n!src\n", "x") && !ignored("*\n!src\n", "src/deep/y"));
    CHECK(ignored("a/../b\n", "b"));
    CHECK(!ignored("", "anything"));
}

TEST(dockerignore_limits)
{
    auto_arena struct arena arena = {0};
    struct ignore ignore;

    FAILS(ignore_parse(STR("a\0b"), ".dockerignore", &arena, &ignore, &err), ERROR_INVALID,
          "not a text");
}
