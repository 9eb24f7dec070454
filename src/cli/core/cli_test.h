/* Shared by the tests of this folder. */
#pragma once

#include "base/buf.h"

/* Runs a command line (argv ended by NULL); its stdout goes to out, which was zeroed or used before.
 * Returns the exit status. */
int cli_test_run(char **argv, struct buf *out);
