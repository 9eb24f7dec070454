/* Templates, their builds, tags and files, without a socket. */
#include "base/clock.h"
#include "base/test.h"
#include "edge/api_e2b/test/api_fake.h"
#include "edge/api_e2b/test/api_test_request.h"
#include "protocol/json/json_shape.h"

#define BUILD  "/templates/t2/builds/" API_FAKE_BUILD
#define HASH   "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define UPLOAD "/templates/uploads/" HASH

static struct str first(const json_t *json, const char *name)
{
    return str_of(json_string_value(json_array_get(json_object_get(json, name), 0)));
}

static void refused(const char *method, const char *path, const char *query, const char *body,
                    int status, const char *words)
{
    auto_json json_t *json = NULL;

    CHECK_INT(request(method, path, query, body, &json), status);
    CHECK_INT(json_integer_value(json_object_get(json, "code")), status);
    if (str_find_str(json_get_str(json, "message"), str_of(words)) < 0)
        test_fail(__FILE__, __LINE__, "%s %s: '%.*s' does not have '%s'", method, path,
                  STR_ARG(json_get_str(json, "message")), words);
}

TEST(a_build_is_asked_for)
{
    auto_json json_t *json = NULL;

    CHECK_INT(request("POST", "/v3/templates", NULL,
                      "{\"name\":\"mine:v1\",\"tags\":[\"a\",\"b\"],\"cpuCount\":2,\"memoryMB\":"
                      "1024}",
                      &json),
              202);
    CHECK_STR(str_of(api_fake.template_name), "mine:v1");
    CHECK_INT(api_fake.cpu_count, 2);
    CHECK_INT(api_fake.mem_mb, 1024);
    CHECK_STR(json_get_str(json, "templateID"), "t2");
    CHECK_STR(json_get_str(json, "buildID"), API_FAKE_BUILD "2");
    CHECK(json_is_false(json_object_get(json, "public")));
    CHECK_STR(first(json, "names"), "team/mine");
    CHECK_STR(first(json, "aliases"), "mine");
    CHECK_INT(json_array_size(json_object_get(json, "tags")), 2);
    /* As older clients say it. */
    CHECK_INT(request("POST", "/v2/templates", NULL, "{\"alias\":\"old\"}", NULL), 202);
    CHECK_STR(str_of(api_fake.template_name), "old");
    CHECK_INT(api_fake.tag_count, 0);
}

TEST(the_disk_holds_what_must_be_free)
{
    CHECK_INT(
        request("POST", "/v3/templates", NULL, "{\"name\":\"a\",\"minFreeDiskMb\":512}", NULL),
        202);
    CHECK_INT(api_fake.disk_mb, 0);
    CHECK_INT(
        request("POST", "/v3/templates", NULL, "{\"name\":\"a\",\"minFreeDiskMb\":20480}", NULL),
        202);
    CHECK_INT(api_fake.disk_mb, 20480);
    CHECK_INT(request("POST", "/v3/templates", NULL,
                      "{\"name\":\"a\",\"minFreeDiskMb\":300,\"diskSizeMB\":200}", NULL),
              202);
    CHECK_INT(api_fake.disk_mb, 300);
}

