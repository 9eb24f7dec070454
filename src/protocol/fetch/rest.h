/* One JSON request to a vendor's REST API, and what its refusal means in our words. For the
 * providers that speak plain REST; private to this folder. */
#pragma once

#include <jansson.h>

#include "base/buf.h"
#include "base/error.h"
#include "protocol/fetch/fetch.h"
#include "protocol/http/http.h"

enum { REST_HEADERS_MAX = 4, REST_ANSWER_MAX = 4 * 1024 * 1024 };

/* Where to and as whom. Everything is borrowed. */
struct rest {
    struct fetch *fetch;
    const char *who;       /* "daytona 'd1'": begins every message */
    const char *base;      /* "https://host/path", no slash at the end */
    const char *unix_path; /* NULL = over the network */
    struct pair headers[REST_HEADERS_MAX];
    size_t header_count;
};

struct rest_request {
    const char *method;
    const char *path; /* behind base, encoded, with its query */
    const json_t *body;
    uint32_t timeout_ms; /* 0 = 60 s */
    int64_t deadline_us; /* as in fetch_request; 0 = none */
    size_t answer_max;   /* 0 = REST_ANSWER_MAX */
};

/* *out: the answer, or NULL when it is empty; out may be NULL when nobody wants it. A status of 400
 * and above is an error:
 * 401, 403 ERROR_UNAUTHORIZED; 402, 429 ERROR_QUOTA (with the seconds to wait, when told);
 * 404, 410 ERROR_NOT_FOUND; 409 and 425 ERROR_CONFLICT; 408, 504 ERROR_TIMEOUT; 413 ERROR_LIMIT;
 * 507 ERROR_NO_SPACE; other 4xx ERROR_INVALID; 5xx ERROR_UNAVAILABLE. So is an answer that is no
 * JSON (ERROR_UNAVAILABLE). */
int rest_call(const struct rest *rest, const struct rest_request *request, json_t **out,
              struct error *err);
/* The error of an answer that was read elsewhere; of one that may be repeated with retry_after_s (at
 * most an hour). Always -1. */
int rest_refused(const char *who, const char *method, int status, int64_t retry_after_s,
                 struct str body, struct error *err);

/* Appends s with everything but [A-Za-z0-9._~-] escaped. */
void rest_encode(struct buf *out, struct str s);
/* Appends "?name=value" or "&name=value", whichever is due. */
void rest_query(struct buf *path, const char *name, struct str value);
/* Ids that come back from a vendor and go into a path: 1..128 of [A-Za-z0-9._-], not "." or "..". */
bool rest_id_valid(struct str id);
