/* Creates under way, whoever asked: beyond a limit they are refused at once instead of waiting for longer than
 * anybody wants to wait. Any thread. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/str.h"

struct sandbox_creates;

/* max: creates that run or wait; one team may have three quarters of them; 0 = no limit. */
struct sandbox_creates *sandbox_creates_new(size_t max);
/* None may be under way any more. */
/* Any time. */
void sandbox_creates_set_max(struct sandbox_creates *creates, size_t max);
void sandbox_creates_free(struct sandbox_creates *creates);

/* One more. ERROR_QUOTA when there are as many as may be; else to be ended. */
int sandbox_creates_begin(struct sandbox_creates *creates, struct str team_id, struct error *err);
void sandbox_creates_end(struct sandbox_creates *creates, struct str team_id);

struct sandbox_creates_stats {
    size_t under_way, max;
    uint64_t refused;
};
void sandbox_creates_stats(struct sandbox_creates *creates, struct sandbox_creates_stats *out);
