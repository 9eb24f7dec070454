/* Routes, decoding, shapes and errors, without a socket. */
#include <errno.h>

#include "base/test.h"
#include "edge/api_runtime/test/v1_fake.h"
#include "edge/api_runtime/v1_internal.h"
#include "edge/api_runtime/v1_openapi.h"
#include "edge/api_runtime/v1_sse.h"
#include "edge/call/test/lanes_page.h"
#include "protocol/json/json_shape.h"

#define ONE "/sandboxes/" V1_FAKE_ID

static struct v1 v1;

/* What a worker does, after the loop's part. The body of the answer goes to *out, which may be NULL. */
static int request(const char *method, const char *target, const char *body, json_t **out)
{
    struct v1_call call = {.v1 = &v1, .method = str_of(method), .request_id = "0123456789abcdef"};
    char allow[HTTP_ALLOW_SIZE];
    struct error err = {0};

    call_pipe_init(&call.pipe, &call.call);
    call.query = str_of(target);
    call.path = str_split(&call.query, '?');
    call.caller.team_id = STR("team-1");
    CHECK_INT(
        v1_endpoints_find(call.method, call.path, &call.arena, &call.endpoint, call.params, allow),
        CALL_FOUND);
    call.json = json_object();
    if (body) {
        json_decref(call.json);
        CHECK_INT(json_parse(str_of(body), &call.json, &err), 0);
    }
    if (json_get_str(call.json, "agent_id").p)
        call.caller.agent_id = json_get_str(call.json, "agent_id");
    if (call.endpoint->handler(&call, &err) < 0)
        v1_fail(&call, &err);
    if (out) {
        *out = NULL;
        if (call.text)
            CHECK_INT(json_parse(str_of(call.text), out, &err), 0);
    }
    free(call.text);
    json_decref(call.json);
    arena_done(&call.arena);
    call_pipe_done(&call.pipe);
    return call.status;
}

static bool was_asked(const char *what)
{
    return strstr(v1_fake.asked, what) != NULL;
}

static void check_error(const char *method, const char *target, const char *body, int status,
                        const char *code, bool retryable)
{
    auto_json json_t *json = NULL;
    json_t *error;

    CHECK_INT(request(method, target, body, &json), status);
    error = json_object_get(json, "error");
    CHECK_STR(json_get_str(error, "code"), code);
    CHECK(json_get_str(error, "message").len > 0);
    CHECK_INT(json_is_true(json_object_get(error, "retryable")), retryable);
    CHECK(json_is_object(json_object_get(error, "details")));
}

TEST(v1_endpoints)
{
    struct str params[CALL_PARAMS_MAX] = {STR_NONE, STR_NONE};
    const struct v1_endpoint *endpoint;
    char allow[HTTP_ALLOW_SIZE];
    auto_arena struct arena arena = {0};

    CHECK_INT(v1_endpoints_find(STR("GET"), STR("/snapshots/github%2Fo%2Fr%23main"), &arena,
                                &endpoint, params, allow),
              CALL_FOUND);
    CHECK_STR(params[0], "github/o/r#main");
    CHECK_INT(v1_endpoints_find(STR("HEAD"), STR("/sandboxes"), &arena, &endpoint, params, allow),
              CALL_FOUND);
    CHECK_INT(v1_endpoints_find(STR("HEAD"), STR("/events"), &arena, &endpoint, params, allow),
              CALL_NO_METHOD);
    CHECK_INT(v1_endpoints_find(STR("PATCH"), STR("/sandboxes"), &arena, &endpoint, params, allow),
              CALL_NO_METHOD);
    CHECK_STR(str_of(allow), "POST, GET, HEAD, OPTIONS");
    CHECK_INT(v1_endpoints_find(STR("GET"), STR("/sandboxes/"), &arena, &endpoint, params, allow),
              CALL_NO_PATH);
    CHECK_INT(
        v1_endpoints_find(STR("GET"), STR("/sandboxes/%00"), &arena, &endpoint, params, allow),
        CALL_NO_PATH);
    CHECK_INT(v1_endpoints_find(STR("GET"), STR(""), &arena, &endpoint, params, allow),
              CALL_NO_PATH);
}

