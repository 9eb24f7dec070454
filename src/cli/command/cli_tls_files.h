/* The directory DATA/tls, for the commands that put something there, and the server that takes it from there. */
#pragma once

#include "base/buf.h"
#include "base/error.h"
#include "base/str.h"

struct cli;

/* Makes DATA/tls. Anybody may look into it; keys are root's. */
int cli_tls_make_dir(const struct cli *cli, struct error *err);
char *cli_tls_path(const struct cli *cli, const char *name); /* free() */
/* Whole or not at all, also when the machine stops in between. */
int cli_tls_write(const struct cli *cli, const char *name, struct str text, bool secret,
                  struct error *err);
/* ERROR_NOT_FOUND when there is none. */
int cli_tls_read(const struct cli *cli, const char *name, struct buf *out, struct error *err);
/* Asks the server of the data directory to read its certificates again; its words are in out.
 * ERROR_NOT_FOUND when none runs there with TLS. */
int cli_tls_reload(const struct cli *cli, struct buf *out, struct error *err);
