/* The role that the warden starts: takes what it was given, puts the fence up and runs. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include "base/fd.h"
#include "base/log.h"
#include "egress/process/egress_internal.h"
#include "protocol/tls/tls_intercept.h"

enum {
    EXIT_USAGE = 78,
    DNS_PORT = 53,
    FDS_PER_FLOW = 6,                                             /* two sockets, two pipes */
    FDS_BESIDE = EGRESS_QUESTIONS_MAX + EGRESS_CLIENTS_MAX + 256, /* 256: what there is once */
};

/* All certificates are read before the fence is up. */
static int read_trust(struct egress_config *config, int *argc, char ***argv, struct error *err)
{
    const char *file = NULL;

    if (*argc >= 2 && strcmp((*argv)[0], EGRESS_CA_FLAG) == 0) {
        file = (*argv)[1];
        *argc -= 2;
        *argv += 2;
    }
    return tls_trust_new(file, &config->trust, err);
}

static bool add_resolver(struct egress_config *config, const char *text)
{
    struct in_addr address;

    if (config->resolver_count == EGRESS_RESOLVERS_MAX || inet_pton(AF_INET, text, &address) != 1)
        return false;
    config->resolvers[config->resolver_count++] = ntohl(address.s_addr);
    return true;
}

static bool add_private(struct egress_config *config, const char *text)
{
    return config->opened.count < EGRESS_PRIVATE_MAX &&
           policy_ranges_add(&config->opened, str_of(text));
}

static int read_arguments(struct egress_config *config, int argc, char **argv, struct error *err)
{
    for (int i = 0; i < argc; i++)
        if (strchr(argv[i], '/') ? !add_private(config, argv[i]) : !add_resolver(config, argv[i]))
            return error_set(err, ERROR_INVALID,
                             "'%s' is no resolver and no range, or one too many", argv[i]);
    return 0;
}

static size_t flows_max(void)
{
    struct rlimit limit = {0};

    (void)getrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_cur <= FDS_BESIDE + FDS_PER_FLOW)
        return 16;
    return (limit.rlim_cur - FDS_BESIDE) / FDS_PER_FLOW;
}

static int check_fds(struct error *err)
{
    for (int fd = EGRESS_FIRST_FD; fd < EGRESS_FD_END; fd++)
        if (fcntl(fd, F_SETFD, FD_CLOEXEC) < 0 || fd_set_nonblocking(fd, true) < 0)
            return error_set(err, ERROR_INTERNAL, "descriptor %d is missing", fd);
    return 0;
}

static bool is_socket(int fd)
{
    socklen_t size = sizeof(int);
    int type;

    return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0;
}

/* Values of rules and the authority's key are here: no core has them, and nobody looks in. */
static void keep_secrets(void)
{
    const struct rlimit none = {0, 0};

    (void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0); /* the warden's own is forgotten by exec */
    (void)setrlimit(RLIMIT_CORE, &none);
}

int egress_main(int argc, char **argv)
{
    struct egress_config config = {.tcp_fd = EGRESS_FD_TCP,
                                   .dns_fd = EGRESS_FD_DNS,
                                   .dns_tcp_fd = EGRESS_FD_DNS_TCP,
                                   .server_fd = EGRESS_FD_SERVER,
                                   .log_fd = is_socket(EGRESS_FD_LOG) ? EGRESS_FD_LOG : -1,
                                   .resolver_port = DNS_PORT,
                                   .destination = egress_original_destination};
    struct error err;
    struct loop *loop;

    if (!getenv(EGRESS_ENV)) {
        (void)fprintf(stderr,
                      "quicksand: this role is started by 'quicksand serve', not by hand\n");
        return EXIT_USAGE;
    }
    (void)signal(SIGPIPE, SIG_IGN);
    keep_secrets();
    config.flows_max = flows_max();
    loop = loop_new();
    if (check_fds(&err) < 0 || read_trust(&config, &argc, &argv, &err) < 0 ||
        read_arguments(&config, argc, argv, &err) < 0 || fence_up(&err) < 0) {
        log_error("egress", "%s", err.message);
        return EXIT_USAGE;
    }
    (void)egress_new(loop, &config);
    log_info("egress", "ready, for at most %zu connections", config.flows_max);
    loop_run(loop);
    return 1;
}