TEST(bad_builds_are_refused)
{
    static const struct refused rows[] = {
        {400, "{}", "Name is required"},
        {400, "{\"name\":\"  \"}", "Name is required"},
        {400, "{\"name\":1}", "name"},
        {400, "[", "JSON"},
        {400, "{\"name\":\"a\",\"tags\":\"x\"}", "'tags' must be an array"},
        {400, "{\"name\":\"a\",\"tags\":[1]}", "'tags' must be an array"},
        {400, "{\"name\":\"a\",\"cpuCount\":-2}", "CPU count must be at least 1"},
        {400, "{\"name\":\"a\",\"cpuCount\":0}", "CPU count must be at least 1"},
        {400, "{\"name\":\"a\",\"memoryMB\":0}", "Memory must be at least 128 MiB"},
        {400, "{\"name\":\"a\",\"memoryMB\":127}", "Memory must be at least 128 MiB"},
        {400, "{\"name\":\"a\",\"diskSizeMB\":-1}", "negative"},
        {400, "{\"name\":\"a\",\"memoryMB\":1.5}", "memoryMB"},
    };
    char many[1024] = "{\"name\":\"a\",\"tags\":[";

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        check_refused("/v3/templates", &rows[i]);
    for (size_t i = 0, at = strlen(many); i < 65; i++, at += 4)
        (void)snprintf(many + at, sizeof(many) - at, "%s\"t\"", i ? "," : " ");
    (void)snprintf(many + strlen(many), 8, "]}");
    check_refused("/v3/templates", &(struct refused){400, many, "more than 32"});
    check_refused("/templates",
                  &(struct refused){501, "{\"dockerfile\":\"FROM x\"}", "/v3/templates"});
    check_refused("/templates/t2", &(struct refused){501, "{}", "quicksand template build"});
    check_refused(BUILD "2", &(struct refused){501, "", "/v3/templates"});
}

TEST(a_build_is_started_and_looked_at)
{
    auto_json json_t *json = NULL, *failed = NULL;
    const json_t *entry, *reason;

    CHECK_INT(request("POST", "/v2" BUILD "2", NULL, "{\"steps\":[]}", NULL), 202);
    CHECK_STR(str_of(api_fake.recipe), "{\"steps\":[]}");
    CHECK_INT(request("GET", BUILD "2/status", "logsOffset=3&limit=10&level=warn", NULL, &json),
              200);
    CHECK_STR(json_get_str(json, "status"), "building");
    CHECK_INT(api_fake.logs.offset, 3);
    CHECK_INT(api_fake.logs.limit, 10);
    CHECK_INT(api_fake.logs.level, STORE_LEVEL_WARN);
    CHECK(!json_object_get(json, "reason"));
    CHECK_INT(json_array_size(json_object_get(json, "logs")), 0);
    entry = json_array_get(json_object_get(json, "logEntries"), 0);
    CHECK_STR(json_get_str(entry, "message"), "RUN make");
    CHECK_STR(json_get_str(entry, "level"), "warn");
    CHECK_STR(json_get_str(entry, "step"), "3");
    CHECK_STR(json_get_str(entry, "timestamp"), "2026-01-01T00:00:00.123456Z");
    /* By name, and without asking for a place in the log. */
    api_fake.build_state = STORE_BUILD_ERROR;
    CHECK_INT(
        request("GET", "/templates/mine/builds/" API_FAKE_BUILD "2/status", NULL, NULL, &failed),
        200);
    CHECK_INT(api_fake.logs.offset, 0);
    CHECK_INT(api_fake.logs.limit, 100);
    reason = json_object_get(failed, "reason");
    CHECK_STR(json_get_str(reason, "message"), "it broke");
    CHECK_STR(json_get_str(reason, "step"), "3");
    CHECK_STR(json_get_str(json_array_get(json_object_get(reason, "logEntries"), 0), "message"),
              "not there");
}

TEST(builds_that_are_not_there)
{
    refused("GET", "/templates/t2/builds/42/status", NULL, NULL, 400, "Invalid build ID");
    refused("GET", "/templates/t2/builds/" API_FAKE_BUILD "9/status", NULL, NULL, 404, "not found");
    refused("GET", "/templates/base/builds/" API_FAKE_BUILD "1/status", NULL, NULL, 404,
            "has no build");
    refused("GET", BUILD "1/status", "logsOffset=x", NULL, 400, "logsOffset");
    refused("GET", BUILD "1/logs", "direction=up", NULL, 400, "direction");
    refused("GET", BUILD "1/logs", "source=here", NULL, 400, "source");
    refused("GET", BUILD "1/logs", "level=loud", NULL, 400, "level");
    refused("DELETE", BUILD "1", NULL, NULL, 409, "has ended");
}

