/* Policies: one line of JSON, then names that are asked for. */
#include "egress/policy/verdict.h"
#include "protocol/json/json_shape.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str rest = str_n(data, size), text = str_split(&rest, '\n');
    struct policy *policy = NULL;
    auto_json json_t *json = NULL;
    struct error ignored;

    if (json_parse(text, &json, &ignored) < 0 || !json_is_object(json) ||
        policy_new(json, &policy, &ignored) < 0)
        return 0;
    while (rest.p) {
        struct host_name name;

        if (host_name_set(&name, str_split(&rest, '\n')))
            (void)verdict_question(policy, &name);
    }
    policy_free(policy);
    return 0;
}
