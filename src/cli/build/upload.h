/* Files of a build on their way to the server: by the API's links, each content once. */
#pragma once

#include "cli/core/cli_command.h"

/* Does the server want the content of that name? *out_url is malloc()ed, NULL when it has it. */
int upload_wanted(const struct cli *cli, const char *template_id, const char *hash, char **out_url,
                  struct error *err);
/* All of the file, from its beginning. what: "3 files", printed with the size: on a terminal as a moving line with the
 * time left, which is gone at the end, else as a line; NULL (and --json) prints nothing. */
int upload_put(const struct cli *cli, const char *what, const char *url, int fd, struct error *err);
/* A file without a name, for what is to be sent. */
int upload_scratch(struct error *err);
