/* Methods of process.Process. */
#pragma once

#include "envd/core/envd.h"

/* process_rpc.c, process_input_rpc.c */
call_fn process_rpc_start, process_rpc_connect, process_rpc_list, process_rpc_send_input,
    process_rpc_close_stdin, process_rpc_send_signal, process_rpc_update;
/* By the message's {"process": {"pid" or "tag"}}; NULL with err when there is none. */
struct process *process_rpc_select(struct envd *envd, const json_t *message, struct error *err);
/* A client stream: reads its own messages. */
void process_rpc_stream_input(struct envd *envd, struct http_exchange *ex);
