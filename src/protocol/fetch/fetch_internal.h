/* Shared by the files of this folder. */
#pragma once

#include <curl/curl.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/list.h"
#include "protocol/fetch/fetch.h"

enum {
    FETCH_CONNECT_MS = 10 * 1000,
    FETCH_TIMEOUT_MS = 60 * 1000,
    FETCH_RESPONSE_MAX = 1024 * 1024,
    FETCH_PENDING_MAX = 64 * 1024, /* of a stream nobody reads just now: a team may have many */
    FETCH_HOST_SIZE = 128,
    FETCH_SOCKETS_MAX = 4,
};

/* What a prepared transfer borrows from us until it is over. */
struct fetch_setup {
    struct curl_slist *headers;
    struct fetch_request request;
    char method[16];              /* for messages */
    char host[FETCH_HOST_SIZE];   /* for messages: neither user nor path */
    char reason[CURL_ERROR_SIZE]; /* libcurl's own words */
    bool source_failed;
    bool refused;         /* an address that is not public */
    bool sent, not_again; /* a request that must not be sent twice was about to be */
    bool cut;             /* by fetch_cut(), or the gate was shut */
};

/* Sets everything but the callbacks that take the answer. Only the body must outlive the call, until
 * fetch_setup_done(), unless FETCH_COPY_BODY. */
enum fetch_body { FETCH_BORROW_BODY, FETCH_COPY_BODY };
int fetch_setup(struct fetch_setup *setup, CURL *easy, const struct fetch_request *request,
                enum fetch_body body, struct error *err);
void fetch_setup_done(struct fetch_setup *setup);
int fetch_error(const struct fetch_setup *setup, CURL *easy, CURLcode code, struct error *err);
int fetch_error_timeout(const struct fetch_setup *setup, const char *waiting_for,
                        struct error *err);

/* fetch_local.c: 1 when the address is delivered to this host itself (or to all of a network), 0 when it leads
 * elsewhere, -errno when it leads nowhere or the kernel does not say. */
int fetch_address_local(const struct sockaddr *address);
void fetch_reach_set(struct fetch_setup *setup, CURL *easy);
/* Its timeout (or the usual one), or what its deadline leaves of that; 0 = the deadline has passed. */
uint32_t fetch_within(const struct fetch_request *request);

/* Follows the lines of a head; true once the final one is complete. */
bool fetch_head_line(int *status, const char *line, size_t len);
/* Tells who asked with the request. */
void fetch_head_tell(const struct fetch_setup *setup, const char *line, size_t len);

/* An easy handle with the connection it used last. */
struct fetch_line {
    CURL *easy;
    CURLM *multi;
    char key[256]; /* which connection it keeps */
    struct fetch_line *next;
    struct list busy;      /* while it is in use */
    const char *unix_path; /* in key; "" = none */
    const struct fetch_gate *gate;
    atomic_bool cut;
    int sockets[FETCH_SOCKETS_MAX]; /* that are open: more than one only while it connects */
    size_t socket_count;
};

/* NULL when the system gives no more descriptors. */
struct fetch_line *fetch_line_take(struct fetch *fetch, const struct fetch_request *request);
void fetch_line_give(struct fetch *fetch, struct fetch_line *line);
/* After fetch_setup(): the gate says where it leads, if that is who knows, and sockets are noted. */
void fetch_line_set(struct fetch_line *line);
/* From fetch_line_take() on it is cut with the others; this says whether it may go on. */
bool fetch_line_open(const struct fetch *fetch, const struct fetch_line *line);
void fetch_global_init(void);
