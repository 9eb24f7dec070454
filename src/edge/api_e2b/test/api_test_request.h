/* Runs requests without a socket. */
#pragma once

#include <jansson.h>

#include "edge/api_e2b/api_internal.h"

struct refused {
    int status;
    const char *body;
    const char *words; /* in the message */
};

/* A key that is in memory only. */
struct secrets *new_secrets(void);

struct api_call new_call(const char *method, const char *path);
void call_done(struct api_call *call);
/* What a worker does. Returns the status. */
int run(struct api_call *call);
/* Runs one request; the body of the answer goes to *out (caller frees), which may be NULL. */
int request(const char *method, const char *path, const char *query, const char *body,
            json_t **out);
void check_refused(const char *path, const struct refused *row);

#define ONE "/sandboxes/i0000000000000000000"
