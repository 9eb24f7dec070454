/* Metrics, logs and events on the wire. */
#include "base/test.h"
#include "edge/api_e2b/test/api_fake.h"
#include "edge/api_e2b/test/api_test_request.h"
#include "protocol/json/json_shape.h"

TEST(metrics)
{
    auto_json json_t *json = NULL, *all = NULL, *team = NULL, *max = NULL;
    const json_t *one;

    api_fake.sandboxes = 1;
    CHECK_INT(request("GET", ONE "/metrics", "start=10&end=20", NULL, &json), 200);
    CHECK_INT(api_fake.from_us, 10000000);
    CHECK_INT(api_fake.until_us, 20999999);
    CHECK_INT(json_array_size(json), 2);
    one = json_array_get(json, 1);
    CHECK_STR(json_get_str(one, "timestamp"), "2026-01-01T00:00:00.123456Z");
    CHECK_INT(json_integer_value(json_object_get(one, "timestampUnix")), 1767225600);
    CHECK(json_real_value(json_object_get(one, "cpuUsedPct")) > 12.4);
    CHECK_INT(json_integer_value(json_object_get(one, "memCache")), 7);
    CHECK_INT(json_integer_value(json_object_get(one, "networkSent")), 5);
    CHECK_INT(json_integer_value(json_object_get(one, "networkConnections")), 2);
    CHECK_INT(json_object_size(one), 13);
    CHECK_INT(request("GET", ONE "/metrics", "start=x", NULL, NULL), 400);
    CHECK_INT(request("GET", ONE "/metrics", "start=-1", NULL, NULL), 400);
    CHECK_INT(request("GET", "/sandboxes/i0000000000000000001/metrics", NULL, NULL, NULL), 404);

    CHECK_INT(request("GET", "/sandboxes/metrics",
                      "sandbox_ids=i0000000000000000000%2Ci0000000000000000001,junk", NULL, &all),
              200);
    CHECK_INT(json_object_size(json_object_get(all, "sandboxes")), 1);
    CHECK_INT(
        json_integer_value(json_object_get(
            json_object_get(json_object_get(all, "sandboxes"), "i0000000000000000000"), "memUsed")),
        70);
    CHECK_INT(request("GET", "/sandboxes/metrics", NULL, NULL, NULL), 400);

    CHECK_INT(request("GET", "/teams/team-1/metrics", NULL, NULL, &team), 200);
    CHECK_INT(json_integer_value(json_object_get(json_array_get(team, 0), "concurrentSandboxes")),
              5);
    CHECK_INT(request("GET", "/teams/team-2/metrics", NULL, NULL, NULL), 403);
    CHECK_INT(
        request("GET", "/teams/team-1/metrics/max", "metric=concurrent_sandboxes", NULL, &max),
        200);
    CHECK(json_number_value(json_object_get(max, "value")) > 4.9);
    CHECK_INT(request("GET", "/teams/team-1/metrics/max", "metric=x", NULL, NULL), 400);
}

TEST(logs)
{
    auto_json json_t *json = NULL, *line = NULL, *v2 = NULL;
    const json_t *entry;
    struct error err = {0};

    api_fake.sandboxes = 1;
    CHECK_INT(request("GET", ONE "/logs", "start=5&limit=7", NULL, &json), 200);
    CHECK_INT(api_fake.events.from_us, 5000);
    CHECK(api_fake.events.limit == 7 && api_fake.events.ascending);
    entry = json_array_get(json_object_get(json, "logs"), 0);
    CHECK_INT(json_parse(json_get_str(entry, "line"), &line, &err), 0);
    CHECK_STR(json_get_str(line, "level"), "error");
    CHECK_STR(json_get_str(line, "message"), "Sandbox ended");
    entry = json_array_get(json_object_get(json, "logEntries"), 0);
    CHECK_STR(json_get_str(entry, "level"), "error");
    CHECK_STR(json_get_str(json_object_get(entry, "fields"), "detail"), "out of memory");

    CHECK_INT(request("GET", "/v2" ONE "/logs",
                      "cursor=9&direction=backward&level=warn&search=end&limit=3", NULL, &v2),
              200);
    CHECK_INT(api_fake.events.until_us, 9000);
    CHECK(!api_fake.events.ascending && api_fake.events.min_level == 2);
    CHECK_INT(json_array_size(json_object_get(v2, "logs")), 1);
    CHECK_INT(request("GET", "/v2" ONE "/logs", "direction=up", NULL, NULL), 400);
    CHECK_INT(request("GET", "/v2" ONE "/logs", "level=loud", NULL, NULL), 400);
    CHECK_INT(request("GET", ONE "/logs", "limit=1001", NULL, NULL), 400);
    CHECK_INT(request("GET", "/sandboxes/i0000000000000000001/logs", NULL, NULL, NULL), 404);
}

