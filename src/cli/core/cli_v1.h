/* Calls to the runtime's API. */
#pragma once

#include "cli/core/cli_command.h"

/* "/api/v1/A/B/C" of its segments, each escaped; ended by NULL. malloc()ed. */
#define cli_v1_path(...) cli_v1_path_of(__VA_ARGS__, (const char *)NULL)
char *cli_v1_path_of(const char *segment, ...) __attribute__((sentinel));
/* The same with a method, a body (or NULL) and the answer (may be NULL). Consumes path. */
int cli_v1(struct cli *cli, const char *method, char *path_consume, const json_t *body,
           json_t **out, struct error *err);

/* A sandbox as all commands show it, by its id; NULL with err. */
json_t *cli_v1_sandbox(struct cli *cli, const char *id, struct error *err);

/* Tells what a forced removal could not reach; answer: of the removal, or NULL. */
void cli_v1_warn_forgotten(const char *name, const json_t *answer);
/* DELETE of COLLECTION/NAME (and a query, or NULL) for each; what is gone is printed. Returns the exit
 * status: failures are told and the rest goes on. */
int cli_v1_remove(struct cli *cli, const char *collection, const char *query, char *const *names,
                  int count);

/* An answer of any length, to be read piece by piece. accept may be NULL. A status that is not 2xx is
 * an error. http_call_done() is due in any case. timeout_ms of 0: none. */
int cli_v1_open(struct cli *cli, const char *path, const char *accept, uint32_t timeout_ms,
                size_t max, struct http_call *stream, struct error *err);

/* One operand with a blank in it is a line for the shell ("command"), all else "argv". */
int cli_v1_command(json_t *body, char *const *argv, int argc, struct error *err);
/* Member of a request that is being made, left out when value is NULL. -1 when it is not UTF-8. */
int cli_v1_set(json_t *object, const char *name, const char *value, struct error *err);
/* "NAME=VALUE", or "NAME" of our own environment, as an object of strings; NULL (and a usage
 * message) when one is neither. */
json_t *cli_v1_pairs(const struct cli_command *command, const struct cli_list *list,
                     const char *option, bool from_environment);
/* Adds the variables of files to an object of cli_v1_pairs(), which win: lines NAME=VALUE, or NAME of our own environment;
 * empty ones and those that begin with '#' say nothing. -1 after a message. */
int cli_v1_env_files(const struct cli_command *command, const struct cli_list *files, json_t *env);
/* The whole of stdin, whatever it is; -EFBIG when it is longer than out may become. */
int cli_v1_read_stdin(struct buf *out);
/* The whole of a file ('-' is stdin) as JSON. */
int cli_v1_read_file(const char *name, json_t **out, struct error *err);
