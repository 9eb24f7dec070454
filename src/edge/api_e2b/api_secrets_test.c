/* Secrets, without a socket. */
#include "base/test.h"
#include "edge/api_e2b/test/api_fake.h"
#include "edge/api_e2b/test/api_test_request.h"
#include "protocol/json/json_shape.h"

#define VALUE "correct horse"

TEST(a_secret_is_kept_and_its_value_never_told)
{
    struct api_call call = new_call("POST", "/secrets");

    call.body = STR("{\"name\":\"new\",\"value\":\"" VALUE "\",\"metadata\":{\"a\":\"b\"},"
                    "\"hosts\":[\"x.example\"]}");
    CHECK_INT(run(&call), 201);
    CHECK_STR(str_of(api_fake.password), VALUE);
    CHECK_STR(str_of(api_fake.metadata), "{\"a\":\"b\"}");
    CHECK_INT(api_fake.hosts, 1);
    CHECK(strstr(call.text, VALUE) == NULL && strstr(call.text, "5ea1ed") == NULL);
    CHECK(strstr(call.text, "\"name\":\"new\"") != NULL);
    call_done(&call);
}

TEST(a_secret_is_shown_as_the_sdk_reads_it)
{
    auto_json json_t *json = NULL;

    CHECK_INT(request("GET", "/secrets/known", NULL, NULL, &json), 200);
    CHECK_STR(json_get_str(json, "secretID"), "sec_1");
    CHECK_STR(json_get_str(json, "name"), "known");
    CHECK_INT(json_integer_value(json_object_get(json, "currentVersion")), 3);
    CHECK_STR(json_get_str(json_object_get(json, "metadata"), "of"), "me");
    CHECK_INT(json_array_size(json_object_get(json, "hosts")), 2);
    CHECK(str_starts(json_get_str(json, "createdAt"), STR("1970-01-01T00:00:01")));
    CHECK(str_starts(json_get_str(json, "updatedAt"), STR("1970-01-01T00:00:02")));
    CHECK(!json_object_get(json, "value"));
    CHECK_INT(request("GET", "/secrets/other", NULL, NULL, NULL), 404);
    CHECK_INT(request("DELETE", "/secrets/known", NULL, NULL, NULL), 204);
    CHECK_INT(request("DELETE", "/secrets/other", NULL, NULL, NULL), 404);
}

TEST(what_a_change_does_not_name_stays)
{
    CHECK_INT(request("POST", "/secrets/known", NULL, "{\"value\":\"x\"}", NULL), 200);
    CHECK_STR(str_of(api_fake.password), "x");
    CHECK_STR(str_of(api_fake.changed), "known");
    CHECK_INT(api_fake.hosts, -1);
    CHECK_STR(str_of(api_fake.metadata), "");
    CHECK_INT(request("POST", "/secrets/known", NULL, "{\"value\":\"x\",\"hosts\":[]}", NULL), 200);
    CHECK_INT(api_fake.hosts, 0);
    CHECK_INT(request("POST", "/secrets/other", NULL, "{\"value\":\"x\"}", NULL), 404);
}

TEST(secrets_are_listed_by_pages)
{
    struct api_call call = new_call("GET", "/secrets");
    auto_json json_t *json = NULL;
    struct str token = STR_NONE;

    call.query = STR("limit=2");
    CHECK_INT(run(&call), 200);
    for (size_t i = 0; i < call.header_count; i++)
        if (str_is(call.headers[i].name, "x-next-token"))
            token = call.headers[i].value;
    CHECK_STR(token, "b");
    call_done(&call);
    CHECK_INT(request("GET", "/secrets", "limit=2&nextToken=b", NULL, &json), 200);
    CHECK_INT(json_array_size(json), 1);
    CHECK_INT(request("GET", "/secrets", "limit=0", NULL, NULL), 400);
    CHECK_INT(request("GET", "/secrets", "limit=101", NULL, NULL), 400);
}

TEST(secrets_that_are_refused)
{
    static const struct refused rows[] = {
        {400, "{\"value\":\"x\"}", "name"},
        {400, "{\"name\":\"a\"}", "value"},
        {400, "{\"name\":\"a\",\"value\":1}", "value"},
        {400, "{\"name\":\"a\",\"value\":\"x\",\"metadata\":[]}", "metadata"},
        {400, "{\"name\":\"a\",\"value\":\"x\",\"metadata\":{\"a\":1}}", "metadata"},
        {400, "{\"name\":\"a\",\"value\":\"x\",\"hosts\":\"a\"}", "hosts"},
        {400, "{\"name\":\"a\",\"value\":\"x\",\"hosts\":[1]}", "hosts"},
        {409, "{\"name\":\"known\",\"value\":\"x\"}", "there is one"},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        check_refused("/secrets", &rows[i]);
}

TEST(a_body_that_is_no_json_is_not_quoted)
{
    struct api_call call = new_call("POST", "/secrets");

    call.body = STR("{\"name\":\"a\",\"value\":\"a\" \"" VALUE "\"}");
    CHECK_INT(run(&call), 400);
    CHECK(strstr(call.text, VALUE) == NULL);
    call_done(&call);
}
