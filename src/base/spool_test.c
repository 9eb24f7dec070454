#include "base/spool.h"

#include <sched.h>
#include <sys/mount.h>

#include "base/test.h"

#define MIB ((int64_t)1 << 20)

static struct spool_disk disk;

static int disk_of(void *arg, struct str team_id, struct spool_disk *out, struct error *err)
{
    (void)arg, (void)err;
    *out = str_is(team_id, "limited") ? disk : (struct spool_disk){0};
    return 0;
}

/* A file system of 64 MiB, in a mount namespace of this test: 56 MiB of it are for temporary files. */
static struct spool *on_small_disk(int64_t max_bytes)
{
    static const char path[] = "/tmp";

    if (unshare(CLONE_NEWNS) < 0)
        test_lacks("needs a mount namespace");
    CHECK_INT(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
    CHECK_INT(mount("tmpfs", path, "tmpfs", 0, "size=64m"), 0);
    return spool_new(
        &(struct spool_config){.directory = path, .max_bytes = max_bytes, .disk_of = disk_of});
}

TEST(spool_takes_small_steps_and_gives_all_back)
{
    struct spool *spool = on_small_disk(1024 * MIB);
    struct spool_charge charges[60];

    for (size_t i = 0; i < 60; i++) {
        spool_charge_open(&charges[i], spool, STR("team"));
        OK(spool_check(&charges[i], 20 * MIB, &err));
        OK(spool_add(&charges[i], 1, &err));
    }
    CHECK(spool_held(spool) <= 4 * MIB);
    for (size_t i = 0; i < 60; i++)
        spool_release(&charges[i]);
    CHECK_INT(spool_held(spool), 0);
    spool_free(spool);
}

TEST(spool_leaves_half_to_other_teams)
{
    struct spool *spool = on_small_disk(8 * MIB);
    struct spool_charge one, more, other;

    spool_charge_open(&one, spool, STR("team"));
    spool_charge_open(&more, spool, STR("team"));
    spool_charge_open(&other, spool, STR("other"));
    for (int i = 0; i < 4; i++)
        OK(spool_add(&one, MIB, &err));
    FAILS(spool_add(&one, 1, &err), ERROR_QUOTA, "hold 4 MiB");
    FAILS(spool_check(&more, 1, &err), ERROR_QUOTA, "limit of 4 MiB");
    OK(spool_add(&other, 4 * MIB, &err));
    spool_release(&one);
    OK(spool_add(&more, 4 * MIB, &err));
    spool_release(&more);
    spool_release(&other);
    spool_free(spool);
}

TEST(spool_has_a_limit_for_all)
{
    struct spool *spool = on_small_disk(8 * MIB);
    struct spool_charge charges[3];

    spool_charge_open(&charges[0], spool, STR("a"));
    spool_charge_open(&charges[1], spool, STR("b"));
    spool_charge_open(&charges[2], spool, STR("c"));
    OK(spool_add(&charges[0], 4 * MIB, &err));
    OK(spool_add(&charges[1], 4 * MIB, &err));
    FAILS(spool_add(&charges[2], 1, &err), ERROR_UNAVAILABLE, "spool-max");
    for (size_t i = 0; i < 3; i++)
        spool_release(&charges[i]);
    spool_free(spool);
}

TEST(spool_leaves_half_of_the_disk_to_other_teams)
{
    struct spool *spool = on_small_disk(1024 * MIB);
    struct spool_charge one, other;

    spool_charge_open(&one, spool, STR("team"));
    spool_charge_open(&other, spool, STR("other"));
    FAILS(spool_check(&one, 30 * MIB, &err), ERROR_NO_SPACE, "30 MiB do not fit");
    OK(spool_add(&one, 20 * MIB, &err));
    OK(spool_add(&other, 20 * MIB, &err));
    spool_release(&one);
    spool_release(&other);
    spool_free(spool);
}

TEST(spool_respects_a_teams_limit_of_disk)
{
    struct spool *spool = on_small_disk(1024 * MIB);
    struct spool_charge passing, kept;

    disk = (struct spool_disk){.limit_bytes = 10 * MIB, .kept_bytes = 8 * MIB};
    spool_charge_open(&passing, spool, STR("limited"));
    spool_charge_open(&kept, spool, STR("limited"));
    kept.kept = true;
    FAILS(spool_check(&kept, 3 * MIB, &err), ERROR_QUOTA,
          "limit of 10 MiB of disk is reached: it keeps 8 MiB");
    OK(spool_add(&kept, 2 * MIB, &err));
    FAILS(spool_add(&kept, 1, &err), ERROR_QUOTA, "maxDiskMB");
    /* What only passes through may be there while the disk is full of what the team keeps. */
    OK(spool_add(&passing, 8 * MIB, &err));
    FAILS(spool_add(&passing, 1, &err), ERROR_QUOTA, "limit of 10 MiB");
    spool_release(&passing);
    spool_release(&kept);
    CHECK_INT(spool_held(spool), 0);
    spool_free(spool);
}
