/* Routes, decoding, shapes and errors, without a socket. */
#include "base/cleanup.h"
#include "base/test.h"
#include "domain/sandbox/sandbox_check.h"
#include "domain/sandbox/sandbox_creates.h"
#include "edge/api_e2b/api_internal.h"
#include "edge/api_e2b/api_query.h"
#include "edge/api_e2b/api_sandboxes.h"
#include "edge/api_e2b/api_types.h"
#include "edge/api_e2b/test/api_fake.h"
#include "edge/api_e2b/test/api_test_request.h"
#include "edge/call/test/lanes_page.h"
#include "protocol/json/json_shape.h"

static enum call_match find(const char *method, const char *path, char allow[HTTP_ALLOW_SIZE])
{
    struct str params[CALL_PARAMS_MAX] = {STR_NONE, STR_NONE};
    const struct api_endpoint *endpoint;
    auto_arena struct arena arena = {0};

    return api_endpoints_find(str_of(method), str_of(path), &arena, &endpoint, params, allow);
}

TEST(endpoints_match_whole_segments)
{
    char allow[HTTP_ALLOW_SIZE];

    CHECK_INT(find("GET", "/sandboxes", allow), CALL_FOUND);
    CHECK_INT(find("HEAD", "/sandboxes", allow), CALL_FOUND);
    CHECK_INT(find("GET", "/v2/sandboxes", allow), CALL_FOUND);
    CHECK_INT(find("GET", "/sandboxes/x", allow), CALL_FOUND);
    CHECK_INT(find("GET", "/sandboxes/", allow), CALL_NO_PATH);
    CHECK_INT(find("GET", "/sandboxes//", allow), CALL_NO_PATH);
    CHECK_INT(find("GET", "/sandboxesx", allow), CALL_NO_PATH);
    CHECK_INT(find("GET", "/sandboxes/x/y", allow), CALL_NO_PATH);
    CHECK_INT(find("GET", "sandboxes", allow), CALL_NO_PATH);
    CHECK_INT(find("GET", "", allow), CALL_NO_PATH);
    CHECK_INT(find("GET", "/", allow), CALL_NO_PATH);
    CHECK_INT(find("GET", "/sandboxes/%zz", allow), CALL_NO_PATH);
    CHECK_INT(find("GET", "/sandboxes/%00", allow), CALL_NO_PATH);
    CHECK_INT(find("GET", "/sandboxes/%ff", allow), CALL_NO_PATH);
}

TEST(the_page_of_lanes_lists_every_endpoint)
{
    size_t count = 0;

    for (const struct api_endpoint *row = api_endpoints; row->is.method; row++, count++)
        lanes_page_check_endpoint("E2B API", row->is.method, "", row->is.pattern,
                                  api_lane_name(row->lane));
    CHECK_INT(lanes_page_count("E2B API"), count);
    lanes_page_check("Answered by the loop", "GET /health", "loop");
}

TEST(the_page_of_lanes_has_the_waits_of_the_source)
{
    lanes_page_check_waits();
}

TEST(endpoints_tell_allowed_methods)
{
    char allow[HTTP_ALLOW_SIZE];

    CHECK_INT(find("DELETE", "/sandboxes", allow), CALL_NO_METHOD);
    CHECK_STR(str_of(allow), "POST, GET, HEAD, OPTIONS");
    CHECK_INT(find("PATCH", "/sandboxes/x", allow), CALL_NO_METHOD);
    CHECK_STR(str_of(allow), "GET, HEAD, DELETE, OPTIONS");
}

TEST(endpoints_decode_parameters)
{
    struct api_call call = new_call("GET", "/templates/aliases/team%2Fname%3Atag");

    CHECK_STR(call.params[0], "team/name:tag");
    call_done(&call);
}

TEST(literal_endpoint_wins)
{
    struct api_call call = new_call("GET", "/sandboxes/metrics");

    CHECK(call.endpoint->handler == api_metrics_sandboxes);
    call_done(&call);
}

