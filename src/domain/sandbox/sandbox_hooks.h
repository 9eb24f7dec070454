/* Calls of what rooms above registered (sandbox.h). */
#pragma once

#include "domain/sandbox/sandbox.h"

void watchers_init(struct sandboxes *all);
void watchers_done(struct sandboxes *all);
/* After the store has an event of a sandbox. */
void watchers_call(struct sandboxes *all);

bool hooks_box_ended(struct sandboxes *all, const char *box_id);
