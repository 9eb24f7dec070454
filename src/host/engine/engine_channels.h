/* The channels to the warden, each of which carries one call at a time. No wait for one is without a limit, and
 * calls that may be held up by what is inside a box (ending it, stopping it, bringing its files to disk) never have
 * all of them: others always find one. Those that take long by themselves, such as copying a layer, have two at the
 * most: the others wait outside. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum { ENGINE_CHANNELS_MAX = 32 };

struct engine_channels;

/* Takes the sockets. */
struct engine_channels *engine_channels_new(const int *fds, size_t count);
void engine_channels_free(struct engine_channels *channels);

enum engine_call {
    ENGINE_CALL_QUICK,
    ENGINE_CALL_LINGERING, /* may be held up by a box */
    ENGINE_CALL_LONG,
    ENGINE_CALL_KINDS,
};

struct engine_channel {
    int fd;
    uint64_t serial; /* for the request */
    enum engine_call kind;
};

/* ERROR_UNAVAILABLE when there is none within the limit. */
int engine_channel_take(struct engine_channels *channels, enum engine_call kind, int limit_ms,
                        struct engine_channel *out, struct error *err);
/* answered: false when the reply was given up on. Then the channel is used again once that has come. */
void engine_channel_give(struct engine_channels *channels, const struct engine_channel *channel,
                         bool answered);
