#include "runtime/session/changes.h"

#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/test.h"

static struct session_changes changes;

/* The header is made here; list has its NULs as '|'. */
static bool parse(struct arena *arena, const char *kind, const char *list, const char *diffs)
{
    auto_buf struct buf text = {0};
    size_t start;

    buf_init(&text, SIZE_MAX);
    (void)buf_printf(&text, "%s %zu\n", kind, strlen(list));
    start = text.len;
    (void)buf_printf(&text, "%s%s", list, diffs);
    for (size_t i = start; i < start + strlen(list); i++)
        if (text.p[i] == '|')
            text.p[i] = '\0';
    return session_changes_parse(arena_str(arena, buf_str(&text)), arena, &changes);
}

#define DIFF_A                                                                                   \
    "diff --git a/a b/a\nindex 1..2 100644\n--- a/a\n+++ b/a\n@@ -1 +1,2 @@\n one\n+diff --git " \
    "a/x b/x\n"
#define DIFF_Q "diff --git \"a/q\\\"\" \"b/q\\\"\"\nnew file mode 100644\n"

TEST(changes_of_a_repository)
{
    auto_arena struct arena arena = {0};

    CHECK(parse(&arena, "repository c88ff35610dd69ece33e5b90cfbeca52f273f04e",
                ":100644 100644 1 2 M|a|:100644 000000 3 0 D|bin|:000000 100644 0 0 A|q\"|"
                "1\t0\ta|-\t-\tbin|12\t3\tq\"|",
                DIFF_A "diff --git a/bin b/bin\nBinary files differ\n" DIFF_Q));
    CHECK_STR(changes.kind, "repository");
    CHECK_STR(changes.base, "c88ff35610dd69ece33e5b90cfbeca52f273f04e");
    CHECK_INT(changes.count, 3);
    CHECK(!changes.truncated);
    CHECK_STR(changes.items[0].path, "a");
    CHECK_INT(changes.items[0].status, 'M');
    CHECK_INT(changes.items[0].added, 1);
    CHECK_STR(changes.items[0].diff, DIFF_A);
    CHECK(changes.items[1].binary);
    CHECK_INT(changes.items[1].status, 'D');
    CHECK_STR(changes.items[2].path, "q\"");
    CHECK_INT(changes.items[2].removed, 3);
    CHECK_STR(changes.items[2].diff, DIFF_Q);
}

TEST(changes_that_leave_something_out)
{
    auto_arena struct arena arena = {0};

    /* The list was cut within its last name. */
    CHECK(parse(&arena, "directory -", ":000000 100644 0 0 A|a|:000000 1006", ""));
    CHECK_INT(changes.count, 1);
    CHECK(changes.truncated);
    CHECK_STR(changes.base, "");
    /* Times alone have changed: no counts and no diff for the first; a link in the place of a file has two. */
    CHECK(parse(&arena, "repository -", ":1 1 1 1 M|same|:1 2 1 2 T|a|1\t1\ta|",
                "diff --git a/a b/a\ndeleted\ndiff --git a/a b/a\nnew\n"));
    CHECK_INT(changes.items[0].diff.len, 0);
    CHECK_STR(changes.items[1].diff, "diff --git a/a b/a\ndeleted\ndiff --git a/a b/a\nnew\n");
    CHECK(parse(&arena, "none -", "", ""));
    CHECK_INT(changes.count, 0);
}

TEST(changes_that_are_nonsense)
{
    auto_arena struct arena arena = {0};

    CHECK(!session_changes_parse(STR(""), &arena, &changes));
    CHECK(!session_changes_parse(STR("repository - 5\nabc"), &arena, &changes));
    CHECK(!session_changes_parse(STR("repository - x\n"), &arena, &changes));
    CHECK(!session_changes_parse(STR("other - 0\n"), &arena, &changes));
    CHECK(!session_changes_parse(STR("repository -\n"), &arena, &changes));
    CHECK(parse(&arena, "repository -", ":1 1 1 1 X|a|", ""));
    CHECK_INT(changes.count, 0);
    CHECK(parse(&arena, "repository -", "|x\ty|:|", "diff --git a/other b/other\n"));
    CHECK_INT(changes.count, 0);
}
