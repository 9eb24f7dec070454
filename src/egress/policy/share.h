/* How much of the egress process one sandbox and one team may take. A team may hold half of what the other teams
 * leave, a sandbox half of what the other sandboxes of its team leave: so there is room for one more team and for one
 * more sandbox, and nobody has to know how many there are. Pure functions. */
#pragma once

#include <stddef.h>

enum share_kind {
    SHARE_CONNECTIONS,
    SHARE_READ,      /* of them: those whose requests are read; TLS takes memory */
    SHARE_QUESTIONS, /* on their way to a resolver */
    SHARE_CLIENTS,   /* connections to our resolver */
    SHARE_BYTES,     /* received and not passed on yet */
    SHARE_KINDS
};

struct share_limit {
    size_t all; /* of all sandboxes together */
    size_t box; /* of one sandbox, however much is free */
};

struct share_use {
    size_t all, team, box; /* each includes the next */
};

enum share_verdict { SHARE_FITS, SHARE_BOX_FULL, SHARE_TEAM_FULL };

enum share_verdict share_judge(const struct share_limit *limit, const struct share_use *use,
                               size_t more);
/* For people: what there is too much of. */
const char *share_reason(enum share_kind kind, enum share_verdict verdict);
