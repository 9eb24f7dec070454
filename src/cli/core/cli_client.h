/* Where the server is, and calls to its API. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "base/buf.h"
#include "base/error.h"
#include "cli/core/cli_stream.h"

#define CLI_V1 "/api/v1" /* where the runtime's API begins */

struct cli_server {
    struct cli_url api;
    struct cli_url sandboxes; /* where sandboxes are reached; the same unless told otherwise */
    char *key;
};

/* From url (may be NULL), the environment, and the file HOME/.quicksand/credentials. */
int cli_server_find(const char *url, const char *home, struct cli_server *out, struct error *err);
void cli_server_done(struct cli_server *server);

/* One API call. out_json (may be NULL) gets the answer or NULL when it has no body; out_next (may
 * be NULL, else inited by the caller) the token of the next page. An answer that is not 2xx is an
 * error with the server's message. */
int cli_call(const struct cli_server *server, const char *method, const char *target,
             const json_t *body, json_t **out_json, struct buf *out_next, struct error *err);

/* What a request to a sandbox needs. */
struct cli_sandbox {
    char *id;
    char *token; /* NULL when not secured */
};

/* Takes both out of an answer of the API. */
int cli_sandbox_of(const json_t *json, struct cli_sandbox *out, struct error *err);
/* By id, from the server. */
int cli_sandbox_get(const struct cli_server *server, const char *id, struct cli_sandbox *out,
                    struct error *err);
void cli_sandbox_done(struct cli_sandbox *sandbox);

enum { CLI_SANDBOX_HEADERS = 3 };
/* The routing and token headers of a request to envd; returns how many. */
size_t cli_sandbox_headers(const struct cli_sandbox *sandbox, struct pair out[CLI_SANDBOX_HEADERS]);
/* The error in an answer that is not 2xx, whose body is complete. */
int cli_answer_error(const struct http_call *stream, struct error *err);
/* As cli_stream_open(), until the connection carries what the request upgrades it to. what: that, for who does not get it. */
int cli_upgrade(struct http_call *stream, const struct cli_url *url,
                const struct http_call_request *request, uint32_t timeout_ms, size_t max,
                const char *what, struct error *err);
/* %XX for everything that has a meaning in URLs. */
void cli_escape(struct buf *out, const char *text);
