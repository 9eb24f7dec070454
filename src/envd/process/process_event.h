/* Messages of process streams, written straight into envelopes: output is the bulk of what envd
 * sends, so it does not go through a JSON library. `format` is what connect_format() gave. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/buf.h"
#include "protocol/rpc/proto.h"

enum process_channel { PROCESS_STDOUT, PROCESS_STDERR, PROCESS_PTY };

void process_event_start(struct buf *out, const struct proto_message *format, pid_t pid);
void process_event_data(struct buf *out, bool binary, enum process_channel channel, const void *p,
                        size_t len);
void process_event_keepalive(struct buf *out, const struct proto_message *format);
/* status as waitpid(2) gives it; the error says when it was memory that killed. */
void process_event_end(struct buf *out, const struct proto_message *format, int status,
                       bool out_of_memory);

/* How much room a data event needs at most. */
size_t process_event_data_size(bool binary, size_t len);
