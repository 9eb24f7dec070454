/* What a team keeps of browsers counts for its disk, and nothing else is kept. */
#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/path.h"
#include "domain/sandbox/test/sandbox_test_env.h"
#include "extra/browser/browser_internal.h"
#include "protocol/json/json_shape.h"

#include <fcntl.h>
#include <sys/stat.h>

enum { ZIP_SIZE = 20 << 20 };

struct here {
    struct env env;
    struct browsers *browsers;
    struct str zip;
    char dir[64];
};

static void here_open(struct here *here)
{
    env_open(&here->env, 0);
    (void)str_copy(STR("/tmp/browser_files_test.XXXXXX"), here->dir, sizeof(here->dir));
    CHECK(mkdtemp(here->dir));
    here->browsers = browsers_open(&(struct browsers_config){.sandboxes = here->env.all,
                                                             .engine = here->env.engine,
                                                             .store = here->env.store,
                                                             .directory = here->dir});
    here->zip = str_n(xcalloc(1, ZIP_SIZE), ZIP_SIZE);
    memcpy((void *)(uintptr_t)here->zip.p, "PK\3\4", 4);
}

static void here_close(struct here *here)
{
    free((void *)(uintptr_t)here->zip.p);
    browsers_close(here->browsers);
    env_close(&here->env);
    CHECK_INT(path_remove_tree(AT_FDCWD, here->dir), 0);
}

#define auto_here __attribute__((cleanup(here_close)))

static void limit(struct here *here, int64_t disk_mb)
{
    struct store_team team = {.id = TEAM, .name = STR("n"), .limits = {.disk_mb = disk_mb}};

    OK(store_team_update(here->env.store, &team, &err));
}

static int64_t used_mb(struct here *here)
{
    struct store_limits use = {0};

    OK(sandboxes_team_use(here->env.all, TEAM, &use, &err));
    return use.disk_mb;
}

static bool is_kept(struct here *here, enum browser_file kind, struct str id)
{
    char path[FILE_PATH_SIZE];
    struct stat about;

    browser_file_path(here->browsers, kind, id, path);
    return stat(path, &about) == 0;
}

TEST(extensions_count_for_the_disk_of_their_team)
{
    struct store_browser_extension one = {0}, other = {0};
    auto_arena struct arena arena = {0};
    auto_here struct here here;

    here_open(&here);
    limit(&here, 30);
    OK(browser_extension_create(here.browsers, TEAM, STR("a.zip"), here.zip, &arena, &one, &err));
    CHECK_INT(used_mb(&here), 20);
    FAILS(
        browser_extension_create(here.browsers, TEAM, STR("b.zip"), here.zip, &arena, &other, &err),
        ERROR_QUOTA);
    CHECK(!is_kept(&here, FILE_EXTENSION, other.id));
    CHECK_INT(used_mb(&here), 20);
    OK(browser_extension_delete(here.browsers, TEAM, one.id, &err));
    CHECK(!is_kept(&here, FILE_EXTENSION, one.id));
    CHECK_INT(used_mb(&here), 0);
    OK(browser_extension_create(here.browsers, TEAM, STR("b.zip"), here.zip, &arena, &other, &err));
}

TEST(notes_count_for_the_disk_of_their_team_until_they_are_old)
{
    auto_here struct here here;
    struct error why = {0};

    here_open(&here);
    limit(&here, 50);
    OK(browser_file_keep(here.browsers, FILE_LOG, TEAM, STR("s1"), here.zip, &err));
    OK(browser_file_keep(here.browsers, FILE_RECORD, TEAM, STR("s1"), here.zip, &err));
    CHECK_INT(used_mb(&here), 40);
    CHECK_INT(browser_file_keep(here.browsers, FILE_LOG, TEAM, STR("s2"), here.zip, &why), -1);
    CHECK_INT(why.code, ERROR_QUOTA);
    CHECK(!is_kept(&here, FILE_LOG, STR("s2")));
    clock_test_pass((int64_t)6 * 86400 * 1000000);
    browser_files_prune(here.browsers);
    CHECK_INT(used_mb(&here), 40);
    clock_test_pass((int64_t)2 * 86400 * 1000000);
    browser_files_prune(here.browsers);
    CHECK(!is_kept(&here, FILE_LOG, STR("s1")) && !is_kept(&here, FILE_RECORD, STR("s1")));
    CHECK_INT(used_mb(&here), 0);
}