TEST(ids)
{
    struct str id;

    CHECK(api_sandboxes_id(STR("i0123456789abcdefghi"), &id));
    CHECK_STR(id, "i0123456789abcdefghi");
    CHECK(api_sandboxes_id(STR("i0123456789abcdefghi-6532622b"), &id));
    CHECK_STR(id, "i0123456789abcdefghi");
    CHECK(!api_sandboxes_id(STR("i0123456789abcdefghi-"), &id));
    CHECK(!api_sandboxes_id(STR("i0123456789abcdefghi-../x"), &id));
    CHECK(!api_sandboxes_id(STR("i0123456789abcdefgh"), &id));
    CHECK(!api_sandboxes_id(STR("I0123456789abcdefghi"), &id));
    CHECK(!api_sandboxes_id(STR(".."), &id));
    CHECK(!api_sandboxes_id(STR(""), &id));
    CHECK(!api_sandboxes_id(STR("i0123456789abcdefg/i"), &id));
}

TEST(bad_ids_are_404_with_code_in_body)
{
    static const char *const paths[] = {"/sandboxes/..", "/sandboxes/%2e%2e%2fetc",
                                        "/sandboxes/i0123456789abcdefghi"};

    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
        auto_json json_t *json = NULL;

        CHECK_INT(request("GET", paths[i], NULL, NULL, &json), 404);
        CHECK_INT(json_integer_value(json_object_get(json, "code")), 404);
        CHECK(json_get_str(json, "message").len > 0);
    }
}

static struct api_list_query query(const char *text, int want, struct arena *arena)
{
    struct api_list_query out;
    struct error err = {0};

    CHECK_INT(api_query_list(str_of(text), arena, &out, &err), want);
    if (want < 0)
        CHECK_INT(err.code, ERROR_INVALID);
    return out;
}

TEST(metadata_is_encoded_three_times)
{
    auto_arena struct arena arena = {0};
    struct api_list_query out =
        query("metadata=a%252520b%3Dc%252526d%25253D%2525C3%2525A9", 0, &arena);

    CHECK_INT(json_object_size(out.metadata), 1);
    CHECK_STR(json_get_str(out.metadata, "a b"), "c&d=\xc3\xa9");
    api_query_done(&out);

    out = query("state=running&metadata=user%3D1%26app%3Dx%252By", 0, &arena);
    CHECK_STR(json_get_str(out.metadata, "user"), "1");
    CHECK_STR(json_get_str(out.metadata, "app"), "x y");
    CHECK(out.running && !out.paused);
    api_query_done(&out);

    out = query("metadata=empty%3D", 0, &arena);
    CHECK_STR(json_get_str(out.metadata, "empty"), "");
    api_query_done(&out);
}

TEST(metadata_that_is_no_list_of_pairs)
{
    static const char *const bad[] = {
        "metadata=%25zz",       "metadata=a",        "metadata=a%3Db%3Dc", "metadata=%3Db",
        "metadata=a%3D%2525ff", "metadata=a%3Db%26", "metadata=%zz"};

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        auto_arena struct arena arena = {0};
        struct api_list_query out;
        struct error err = {0};
        int rc = api_query_list(str_of(bad[i]), &arena, &out, &err);

        /* A list that ends in '&' is accepted; everything else here is not. */
        CHECK_INT(rc, strstr(bad[i], "%26") ? 0 : -1);
        api_query_done(&out);
    }
}

TEST(list_query)
{
    auto_arena struct arena arena = {0};
    struct api_list_query out = query(NULL, 0, &arena);

    CHECK(out.running && out.paused && !out.ascending && !out.metadata && !out.cursor.p);
    CHECK_INT(out.limit, 100);
    out = query("limit=7&order=asc&nextToken=abc%3D&template=base&state=paused&x=y&state=", 0,
                &arena);
    CHECK_INT(out.limit, 7);
    CHECK(out.ascending && out.paused && !out.running);
    CHECK_STR(out.cursor, "abc=");
    CHECK_STR(out.template_name, "base");
    out = query("state=running%2Cpaused&startedAfter=2026-01-01T00%3A00%3A00.5Z", 0, &arena);
    CHECK(out.running && out.paused);
    CHECK_INT(out.started_after_us, 1767225600500000);
    (void)query("limit=0", -1, &arena);
    (void)query("limit=101", -1, &arena);
    (void)query("limit=x", -1, &arena);
    (void)query("limit", -1, &arena);
    (void)query("order=up", -1, &arena);
    (void)query("state=dead", -1, &arena);
    (void)query("startedAfter=yesterday", -1, &arena);
    (void)query("nextToken=%00", -1, &arena);
    (void)query("template=%ff", -1, &arena);
}