TEST(what_was_never_built_is_ready)
{
    auto_json json_t *json = NULL;

    CHECK_INT(request("GET", "/templates/base/builds/00000000-0000-0000-0000-000000000000/status",
                      NULL, NULL, &json),
              200);
    CHECK_STR(json_get_str(json, "status"), "ready");
    CHECK_STR(json_get_str(json, "templateID"), "t1");
}

TEST(logs_of_a_build)
{
    auto_json json_t *json = NULL;

    CHECK_INT(request("GET", BUILD "1/logs",
                      "cursor=1500&direction=backward&limit=5&level=info&source=persistent", NULL,
                      &json),
              200);
    CHECK_INT(json_array_size(json_object_get(json, "logs")), 1);
    CHECK_INT(api_fake.logs.cursor_us, 1500000);
    CHECK(api_fake.logs.backward);
    CHECK_INT(api_fake.logs.limit, 5);
}

TEST(a_build_is_cancelled)
{
    CHECK_INT(request("DELETE", BUILD "2", NULL, NULL, NULL), 204);
    CHECK_INT(api_fake.build_state, STORE_BUILD_ERROR);
    CHECK_INT(request("POST", BUILD "2/cancel", NULL, NULL, NULL), 204);
    CHECK_INT(api_fake.audited, 2);
}

TEST(templates_are_listed)
{
    auto_json json_t *json = NULL;
    const json_t *mine;

    CHECK_INT(request("GET", "/templates", "teamID=team-1", NULL, &json), 200);
    /* Other teams' public ones are not. */
    CHECK_INT(json_array_size(json), 2);
    CHECK_STR(json_get_str(json_array_get(json, 0), "templateID"), "t1");
    CHECK_STR(first(json_array_get(json, 0), "aliases"), "base");
    CHECK_STR(first(json_array_get(json, 0), "names"), "base");
    CHECK(json_is_null(json_object_get(json_array_get(json, 0), "lastSpawnedAt")));
    mine = json_array_get(json, 1);
    CHECK_STR(first(mine, "aliases"), "mine");
    CHECK_STR(first(mine, "names"), "team/mine");
    CHECK_STR(json_get_str(mine, "buildID"), API_FAKE_BUILD "1");
    CHECK_STR(json_get_str(mine, "buildStatus"), "ready");
    CHECK_INT(json_integer_value(json_object_get(mine, "spawnCount")), 7);
    CHECK_STR(json_get_str(mine, "lastSpawnedAt"), "1970-01-01T00:00:04.000000Z");
    refused("GET", "/templates", "teamID=x", NULL, 400, "mismatch");
}

static struct str next_token(const struct api_call *call)
{
    for (size_t i = 0; i < call->header_count; i++)
        if (str_is(call->headers[i].name, "x-next-token"))
            return call->headers[i].value;
    return STR_NONE;
}

TEST(templates_are_listed_in_pages)
{
    struct api_call call = new_call("GET", "/v2/templates");
    auto_json json_t *all = NULL, *rest = NULL;
    char query[256];

    CHECK_INT(request("GET", "/v2/templates", NULL, NULL, &all), 200);
    CHECK_STR(json_get_str(json_array_get(all, 0), "templateID"), "t2");
    CHECK_STR(json_get_str(json_array_get(all, 1), "templateID"), "t1");
    call.query = STR("limit=1");
    CHECK_INT(run(&call), 200);
    CHECK(next_token(&call).len > 0);
    (void)snprintf(query, sizeof(query), "limit=1&nextToken=%.*s", STR_ARG(next_token(&call)));
    call_done(&call);
    CHECK_INT(request("GET", "/v2/templates", query, NULL, &rest), 200);
    CHECK_INT(json_array_size(rest), 1);
    CHECK_STR(json_get_str(json_array_get(rest, 0), "templateID"), "t1");
    call = new_call("GET", "/v2/templates");
    call.query = str_of(query);
    CHECK_INT(run(&call), 200);
    CHECK(!next_token(&call).p);
    call_done(&call);
    refused("GET", "/v2/templates", "nextToken=junk", NULL, 400, "Invalid next token");
    refused("GET", "/v2/templates", "nextToken=%00", NULL, 400, "nextToken");
    refused("GET", "/v2/templates", "limit=0", NULL, 400, "limit");
}