TEST(the_page_of_lanes_lists_every_endpoint)
{
    size_t count = 0;

    for (const struct v1_endpoint *row = v1_endpoints; row->is.method; row++, count++)
        lanes_page_check_endpoint("Runtime API", row->is.method, "/api/v1", row->is.pattern,
                                  v1_lane_name(v1_lane_of(row)));
    CHECK_INT(lanes_page_count("Runtime API"), count);
    lanes_page_check("Answered by the loop", "GET /", "loop");
    lanes_page_check("Answered by the loop", "GET /ui/{file}", "loop");
}

/* Those are checked with their tables: src/extra/test/extras_test.c. */
static bool is_of_extra(const char *path)
{
    struct str params[CALL_PARAMS_MAX] = {STR_NONE, STR_NONE};
    const struct v1_endpoint *endpoint;
    char allow[HTTP_ALLOW_SIZE];
    auto_arena struct arena arena = {0};

    return v1_endpoints_find(STR("GET"), str_of(path), &arena, &endpoint, params, allow) ==
           CALL_NO_PATH;
}

/* The document and the table must tell of the same endpoints. */
TEST(v1_openapi_has_every_endpoint_and_no_other)
{
    auto_json json_t *document = NULL;
    struct error err = {0};
    const char *path, *method;
    json_t *paths, *item, *operation;
    size_t operations = 0, endpoints = 0;

    CHECK_INT(json_parse(str_of((const char *)v1_openapi_json), &document, &err), 0);
    paths = json_object_get(document, "paths");
    for (const struct v1_endpoint *endpoint = v1_endpoints; endpoint->is.method;
         endpoint++, endpoints++) {
        char name[8] = "";

        for (size_t i = 0; endpoint->is.method[i]; i++)
            name[i] = (char)(endpoint->is.method[i] | 0x20);
        operation = json_object_get(json_object_get(paths, endpoint->is.pattern), name);
        if (!operation)
            test_fail(__FILE__, __LINE__, "%s %s is not in openapi.json", endpoint->is.method,
                      endpoint->is.pattern);
        CHECK(json_object_size(json_object_get(operation, "responses")) > 0);
    }
    json_object_foreach (paths, path, item)
        json_object_foreach (item, method, operation)
            operations += !is_of_extra(path);
    CHECK_INT(operations, endpoints);
}

TEST(v1_create)
{
    auto_json json_t *json = NULL;

    CHECK_INT(request("POST", "/sandboxes",
                      "{\"key\":\"k\",\"template\":\"t\",\"agent_id\":\"a1\",\"persistent\":false}",
                      &json),
              201);
    CHECK(was_asked("ensure(k,t,a1,1)"));
    CHECK_STR(json_get_str(json, "id"), V1_FAKE_ID);
    CHECK_STR(json_get_str(json, "sandbox_id"), V1_FAKE_ID);
    CHECK_STR(json_get_str(json, "status"), "running");
    CHECK_STR(json_get_str(json, "tier"), "created");
    CHECK_STR(json_get_str(json, "created_at"), "2026-01-01T00:00:00.123456Z");
    CHECK(json_is_null(json_object_get(json, "destroyed_at")));
    check_error("POST", "/sandboxes", "{\"key\":5}", 400, "invalid", false);
    check_error("POST", "/sandboxes", "{\"env\":{\"A\":1}}", 400, "invalid", false);
    check_error("POST", "/sandboxes", "{\"mounts\":{}}", 400, "invalid", false);
    check_error("POST", "/sandboxes", "{\"timeout\":-1}", 400, "invalid", false);
}

