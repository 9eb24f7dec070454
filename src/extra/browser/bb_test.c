/* The table of endpoints, without a socket. */
#include "base/test.h"
#include "edge/call/test/lanes_page.h"
#include "extra/browser/bb_internal.h"

TEST(the_page_of_lanes_lists_every_endpoint)
{
    size_t count = 0;

    for (const struct bb_endpoint *row = bb_endpoints; row->is.method; row++) {
        /* Of what is not served the page lists only methods of paths that are. */
        if (row->handler == bb_unsupported && strcmp(row->is.pattern, "/v1/contexts/{id}") != 0) {
            CHECK_INT(bb_lane_of(row), BB_LANE_CONTROL);
            continue;
        }
        lanes_page_check_endpoint("Browserbase API", row->is.method, "", row->is.pattern,
                                  bb_lane_name(bb_lane_of(row)));
        count++;
    }
    CHECK_INT(lanes_page_count("Browserbase API"), count);
    lanes_page_check("Answered by the loop", "GET /v1/live", "loop");
}

/* Nothing limits how many of them one team sends. */
TEST(signed_links_take_no_worker_of_the_control_lane)
{
    for (const struct bb_endpoint *row = bb_endpoints; row->is.method; row++)
        CHECK(!(row->flags & BB_SIGNED) || bb_lane_of(row) == BB_LANE_WAIT);
}
