/* The Agent Client Protocol as sandbox-agent serves it: JSON-RPC by POST, and a stream of events.
 * Private to this folder. What comes from there was made by an agent: hostile. */
#pragma once

#include <jansson.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/error.h"
#include "base/str.h"
#include "protocol/fetch/fetch.h"

enum {
    ACP_MESSAGE_MAX = 4 * 1024 * 1024, /* one event or answer */
    ACP_HEADERS_MAX = 8,
};

/* Where the server of one sandbox answers. Strings live as long as their owner says. */
struct acp_target {
    const char *base_url; /* without a slash at the end */
    struct pair headers[ACP_HEADERS_MAX];
    size_t header_count;
    const char *server_id; /* ours: one per session */
    const char *agent;     /* mock, claude, ... */
    bool public_only;      /* see fetch.h */
};

/* One request of the server's REST part; path begins with '/'. json: the answer's body (new
 * reference) or NULL; may itself be NULL. A status that is not 2xx is an error with its words. */
int acp_rest(struct fetch *fetch, const struct acp_target *target, const char *method,
             const char *path, struct str body, uint32_t timeout_ms, json_t **out,
             struct error *err);
/* One JSON-RPC request, waited for. *out: the result (new reference). Takes params. */
int acp_call(struct fetch *fetch, const struct acp_target *target, int64_t id, const char *method,
             json_t *params_consume, uint32_t timeout_ms, json_t **out, struct error *err);

/* URL of the session's channel, and of its events: in the arena. */
const char *acp_url(const struct acp_target *target, struct arena *arena);
/* Texts of messages, malloc()ed. They take params, result. id: as it came, borrowed. */
char *acp_request_text(int64_t id, const char *method, json_t *params_consume);
char *acp_notice_text(const char *method, json_t *params_consume);
char *acp_result_text(json_t *id, json_t *result_consume);
char *acp_refusal_text(json_t *id, int code, const char *message);
/* The outcome of a request in its answer's text: the result (new reference), or an error. */
int acp_outcome(int status, struct str text, json_t **out, struct error *err);

/* Cuts a stream of server-sent events into messages. Events that are too long or no JSON are
 * dropped, and counted. */
struct acp_feed {
    struct buf line, data;
    int64_t id;
    size_t dropped;
};
typedef void acp_message_fn(void *arg, int64_t id, json_t *message);
void acp_feed_init(struct acp_feed *feed);
void acp_feed_done(struct acp_feed *feed);
void acp_feed_add(struct acp_feed *feed, struct str bytes, acp_message_fn *fn, void *arg);
