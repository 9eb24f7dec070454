/* Steps in the life of a sandbox that several files of this folder take: pause, teardown, recovery, events of boxes. */
#pragma once

#include "base/error.h"
#include "domain/sandbox/sandbox_history.h"
#include "host/engine/engine.h"

struct sandbox;
struct sandboxes;

/* Consumes a KILLING sandbox the caller owns. On failure it stays KILLING and is tried again. */
int sandbox_teardown(struct sandboxes *all, struct sandbox *sandbox, struct error *err);

/* Ends a PAUSING that the caller owns: PAUSED, or RUNNING again with err. */
struct pause {
    bool disk_only;
    bool at_end; /* of its time: it does not run on */
};
int pause_owned(struct sandboxes *all, struct sandbox *sandbox, const struct pause *pause,
                struct error *err);
/* Ends what is left of the processes of one that the caller owns, and notes when they take their time. */
int pause_stop(struct sandboxes *all, struct sandbox *sandbox, struct error *err);
/* The same, again; consumes a PAUSING whose row says 'paused' already. */
void pause_finish(struct sandboxes *all, struct sandbox *sandbox);

int events_start(struct sandboxes *all, struct error *err);
void events_stop(struct sandboxes *all);
/* Why a sandbox ended, when its box did so by itself. */
enum sandbox_end reason_of_end(enum box_end end);
/* Is there a running box of this id? Yes, when it cannot be known. */
bool box_runs(struct sandboxes *all, const char *id);
int recover_all(struct sandboxes *all, struct error *err);
