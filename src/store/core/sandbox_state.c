#include "store/core/sandbox_state.h"

#include <assert.h>
#include <stdio.h>

#include "base/names.h"

static const char *const texts[SANDBOX_STATE_COUNT] = {
    [SANDBOX_CREATING] = "creating", [SANDBOX_RUNNING] = "running",   [SANDBOX_PAUSING] = "pausing",
    [SANDBOX_PAUSED] = "paused",     [SANDBOX_RESUMING] = "resuming", [SANDBOX_SEALING] = "sealing",
    [SANDBOX_KILLING] = "killing",   [SANDBOX_ENDED] = "ended",       [SANDBOX_LOST] = "lost",
};
const struct names sandbox_state_names = NAMES("state of a sandbox", texts);

#define TO(state) (1U << SANDBOX_##state)
#define END       (TO(KILLING) | TO(ENDED) | TO(LOST))

/* A sandbox on another provider is seen from afar: it may be paused or run again without a step in between. */
static const unsigned transitions[SANDBOX_STATE_COUNT] = {
    [SANDBOX_CREATING] = TO(RUNNING) | TO(PAUSED) | END,
    [SANDBOX_RUNNING] = TO(PAUSING) | TO(PAUSED) | TO(SEALING) | END,
    [SANDBOX_PAUSING] = TO(PAUSED) | TO(RUNNING) | END,
    [SANDBOX_PAUSED] = TO(RESUMING) | TO(PAUSING) | TO(RUNNING) | END,
    [SANDBOX_RESUMING] = TO(PAUSED) | TO(RUNNING) | END,
    [SANDBOX_SEALING] = TO(RUNNING) | END,
    [SANDBOX_KILLING] = TO(ENDED) | TO(LOST),
    [SANDBOX_ENDED] = 0,
    [SANDBOX_LOST] = TO(CREATING) | TO(RUNNING) | TO(PAUSED) | TO(ENDED),
};

bool sandbox_state_may(enum sandbox_state from, enum sandbox_state to)
{
    return from == to ? from != SANDBOX_ENDED : transitions[from] & 1U << to;
}

void sandbox_state_sources(enum sandbox_state to, char out[SANDBOX_SOURCES_SIZE])
{
    size_t len = 1;

    out[0] = ',';
    out[1] = '\0';
    for (unsigned from = 0; from < SANDBOX_STATE_COUNT; from++)
        if (sandbox_state_may(from, to))
            len += (size_t)snprintf(out + len, SANDBOX_SOURCES_SIZE - len, "%s,", texts[from]);
    assert(len < SANDBOX_SOURCES_SIZE);
}

enum sandbox_state sandbox_state_listed(enum sandbox_state state)
{
    switch (state) {
    case SANDBOX_PAUSING:
    case SANDBOX_RESUMING:
        return SANDBOX_PAUSED;
    case SANDBOX_SEALING:
        return SANDBOX_RUNNING;
    case SANDBOX_LOST:
        return SANDBOX_ENDED;
    default:
        return state;
    }
}