TEST(create_answers_with_the_shape_of_the_protocol)
{
    auto_json json_t *json = NULL;

    CHECK_INT(request("POST", "/sandboxes", NULL,
                      "{\"templateID\":\"base\",\"secure\":true,\"timeout\":60,"
                      "\"metadata\":{\"a\":\"b\"},\"envVars\":{\"A\":\"\"},"
                      "\"allow_internet_access\":true,\"autoPause\":false,"
                      "\"autoResume\":{\"enabled\":false},\"volumeMounts\":[],\"mcp\":{\"x\":{}},"
                      "\"network\":{\"allowPublicTraffic\":true,\"allowOut\":[],\"denyOut\":null}}",
                      &json),
              201);
    CHECK_STR(json_get_str(json, "sandboxID"), "i0000000000000000000");
    CHECK_STR(json_get_str(json, "templateID"), "t1");
    CHECK_STR(json_get_str(json, "alias"), "base");
    CHECK_STR(json_get_str(json, "clientID"), "6532622b");
    CHECK_STR(json_get_str(json, "envdVersion"), SANDBOX_ENVD_VERSION);
    CHECK_STR(json_get_str(json, "envdAccessToken"), "token");
    CHECK(json_is_null(json_object_get(json, "domain")));
    CHECK(json_is_null(json_object_get(json, "trafficAccessToken")));
    CHECK_INT(json_object_size(json), 8);
    CHECK_INT(api_fake.timeout_s, 60);
    CHECK(api_fake.secure && api_fake.internet && api_fake.internet_given);
}

TEST(create_with_a_way_in_of_its_own)
{
    auto_json json_t *json = NULL, *detail = NULL;
    const json_t *network;

    CHECK_INT(request("POST", "/v2/sandboxes", NULL,
                      "{\"templateID\":\"x\",\"network\":{\"allowPublicTraffic\":false,"
                      "\"maskRequestHost\":\"localhost:${PORT}\",\"httpsPorts\":[8443,443]}}",
                      &json),
              201);
    CHECK(api_fake.is_private);
    CHECK_STR(json_get_str(json, "trafficAccessToken"), "traffic");
    CHECK_INT(request("GET", "/sandboxes/i0000000000000000000", NULL, NULL, &detail), 200);
    network = json_object_get(detail, "network");
    CHECK(json_is_false(json_object_get(network, "allowPublicTraffic")));
    CHECK_STR(json_get_str(network, "maskRequestHost"), "localhost:${PORT}");
    CHECK_INT(json_array_size(json_object_get(network, "httpsPorts")), 2);
}

TEST(create_defaults_of_both_generations)
{
    auto_json json_t *json = NULL;

    CHECK_INT(request("POST", "/sandboxes", NULL, "{\"templateID\":\"x\"}", &json), 201);
    CHECK_INT(api_fake.timeout_s, 15);
    CHECK(!api_fake.secure && api_fake.internet && !api_fake.internet_given);
    CHECK(!json_object_get(json, "envdAccessToken"));
    CHECK_INT(request("POST", "/v2/sandboxes", NULL, "{\"templateID\":\"x\"}", NULL), 201);
    CHECK_INT(api_fake.timeout_s, 300);
    CHECK(api_fake.secure);
    CHECK_INT(request("POST", "/v2/sandboxes", NULL,
                      "{\"templateID\":\"x\",\"allow_internet_access\":false,\"secure\":false}",
                      NULL),
              201);
    CHECK(api_fake.secure && !api_fake.internet && api_fake.internet_given);
}

