/* More handles on the fake engine, for tests of what is built on engines. */
#pragma once

#include "engine/engine.h"

/* Where the agents' sockets go; before the first start. Each agent answers 204 to everything. */
void engine_fake_serve(struct engine *engine, const char *run_dir);
/* What agents answer from now on; 0 = close the connection without an answer. */
void engine_fake_agent_status(struct engine *engine, int status);
/* Calls so far: engine operations (but next_event) and requests to agents, which count for
 * engine_fake_fail_at() too. */
int engine_fake_calls(struct engine *engine);
/* The next `count` kills fail. */
void engine_fake_fail_kills(struct engine *engine, int count);
/* The box's first process ends by itself: the agent is gone, an event comes. */
void engine_fake_die(struct engine *engine, const char *id, enum box_end end);
/* False when there is no such box. */
bool engine_fake_spec(struct engine *engine, const char *id, struct box_spec *out);
/* The last request an agent got: head and body, as on the wire. */
void engine_fake_last_request(struct engine *engine, char *out, size_t size);