/* As before their bytes were counted, and as a crash leaves them. */
TEST(extensions_are_counted_and_cleaned_up_at_the_start)
{
    struct store_browser_extension one = {0};
    auto_arena struct arena arena = {0};
    auto_here struct here here;

    here_open(&here);
    OK(browser_extension_create(here.browsers, TEAM, STR("a.zip"), here.zip, &arena, &one, &err));
    OK(store_browser_file_delete(here.env.store, one.id, STR("zip"), &err));
    CHECK_INT(used_mb(&here), 0);
    OK(browser_file_keep(here.browsers, FILE_EXTENSION, TEAM, STR("orphan"), here.zip, &err));
    browser_files_settle(here.browsers);
    CHECK_INT(used_mb(&here), 20);
    CHECK(is_kept(&here, FILE_EXTENSION, one.id));
    CHECK(!is_kept(&here, FILE_EXTENSION, STR("orphan")));
}

static bool ended_because(struct here *here, const char *id, const char *expected)
{
    auto_free char *reason = env_end_reason(&here->env, id);

    return reason && strcmp(reason, expected) == 0;
}

static int no_sink(void *arg, struct str data, struct error *error)
{
    (void)arg;
    (void)data;
    (void)error;
    test_fail(__FILE__, __LINE__, "notes were passed on");
    return -1;
}

TEST(timeout_ends_a_session_with_its_sandbox_and_notes)
{
    const int64_t minute_us = 60 * INT64_C(1000000);
    int64_t now_us = clock_wall_us();
    auto_arena struct arena arena = {0};
    auto_here struct here here;
    char sandbox_id[ID_SIZE], other[ID_SIZE];
    struct store_browser_session session = {.id = STR("s1"),
                                            .team_id = TEAM,
                                            .status = STR("RUNNING"),
                                            .region = STR("us-west-2"),
                                            .context_id = STR(""),
                                            .metadata = STR(""),
                                            .wants_log = true,
                                            .wants_record = true,
                                            .keep_alive = true,
                                            .created_at_us = now_us,
                                            .expires_at_us = now_us + 10 * minute_us};
    struct store_browser_session got = {0};

    here_open(&here);
    OK(env_create_timeout(&here.env, 600, sandbox_id, &err));
    OK(env_create(&here.env, other, &err));
    session.sandbox_id = str_of(sandbox_id);
    OK(store_browser_session_insert(here.env.store, &session, 10, &err));
    clock_test_pass(9 * minute_us);
    OK(browser_get(here.browsers, TEAM, session.id, &arena, &got, &err));
    CHECK_STR(got.status, "RUNNING");
    CHECK(env_has_route(&here.env, sandbox_id));
    clock_test_pass(2 * minute_us);
    OK(browser_get(here.browsers, TEAM, session.id, &arena, &got, &err));
    CHECK_STR(got.status, "TIMED_OUT");
    CHECK_INT(got.ended_at_us, session.expires_at_us);
    engine_fake_die(here.env.engine, other, BOX_END_EXITED); /* wakes who looks for ends */
    WAIT_FOR(!env_has_route(&here.env, sandbox_id));
    WAIT_FOR(ended_because(&here, sandbox_id, "timeout"));
    /* Nor does a release that comes too late keep them. */
    OK(browser_release(here.browsers, TEAM, session.id, &arena, &got, &err));
    CHECK_STR(got.status, "TIMED_OUT");
    CHECK(!is_kept(&here, FILE_LOG, session.id) && !is_kept(&here, FILE_RECORD, session.id));
    FAILS(browser_notes(here.browsers, &got, BROWSER_LOG, no_sink, NULL, &err), ERROR_NOT_FOUND);
    FAILS(browser_notes(here.browsers, &got, BROWSER_RECORDING, no_sink, NULL, &err),
          ERROR_NOT_FOUND);
}
