#include "edge/api_e2b/test/api_test_request.h"

#include <fcntl.h>

#include "base/path.h"
#include "base/test.h"
#include "domain/sandbox/sandbox_creates.h"
#include "domain/secret/secret.h"
#include "edge/api_e2b/test/api_fake.h"
#include "protocol/json/json_shape.h"

static struct api api;
static int store; /* nobody looks into it */

struct secrets *new_secrets(void)
{
    char directory[] = "/tmp/api-test-XXXXXX";
    struct secrets *secrets = NULL;

    CHECK(mkdtemp(directory) != NULL);
    OK(secrets_open(directory, &secrets, &err));
    CHECK_INT(path_remove_tree(AT_FDCWD, directory), 0);
    return secrets;
}

struct api_call new_call(const char *method, const char *path)
{
    struct api_call call = {.api = &api,
                            .desk = &api.desk,
                            .lane = API_LANE_CONTROL,
                            .method = str_of(method),
                            .path = str_of(path),
                            .key = STR(API_FAKE_KEY),
                            .reply_fd = -1,
                            .request_id = "0123456789abcdef"};
    char allow[HTTP_ALLOW_SIZE];

    if (!api.config.creates)
        api_init(&api, &(struct api_config){.store = (struct store *)&store,
                                            .secrets = new_secrets(),
                                            .upload_max = 1 << 20,
                                            .url = "http://127.0.0.1:3000",
                                            .creates = sandbox_creates_new(0)});
    CHECK_INT(
        api_endpoints_find(call.method, call.path, &call.arena, &call.endpoint, call.params, allow),
        CALL_FOUND);
    return call;
}

void call_done(struct api_call *call)
{
    free(call->text);
    json_decref(call->json);
    arena_done(&call->arena);
}

int run(struct api_call *call)
{
    do
        call_run(&call->call);
    while (call->step);
    return call->status;
}

int request(const char *method, const char *path, const char *query, const char *body, json_t **out)
{
    struct api_call call = new_call(method, path);
    struct error err = {0};
    int status;

    call.query = str_of(query);
    call.body = str_of(body ? body : "");
    status = run(&call);
    if (out) {
        *out = NULL;
        if (call.text)
            CHECK_INT(json_parse(str_of(call.text), out, &err), 0);
    }
    call_done(&call);
    return status;
}

void check_refused(const char *path, const struct refused *row)
{
    auto_json json_t *json = NULL;
    struct str message;

    CHECK_INT(request("POST", path, NULL, row->body, &json), row->status);
    CHECK_INT(json_integer_value(json_object_get(json, "code")), row->status);
    message = json_get_str(json, "message");
    if (str_find_str(message, str_of(row->words)) < 0)
        test_fail(__FILE__, __LINE__, "'%.*s' does not have '%s'", STR_ARG(message), row->words);
}
