/* Rows of sandboxes in the engine of this process follow it. */
#pragma once

#include "runtime/core/runtime.h"

struct store_runtime_sandbox;

/* Something happened to a sandbox of the engine in this process, and the store has its event. Quick: the
 * rows follow within a moment, on a thread of their own. */
void runtime_engine_changed(struct runtime *runtime);

/* What it has told until now is in the rows. */
void runtime_follow_now(struct runtime *runtime);
/* The machine of the row is not there: the reason is the engine's to name. false: it is not the engine's,
 * or the engine has forgotten it. *out_changed: the row says so by this call; else it did already, or the
 * engine is still at it. */
bool runtime_follow_end(struct runtime *runtime, const struct store_runtime_sandbox *row,
                        bool *out_changed);

/* ---- opened and closed by runtime_main.c ---- */

/* Between init and done the engine can be asked why one ended; open comes after jobs: those of what ended end too. */
void runtime_follow_init(struct runtime *runtime);
void runtime_follow_done(struct runtime *runtime);
int runtime_follow_open(struct runtime *runtime, struct error *err);
void runtime_follow_close(struct runtime *runtime);
