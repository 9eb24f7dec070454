/* envd inside a sandbox, as its clients see it: processes and files over HTTP and Connect
 * streams. For the providers whose sandboxes have one; private to this folder.
 *
 * Errors are those of provider.h; besides, ERROR_UNAVAILABLE for a sandbox that a proxy says is not
 * there: whether it is paused or gone only its provider knows. */
#pragma once

#include "protocol/fetch/fetch.h"
#include "provider/core/provider_ops.h"

enum {
    ENVD_PORT = 49983,
    ENVD_HEADERS_MAX = 4,
    ENVD_MESSAGE_MAX = 16 * 1024 * 1024,
    ENVD_CALL_MS = 60 * 1000,
};

/* Where an envd is and what it wants to see. Borrowed for a call; a process copies it. */
struct envd_address {
    struct fetch *fetch;
    const char *who;       /* begins every message: "e2b" */
    const char *base;      /* "http://host", without a slash at the end */
    const char *unix_path; /* NULL = by base */
    struct str token;      /* STR_NONE or empty = none */
    struct http_header extra[ENVD_HEADERS_MAX];
    size_t extra_count;
    bool public_only; /* see fetch.h */
};

/* One unary call. *out (may be NULL) is the answer's object. */
int envd_call(const struct envd_address *address, const char *method, const json_t *request,
              json_t **out, struct error *err);
/* The same with another limit than ENVD_CALL_MS, for what has to be waited for. */
int envd_call_within(const struct envd_address *address, const char *method, const json_t *request,
                     uint32_t timeout_ms, json_t **out, struct error *err);
/* The same in the binary codec, whose answer is not looked at. */
int envd_call_binary(const struct envd_address *address, const char *method, struct str request,
                     uint32_t timeout_ms, struct error *err);
int envd_health(const struct envd_address *address, struct error *err);

/* What came in a stream, decoded. Bytes of one event are at data[offset]. */
struct envd_events {
    struct envd_event {
        enum provider_event_kind kind;
        size_t offset, len;
        int64_t pid;
        int exit_code;
        bool timed_out, out_of_memory;
    } * items;
    size_t count, cap, at;
    struct buf data;
    bool ended;       /* the end frame has come */
    bool exited;      /* an end event is among them, or was */
    int64_t pid;      /* of the first start */
    struct error why; /* of an end frame that is an error */
};

/* Takes one message of a stream (a connect_message_fn, arg is the struct envd_events). -1 when it is
 * not what an envd says, with events->why. */
int envd_events_add(void *arg, uint8_t flags, struct str message);
void envd_events_done(struct envd_events *events);
/* "exit status 3", "signal: killed"; else what exit_code says. */
int envd_exit_code(struct str status, int64_t exit_code);

int envd_start(const struct envd_address *address, const struct provider_command *command,
               struct provider_process **out, struct error *err);
int envd_attach(const struct envd_address *address, const char *tag, int64_t pid,
                struct provider_process **out, struct error *err);
int envd_read(const struct envd_address *address, const char *path, provider_sink_fn *sink,
              void *arg, struct error *err);
int envd_write(const struct envd_address *address, const char *path, provider_source_fn *source,
               void *arg, int64_t length, struct error *err);
int envd_list(const struct envd_address *address, const char *path, struct arena *arena,
              struct provider_file **out, size_t *out_count, struct error *err);
int envd_remove(const struct envd_address *address, const char *path, struct error *err);

/* Shared by the files of the client. */
/* As json_parse(), for the sizes an envd may send. */
int envd_parse(struct str text, json_t **out);
size_t envd_headers(const struct envd_address *address, struct http_header *out, size_t count);
/* From what an envd or the proxy before it refused with. Always -1. */
int envd_refused(const struct envd_address *address, const char *what, int status, struct str body,
                 struct error *err);
enum error_code envd_code(struct str connect_code);