TEST(v1_life)
{
    CHECK_INT(request("GET", ONE, NULL, NULL), 200);
    CHECK(was_asked("get(0)"));
    CHECK_INT(request("GET", ONE "?refresh", NULL, NULL), 200);
    CHECK(was_asked("get(1)"));
    CHECK_INT(request("GET", "/sandboxes?state=paused&limit=7", NULL, NULL), 200);
    CHECK(was_asked("list(paused,7)"));
    check_error("GET", "/sandboxes?limit=0", NULL, 400, "invalid", false);
    check_error("GET", "/sandboxes?ports=7", NULL, 400, "invalid", false);
    check_error("GET", "/sandboxes?limit=x", NULL, 400, "invalid", false);
    CHECK_INT(request("POST", ONE "/pause", NULL, NULL), 200);
    CHECK_INT(request("POST", ONE "/resume", NULL, NULL), 200);
    CHECK_INT(request("DELETE", ONE, NULL, NULL), 204);
    check_error("GET", "/sandboxes/sbx_no", NULL, 404, "not_found", false);
    check_error("POST", ONE "/pause", "{\"agent_id\":\"other\"}", 403, "forbidden", false);
    CHECK_INT(request("GET", ONE "/ports/8080", NULL, NULL), 200);
    CHECK_INT(request("GET", ONE "/network", NULL, NULL), 200);
    CHECK_INT(request("GET", ONE "/metrics", NULL, NULL), 200);
    check_error("GET", ONE "/ports/0", NULL, 400, "invalid", false);
    CHECK_INT(request("POST", "/prune", "{\"older_than\":\"24h\",\"dry_run\":true}", NULL), 200);
    CHECK(was_asked("prune(86400,1)"));
    check_error("POST", "/prune", "{\"older_than\":\"x\"}", 400, "invalid", false);
    CHECK_INT(request("POST", ONE "/snapshots", "{\"alias\":\"github/o/r#main\"}", NULL), 201);
    CHECK(was_asked("snapshot(github/o/r#main,0)"));
    CHECK_INT(request("GET", ONE "/snapshots", NULL, NULL), 200);
    CHECK(was_asked("snapshots(" V1_FAKE_ID ")"));
}

TEST(v1_errors)
{
    static const struct {
        enum error_code code;
        int errnum, status;
        const char *name;
        bool retryable;
    } rows[] = {
        {ERROR_INVALID, 0, 400, "invalid", false},
        {ERROR_FORBIDDEN, 0, 403, "forbidden", false},
        {ERROR_NOT_FOUND, 0, 404, "not_found", false},
        {ERROR_CONFLICT, 0, 409, "conflict", false},
        {ERROR_UNSUPPORTED, 0, 409, "unsupported", false},
        {ERROR_LIMIT, 0, 413, "too_large", false},
        {ERROR_QUOTA, 0, 429, "quota", true},
        {ERROR_UNAVAILABLE, 0, 502, "provider", true},
        {ERROR_UNAVAILABLE, EBUSY, 503, "unavailable", true},
        {ERROR_UNAUTHORIZED, 0, 502, "provider_unauthorized", false},
        {ERROR_TIMEOUT, 0, 504, "timeout", true},
        {ERROR_INTERNAL, 0, 500, "internal", false},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        v1_fake.fail = (struct error){
            .code = rows[i].code, .errnum = rows[i].errnum, .message = "secret detail"};
        check_error("POST", "/sandboxes", NULL, rows[i].status, rows[i].name, rows[i].retryable);
    }
    {
        auto_json json_t *json = NULL;

        CHECK_INT(request("GET", ONE, NULL, &json), 500);
        CHECK(str_find_str(json_get_str(json_object_get(json, "error"), "message"), STR("secret")) <
              0);
    }
}

TEST(v1_execute)
{
    auto_json json_t *json = NULL;

    CHECK_INT(request("POST", ONE "/execute", "{\"command\":\"ls\",\"timeout\":2}", &json), 200);
    CHECK(was_asked("exec(ls,0,2000)"));
    CHECK_STR(json_get_str(json, "stdout"), "out\xef\xbf\xbd");
    CHECK_STR(json_get_str(json, "stderr"), "");
    CHECK_INT(json_integer_value(json_object_get(json, "exit_code")), 3);
    CHECK_INT(json_integer_value(json_object_get(json, "duration_ms")), 7);
    CHECK(json_is_false(json_object_get(json, "timed_out")));
    CHECK(json_is_false(json_object_get(json, "truncated")));
    CHECK_INT(request("POST", ONE "/execute", "{\"argv\":[\"a\",\"b\"],\"timeout_ms\":5}", NULL),
              200);
    CHECK(was_asked("exec(,2,5)"));
    CHECK_INT(request("POST", ONE "/execute", "{\"command\":[\"a\"]}", NULL), 200);
    CHECK(was_asked("exec(,1,0)"));
    CHECK_INT(request("POST", ONE "/execute", "{\"command\":\"ls\",\"timeout\":86400}", NULL), 200);
    CHECK(was_asked("exec(ls,0,86400000)"));
    check_error("POST", ONE "/execute", "{\"command\":\"ls\",\"timeout\":86401}", 400, "invalid",
                false);
    {
        auto_json json_t *bytes = NULL;

        CHECK_INT(
            request("POST", ONE "/execute", "{\"command\":\"ls\",\"encoding\":\"base64\"}", &bytes),
            200);
        CHECK_STR(json_get_str(bytes, "stdout"), "b3V0/w==");
    }
    check_error("POST", ONE "/execute", "{\"command\":\"a\",\"encoding\":\"x\"}", 400, "invalid",
                false);
    check_error("POST", ONE "/execute", "{\"command\":\"a\",\"input_base64\":\"!\"}", 400,
                "invalid", false);
    check_error("POST", ONE "/execute", "{}", 400, "invalid", false);
    check_error("POST", ONE "/execute", "{\"command\":\"a\",\"argv\":[\"a\"]}", 400, "invalid",
                false);
    check_error("POST", ONE "/execute", "{\"argv\":[1]}", 400, "invalid", false);
    check_error("POST", ONE "/execute", "{\"command\":\"rm x\"}", 403, "forbidden", false);
}

