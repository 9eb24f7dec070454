#include "egress/policy/answers.h"

#include <stdlib.h>

#include "base/alloc.h"

enum { US_PER_S = 1000000 };

struct given {
    uint32_t address;
    int64_t until_us; /* time of the answer and grace */
};

struct answered {
    struct list link; /* struct answers.used */
    struct host_name name;
    int64_t fresh_until_us;
    size_t fresh; /* the first ones are of the last answer */
    size_t count;
    struct given given[DNS_ADDRESSES_MAX];
};

static struct str address_key(const uint32_t *address)
{
    return str_n(address, sizeof(*address));
}

static void count_address(struct answers *answers, uint32_t address, intptr_t by)
{
    struct str key = address_key(&address);
    intptr_t names = (intptr_t)map_get(&answers->addresses, key) + by;

    if (names)
        (void)map_put(&answers->addresses, key, (void *)names);
    else
        (void)map_remove(&answers->addresses, key);
}

static void forget(struct answers *answers, struct answered *answered)
{
    for (size_t i = 0; i < answered->count; i++)
        count_address(answers, answered->given[i].address, -1);
    (void)map_remove(&answers->names, host_name_str(&answered->name));
    list_remove(&answered->link);
    free(answered);
}

void answers_init(struct answers *answers)
{
    map_init(&answers->names);
    map_init(&answers->addresses);
    list_init(&answers->used);
}

void answers_done(struct answers *answers)
{
    while (!list_empty(&answers->used))
        forget(answers, container_of(answers->used.next, struct answered, link));
    map_done(&answers->names);
    map_done(&answers->addresses);
}

static struct answered *find(const struct answers *answers, const struct host_name *name)
{
    return map_get(&answers->names, host_name_str(name));
}

static void touch(struct answers *answers, struct answered *answered)
{
    list_remove(&answered->link);
    list_push_back(&answers->used, &answered->link);
}

static struct answered *make(struct answers *answers, const struct host_name *name)
{
    struct answered *answered = find(answers, name);

    if (!answered) {
        if (answers->names.count == ANSWERS_NAMES_MAX)
            forget(answers, container_of(answers->used.next, struct answered, link));
        answered = xcalloc(1, sizeof(*answered));
        answered->name = *name;
        (void)map_put(&answers->names, host_name_str(name), answered);
    }
    touch(answers, answered);
    return answered;
}

static bool is_among(const struct given *given, size_t count, uint32_t address)
{
    for (size_t i = 0; i < count; i++)
        if (given[i].address == address)
            return true;
    return false;
}

/* The new ones first, behind them those of before whose time is not over, as far as there is room. */
static void merge(struct answers *answers, struct answered *answered,
                  const struct dns_answer *answer, int64_t now_us, int64_t until_us)
{
    struct given merged[DNS_ADDRESSES_MAX];
    size_t count = 0;

    for (size_t i = 0; i < answer->count && count < DNS_ADDRESSES_MAX; i++)
        if (!is_among(merged, count, answer->addresses[i]))
            merged[count++] = (struct given){answer->addresses[i], until_us};
    answered->fresh = count;
    for (size_t i = 0; i < answered->count && count < DNS_ADDRESSES_MAX; i++)
        if (answered->given[i].until_us > now_us &&
            !is_among(merged, count, answered->given[i].address))
            merged[count++] = answered->given[i];
    for (size_t i = 0; i < count; i++)
        count_address(answers, merged[i].address, 1);
    for (size_t i = 0; i < answered->count; i++)
        count_address(answers, answered->given[i].address, -1);
    memcpy(answered->given, merged, count * sizeof(*merged));
    answered->count = count;
}

void answers_put(struct answers *answers, const struct host_name *name,
                 const struct dns_answer *answer, int64_t now_us)
{
    struct answered *answered = make(answers, name);
    int64_t ttl_s = answer->ttl_s < ANSWERS_TTL_MAX_S ? answer->ttl_s : ANSWERS_TTL_MAX_S;

    answered->fresh_until_us = now_us + ttl_s * US_PER_S;
    merge(answers, answered, answer, now_us,
          answered->fresh_until_us + (int64_t)ANSWERS_GRACE_S * US_PER_S);
}

bool answers_get(struct answers *answers, const struct host_name *name, int64_t now_us,
                 struct dns_answer *out)
{
    struct answered *answered = find(answers, name);

    if (!answered || answered->fresh_until_us <= now_us)
        return false;
    touch(answers, answered);
    *out = (struct dns_answer){
        .count = answered->fresh,
        .ttl_s = (uint32_t)((answered->fresh_until_us - now_us + US_PER_S - 1) / US_PER_S)};
    for (size_t i = 0; i < answered->fresh; i++)
        out->addresses[i] = answered->given[i].address;
    return true;
}

static bool has(const struct answered *answered, uint32_t address, int64_t now_us)
{
    for (size_t i = 0; answered && i < answered->count; i++)
        if (answered->given[i].address == address)
            return answered->given[i].until_us > now_us;
    return false;
}

bool answers_has(const struct answers *answers, const struct host_name *name, uint32_t address,
                 int64_t now_us)
{
    return has(find(answers, name), address, now_us);
}

bool answers_any(const struct answers *answers, uint32_t address, int64_t now_us,
                 bool (*fn)(const void *arg, const struct host_name *name), const void *arg)
{
    struct list *at;

    if (!answers_knows(answers, address))
        return false;
    list_for_each (at, &answers->used) {
        const struct answered *answered = container_of(at, struct answered, link);

        if (has(answered, address, now_us) && fn(arg, &answered->name))
            return true;
    }
    return false;
}

bool answers_knows(const struct answers *answers, uint32_t address)
{
    return map_get(&answers->addresses, address_key(&address)) != NULL;
}
