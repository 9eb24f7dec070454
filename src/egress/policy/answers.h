/* Which addresses were given to one sandbox for which names, and until when that holds: a connection to an address
 * counts as one to a name only when the sandbox was told so. While the answer's own time lasts it also answers the
 * same question again.
 *
 * Bounded: when there are too many names, what was used longest ago is forgotten. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "base/map.h"
#include "egress/wire/dns.h"
#include "egress/wire/host_name.h"

enum {
    ANSWERS_NAMES_MAX = 4096,
    ANSWERS_TTL_MAX_S = 3600,
    ANSWERS_GRACE_S = 300, /* programs keep addresses longer than they should */
};

struct answers {
    struct map names;     /* name -> struct answered */
    struct map addresses; /* address -> how many names have it */
    struct list used;     /* of names, the oldest first */
};

void answers_init(struct answers *answers);
void answers_done(struct answers *answers);
/* now_us: of clock_mono_us(). */
void answers_put(struct answers *answers, const struct host_name *name,
                 const struct dns_answer *answer, int64_t now_us);
/* The answer that was put, with the time that is left of it; false when that is over. */
bool answers_get(struct answers *answers, const struct host_name *name, int64_t now_us,
                 struct dns_answer *out);
/* Was the address given for that name? */
bool answers_has(const struct answers *answers, const struct host_name *name, uint32_t address,
                 int64_t now_us);
/* Was it given for any name that is still remembered? */
bool answers_knows(const struct answers *answers, uint32_t address);
/* ... for one that fn picks? */
bool answers_any(const struct answers *answers, uint32_t address, int64_t now_us,
                 bool (*fn)(const void *arg, const struct host_name *name), const void *arg);
