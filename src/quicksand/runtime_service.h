/* The agent runtime in this server. */
#pragma once

#include <stdbool.h>

#include "base/buf.h"
#include "base/error.h"
#include "edge/call/call.h"
#include "protocol/fetch/fetch.h"
#include "provider/core/provider.h"

struct api_keys;
struct extra_host;
struct http_exchange;
struct http_limits;
struct loop;
struct routes;
struct runtime_service;
struct sandbox_creates;
struct sandboxes;
struct sender;
struct store;

/* All borrowed. */
struct runtime_service_config {
    const char *settings_path;  /* JSON; "" = the environment and defaults only */
    const char *url;            /* of this server */
    const char *domain;         /* of this server; "" = none */
    const char *https_domain;   /* the same where it serves HTTPS; NULL = it does not */
    int listen_fd;              /* one of those it listens on */
    const char *file_directory; /* for bodies that are kept in files meanwhile */
    struct spool *spool;
    struct engine *engine; /* connects to envds */
    struct store *store;
    struct api_keys *keys;
    struct routes *routes;
    struct http_limits *limits;
    struct sender *sender;
    struct sandboxes *sandboxes; /* of the engine */
    struct sandbox_creates *creates;
    struct history *history;
    call_join_fn *join; /* as v1_config.join */
    void *join_arg;
    json_t *(*server_settings)(void *arg); /* as v1_config.settings */
    void *server_settings_arg;
};

/* embedded.c: reaches the engine of the same server. The config must outlive it. */
struct provider_embedded runtime_service_embedded(const struct runtime_service_config *config);
struct fetch_gate runtime_service_gate(const struct runtime_service_config *config);

int runtime_service_open(const struct runtime_service_config *config, struct runtime_service **out,
                         struct error *err);
/* What extras get of it: the runtime, and its workers. */
void runtime_service_share(const struct runtime_service *service, struct extra_host *out);
/* Which provider is the default and why (runtime_settings_default()). */
void runtime_service_default(const struct runtime_service *service, struct buf *out,
                             bool *out_remote);
/* Takes over the profiles of the settings' file, and tells in the log. By one thread. */
void runtime_service_reload(struct runtime_service *service);
/* For /metrics. */
void runtime_service_monitor(struct runtime_service *service, struct buf *out);
/* On any edge loop. False: the request is not for the runtime. */
bool runtime_service_handle(struct runtime_service *service, struct http_exchange *ex);
/* Before the edges drain. */
void runtime_service_quiet(struct runtime_service *service);
/* On that loop: ends its streams. */
void runtime_service_drain(struct runtime_service *service, struct loop *loop);
/* After the loops have ended. -1: requests still run; the process must end without taking anything
 * down below them. */
int runtime_service_close(struct runtime_service *service);