TEST(v1_processes)
{
    CHECK_INT(request("POST", ONE "/execute",
                      "{\"command\":\"ls\",\"background\":true,\"callback\":{\"url\":\"u\"}}",
                      NULL),
              202);
    CHECK(was_asked("job(ls,u)"));
    check_error("POST", ONE "/execute", "{\"command\":\"a\",\"background\":true,\"callback\":{}}",
                400, "invalid", false);
    CHECK_INT(request("GET", ONE "/processes", NULL, NULL), 200);
    CHECK_INT(request("GET", ONE "/processes/job_1?wait=2", NULL, NULL), 200);
    CHECK(was_asked("wait(2000)"));
    CHECK_INT(request("GET", "/sandboxes/-/processes/job_1", NULL, NULL), 200);
    check_error("GET", ONE "/processes/job_2", NULL, 404, "not_found", false);
    check_error("GET", "/sandboxes/sbx_2/processes/job_1", NULL, 404, "not_found", false);
    CHECK_INT(request("POST", ONE "/processes/job_1/signal", "{\"signal\":\"SIGINT\"}", NULL), 200);
    CHECK(was_asked("stop(job_1,2)"));
    CHECK_INT(request("POST", ONE "/processes/job_1/signal", "{\"signal\":9}", NULL), 200);
    check_error("POST", ONE "/processes/job_1/signal", "{\"signal\":\"NO\"}", 400, "invalid",
                false);
    check_error("POST", ONE "/processes/job_1/signal", NULL, 400, "invalid", false);
    CHECK_INT(request("POST", ONE "/processes/job_1/stop", NULL, NULL), 200);
    CHECK(was_asked("stop(job_1,0)"));
    CHECK_INT(request("POST", ONE "/processes/job_1/input",
                      "{\"data_base64\":\"YQ==\",\"close\":true}", NULL),
              204);
    CHECK(was_asked("input(a,1)"));
    check_error("POST", ONE "/processes/job_1/input", "{\"data_base64\":\"!\"}", 400, "invalid",
                false);
}

TEST(v1_removal_by_force)
{
    auto_json json_t *json = NULL;

    CHECK_INT(request("DELETE", ONE, NULL, NULL), 204);
    CHECK_INT(request("DELETE", ONE "?force=true", NULL, &json), 200);
    CHECK(json_is_true(json_object_get(json, "forgotten")));
    CHECK(strstr(json_string_value(json_object_get(json, "message")), "no such provider"));
    check_error("DELETE", ONE "?force=maybe", NULL, 400, "invalid", false);
}

TEST(v1_processes_in_the_foreground)
{
    CHECK_INT(request("POST", ONE "/processes/exe_1/input", "{\"data\":\"a\"}", NULL), 204);
    CHECK(was_asked("exec_input(" V1_FAKE_ID ",exe_1,a,0)"));
    CHECK_INT(request("POST", "/sandboxes/-/processes/exe_1/input", "{\"close\":true}", NULL), 204);
    CHECK(was_asked("exec_input(,exe_1,,1)"));
    CHECK_INT(request("POST", ONE "/processes/exe_1/signal", "{\"signal\":\"TERM\"}", NULL), 204);
    CHECK(was_asked("exec_signal(" V1_FAKE_ID ",exe_1,15)"));
    check_error("GET", ONE "/processes/exe_1", NULL, 409, "unsupported", false);
    check_error("POST", ONE "/execute",
                "{\"command\":\"a\",\"stream\":true,\"stdin\":true,\"input\":\"x\"}", 400,
                "invalid", false);
}

