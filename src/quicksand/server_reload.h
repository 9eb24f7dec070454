/* What a server takes over while it runs, after SIGHUP: limits, the log's level and format, API keys, the profiles of
 * --runtime-config. Certificates come from the warden (server_tls.h). */
#pragma once

#include <jansson.h>

#include "quicksand/config.h"

struct api_keys;
struct runtime_service;
struct sandbox_creates;
struct sandboxes;
struct shares;

struct reload_targets {
    struct sandboxes *sandboxes;
    struct sandbox_creates *creates;
    struct shares *addresses, *box_connections;
    struct api_keys *keys;
    struct runtime_service *runtime;
};

/* Reads all settings anew. What changed is in the log, also what needs a restart; when something is wrong nothing changes. */
void server_reload(struct config *config, int argc, char **argv,
                   const struct reload_targets *targets);
/* Those in force, as v1_config.settings tells them; of a struct config. */
json_t *server_settings(void *config);
/* Level and format. */
void server_reload_log(const struct config *config);
