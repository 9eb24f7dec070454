#include "egress/policy/share.h"

#include <stdint.h>

#include "base/test.h"

enum { TEAMS = 8, BOXES = 4, ALL = 1000, BOX = 200 };

static const struct share_limit limit = {.all = ALL, .box = BOX};

struct world {
    size_t boxes[TEAMS][BOXES];
};

static struct share_use use_of(const struct world *world, size_t team, size_t box)
{
    struct share_use use = {.box = world->boxes[team][box]};

    for (size_t t = 0; t < TEAMS; t++)
        for (size_t b = 0; b < BOXES; b++) {
            use.all += world->boxes[t][b];
            use.team += t == team ? world->boxes[t][b] : 0;
        }
    return use;
}

/* Takes all that a team can get, with all of its sandboxes; returns how much. */
static size_t take_all(struct world *world, size_t team)
{
    size_t count = 0, before;

    do {
        before = count;
        for (size_t box = 0; box < BOXES; box++) {
            struct share_use use = use_of(world, team, box);

            if (share_judge(&limit, &use, 1) == SHARE_FITS) {
                world->boxes[team][box]++;
                count++;
            }
        }
    } while (count != before);
    return count;
}

TEST(a_greedy_team_leaves_a_share_for_the_next_one)
{
    struct world world = {0};
    size_t all = 0, got;

    for (size_t team = 0; team < TEAMS - 1; team++) {
        size_t left = ALL - all;

        got = take_all(&world, team);
        CHECK(got > 0 && got <= (left + 1) / 2);
        all += got;
    }
    CHECK(all < ALL);
}

TEST(a_greedy_sandbox_leaves_a_share_for_the_next_one_of_its_team)
{
    struct world world = {0};
    struct share_use use;

    for (;;) {
        use = use_of(&world, 0, 0);
        if (share_judge(&limit, &use, 1) != SHARE_FITS)
            break;
        world.boxes[0][0]++;
    }
    CHECK_INT(world.boxes[0][0], BOX);
    use = use_of(&world, 0, 1);
    CHECK_INT(share_judge(&limit, &use, 1), SHARE_FITS);
}

TEST(a_verdict_says_whose_share_is_used_up)
{
    struct share_use use = {.all = BOX, .team = BOX, .box = BOX};

    CHECK_INT(share_judge(&limit, &use, 1), SHARE_BOX_FULL);
    CHECK_INT(share_judge(&limit, &use, 0), SHARE_FITS);
    use = (struct share_use){.all = 500, .team = 500, .box = 10};
    CHECK_INT(share_judge(&limit, &use, 1), SHARE_TEAM_FULL);
    use = (struct share_use){.all = ALL, .team = 10, .box = 10};
    CHECK_INT(share_judge(&limit, &use, 1), SHARE_TEAM_FULL);
    use = (struct share_use){0};
    CHECK_INT(share_judge(&limit, &use, SIZE_MAX), SHARE_BOX_FULL);
    for (int kind = 0; kind < SHARE_KINDS; kind++) {
        CHECK(share_reason((enum share_kind)kind, SHARE_BOX_FULL));
        CHECK(share_reason((enum share_kind)kind, SHARE_TEAM_FULL));
        CHECK(!share_reason((enum share_kind)kind, SHARE_FITS));
    }
}
