#include "egress/policy/verdict.h"

static struct verdict allowed(const char *rule, const char *reason)
{
    return (struct verdict){.allowed = true, .rule = rule, .reason = reason};
}

static struct verdict denied(const char *rule, const char *reason)
{
    return (struct verdict){.rule = rule, .reason = reason};
}

/* What to name as the rule where nothing allows. */
static const char *closing_rule(const struct policy *policy)
{
    for (size_t i = 0; i < policy->deny.count; i++)
        if (policy->deny.list[i].prefix == 0)
            return policy->deny.list[i].text;
    return "";
}

struct verdict verdict_question(const struct policy *policy, const struct host_name *name)
{
    const char *rule = policy_name_rule(policy, name);

    if (rule)
        return allowed(rule, "the name is allowed");
    if (!policy->closed)
        return allowed("", "nothing denies it");
    return denied(closing_rule(policy), "no rule allows this name");
}

struct verdict verdict_answer(struct dns_answer *answer, const struct policy_ranges *opened)
{
    size_t count = answer->count;

    answer->count = 0;
    for (size_t i = 0; i < count; i++)
        if (!policy_address_blocked(opened, answer->addresses[i]))
            answer->addresses[answer->count++] = answer->addresses[i];
    if (count && !answer->count)
        return denied("", "the name leads to addresses that are not of the internet");
    return allowed("", "");
}

static struct verdict unnamed(const struct policy *policy, const struct connection *connection)
{
    static const char hint[] =
        "nothing names the host of this connection; allow the address instead";
    const char *fault = connection->sniffed ? connection->sniffed->fault : NULL;

    return denied(closing_rule(policy), fault ? fault : hint);
}

/* In a closed policy, once ranges have said nothing. */
static struct verdict by_name(const struct policy *policy, const struct answers *answers,
                              const struct connection *connection, int64_t now_us)
{
    const struct host_name *name = connection->sniffed ? &connection->sniffed->name : NULL;
    const char *rule;

    if (!name || !name->len)
        return unnamed(policy, connection);
    rule = policy_name_rule(policy, name);
    if (!rule)
        return denied(closing_rule(policy), "no rule allows this name");
    if (answers && !answers_has(answers, name, connection->address, now_us))
        return denied(rule,
                      "the address was never answered for this name; ask the resolver for it");
    return allowed(rule, connection->sniffed->hides
                             ? "the name is allowed; behind it the hello may hide another one (ECH)"
                             : "the name is allowed");
}

struct verdict verdict_connection(const struct policy *policy, const struct answers *answers,
                                  const struct connection *connection, int64_t now_us)
{
    const char *rule;

    if (policy_address_blocked(connection->opened, connection->address))
        return denied("", "the address is not of the internet");
    rule = policy_range_rule(&policy->allow, connection->address);
    if (rule)
        return allowed(rule, "the address is allowed");
    if (policy->closed)
        return by_name(policy, answers, connection, now_us);
    rule = policy_range_rule(&policy->deny, connection->address);
    if (rule)
        return denied(rule, "the address is denied");
    return allowed("", "nothing denies it");
}
