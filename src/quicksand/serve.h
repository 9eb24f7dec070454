/* The server's two processes: `quicksand serve` becomes the warden (root); it starts this same
 * program in the role SERVE_SERVER_ROLE as the unprivileged server. Arguments are those behind the
 * role; each returns an exit status. */
#pragma once

#include <stdbool.h>

#include "quicksand/config.h"

#define SERVE_SERVER_ROLE "serve-unprivileged"

int serve_main(int argc, char **argv);
int serve_down(int argc, char **argv);
int server_main(int argc, char **argv);

/* ---- base_layer.c ---- */

/* Makes DATA/layers/base when it is missing, with progress on stdout. */
int base_layer_ensure(const struct config *config, struct error *err);

/* ---- ready.c ---- */

/* Prints the line "ready URL" and a block to paste. key: NULL when it is known to the operator
 * already (from_environment) or only as a hash. */
void ready_print(const char *url, const char *key, bool from_environment);
