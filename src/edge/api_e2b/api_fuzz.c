/* The first byte chooses what the rest is: path, query of a list, or body of a create. */
#include "edge/api_e2b/api_internal.h"
#include "edge/api_e2b/api_query.h"
#include "edge/api_e2b/api_sandboxes.h"
#include "edge/api_e2b/api_types.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    auto_arena struct arena arena = {0};
    struct error err = {0};
    struct str text = size ? str_n((const char *)data + 1, size - 1) : STR_NONE;

    if (size && data[0] % 3 == 0) {
        struct str params[CALL_PARAMS_MAX] = {STR_NONE, STR_NONE}, id;
        const struct api_endpoint *endpoint;
        char allow[HTTP_ALLOW_SIZE];

        if (api_endpoints_find(STR("GET"), text, &arena, &endpoint, params, allow) == CALL_FOUND)
            (void)api_sandboxes_id(params[0], &id);
    } else if (size && data[0] % 3 == 1) {
        struct api_list_query query;

        (void)api_query_list(text, &arena, &query, &err);
        api_query_done(&query);
    } else if (size) {
        struct api_new_sandbox body;
        json_t *tree = NULL;

        (void)api_types_new_sandbox(text, API_V1, 3600, &body, &tree, &err);
        json_decref(tree);
    }
    return 0;
}