TEST(a_template_has_its_builds)
{
    auto_json json_t *json = NULL, *theirs = NULL, *base = NULL;
    struct api_call call = new_call("GET", "/templates/mine");
    const json_t *build;

    CHECK_INT(request("GET", "/templates/team%2Fmine", NULL, NULL, NULL), 404);
    CHECK_INT(request("GET", "/templates/mine", NULL, NULL, &json), 200);
    CHECK_STR(json_get_str(json, "templateID"), "t2");
    CHECK_INT(json_array_size(json_object_get(json, "builds")), 2);
    build = json_array_get(json_object_get(json, "builds"), 1);
    CHECK_STR(json_get_str(build, "status"), "ready");
    CHECK_STR(json_get_str(build, "finishedAt"), "1970-01-01T00:00:02.500000Z");
    CHECK(!json_object_get(json_array_get(json_object_get(json, "builds"), 0), "finishedAt"));
    call.query = STR("limit=1");
    CHECK_INT(run(&call), 200);
    CHECK(next_token(&call).p != NULL);
    call_done(&call);
    /* Public ones of others, and the platform's, are there; how they were made is not this team's to look into. */
    CHECK_INT(request("GET", "/templates/theirs", NULL, NULL, &theirs), 200);
    CHECK_INT(json_array_size(json_object_get(theirs, "builds")), 0);
    CHECK_INT(request("GET", "/templates/base", NULL, NULL, &base), 200);
    CHECK_INT(json_array_size(json_object_get(base, "builds")), 0);
    refused("GET", "/templates/nope", NULL, NULL, 404, "not found");
}

TEST(aliases)
{
    auto_json json_t *json = NULL;

    CHECK_INT(request("GET", "/templates/aliases/base", NULL, NULL, &json), 200);
    CHECK(json_is_true(json_object_get(json, "public")));
    CHECK_INT(request("GET", "/templates/aliases/mine", NULL, NULL, NULL), 200);
    CHECK_INT(request("GET", "/templates/aliases/mine%3Adefault", NULL, NULL, NULL), 200);
    CHECK_INT(request("GET", "/templates/aliases/mine%3Av9", NULL, NULL, NULL), 404);
    CHECK_INT(request("GET", "/templates/aliases/nope", NULL, NULL, NULL), 404);
}

TEST(templates_are_made_public_and_deleted)
{
    auto_json json_t *json = NULL;

    CHECK_INT(request("PATCH", "/v2/templates/mine", NULL, "{\"public\":true}", &json), 200);
    CHECK_STR(first(json, "names"), "team/mine");
    CHECK(api_fake.made_public);
    CHECK_INT(request("PATCH", "/templates/t2", NULL, "{\"public\":false}", NULL), 200);
    CHECK(!api_fake.made_public);
    CHECK_INT(request("PATCH", "/v2/templates/mine", NULL, "{}", NULL), 200);
    CHECK_INT(request("PATCH", "/templates/mine", NULL, "{}", NULL), 200);
    CHECK_INT(request("PATCH", "/templates/missing", NULL, "{}", NULL), 404);
    refused("PATCH", "/v2/templates/mine", NULL, "{\"public\":1}", 400, "public");
    refused("PATCH", "/v2/templates/theirs", NULL, "{\"public\":false}", 403, "not yours");
    refused("PATCH", "/v2/templates/nope", NULL, "{\"public\":false}", 404, "not found");
    refused("DELETE", "/templates/theirs", NULL, NULL, 403, "not yours");
    CHECK_INT(request("DELETE", "/templates/mine", NULL, NULL, NULL), 204);
    CHECK(api_fake.template_deleted);
    CHECK_INT(request("DELETE", "/templates/nope", NULL, NULL, NULL), 404);
}

