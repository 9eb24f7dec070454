/* Code whose results are told whole or as they come, over real sockets. */
#include "base/list.h"
#include "base/test.h"
#include "edge/api_runtime/test/v1_site.h"
#include "edge/api_runtime/v1_members.h"
#include "extra/interpreter/interpreter_extra.h"

TEST(v1_code_whole_and_streamed)
{
    static const struct v1_endpoint rows[] = {
        {{"POST", "/sandboxes/{id}/code"}, v1_code, V1_BOX, v1_members_any},
        {.is = {.method = NULL}},
    };
    struct site site;

    v1_endpoints_add(rows);
    site_start(&site, 4, 100);
    site_check(site_post(&site, "code", "*/*", "{\"code\":\"1\"}"),
               (const char *const[]){"HTTP/1.1 200 OK", "{\"execution_count\":4}", NULL});
    site_check(site_post(&site, "code", "*/*", "{\"code\":\"1\",\"stream\":true}"),
               (const char *const[]){"Content-Type: application/x-ndjson",
                                     "{\"type\":\"stdout\",\"text\":\"x\"}\n",
                                     "{\"execution_count\":4,\"type\":\"exit\"}\n", NULL});
    site_check(site_post(&site, "code", "text/event-stream", "{\"code\":\"1\"}"),
               (const char *const[]){"Content-Type: text/event-stream",
                                     "data: {\"type\":\"stdout\",\"text\":\"x\"}\n\n", NULL});
    site_check(site_post(&site, "code", "*/*", "{}"),
               (const char *const[]){"HTTP/1.1 400", "'code' is needed", NULL});
    site_check(site_post(&site, "code", "*/*",
                         "{\"code\":\"1\",\"language\":\"js\",\"context_id\":\"x\"}"),
               (const char *const[]){"HTTP/1.1 400", "either", NULL});
    v1_fake.fail = (struct error){.code = ERROR_UNSUPPORTED, .message = "none here"};
    site_check(site_post(&site, "code", "*/*", "{\"code\":\"1\",\"stream\":true}"),
               (const char *const[]){"HTTP/1.1 409", "none here", NULL});
}
