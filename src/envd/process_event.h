/* Messages of process streams, written straight into envelopes: output is the bulk of what the agent
 * sends, so it does not go through a JSON library. */
#pragma once

#include <stddef.h>
#include <sys/types.h>

#include "base/buf.h"

enum process_channel { PROCESS_STDOUT, PROCESS_STDERR, PROCESS_PTY };

void process_event_start(struct buf *out, pid_t pid);
void process_event_data(struct buf *out, enum process_channel channel, const void *p, size_t len);
void process_event_keepalive(struct buf *out);
/* status as waitpid(2) gives it. */
void process_event_end(struct buf *out, int status);

/* How much room a data event needs. */
size_t process_event_data_size(size_t len);