TEST(create_refuses)
{
    static const struct refused rows[] = {
        {400, "", "JSON"},
        {400, "{", "line 1"},
        {400, "[]", "object"},
        {400, "{} x", "JSON"},
        {400, "{}", "templateID"},
        {400, "{\"templateID\":1}", "templateID"},
        {400, "{\"templateID\":\"\"}", "templateID"},
        {400, "{\"templateID\":\"a\",\"templateID\":\"b\"}", "JSON"},
        {400, "{\"templateID\":\"a\\u0000\"}", "JSON"},
        {400, "{\"templateID\":\"a\",\"timeout\":0}", "Timeout must be greater than 0"},
        {400, "{\"templateID\":\"a\",\"timeout\":-1}", "Timeout must be greater than 0"},
        {400, "{\"templateID\":\"a\",\"timeout\":86401}", "greater than 24 hours"},
        {400, "{\"templateID\":\"a\",\"timeout\":9223372036854775807}", "24 hours"},
        {400, "{\"templateID\":\"a\",\"timeout\":1e300}", "timeout"},
        {400, "{\"templateID\":\"a\",\"timeout\":\"soon\"}", "timeout"},
        {400, "{\"templateID\":\"a\",\"secure\":1}", "secure"},
        {400, "{\"templateID\":\"a\",\"metadata\":[]}", "metadata"},
        {400, "{\"templateID\":\"a\",\"metadata\":{\"n\":1}}", "metadata.n"},
        {400, "{\"templateID\":\"a\",\"envVars\":{\"n\":null}}", "envVars.n"},
        {400, "{\"templateID\":\"a\",\"envVars\":{\"A=B\":\"c\"}}", "envVars"},
        {400, "{\"templateID\":\"a\",\"envVars\":{\"\":\"c\"}}", "envVars"},
        {400, "{\"templateID\":\"a\",\"network\":1}", "network"},
        {400, "{\"templateID\":\"a\",\"autoPauseMemory\":false}", "autoPauseMemory"},
        {400, "{\"templateID\":\"a\",\"network\":{\"allowPublicTraffic\":false}}",
         "without public access unless you enable secure"},
        {400, "{\"templateID\":\"a\",\"network\":{\"allowPublicTraffic\":0}}",
         "allowPublicTraffic"},
        {400, "{\"templateID\":\"a\",\"network\":{\"denyOut\":[\"a.b\"]}}",
         "invalid denied CIDR a.b"},
        {400, "{\"templateID\":\"a\",\"network\":{\"allowOut\":\"\"}}", "allowOut"},
        {400, "{\"templateID\":\"a\",\"network\":{\"allowOut\":[\"a.b\"]}}", "domains"},
        {400, "{\"templateID\":\"a\",\"network\":{\"maskRequestHost\":7}}", "maskRequestHost"},
        {400, "{\"templateID\":\"a\",\"network\":{\"maskRequestHost\":\"a\\r\\nb: c\"}}",
         "mask request host is not valid"},
        {400, "{\"templateID\":\"a\",\"network\":{\"httpsPorts\":443}}", "httpsPorts"},
        {400, "{\"templateID\":\"a\",\"network\":{\"httpsPorts\":[\"443\"]}}", "httpsPorts"},
        {400, "{\"templateID\":\"a\",\"network\":{\"httpsPorts\":[65536]}}", "httpsPorts"},
        {400,
         "{\"templateID\":\"a\",\"network\":{\"httpsPorts\":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,"
         "16,17]}}",
         "more than 16"},
        {400, "{\"templateID\":\"a\",\"network\":{\"rules\":{\"*\":[]}}}", "rules"},
        {400, "{\"templateID\":\"a\",\"network\":{\"egressProxy\":{\"address\":\"a\"}}}",
         "HOST:PORT"},
        {501, "{\"templateID\":\"a\",\"network\":{\"other\":{\"a\":[]}}}", "network.other"},
        {400, "{\"templateID\":\"a\",\"autoResume\":true}", "autoResume"},
        {400, "{\"templateID\":\"a\",\"autoResume\":{\"enabled\":1}}", "autoResume"},
        {400, "{\"templateID\":\"a\",\"autoResume\":{\"policy\":\"some\"}}", "autoResume"},
        {400,
         "{\"templateID\":\"a\",\"autoPause\":true,\"autoPauseMemory\":false,"
         "\"autoResume\":{\"enabled\":true}}",
         "autoResume"},
        {400, "{\"templateID\":\"a\",\"volumeMounts\":{}}", "volumeMounts"},
        {400, "{\"templateID\":\"a\",\"volumeMounts\":[1]}", "volumeMounts"},
        {400, "{\"templateID\":\"a\",\"volumeMounts\":[{\"name\":\"v\"}]}", "path"},
        {400, "{\"templateID\":\"a\",\"volumeMounts\":[{},{},{},{},{},{},{},{},{}]}", "8"},
        {501, "{\"templateID\":\"a\",\"iam\":{\"tokens\":{}}}", "iam"},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        check_refused("/sandboxes", &rows[i]);
    CHECK_INT(api_fake.creates, 0);
}

TEST(metadata_has_a_limit)
{
    auto_free char *body = NULL;
    size_t len = SANDBOX_PAIRS_BYTES;

    body = calloc(1, len + 128);
    CHECK(body);
    (void)snprintf(body, len + 128, "{\"templateID\":\"a\",\"metadata\":{\"k\":\"%0*d\"}}",
                   (int)len, 0);
    check_refused("/sandboxes", &(struct refused){400, body, "metadata"});
}

TEST(timeouts)
{
    api_fake.sandboxes = 1;
    CHECK_INT(request("POST", ONE "/timeout", NULL, "{\"timeout\":0}", NULL), 204);
    CHECK_INT(request("POST", ONE "-6532622b/timeout", NULL, "{\"timeout\":77}", NULL), 204);
    CHECK_INT(api_fake.timeout_s, 77);
    check_refused(ONE "/timeout", &(struct refused){400, "{}", "timeout"});
    check_refused(ONE "/timeout", &(struct refused){400, "", "JSON"});
    check_refused(ONE "/timeout", &(struct refused){400, "{\"timeout\":-1}", "negative"});
    check_refused(ONE "/timeout", &(struct refused){400, "{\"timeout\":90000}", "24 hours"});
    CHECK_INT(request("POST", ONE "/refreshes", NULL, "", NULL), 204);
    CHECK_INT(api_fake.timeout_s, 15);
    CHECK_INT(request("POST", ONE "/refreshes", NULL, "{\"duration\":3600}", NULL), 204);
    check_refused(ONE "/refreshes", &(struct refused){400, "{\"duration\":3601}", "3600"});
    CHECK_INT(request("POST", ONE "/connect", NULL, "{\"timeout\":5}", NULL), 200);
    CHECK_INT(request("POST", "/v2" ONE "/connect", NULL, NULL, NULL), 200);
    CHECK_INT(api_fake.timeout_s, 300);
    CHECK_INT(request("POST", "/v2" ONE "/connect", NULL, "{\"memory\":false}", NULL), 200);
    check_refused(ONE "/resume", &(struct refused){409, "{}", "is already running"});
    CHECK_INT(request("DELETE", ONE, NULL, NULL, NULL), 204);
    CHECK_INT(request("DELETE", "/sandboxes/i0000000000000000001", NULL, NULL, NULL), 404);
}

TEST(pause_and_resume)
{
    auto_json json_t *json = NULL, *resumed = NULL;

    api_fake.sandboxes = 1;
    CHECK_INT(request("POST", ONE "/pause", NULL, NULL, NULL), 204);
    CHECK(!api_fake.pause.disk_only);
    check_refused(ONE "/pause", &(struct refused){409, "{}", "already paused"});
    CHECK_INT(request("GET", ONE, NULL, NULL, &json), 200);
    CHECK_STR(json_get_str(json, "state"), "paused");
    CHECK_STR(json_get_str(json, "pausedTo"), "memory");
    CHECK_INT(request("POST", ONE "/resume", NULL, NULL, &resumed), 201);
    CHECK_STR(json_get_str(resumed, "sandboxID"), "i0000000000000000000");
    CHECK_INT(api_fake.resume.timeout_s, 15);
    CHECK(!api_fake.resume.disk_only && !api_fake.resume.auto_pause_given);
    CHECK_INT(request("POST", ONE "/pause", NULL, "{\"memory\":false}", NULL), 204);
    CHECK(api_fake.pause.disk_only);
    CHECK_INT(request("POST", ONE "/connect", NULL, "{\"timeout\":9}", NULL), 201);
    CHECK_INT(api_fake.resume.timeout_s, 9);
    CHECK_INT(request("POST", ONE "/pause", NULL, "{\"memory\":true}", NULL), 204);
    CHECK_INT(request("POST", "/v2" ONE "/connect", NULL, "{\"memory\":false}", NULL), 201);
    CHECK_INT(api_fake.resume.timeout_s, 300);
    CHECK(api_fake.resume.disk_only);
    CHECK_INT(request("POST", ONE "/pause", NULL, "{}", NULL), 204);
    CHECK_INT(request("POST", ONE "/resume", NULL, "{\"timeout\":5,\"autoPause\":true}", NULL),
              201);
    CHECK(api_fake.resume.auto_pause_given && api_fake.resume.auto_pause);
    check_refused(ONE "/pause", &(struct refused){400, "{\"memory\":1}", "memory"});
    check_refused(ONE "/connect", &(struct refused){400, "{}", "timeout"});
    check_refused(ONE "/connect", &(struct refused){400, "{\"timeout\":90000}", "24 hours"});
    CHECK_INT(request("POST", "/sandboxes/i0000000000000000001/pause", NULL, "{}", NULL), 404);
}

TEST(lifecycle_options)
{
    auto_json json_t *json = NULL;

    CHECK_INT(request("POST", "/sandboxes", NULL,
                      "{\"templateID\":\"a\",\"autoPause\":true,\"autoPauseMemory\":true,"
                      "\"autoResume\":{\"enabled\":true}}",
                      NULL),
              201);
    CHECK(api_fake.auto_pause && !api_fake.auto_pause_disk && api_fake.auto_resume);
    CHECK_INT(request("GET", ONE, NULL, NULL, &json), 200);
    CHECK_STR(json_get_str(json_object_get(json, "lifecycle"), "onTimeout"), "pause");
    CHECK(json_is_true(json_object_get(json_object_get(json, "lifecycle"), "autoResume")));
    CHECK_INT(request("POST", "/sandboxes", NULL,
                      "{\"templateID\":\"a\",\"autoPause\":true,\"autoPauseMemory\":false,"
                      "\"autoResume\":{\"policy\":\"off\"}}",
                      NULL),
              201);
    CHECK(api_fake.auto_pause && api_fake.auto_pause_disk && !api_fake.auto_resume);
}

TEST(snapshots)
{
    auto_json json_t *json = NULL, *named = NULL, *list = NULL, *gone = NULL;
    struct api_call call = new_call("GET", "/snapshots");

    api_fake.sandboxes = 1;
    CHECK_INT(request("POST", ONE "/snapshots", NULL, NULL, &json), 201);
    CHECK_STR(json_get_str(json, "snapshotID"), "t9:default");
    CHECK_INT(json_array_size(json_object_get(json, "names")), 0);
    CHECK_INT(request("POST", ONE "/snapshots", NULL, "{\"name\":\"mine\"}", &named), 201);
    CHECK_STR(json_get_str(named, "snapshotID"), "team/mine:default");
    CHECK_STR(str_of(json_string_value(json_array_get(json_object_get(named, "names"), 0))),
              "team/mine");
    check_refused(ONE "/snapshots", &(struct refused){400, "{\"name\":1}", "name"});
    check_refused("/sandboxes/i0000000000000000001/snapshots", &(struct refused){404, "{}", ""});

    call.query = STR("sandboxID=i0000000000000000000-6532622b&limit=7&name=a%3Ab&nextToken=x");
    CHECK_INT(run(&call), 200);
    CHECK_INT(api_fake.snapshots.limit, 7);
    CHECK_STR(call.headers[0].name, "x-next-token");
    call_done(&call);
    CHECK_INT(request("GET", "/snapshots", NULL, NULL, &list), 200);
    CHECK(!api_fake.snapshots.sandbox_id.p && api_fake.snapshots.limit == 100);
    CHECK_STR(json_get_str(json_array_get(list, 0), "snapshotID"), "t9:default");
    CHECK_INT(request("GET", "/snapshots", "limit=0", NULL, NULL), 400);
    CHECK_INT(request("GET", "/snapshots", "name=%zz", NULL, NULL), 400);

    CHECK_INT(request("DELETE", "/templates/team%2Fmine%3Av1", NULL, NULL, NULL), 204);
    CHECK_INT(request("DELETE", "/templates/team%2Fmine%3Av1", NULL, NULL, &gone), 404);
    CHECK_INT(json_integer_value(json_object_get(gone, "code")), 404);
}

TEST(forks)
{
    auto_json json_t *json = NULL, *one = NULL;
    const json_t *failed;

    api_fake.sandboxes = 1;
    CHECK_INT(request("POST", ONE "/fork", NULL, "{\"count\":4,\"timeout\":20}", &json), 201);
    CHECK_INT(json_array_size(json), 4);
    CHECK_INT(api_fake.timeout_s, 20);
    CHECK_STR(json_get_str(json_object_get(json_array_get(json, 1), "sandbox"), "sandboxID"),
              "i0000000000000000001");
    failed = json_object_get(json_array_get(json, 2), "error");
    CHECK_INT(json_integer_value(json_object_get(failed, "code")), 429);
    CHECK_STR(json_get_str(failed, "message"), "the limit is reached");
    CHECK_INT(request("POST", ONE "/fork", NULL, NULL, &one), 201);
    CHECK_INT(json_array_size(one), 1);
    CHECK_INT(api_fake.timeout_s, 300);
    check_refused(ONE "/fork", &(struct refused){400, "{\"count\":0}", "count"});
    check_refused(ONE "/fork", &(struct refused){400, "{\"count\":101}", "count"});
    check_refused("/sandboxes/i0000000000000000001/fork", &(struct refused){404, "{}", ""});
}

TEST(volumes)
{
    auto_json json_t *made = NULL, *list = NULL, *one = NULL, *gone = NULL, *box = NULL;

    CHECK_INT(request("POST", "/volumes", NULL, "{\"name\":\"data\"}", &made), 201);
    CHECK_STR(json_get_str(made, "token"), "secret");
    check_refused("/volumes", &(struct refused){400, "{\"name\":\"data\"}", "exists"});
    check_refused("/volumes", &(struct refused){400, "{}", "name"});
    CHECK_INT(request("GET", "/volumes", NULL, NULL, &list), 200);
    CHECK(!json_object_get(json_array_get(list, 0), "token"));
    CHECK_INT(request("GET", "/volumes/v1", NULL, NULL, &one), 200);
    CHECK_STR(json_get_str(one, "volumeID"), "v1");
    CHECK_INT(request("POST", "/v2/sandboxes", NULL,
                      "{\"templateID\":\"a\",\"volumeMounts\":[{\"name\":\"data\","
                      "\"path\":\"/v\"}]}",
                      NULL),
              201);
    CHECK_INT(api_fake.volume_count, 1);
    CHECK_INT(request("GET", ONE, NULL, NULL, &box), 200);
    CHECK_STR(json_get_str(json_array_get(json_object_get(box, "volumeMounts"), 0), "path"), "/v");
    CHECK_INT(request("DELETE", "/volumes/v1", NULL, NULL, NULL), 204);
    CHECK_INT(request("DELETE", "/volumes/v1", NULL, NULL, &gone), 404);
    CHECK_INT(json_integer_value(json_object_get(gone, "code")), 404);
}

TEST(detail_shape)
{
    auto_json json_t *json = NULL;

    api_fake.sandboxes = 1;
    CHECK_INT(request("GET", ONE, NULL, NULL, &json), 200);
    CHECK_STR(json_get_str(json, "startedAt"), "2026-01-01T00:00:00.123456Z");
    CHECK_STR(json_get_str(json, "endAt"), "2026-01-01T00:00:15.123456Z");
    CHECK_STR(json_get_str(json, "state"), "running");
    CHECK_STR(json_get_str(json_object_get(json, "metadata"), "a"), "b");
    CHECK(json_is_null(json_object_get(json, "allowInternetAccess")));
    CHECK_STR(json_get_str(json_object_get(json, "lifecycle"), "onTimeout"), "kill");
    CHECK(json_is_array(json_object_get(json, "volumeMounts")));
    CHECK_INT(json_integer_value(json_object_get(json, "diskSizeMB")), 1024);
}

TEST(lists)
{
    auto_json json_t *json = NULL, *all = NULL;
    struct api_call call = new_call("GET", "/v2/sandboxes");

    api_fake.sandboxes = 250;
    call.query = STR("limit=100&nextToken=100");
    CHECK_INT(run(&call), 200);
    CHECK_INT(call.header_count, 3);
    CHECK_STR(call.headers[0].name, "x-next-token");
    CHECK_STR(call.headers[0].value, "200");
    CHECK_STR(call.headers[1].name, "X-Total-Running");
    CHECK_STR(call.headers[1].value, "250");
    call_done(&call);
    CHECK_INT(request("GET", "/v2/sandboxes", "nextToken=200", NULL, &json), 200);
    CHECK_INT(json_array_size(json), 50);
    CHECK(!json_object_get(json_array_get(json, 0), "envdAccessToken"));
    CHECK_INT(request("GET", "/sandboxes", "state=paused", NULL, &all), 200);
    CHECK_INT(json_array_size(all), 250);
    CHECK(api_fake.filter.running && !api_fake.filter.paused);
    CHECK_INT(request("GET", "/v2/sandboxes", "nextToken=junk", NULL, NULL), 400);
}

TEST(internal_errors_are_told_in_general_words)
{
    auto_json json_t *json = NULL;
    struct api_call call = new_call("GET", "/sandboxes");
    struct error err = {0};

    (void)error_set(&api_fake.fail, ERROR_INTERNAL, "/var/secret/path exploded");
    CHECK_INT(run(&call), 500);
    CHECK_INT(json_parse(str_of(call.text), &json, &err), 0);
    CHECK(str_find_str(json_get_str(json, "message"), STR("secret")) < 0);
    CHECK(str_find_str(json_get_str(json, "message"), STR("0123456789abcdef")) > 0);
    call_done(&call);
}

TEST(changes_are_audited)
{
    api_fake.sandboxes = 1;
    CHECK_INT(request("GET", ONE, NULL, NULL, NULL), 200);
    CHECK_INT(api_fake.audited, 0);
    CHECK_INT(request("POST", ONE "/pause", NULL, NULL, NULL), 204);
    CHECK_INT(request("POST", ONE "/pause", NULL, NULL, NULL), 409);
    CHECK_INT(api_fake.audited, 2);
}

TEST(idempotency_key_is_passed_on)
{
    struct api_call call = new_call("POST", "/v2/sandboxes");

    call.body = STR("{\"templateID\":\"base\"}");
    call.idempotency_key = STR("k1");
    CHECK_INT(run(&call), 201);
    CHECK_STR(str_of(api_fake.idempotency_key), "k1");
    call_done(&call);
}

TEST(quotas_tell_when_to_come_again)
{
    struct api_call call = new_call("GET", "/sandboxes");

    (void)error_set(&api_fake.fail, ERROR_QUOTA, "too many");
    CHECK_INT(run(&call), 429);
    CHECK_STR(call.headers[0].name, "Retry-After");
    CHECK_STR(call.headers[0].value, "1");
    call_done(&call);
}

TEST(busy_answers_tell_when_to_come_again)
{
    struct api_call call = new_call("GET", "/sandboxes");

    (void)error_set(&api_fake.fail, ERROR_UNAVAILABLE, "the engine is restarting");
    CHECK_INT(run(&call), 503);
    CHECK_STR(call.headers[0].name, "Retry-After");
    call_done(&call);
}

static struct str key_of(const char *name, const char *value)
{
    struct pair header = {str_of(name), str_of(value)};
    struct http_headers headers = {&header, 1};

    return http_given_key(&headers);
}

TEST(keys)
{
    struct api_call call = new_call("GET", "/sandboxes");

    CHECK_STR(key_of("x-api-key", " k1 "), "k1");
    CHECK_STR(key_of("Authorization", "Bearer k2"), "k2");
    CHECK_STR(key_of("authorization", "bearer  k2 "), "k2");
    CHECK(!key_of("Authorization", "Basic k2").len);
    CHECK(!key_of("Authorization", "Bearer").len);
    call.key = STR("e2b_wrong");
    CHECK_INT(run(&call), 401);
    CHECK(strstr(call.text, "\"code\":401"));
    call_done(&call);
}
