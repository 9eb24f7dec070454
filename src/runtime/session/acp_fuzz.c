/* The stream of events of an agent, in two pieces. */
#include <stdint.h>

#include "runtime/session/acp.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void ignore(void *arg, int64_t id, json_t *message)
{
    (void)arg;
    (void)id;
    (void)message;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct acp_feed feed;
    struct error err;
    json_t *result = NULL;

    acp_feed_init(&feed);
    acp_feed_add(&feed, str_n(data, size / 2), ignore, NULL);
    acp_feed_add(&feed, str_n(data + size / 2, size - size / 2), ignore, NULL);
    acp_feed_done(&feed);
    if (acp_outcome(200, str_n(data, size), &result, &err) == 0)
        json_decref(result);
    return 0;
}