TEST(v1_profiles)
{
    auto_json json_t *json = NULL, *refused = NULL;

    CHECK_INT(request("POST", "/profiles/x/validate", "{\"template\":\"t\"}", &json), 200);
    CHECK(json_is_false(json_object_get(json, "valid")));
    CHECK_INT(json_array_size(json_object_get(json, "faults")), 1);
    CHECK_INT(request("POST", "/profiles/x/validate",
                      "{\"name\":\"x\",\"config\":{\"provider\":\"e2b\"}}", NULL),
              200);
    CHECK_INT(request("PUT", "/profiles/x", "{\"provider\":\"e2b\"}", NULL), 200);
    CHECK_INT(request("PUT", "/profiles/x", "{}", &refused), 400);
    CHECK_INT(json_array_size(json_object_get(
                  json_object_get(json_object_get(refused, "error"), "details"), "faults")),
              1);
    CHECK_INT(request("DELETE", "/profiles/x", NULL, NULL), 204);
    CHECK_INT(request("GET", "/profiles", NULL, NULL), 200);
    CHECK_INT(request("GET", "/providers/E2B?check=1", NULL, NULL), 200);
    check_error("GET", "/providers/no", NULL, 404, "not_found", false);
    CHECK_INT(request("POST", "/providers", "{\"name\":\"r\",\"base_url\":\"http://x\"}", NULL),
              201);
    check_error("POST", "/providers", "{\"name\":\"r\"}", 400, "invalid", false);
    CHECK_INT(request("POST", "/providers/r/heartbeat", "{\"active_sessions\":2}", NULL), 200);
    CHECK(was_asked("heartbeat(r,2)"));
}

TEST(v1_sessions)
{
    static const char *const verbs[] = {"pause", "resume", "interrupt", "cancel"};

    CHECK_INT(request("POST", "/sessions", "{\"agent\":\"mock\"}", NULL), 201);
    CHECK_INT(request("GET", "/sessions", NULL, NULL), 200);
    CHECK_INT(request("POST", "/sessions/ses_1/messages", "{\"message\":\"hi\"}", NULL), 202);
    check_error("POST", "/sessions/ses_1/messages", "{}", 400, "invalid", false);
    for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++) {
        char target[64];

        (void)snprintf(target, sizeof(target), "/sessions/ses_1/%s", verbs[i]);
        CHECK_INT(request("POST", target, NULL, NULL), 200);
    }
    CHECK_INT(request("POST", "/sessions/ses_1/snapshot", NULL, NULL), 201);
    CHECK_INT(request("POST", "/sessions/ses_1/approve", "{\"request_id\":\"r\"}", NULL), 200);
    check_error("POST", "/sessions/ses_1/approve", "{}", 400, "invalid", false);
    CHECK_INT(request("GET", "/sessions/ses_1/history?limit=3", NULL, NULL), 200);
    check_error("GET", "/sessions/ses_1/history?limit=201", NULL, 400, "invalid", false);
    CHECK_INT(request("POST", "/sessions/ses_1/push", NULL, NULL), 200);
    CHECK_INT(request("POST", "/sessions/ses_1/push",
                      "{\"pr\":{\"title\":\"t\",\"base\":\"main\",\"draft\":true}}", NULL),
              200);
    check_error("POST", "/sessions/ses_1/push", "{\"pr\":true}", 400, "invalid", false);
    check_error("POST", "/sessions/ses_1/push", "{\"pr\":{\"titel\":\"t\"}}", 400, "invalid",
                false);
    check_error("POST", "/sessions/ses_1/push", "{\"pr\":{\"draft\":1}}", 400, "invalid", false);
    CHECK_INT(request("DELETE", "/sessions/ses_1", NULL, NULL), 204);
    check_error("GET", "/sessions/ses_2", NULL, 404, "not_found", false);
    v1_fake.fail = (struct error){.code = ERROR_CONFLICT, .message = "auth: refused"};
    check_error("POST", "/sessions/ses_1/push", NULL, 412, "precondition", false);
}

