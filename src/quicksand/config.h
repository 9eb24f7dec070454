/* Configuration: flag > environment > file > default, from one table. All faults are reported at
 * once; read-only afterwards. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"

enum { CONFIG_TEXT_SIZE = 256, CONFIG_RESOLVERS_MAX = 8 };

struct config {
    char listen[CONFIG_TEXT_SIZE];         /* as address_parse() takes it */
    char data[CONFIG_TEXT_SIZE];           /* data directory, absolute */
    char domain[CONFIG_TEXT_SIZE];         /* told to clients for PORT-ID.domain hosts; "" = none */
    char log[CONFIG_TEXT_SIZE];            /* debug, info, warn, error */
    char resolvers[CONFIG_TEXT_SIZE];      /* IPv4 addresses; "" = the host's */
    char envd[CONFIG_TEXT_SIZE];           /* envd's program; "" = beside this one */
    char base_layer[CONFIG_TEXT_SIZE];     /* directory to use as the base template's layer */
    char runtime_config[CONFIG_TEXT_SIZE]; /* JSON file of the runtime; "" = none */
    char webhook_ca[CONFIG_TEXT_SIZE]; /* certificates to trust besides the system's; "" = none */
    int64_t webhook_pause_s;           /* after a delivery that failed the first time */
    int64_t warm;                      /* ready sandboxes kept */
    int64_t loops;                     /* threads for connections; 0 = one per processor */
    int64_t workers;
    int64_t create_queue;    /* creates that run or wait; more are refused */
    int64_t request_s;       /* how long a whole request to the API may take to come */
    int64_t box_connections; /* into one sandbox; 0 = no limit */
    int64_t connections, address_connections; /* of clients; the latter 0 = no limit */
    int64_t body_memory_mb; /* for the bodies of requests to the API, all together */
    int64_t max_sandboxes;
    int64_t max_hours; /* longest life of a sandbox */
    int64_t volume_mb; /* how much a volume may hold */
    int64_t grace;     /* seconds after its end until a sandbox without a server ends itself */
    int64_t template_cpu, template_mem_mb, template_disk_mb;
    int64_t server_uid;
    int64_t process_provider; /* 1: plain processes on this host too */
};

/* argv: what follows the command. `--help` prints the table and returns 1; 0 ok; -1 faults in
 * out_faults, one per line. */
int config_load(struct config *config, int argc, char **argv, struct buf *out_faults);
void config_help(void);
