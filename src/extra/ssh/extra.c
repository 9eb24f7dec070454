/* ssh, scp, rsync and editors into sandboxes. */
#include "extra/core/extra.h"

#include "extra/ssh/cli_ssh.h"

static const struct cli_place commands[] = {{&cli_ssh_command, "url"},
                                            {&cli_ssh_config_command, "url"},
                                            {&cli_ssh_proxy_command, "url"},
                                            {NULL, NULL}};

const struct extra extra_ssh = {.name = "ssh", .commands = commands};
