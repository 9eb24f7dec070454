/* One UDP port of this machine that leads into a sandbox. */
#pragma once

#include "cli/core/cli_client.h"

struct cli_udp;

/* fd: bound, non-blocking. Lives as long as the process. */
struct cli_udp *cli_udp_new(const struct cli_server *server, const struct cli_sandbox *sandbox,
                            uint16_t port, int fd);
/* Passes on what has come. Never waits. */
void cli_udp_take(struct cli_udp *udp);
