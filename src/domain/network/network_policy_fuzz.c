/* Any bytes: a policy, or refused as one. What was read is within its limits and is read the same again. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "domain/network/network_policy.h"
#include "domain/network/network_secret.h"
#include "protocol/json/json_shape.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool holds)
{
    if (!holds)
        abort();
}

static bool is_watched(const struct network_policy *policy)
{
    return policy->has_rules || policy->has_proxy;
}

static int fill_secret(void *arg, struct str name, struct str host, struct buf *out,
                       struct error *err)
{
    (void)arg;
    check(network_secret_name_valid(name) && network_name_valid(host));
    if (name.len % 2)
        return error_set(err, ERROR_NOT_FOUND, "there is none");
    (void)buf_add_str(out, STR("a \"value\""));
    return 0;
}

static int fill_password(void *arg, struct str sealed, struct buf *out, struct error *err)
{
    (void)arg, (void)err;
    (void)buf_add_str(out, sealed);
    return 0;
}

static int seal(void *arg, struct str password, struct arena *arena, struct str *out,
                struct error *err)
{
    (void)arg, (void)err;
    check(password.len > 0);
    *out = arena_str(arena, STR("sealed up"));
    return 0;
}

/* Filled in, it is JSON. */
static void check_watched(const struct network_policy *policy)
{
    const struct network_filler filler = {.secret = fill_secret, .unseal = fill_password};
    auto_arena struct arena arena = {0};
    auto_wiped struct buf filled = {0};
    auto_json json_t *tree = NULL;
    struct str stored;
    struct error err;

    check(policy->box.allow_count == 0 && policy->box.deny_count == 0);
    check(network_policy_seal(policy, seal, NULL, &arena, &stored, &err) == 0);
    if (network_fill(stored, &filler, &filled, &err) < 0)
        return;
    tree = json_loadb(filled.p, filled.len, 0, NULL);
    check(tree != NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct network_policy policy, again;
    auto_arena struct arena arena = {0};
    auto_json json_t *tree = NULL;
    struct error err;

    if (size == 0 || json_parse(str_n(data + 1, size - 1), &tree, &err) < 0 ||
        network_policy_read(tree, data[0] & 1, &arena, &policy, &err) < 0)
        return 0;
    check(policy.box.allow_count + policy.box.deny_count <= NETWORK_POLICY_RANGES_MAX);
    check(policy.box.mode == NETWORK_OPEN ? policy.internet && !policy.name_count
                                          : !policy.internet || is_watched(&policy));
    if (is_watched(&policy))
        check_watched(&policy);
    for (uint32_t i = 0; i < policy.box.allow_count + policy.box.deny_count; i++)
        check(
            policy.box.ranges[i].prefix <= 32 &&
            !((uint64_t)policy.box.ranges[i].address << policy.box.ranges[i].prefix & UINT32_MAX));
    check(network_policy_parse(policy.text, policy.internet, &arena, &again, &err) == 0);
    check(str_eq(again.text, policy.text) && again.internet == policy.internet &&
          memcmp(&again.box, &policy.box, sizeof(again.box)) == 0);
    return 0;
}