TEST(tags)
{
    auto_json json_t *json = NULL, *list = NULL;

    CHECK_INT(request("POST", "/templates/tags", NULL,
                      "{\"target\":\"mine:v1\",\"tags\":[\"prod\",\"x\"]}", &json),
              201);
    CHECK_STR(json_get_str(json, "buildID"), API_FAKE_BUILD "1");
    CHECK_STR(first(json, "tags"), "prod");
    CHECK_INT(
        request("DELETE", "/templates/tags", NULL, "{\"name\":\"mine\",\"tags\":[\"x\"]}", NULL),
        204);
    CHECK_INT(request("GET", "/templates/t2/tags", NULL, NULL, &list), 200);
    CHECK_STR(json_get_str(json_array_get(list, 0), "tag"), "default");
    CHECK_STR(json_get_str(json_array_get(list, 0), "createdAt"), "1970-01-01T00:00:02.000000Z");
    refused("DELETE", "/templates/tags", NULL, "{\"name\":\"mine\",\"tags\":[\"default\"]}", 400,
            "default");
    refused("DELETE", "/templates/tags", NULL, "{\"name\":\"mine:a\",\"tags\":[\"a\"]}", 400,
            "should not contain a tag");
    refused("POST", "/templates/tags", NULL, "{\"target\":\"mine\",\"tags\":[]}", 400,
            "At least one tag");
    refused("POST", "/templates/tags", NULL, "{\"tags\":[\"a\"]}", 400, "target");
    refused("POST", "/templates/tags", NULL, "{\"target\":\"theirs\",\"tags\":[\"a\"]}", 403,
            "not yours");
    refused("GET", "/templates/nope/tags", NULL, NULL, 404, "not found");
}

/* ---- files ---- */

/* Path and query of a link, for a client that reached us as `host`. */
static void ask_link(const char *host, const char *proto, const char *query, char *out, size_t size)
{
    struct api_call call = new_call("GET", "/templates/mine/files/" HASH);
    auto_json json_t *json = NULL;

    call.host = str_of(host);
    call.forwarded_proto = str_of(proto);
    call.query = str_of(query);
    CHECK_INT(run(&call), 201);
    OK(json_parse(str_of(call.text), &json, &err));
    (void)str_copy(json_get_str(json, "url"), out, size);
    call_done(&call);
}

/* What the loop says to an upload by that link: 0, 411, or the status of the error. */
static int admit(const char *url, int64_t length, char *team, size_t team_size)
{
    struct api_call call = new_call("PUT", UPLOAD);
    struct error err = {0};
    int r;

    call.query = str_of(strchr(url, '?') + 1);
    r = api_build_files_admit(&call, length, &err);
    if (r == 0)
        CHECK(call.vouched && call.file_max == (length < 0 ? 1 << 20 : length));
    if (team)
        (void)str_copy(str_of(call.who.team_id), team, team_size);
    call_done(&call);
    return r < 0 ? (int)err.code : r;
}

