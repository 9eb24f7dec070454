/* The envd of a box: where it is, what it is told, and what it is asked. */
#pragma once

#include <stdbool.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/str.h"
#include "host/engine/engine.h"
#include "protocol/envd/envd_client.h"
#include "protocol/http/http_call.h"

struct egress_authority;
struct sandboxes;
struct setup;

/* For the client of envd. Borrows its arguments. */
struct envd_address sandboxes_envd(const struct sandboxes *all, const char *who, const char *id,
                                   struct str token);
/* Its connections, which go by the ids of boxes. */
struct fetch *envd_fetch_new(struct engine *engine);

/* envd_init() in two parts, so that something else is done for the box between them. All zero at first. */
struct envd_init {
    struct http_call call; /* on the connection of the caller */
    struct buf body;
    bool kept, failed;
    struct error why;
};
#define auto_envd_init __attribute__((cleanup(envd_init_done)))
void envd_init_begin(struct envd_init *init, const char *id, int fd, struct str body);
int envd_init_end(struct envd_init *init, struct engine *engine, const char *id, struct error *err);
void envd_init_done(struct envd_init *init);

/* ---- what envd is told and asked (sandbox_envd.c); each call connects anew ---- */

/* Returns when envd answered. *out_fd is the connection, kept open. */
int envd_ready(struct engine *engine, const char *id, int *out_fd, struct error *err);
/* A connection to the box's envd: a non-blocking socket. */
int envd_connect(struct engine *engine, const char *id, uint32_t timeout_ms, struct error *err);
/* The body of envd_init(). */
struct envd_facts {
    const char *env;          /* JSON text */
    const char *access_token; /* "" = none */
    struct str template_id;   /* as in the store */
    int64_t life_s;           /* when envd ends the sandbox by itself */
    int64_t disk_mb;
    const struct setup *setup;                /* user and working directory */
    const struct egress_authority *authority; /* to be trusted, or NULL */
};
int envd_init_body(const struct envd_facts *facts, struct buf *out, struct error *err);
/* Has a running one trust the authority. */
int envd_trust(struct engine *engine, const char *id, const struct egress_authority *authority,
               struct error *err);
/* Changes how long it waits for us. Of several calls, the one with the highest revision holds. */
int envd_lease(struct engine *engine, const char *id, int64_t seconds, int64_t revision,
               struct error *err);
/* Hands over what the sandbox is. fd: a connection to try first, or -1; stays the caller's. */
int envd_init(struct engine *engine, const char *id, int fd, struct str body, struct error *err);
/* The lines that envd remembers, as JSON text. Inits out. */
int envd_journal(struct engine *engine, const char *id, struct str token, struct buf *out,
                 struct error *err);
/* GET of a path; true when it was answered with 2xx. */
bool envd_ask(struct engine *engine, const char *id, const char *target);

/* ---- sandbox_lease.c ---- */

/* How long envd is to wait for us, for an end at that time. */
int64_t lease_seconds(const struct sandboxes *all, int64_t end_at_us);
/* Tells envd of a running one; tried again by the keeper when that fails. */
void lease_tell(struct sandboxes *all, const char *id, int64_t end_at_us, int64_t revision);
/* Those that failed. True when some still do. */
bool lease_retry(struct sandboxes *all);
/* In sandbox_keeper.c: after a moment. */
void lease_retry_later(struct sandboxes *all);
