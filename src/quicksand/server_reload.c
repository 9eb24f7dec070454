#include "quicksand/server_reload.h"

#include <string.h>

#include "base/log.h"
#include "domain/account/api_key.h"
#include "domain/sandbox/sandbox.h"
#include "domain/sandbox/sandbox_creates.h"
#include "protocol/loop/share.h"
#include "quicksand/runtime_service.h"

void server_reload_log(const struct config *config)
{
    log_set_level_named(config->log);
    log_set_json(strcmp(config->log_format, "json") == 0);
}

struct told {
    size_t live, waiting;
};

/* At the level of warnings, so that a reload that makes the log quieter is still in it. */
static void tell(void *arg, const char *key, const char *was, const char *is, bool live)
{
    struct told *told = arg;

    if (live) {
        told->live++;
        log_warn("server", "reload: %s is '%s' from now on, it was '%s'", key, is, was);
        return;
    }
    told->waiting++;
    log_warn("server", "reload: %s was changed and needs a restart; it stays '%s' until then", key,
             was);
}

/* Members that config_compare() calls live. */
static void take_over(struct config *config, const struct config *now,
                      const struct reload_targets *targets)
{
    memcpy(config->log, now->log, sizeof(config->log));
    memcpy(config->log_format, now->log_format, sizeof(config->log_format));
    config->max_sandboxes = now->max_sandboxes;
    config->max_hours = now->max_hours;
    config->volume_mb = now->volume_mb;
    config->ready_timeout_s = now->ready_timeout_s;
    config->create_queue = now->create_queue;
    config->address_connections = now->address_connections;
    config->box_connections = now->box_connections;
    sandboxes_set_limits(targets->sandboxes,
                         &(struct sandboxes_limits){.max_running = (size_t)now->max_sandboxes,
                                                    .max_timeout_s = now->max_hours * 3600,
                                                    .volume_mb = now->volume_mb,
                                                    .ready_s = now->ready_timeout_s});
    sandbox_creates_set_max(targets->creates, (size_t)now->create_queue);
    shares_set_max(targets->addresses, (size_t)now->address_connections, 0);
    shares_set_max(targets->box_connections, (size_t)now->box_connections, 0);
}

void server_reload(struct config *config, int argc, char **argv,
                   const struct reload_targets *targets)
{
    static struct config now;
    auto_buf struct buf faults = {0};
    struct told told = {0};

    buf_init(&faults, 16384);
    if (config_load(&now, argc, argv, &faults) != 0) {
        struct str rest = buf_str(&faults);

        log_error("server", "reload: settings stay as they were:");
        while (rest.len) {
            struct str line = str_split(&rest, '\n');

            log_error("server", "reload: %.*s", STR_ARG(line));
        }
        return;
    }
    config_compare(config, &now, tell, &told);
    take_over(config, &now, targets);
    server_reload_log(config);
    api_keys_refresh(targets->keys);
    runtime_service_reload(targets->runtime);
    log_info("server",
             "reload: done; settings changed: %zu, waiting for a restart: %zu; API keys are asked "
             "for anew",
             told.live, told.waiting);
}
