/* The lifecycle of a sandbox: the one enum of its states, and the one table of what may follow what. The domain's table of
 * sandboxes, the rows in the store and the runtime use it. What else shows a sandbox's state is a projection with one
 * conversion: sandbox_state_listed() for lists of the E2B API, runtime_state_names for /api/v1, provider_state
 * (provider/embedded) and route_state (domain/sandbox). */
#pragma once

#include <stdbool.h>

enum sandbox_state {
    SANDBOX_CREATING, /* row may be there, box may be there; nobody outside sees it */
    SANDBOX_RUNNING,  /* envd answered; reachable */
    SANDBOX_PAUSING,  /* not reachable; reads as paused, at the end of its time as running */
    SANDBOX_PAUSED,   /* its processes stand still, or only its files are kept */
    SANDBOX_RESUMING, /* reads as paused until it runs */
    SANDBOX_SEALING,  /* runs, and its files are being snapshotted */
    SANDBOX_KILLING,  /* no longer visible; teardown was begun and must be finished */
    SANDBOX_ENDED,    /* history */
    SANDBOX_LOST,     /* its machine is gone; its key brings it back */
    SANDBOX_STATE_COUNT,
};

/* As rows have them. */
struct names;
extern const struct names sandbox_state_names;

/* May `to` follow `from`? A state may be written again, except that nothing follows ENDED. */
bool sandbox_state_may(enum sandbox_state from, enum sandbox_state to);
/* What `to` may follow, for a condition of SQL: ",running,paused,". */
enum { SANDBOX_SOURCES_SIZE = 96 };
void sandbox_state_sources(enum sandbox_state to, char out[SANDBOX_SOURCES_SIZE]);
/* RUNNING, PAUSED, KILLING, ENDED or CREATING: how a list shows it. */
enum sandbox_state sandbox_state_listed(enum sandbox_state state);