TEST(links_lead_where_the_client_came_from)
{
    char url[512];

    ask_link("api.example.com:3000", "", "", url, sizeof(url));
    CHECK(
        str_starts(str_of(url), STR("http://api.example.com:3000" UPLOAD "?team=team-1&expires=")));
    ask_link("[::1]:80", "https", "", url, sizeof(url));
    CHECK(str_starts(str_of(url), STR("https://[::1]:80" UPLOAD "?")));
    ask_link("", "", "", url, sizeof(url));
    CHECK(str_starts(str_of(url), STR("http://127.0.0.1:3000" UPLOAD "?")));
    ask_link("a/b?c", "", "", url, sizeof(url));
    CHECK(str_starts(str_of(url), STR("http://127.0.0.1:3000" UPLOAD "?")));
    refused("GET", "/templates/mine/files/xyz", NULL, NULL, 400, "Invalid files hash");
    refused("GET", "/templates/nope/files/" HASH, NULL, NULL, 404, "not found");
    refused("GET", "/templates/theirs/files/" HASH, NULL, NULL, 403, "not yours");
    refused("GET", "/templates/mine/files/" HASH, "length=1048577", NULL, 400, "length");
}

TEST(links_are_for_one_team_one_content_and_an_hour)
{
    char url[512], other[512], team[64];

    ask_link("x", "", "", url, sizeof(url));
    CHECK_INT(admit(url, 5, team, sizeof(team)), 0);
    CHECK_STR(str_of(team), "team-1");
    CHECK_INT(admit(url, -1, NULL, 0), 0);
    CHECK_INT(admit(url, 0, NULL, 0), ERROR_INVALID);
    CHECK_INT(admit(url, (1 << 20) + 1, NULL, 0), ERROR_LIMIT);
    (void)str_copy(str_of(url), other, sizeof(other));
    strstr(other, "team-1")[5] = '2';
    CHECK_INT(admit(other, 5, team, sizeof(team)), ERROR_FORBIDDEN);
    CHECK_STR(str_of(team), "");
    (void)str_copy(str_of(url), other, sizeof(other));
    strstr(other, "expires=")[8] = '9';
    CHECK_INT(admit(other, 5, NULL, 0), ERROR_FORBIDDEN);
    (void)str_copy(str_of(url), other, sizeof(other));
    *strstr(other, "&signature=") = '\0';
    CHECK_INT(admit(other, 5, NULL, 0), ERROR_FORBIDDEN);
    clock_test_pass(3601 * 1000000LL);
    CHECK_INT(admit(url, 5, NULL, 0), ERROR_FORBIDDEN);
}

TEST(links_may_be_for_one_length)
{
    char url[512];

    ask_link("x", "", "length=7", url, sizeof(url));
    CHECK_INT(admit(url, 7, NULL, 0), 0);
    CHECK_INT(admit(url, 8, NULL, 0), ERROR_INVALID);
    CHECK_INT(admit(url, -1, NULL, 0), 411);
    *(strstr(url, "length=") + 7) = '8';
    CHECK_INT(admit(url, 8, NULL, 0), ERROR_FORBIDDEN);
}

TEST(registry_passwords_are_never_told)
{
    struct api_call call = new_call("GET", "/registries");

    CHECK_INT(run(&call), 200);
    CHECK(strstr(call.text, "\"host\":\"ghcr.io\"") && !strstr(call.text, "00ff"));
    call_done(&call);
    CHECK_INT(request("PUT", "/registries/ghcr.io", NULL,
                      "{\"username\":\"me\",\"password\":\"open sesame\"}", NULL),
              204);
    CHECK_STR(str_of(api_fake.password), "open sesame");
    refused("PUT", "/registries/ghcr.io", NULL, "{\"username\":\"me\"}", 400, "password");
    CHECK_INT(request("DELETE", "/registries/ghcr.io", NULL, NULL, NULL), 204);
    CHECK_INT(request("DELETE", "/registries/x", NULL, NULL, NULL), 404);
}

TEST(what_another_server_needs)
{
    auto_json json_t *settings = NULL;

    CHECK_INT(request("GET", "/templates/mine/settings", NULL, NULL, &settings), 200);
    CHECK_STR(json_get_str(settings, "user"), "app");
    CHECK_STR(json_get_str(settings, "startCmd"), "run");
    CHECK_STR(json_get_str(json_object_get(settings, "env"), "A"), "b");
    refused("GET", "/templates/nobody/settings", NULL, NULL, 404, "not found");
}
