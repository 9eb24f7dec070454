/* The warden: the small root process. It owns everything that needs privilege (namespaces, mounts,
 * cgroups, the network, the disk pool), parses no network bytes and no JSON, and runs the server, an
 * unprivileged child that does. The two talk over sockets made here (host/engine/engine_wire.h).
 *
 * When the server dies it is started again; sandboxes and listening sockets outlive it. When the
 * warden dies the server goes with it and sandboxes stay; the next warden finds them again. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/address.h"
#include "base/error.h"
#include "host/network/network.h"

/* Below the data directory: envd outside of sandboxes, when it is wanted. */
#define WARDEN_PROCESS_SOCKET "run/process.sock"
/* Where the server finds the egress process; the path is in WARDEN_EGRESS_ENV. */
#define WARDEN_EGRESS_SOCKET "run/egress.sock"
#define WARDEN_EGRESS_ENV    "QUICKSAND_EGRESS_SOCKET"

/* What is missing when this host can give sandboxes no network. */
#define WARDEN_NO_NETWORK_ENV "QUICKSAND_NO_NETWORK"

/* Below it too: who connects, and only root can, has certificates read again and is told what came of it. */
#define WARDEN_TLS_SOCKET "run/tls.sock"

/* Below it too: copies of the programs that the server gives to builds and sandboxes. */
#define WARDEN_PARTS_DIR "programs"

enum { WARDEN_CONTROL_CHANNELS = 8, WARDEN_LOOPS_MAX = 16, WARDEN_TLS_MAX = 1024 * 1024 };

/* Descriptors the server process inherits, named in the environment (warden_server_fds()). */
struct server_fds {
    int listen[WARDEN_LOOPS_MAX]; /* one per edge loop */
    int dial[WARDEN_LOOPS_MAX];
    size_t loops;
    int control[WARDEN_CONTROL_CHANNELS];
    int event;
    int credentials; /* file for the first key, in the operator's home; /dev/null when there is none */
    /* Both -1 without TLS. The channel brings bundles of certificates (protocol/tls/tls.h) as files of at most
     * WARDEN_TLS_MAX bytes: one is there from the begin, and each later one wants a text as its answer, which
     * begins with "ok" when it was taken. */
    int listen_tls[WARDEN_LOOPS_MAX];
    int tls;
};

/* Bound, not yet listening. */
struct warden_sockets {
    union address address; /* with the port that was chosen when none was given */
    char url[ADDRESS_URL_SIZE];
    int fds[WARDEN_LOOPS_MAX];
    size_t count; /* one per edge loop */
};

/* A program that the server reads: copied to WARDEN_PARTS_DIR under this name. */
struct warden_part {
    const char *name;
    const char *path;
};

struct warden_config {
    const char *data_dir; /* absolute */
    const struct warden_sockets *sockets;
    const struct warden_sockets *tls_sockets; /* NULL: none */
    const char *const *tls_files;             /* certificate, key, certificate, key */
    size_t tls_file_count;
    size_t loops;
    uid_t server_uid;
    const char *envd_path; /* envd's program */
    const struct warden_part *parts;
    size_t part_count;
    const char *base_layer; /* use this directory as the base layer; NULL = DATA/layers/base */
    const char *const *resolvers;
    size_t resolver_count;
    const char *const *private_ranges; /* that sandboxes reach: "10.1.0.0/16" */
    size_t private_count;
    char *const *server_argv; /* started as the unprivileged server */
    char *const *egress_argv; /* started as the egress process; NULL = without one */
    int credentials_fd;       /* handed to it */
    bool manage_firewall;     /* as in network_config */
    struct network_rates rates, team_rates;
    bool process_provider; /* also an envd for plain processes on this host */
};

/* Can sandboxes be made on this host, from a layer in that directory? What is missing is in *err. For
 * whoever is about to spend minutes on making one; warden_run() asks too. */
int warden_probe(const char *layers_dir, struct error *err);
/* Takes the address: "127.0.0.1:3000", "[::1]:3000", "localhost:3000", ":3000" (all addresses). flag: the option
 * that said so, for messages. */
int warden_bind(const char *flag, const char *text, size_t loops, struct warden_sockets *out,
                struct error *err);
/* Can the files of certificates and keys be read? warden_run() asks too, later. */
int warden_tls_check(const struct warden_config *config, struct error *err);
/* Runs until SIGTERM, SIGINT or, unless it was ignored at the start, SIGHUP. Returns the exit status. */
int warden_run(const struct warden_config *config);
/* Ends every sandbox of a data directory no server uses, and removes every trace on the host (mounts,
 * cgroups, network). Files of the data directory stay, those of sandboxes too: the next server
 * removes what nobody paused. */
int warden_down(const struct warden_config *config, struct error *err);

/* In the server: reads what the warden passed on. */
int warden_server_fds(struct server_fds *out, struct error *err);
