/* Configuration: flag > environment > file > default, from one table. All faults are reported at
 * once; read-only afterwards. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"

enum {
    CONFIG_TEXT_SIZE = 256,
    CONFIG_LIST_SIZE = 2048,
    CONFIG_RESOLVERS_MAX = 8,
    CONFIG_TLS_MAX = 32,
    CONFIG_PRIVATE_MAX = 16,
    CONFIG_RANGE_SIZE = 32
};

struct config {
    char listen[CONFIG_TEXT_SIZE];     /* as address_parse() takes it */
    char listen_tls[CONFIG_TEXT_SIZE]; /* the same, for TLS; "" = none */
    char tls_certs[CONFIG_LIST_SIZE],
        tls_keys[CONFIG_LIST_SIZE];    /* files; "" = those in DATA/tls */
    int64_t redirect_http;             /* 1: plain HTTP from elsewhere is sent to HTTPS */
    int64_t hsts_s;                    /* how long browsers shall remember that; 0 = not at all */
    char data[CONFIG_TEXT_SIZE];       /* data directory, absolute */
    char domain[CONFIG_TEXT_SIZE];     /* told to clients for PORT-ID.domain hosts; "" = none */
    char log[CONFIG_TEXT_SIZE];        /* debug, info, warn, error */
    char log_format[CONFIG_TEXT_SIZE]; /* text, json */
    char resolvers[CONFIG_TEXT_SIZE];  /* IPv4 addresses; "" = the host's */
    char egress_ca[CONFIG_TEXT_SIZE];  /* certificates that are trusted on the way out, besides */
    char allow_private[CONFIG_LIST_SIZE];  /* private ranges that sandboxes reach; "" = none */
    char envd[CONFIG_TEXT_SIZE];           /* envd's program; "" = beside this one */
    char base_layer[CONFIG_TEXT_SIZE];     /* directory to use as the base template's layer */
    char runtime_config[CONFIG_TEXT_SIZE]; /* JSON file of the runtime; "" = none */
    char webhook_ca[CONFIG_TEXT_SIZE]; /* certificates to trust besides the system's; "" = none */
    int64_t webhook_pause_s;           /* after a delivery that failed the first time */
    int64_t warm;                      /* ready sandboxes kept */
    int64_t blank;                     /* blank boxes kept; -1 = as many */
    int64_t loops;                     /* threads for connections; 0 = one per processor */
    int64_t workers;
    int64_t create_queue;    /* creates that run or wait; more are refused */
    int64_t request_s;       /* how long a whole request to the API may take to come */
    int64_t box_connections; /* into one sandbox; 0 = no limit */
    int64_t connections, address_connections; /* of clients; the latter 0 = no limit */
    int64_t body_memory_mb;     /* for the bodies of requests to the API, all together */
    int64_t response_memory_mb; /* for responses that clients have not read yet, all together */
    int64_t upload_mb;          /* of one file for a build */
    int64_t spool_mb;           /* of temporary files, all together */
    int64_t max_sandboxes;
    int64_t max_hours;       /* longest life of a sandbox */
    int64_t volume_mb;       /* how much a volume may hold */
    int64_t ready_timeout_s; /* for the start command of a template */
    int64_t grace; /* seconds after its end until a sandbox without a server ends itself */
    int64_t template_cpu, template_mem_mb, template_disk_mb;
    char unpack[CONFIG_TEXT_SIZE]; /* the program of that name; "" = beside this one */
    int64_t builds, team_builds;   /* at the same time */
    int64_t build_cpu, build_mem_mb, build_disk_mb; /* of their boxes, at least */
    int64_t build_s;                                /* how long one may take */
    int64_t
        build_demand_s; /* how long a create waits for the build of a shipped recipe; 0 = it asks for none */
    int64_t build_cache_days, build_cache_mb;
    char registry_mirrors[CONFIG_LIST_SIZE]; /* as registry_open() takes them */
    int64_t registry_s; /* a registry that sends nothing for so long is given up */
    char package_mirror[CONFIG_TEXT_SIZE], package_security[CONFIG_TEXT_SIZE]; /* "" = none */
    char package_keyring[CONFIG_TEXT_SIZE]; /* a file; "" = Debian's own */
    int64_t package_s;
    int64_t server_uid;
    int64_t sandbox_kbit, sandbox_packets;    /* a second, each way; 0 = no limit, as of the next */
    int64_t sandbox_connections, sandbox_dns; /* that a sandbox begins a second */
    int64_t team_kbit, team_packets, team_connections, team_dns; /* all sandboxes of one together */
    int64_t manage_firewall;  /* 1: firewalls of others are opened for our own link */
    int64_t process_provider; /* 1: plain processes on this host too */
};

/* argv: what follows the command. -1: faults in out_faults, one per line. */
int config_load(struct config *config, int argc, char **argv, struct buf *out_faults);
/* Path of the file with settings that these arguments or the environment name; NULL = none. */
const char *config_file(int argc, char **argv);
/* Calls fn for each setting, with its value as text. config NULL: as they are when nobody sets them. */
void config_each(const struct config *config,
                 void (*fn)(void *arg, const char *key, const char *value, const char *fallback,
                            const char *help, bool live),
                 void *arg);
/* Calls fn for each setting that differs. live: a server that runs can take it over. */
void config_compare(const struct config *old, const struct config *now,
                    void (*fn)(void *arg, const char *key, const char *was, const char *is,
                               bool live),
                    void *arg);
/* A file with every setting, its help and its default, all commented. */
void config_sample(void);
