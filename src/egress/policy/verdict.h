/* The decisions: may this sandbox ask for that name, may it have that answer, may it make that connection? Nothing
 * but rules; who asks keeps what was decided in the log. */
#pragma once

#include "egress/policy/answers.h"
#include "egress/policy/policy.h"
#include "egress/wire/sniff.h"

struct verdict {
    bool allowed;
    const char *rule;   /* entry of the policy, or "" */
    const char *reason; /* for people */
};

/* May the name be asked for? */
struct verdict verdict_question(const struct policy *policy, const struct host_name *name);
/* Takes addresses out of an answer that are not of the internet (rebinding). Denied when none is left of some. opened: what is reached
 * all the same, here and below. */
struct verdict verdict_answer(struct dns_answer *answer, const struct policy_ranges *opened);

struct connection {
    uint32_t address;
    enum sniff kind;
    const struct sniffed *sniffed;
    const struct policy_ranges *opened;
};
/* May the connection be made, or stay? With kind SNIFF_MORE nothing is known of what it carries. Without answers: it is
 * there already, and what was answered when it was made is not asked again. */
struct verdict verdict_connection(const struct policy *policy, const struct answers *answers,
                                  const struct connection *connection, int64_t now_us);
