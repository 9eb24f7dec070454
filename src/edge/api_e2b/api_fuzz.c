/* The first byte chooses what the rest is: a path, the query of a list, the body of a create, one of the small
 * bodies, or the query or the body of what is about templates. */
#include "edge/api_e2b/api_internal.h"
#include "edge/api_e2b/api_query.h"
#include "edge/api_e2b/api_sandboxes.h"
#include "edge/api_e2b/api_types.h"

#include <fcntl.h>
#include <stdlib.h>

#include "base/path.h"
#include "domain/secret/secret.h"

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
    auto_arena struct arena arena = {0};
    struct api_new_sandbox body;
    json_t *tree = NULL;
    struct error err = {0};

    (void)api_types_new_sandbox(text, API_V1, &arena, &body, &tree, &err);
    json_decref(tree);
}

static void try_small(struct str text)
{
    struct sandbox_resume resume;
    struct error err = {0};
    int64_t seconds;
    bool memory;

    if (api_types_timeout(text, -1, &seconds, &err) == 0 && seconds < 0)
        __builtin_trap();
    if (api_types_resume(text, 15, &resume, &err) == 0 && resume.timeout_s < 0)
        __builtin_trap();
    (void)api_types_pause(text, &memory, &err);
    if (api_types_refresh(text, &seconds, &err) == 0 && (seconds < 0 || seconds > LONGEST_S))
        __builtin_trap();
}

/* A key that is in memory only. */
static struct secrets *new_secrets(void)
{
    char directory[] = "/tmp/api-fuzz-XXXXXX";
    struct secrets *secrets = NULL;
    struct error err = {0};

    if (!mkdtemp(directory) || secrets_open(directory, &secrets, &err) < 0 ||
        path_remove_tree(AT_FDCWD, directory) < 0)
        abort();
    return secrets;
}

static void try_handler(api_handler_fn *handler, struct str query, struct str body)
{
    static struct api api;
    struct api_call call = {.api = &api,
                            .team_id = STR("team-1"),
                            .query = query,
                            .body = body,
                            .params = {STR("mine"), STR("00000000-0000-4000-8000-000000000001")}};
    struct error err = {0};

    if (!api.config.secrets)
        api.config = (struct api_config){.secrets = new_secrets(), .upload_max = 1 << 20};
    if (handler)
        (void)handler(&call, &err);
    else if (api_build_files_admit(&call, 7, &err) == 0)
        __builtin_trap(); /* nobody guesses a signature */
    free(call.text);
    arena_done(&call.arena);
}

static void try_template_body(struct str text)
{
    try_handler(api_builds_create, STR_NONE, text);
    try_handler(api_tags_assign, STR_NONE, text);
    try_handler(api_tags_delete, STR_NONE, text);
    try_handler(api_templates_change, STR_NONE, text);
    try_handler(api_registries_put, STR_NONE, text);
    try_handler(api_secrets_create, STR_NONE, text);
}

static void try_template_query(struct str text)
{
    try_handler(api_templates_list_v2, text, STR_NONE);
    try_handler(api_templates_get, text, STR_NONE);
    try_handler(api_builds_status, text, STR_NONE);
    try_handler(api_builds_logs, text, STR_NONE);
    try_handler(NULL, text, STR_NONE);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static void (*const readers[])(struct str) = {try_path,   try_list,          try_create,
                                                  try_small,  try_template_body, try_template_query,
                                                  try_create, try_small};

    if (size > 0)
        readers[data[0] % 8](str_n(data + 1, size - 1));
    return 0;
}
