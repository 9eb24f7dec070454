#include "quicksand/server_reload.h"

#include <pthread.h>
#include <string.h>

#include "base/log.h"
#include "domain/account/api_key.h"
#include "domain/sandbox/sandbox.h"
#include "domain/sandbox/sandbox_creates.h"
#include "protocol/loop/share.h"
#include "quicksand/runtime_service.h"

/* Between the thread that takes new settings over and those that tell of them. */
static pthread_mutex_t config_lock = PTHREAD_MUTEX_INITIALIZER;

static void add_setting(void *arg, const char *key, const char *value, const char *fallback,
                        const char *help, bool live)
{
    (void)json_array_append_new(arg, json_pack("{s:s,s:s,s:s,s:s,s:b}", "key", key, "value", value,
                                               "default", fallback, "help", help, "reload", live));
}

json_t *server_settings(void *config)
{
    json_t *out = json_array();

    (void)pthread_mutex_lock(&config_lock);
    config_each(config, add_setting, out);
    (void)pthread_mutex_unlock(&config_lock);
    return out;
}

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
    (void)pthread_mutex_lock(&config_lock);
    take_over(config, &now, targets);
    (void)pthread_mutex_unlock(&config_lock);
    server_reload_log(config);
    api_keys_refresh(targets->keys);
    runtime_service_reload(targets->runtime);
    log_info("server",
             "reload: done; settings changed: %zu, waiting for a restart: %zu; API keys are asked "
             "for anew",
             told.live, told.waiting);
}
