/* Events of the runtime as they come. */
#pragma once

#include "cli/core/cli_command.h"

/* False ends the reading. */
typedef bool cli_event_fn(void *arg, const json_t *event);

/* Follows a stream of events behind `since` (-1 = from now on) until on_event gives up. A connection
 * that breaks is made again, behind the last event. */
int cli_events_follow(struct cli *cli, const char *path, int64_t since, cli_event_fn *on_event,
                      void *arg, struct error *err);
/* For people: one line; pieces of an agent's answer follow each other. */
struct cli_event_printer {
    bool json;
    bool in_text; /* the line has not ended */
};
void cli_event_print(struct cli_event_printer *printer, const json_t *event);
