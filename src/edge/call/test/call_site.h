/* For the tests of calls: an API of one endpoint, "/x", on a server of its own. A request's query says what its handler
 * does. Keys and the audit log are the tests' own, and each change of state is seen. */
#pragma once

#include "edge/call/call.h"
#include "protocol/http/test/http_test_site.h"

enum { LANE_FIRST, LANE_SECOND, LANE_UNDO, CALL_SITE_LONG = 16 << 20 };

struct call_site {
    struct http_site http;
    struct call_desk desk;
    struct call *traced; /* the call of "/x" */
    char path[256];      /* the states it went through */
    bool seen[CALL_STATES][CALL_STATES];
    int finds, handled, stepped, admitted, left, killed, begun, over;
    bool held, undo_held;
};
extern struct call_site site;

void call_site_start(void);
int get(const int *counter);
/* What stays, stays until hold(false). */
void hold(bool held);
void hold_undo(bool held);
/* On a thread that is to be kept: until then. */
void stay(void);