TEST(events)
{
    auto_json json_t *json = NULL;

    api_fake.sandboxes = 1;
    CHECK_INT(request("GET", "/events/sandboxes",
                      "types=sandbox.lifecycle.killed&types=paused&limit=5&offset=2&orderAsc=true",
                      NULL, &json),
              200);
    CHECK_INT(json_array_size(json), 1);
    CHECK(api_fake.events.type_count == 2 && api_fake.events.offset == 2 &&
          api_fake.events.limit == 5 && api_fake.events.ascending);
    CHECK_STR(str_of(api_fake.event_type), "killed");
    CHECK_INT(request("GET", "/events" ONE, NULL, NULL, NULL), 200);
    CHECK(api_fake.events.limit == 10 && !api_fake.events.ascending);
    CHECK_INT(request("GET", "/events/sandboxes", "limit=0", NULL, NULL), 400);
    CHECK_INT(request("GET", "/events/sandboxes", "limit=101", NULL, NULL), 400);
}

TEST(webhooks)
{
    auto_json json_t *made = NULL, *changed = NULL, *list = NULL;

    CHECK_INT(request("POST", "/events/webhooks", NULL,
                      "{\"name\":\"n\",\"url\":\"https://x.test/h\",\"signatureSecret\":\"s\","
                      "\"events\":[\"sandbox.lifecycle.created\",\"sandbox.lifecycle.killed\"]}",
                      &made),
              201);
    CHECK_STR(json_get_str(made, "teamId"), "team-1");
    CHECK(json_is_true(json_object_get(made, "enabled")));
    CHECK(!json_object_get(made, "signatureSecret"));
    CHECK_STR(str_of(json_string_value(json_array_get(json_object_get(made, "events"), 1))),
              "sandbox.lifecycle.killed");
    check_refused("/events/webhooks", &(struct refused){400, "{\"events\":[\"x\"]}", "events"});
    check_refused("/events/webhooks", &(struct refused){400, "{\"events\":1}", "events"});
    check_refused("/events/webhooks", &(struct refused){400, "{}", "events"});
    CHECK_INT(request("PATCH", "/events/webhooks/w1", NULL, "{\"enabled\":false}", &changed), 200);
    CHECK(json_is_false(json_object_get(changed, "enabled")));
    CHECK_STR(json_get_str(changed, "url"), "https://x.test/h");
    CHECK_INT(request("GET", "/events/webhooks", NULL, NULL, &list), 200);
    CHECK_INT(json_array_size(list), 1);
    CHECK_INT(request("GET", "/events/webhooks/w1", NULL, NULL, NULL), 200);
    CHECK_INT(request("GET", "/events/webhooks/w2", NULL, NULL, NULL), 404);
    CHECK_INT(request("POST", "/events/webhooks/w1/test", NULL, NULL, NULL), 200);
    CHECK_INT(request("POST", "/events/webhooks/w2/test", NULL, NULL, NULL), 404);
    CHECK_INT(request("GET", "/events/webhooks/w1/deliveries", NULL, NULL, NULL), 200);
    CHECK_INT(request("GET", "/events/webhooks/w2/deliveries", NULL, NULL, NULL), 404);
    CHECK_INT(request("DELETE", "/events/webhooks/w1", NULL, NULL, NULL), 204);
    CHECK_INT(request("DELETE", "/events/webhooks/w1", NULL, NULL, NULL), 404);
}

TEST(monitoring)
{
    struct api_call call = new_call("GET", "/metrics");
    struct error err = {0};

    CHECK_INT(run(&call), 403); /* not the operator's key */
    CHECK_INT(call.endpoint->handler(&call, &err), 0);
    CHECK(strstr(call.text, "quicksand_sandboxes{state=\"paused\"} 7\n"));
    CHECK(strstr(call.text, "# TYPE quicksand_create_seconds histogram\n"));
    CHECK(strstr(call.text, "# TYPE quicksand_periodic_turns_total counter\n"));
    CHECK(strncmp(call.content_type, "text/plain", 10) == 0);
    call_done(&call);
}
