#include "egress/policy/share.h"

static size_t less(size_t a, size_t b)
{
    return a > b ? a - b : 0;
}

/* What one may hold of max when others hold that much of it. */
static size_t share_of(size_t max, size_t others)
{
    size_t left = less(max, others);

    return left / 2 + left % 2;
}

enum share_verdict share_judge(const struct share_limit *limit, const struct share_use *use,
                               size_t more)
{
    size_t team_max = share_of(limit->all, use->all - use->team);
    size_t box_max = share_of(team_max, use->team - use->box);

    if (more > less(limit->box, use->box))
        return SHARE_BOX_FULL;
    if (more > less(team_max, use->team))
        return SHARE_TEAM_FULL;
    return more > less(box_max, use->box) ? SHARE_BOX_FULL : SHARE_FITS;
}

const char *share_reason(enum share_kind kind, enum share_verdict verdict)
{
    static const char *const reasons[SHARE_KINDS][2] = {
        [SHARE_CONNECTIONS] = {"too many connections of this sandbox at once",
                               "too many connections of this team's sandboxes at once"},
        [SHARE_READ] = {"too many connections of this sandbox to hosts with rules at once",
                        "too many connections of this team's sandboxes to hosts with rules at "
                        "once"},
        [SHARE_QUESTIONS] = {"too many DNS queries of this sandbox at once",
                             "too many DNS queries of this team's sandboxes at once"},
        [SHARE_CLIENTS] = {"too many connections of this sandbox to the resolver at once",
                           "too many connections of this team's sandboxes to the resolver at once"},
        [SHARE_BYTES] = {"too much unfinished data of this sandbox's connections at once",
                         "too much unfinished data of this team's connections at once"},
    };

    return verdict == SHARE_FITS ? NULL : reasons[kind][verdict == SHARE_TEAM_FULL];
}
