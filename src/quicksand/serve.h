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

/* ---- credentials.c ---- */

/* The key kept for this server's operator: the one just made (written to the file), or the one the
 * file holds when the store still knows it. "" in out when there is none. */
struct api_keys;
void credentials_settle(int fd, const char *url, const char *made_key, struct api_keys *keys,
                        char *out, size_t size);

/* ---- ready.c ---- */

/* Prints the line "ready URL" and a block to paste. key: NULL when it is known to the operator
 * already (from_environment) or only as a hash. */
void ready_print(const char *url, const char *key, bool from_environment);
