/* The first byte chooses what the rest is: a path, the query of a list, the body of a create, or one of the small
 * bodies. */
#include "edge/api_e2b/api_internal.h"
#include "edge/api_e2b/api_query.h"
#include "edge/api_e2b/api_sandboxes.h"
#include "edge/api_e2b/api_types.h"

enum { LONGEST_S = 3600 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void try_path(struct str text)
{
    auto_arena struct arena arena = {0};
    struct str params[CALL_PARAMS_MAX] = {STR_NONE, STR_NONE}, id;
    const struct api_endpoint *endpoint;
    char allow[HTTP_ALLOW_SIZE];

    if (api_endpoints_find(STR("GET"), text, &arena, &endpoint, params, allow) == CALL_FOUND)
        (void)api_sandboxes_id(params[0], &id);
}

static void try_list(struct str text)
{
    auto_arena struct arena arena = {0};
    struct api_list_query query;
    struct error err = {0};

    (void)api_query_list(text, &arena, &query, &err);
    api_query_done(&query);
}

static void try_create(struct str text)
{
    struct api_new_sandbox body;
    json_t *tree = NULL;
    struct error err = {0};

    (void)api_types_new_sandbox(text, API_V1, LONGEST_S, &body, &tree, &err);
    json_decref(tree);
}

static void try_small(struct str text)
{
    struct sandbox_resume resume;
    struct error err = {0};
    int64_t seconds;
    bool memory;

    if (api_types_timeout(text, -1, LONGEST_S, &seconds, &err) == 0 &&
        (seconds < 0 || seconds > LONGEST_S))
        __builtin_trap();
    if (api_types_resume(text, 15, LONGEST_S, &resume, &err) == 0 &&
        (resume.timeout_s < 0 || resume.timeout_s > LONGEST_S))
        __builtin_trap();
    (void)api_types_pause(text, &memory, &err);
    if (api_types_refresh(text, &seconds, &err) == 0 && (seconds < 0 || seconds > LONGEST_S))
        __builtin_trap();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static void (*const readers[])(struct str) = {try_path, try_list, try_create, try_small};

    if (size > 0)
        readers[data[0] % 4](str_n(data + 1, size - 1));
    return 0;
}