TEST(v1_session_changes)
{
    auto_json json_t *json = NULL;
    json_t *files, *file;

    CHECK_INT(request("GET", "/sessions/ses_1/changes", NULL, &json), 200);
    CHECK_STR(json_get_str(json, "kind"), "repository");
    CHECK(json_is_null(json_object_get(json, "base")));
    files = json_object_get(json, "files");
    file = json_array_get(files, 0);
    CHECK_STR(json_get_str(file, "path"), "bad\xef\xbf\xbd"); /* names need not be UTF-8 */
    CHECK_STR(json_get_str(file, "status"), "added");
    CHECK_STR(json_get_str(file, "diff"), "diff");
    CHECK(json_is_true(json_object_get(file, "truncated")));
    file = json_array_get(files, 1);
    CHECK_STR(json_get_str(file, "status"), "deleted");
    CHECK(json_is_null(json_object_get(file, "added")));
    CHECK(json_is_null(json_object_get(file, "diff")));
    check_error("GET", "/sessions/ses_2/changes", NULL, 404, "not_found", false);
}

TEST(v1_event_lists)
{
    auto_json json_t *json = NULL, *rest = NULL;

    for (int i = 0; i < 5; i++)
        v1_fake_event("sandbox.created", i % 2 ? "a1" : "a2");
    CHECK_INT(request("GET", "/events?limit=3&since=1", NULL, &json), 200);
    CHECK_INT(json_array_size(json_object_get(json, "events")), 3);
    CHECK_INT(json_integer_value(json_object_get(json, "next")), 4);
    CHECK_INT(request("GET", "/events?format=json&since=5", NULL, &rest), 200);
    CHECK_INT(json_array_size(json_object_get(rest, "events")), 0);
    CHECK_INT(json_integer_value(json_object_get(rest, "next")), 5);
    CHECK_INT(request("GET", "/sessions/ses_1/events", NULL, NULL), 200);
}

TEST(v1_sse_text)
{
    auto_buf struct buf text = {0};

    buf_init(&text, 1000);
    v1_sse_format(7, STR("a.b"), STR("{}"), &text);
    v1_sse_format(-1, STR_NONE, STR("x\ny"), &text);
    CHECK_STR(buf_str(&text), "id: 7\nevent: a.b\ndata: {}\n\ndata: x\ndata: y\n\n");
    CHECK_STR(v1_sse_plain_name(STR("sandbox.paused")), "sandbox_status");
    CHECK_STR(v1_sse_plain_name(STR("git.push.failed")), "git_operation");
    CHECK_STR(v1_sse_plain_name(STR("git.pr.succeeded")), "pr_created");
    CHECK_STR(v1_sse_plain_name(STR("process.output")), "command_output");
    CHECK_STR(v1_sse_plain_name(STR("session.created")), "session.created");
    CHECK_INT(V1_SSE_HEARTBEAT_MS, 30000);
}

TEST(errors_hold_no_secret)
{
    auto_json json_t *json = NULL;
    struct str message;

    /* A provider that repeats the key it refuses. */
    v1_fake.fail = (struct error){.code = ERROR_UNAUTHORIZED,
                                  .message = "refuses our key " V1_FAKE_SECRET ": disabled"};
    CHECK_INT(request("POST", ONE "/pause", NULL, &json), 502);
    v1_fake.fail = (struct error){0};
    message = json_get_str(json_object_get(json, "error"), "message");
    CHECK(str_find_str(message, STR("refuses our key ***")) >= 0);
    CHECK(str_find_str(message, STR(V1_FAKE_SECRET)) < 0);
}

TEST(a_team_leaves_room_for_others)
{
    struct v1 *edge = v1_new(&(struct v1_config){.lanes = {{NULL, 2}}});
    struct error err = {0};

    for (int i = 0; i < V1_TEAM_STREAMS_MAX; i++)
        CHECK_INT(v1_share_stream(edge, STR("a"), &err), 0);
    CHECK_INT(v1_share_stream(edge, STR("a"), &err), -1);
    CHECK_INT(err.code, ERROR_QUOTA);
    CHECK_INT(v1_share_stream(edge, STR("b"), &err), 0);
    v1_share_stream_end(edge, STR("b"));
    for (int i = 0; i < V1_TEAM_STREAMS_MAX; i++)
        v1_share_stream_end(edge, STR("a"));
    CHECK_INT(shares_held(edge->stream_shares), 0);
    v1_free(edge);
}

TEST(cursors_have_an_end)
{
    check_error("GET", ONE "/processes/job_1/logs?after=9223372036854775807", NULL, 400, "invalid",
                false);
    check_error("GET", ONE "/processes/job_1/logs?after=-1", NULL, 400, "invalid", false);
    check_error("GET", ONE "/processes/job_1/logs?after=99999999999999999999", NULL, 400, "invalid",
                false);
}
