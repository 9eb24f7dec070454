/* `quicksand serve`: checks the configuration and the host, makes the base template when it is
 * missing, and becomes the warden. */
#include "quicksand/serve.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backup/backup.h"
#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/parts.h"
#include "cli/core/cli.h"
#include "egress/process/egress.h"
#include "host/warden/warden.h"
#include "protocol/tls/tls.h"

static bool usable_resolver(struct str text, char out[INET_ADDRSTRLEN])
{
    struct in_addr address;

    return str_copy(text, out, INET_ADDRSTRLEN) && inet_pton(AF_INET, out, &address) == 1 &&
           (ntohl(address.s_addr) >> 24) != 127;
}

static size_t resolvers_of_list(struct str list, char out[][INET_ADDRSTRLEN])
{
    size_t count = 0;

    while (list.p && count < CONFIG_RESOLVERS_MAX)
        if (usable_resolver(str_trim(str_split(&list, ',')), out[count]))
            count++;
    return count;
}

static size_t resolvers_of_file(const char *path, char out[][INET_ADDRSTRLEN])
{
    auto_buf struct buf text = {0};
    struct str rest;
    size_t count = 0;

    buf_init(&text, 64 * 1024);
    if (fd_read_file_at(AT_FDCWD, path, &text) < 0)
        return 0;
    rest = buf_str(&text);
    while (rest.p && count < CONFIG_RESOLVERS_MAX) {
        struct str line = str_trim(str_split(&rest, '\n'));

        if (str_starts(line, STR("nameserver")) &&
            usable_resolver(str_trim(str_skip(line, 10)), out[count]))
            count++;
    }
    return count;
}

/* The host's own resolver may be a local stub that sandboxes cannot reach; systemd keeps the real
 * ones in a second file. */
static size_t find_resolvers(const struct config *config, char out[][INET_ADDRSTRLEN])
{
    size_t count;

    if (config->resolvers[0])
        return resolvers_of_list(str_of(config->resolvers), out);
    count = resolvers_of_file("/etc/resolv.conf", out);
    return count ? count : resolvers_of_file("/run/systemd/resolve/resolv.conf", out);
}

static int load(struct config *config, int argc, char **argv)
{
    auto_buf struct buf faults = {0};
    int r;

    buf_init(&faults, 16384);
    r = config_load(config, argc, argv, &faults);
    if (r < 0)
        (void)fprintf(stderr, "%s", faults.p ? faults.p : "");
    return r;
}

/* The server's arguments: its role, then what we were given. */
static char **server_arguments(int argc, char **argv)
{
    static char self[] = "quicksand", role[] = SERVE_SERVER_ROLE;
    char **out = xcalloc((size_t)argc + 3, sizeof(*out));

    out[0] = self;
    out[1] = role;
    memcpy(out + 2, argv, (size_t)argc * sizeof(*out));
    return out;
}

/* The egress process's arguments: its role, certificates that it trusts, the resolvers, and private ranges that are
 * reached. */
static char **egress_arguments(const struct config *config, const struct warden_config *warden)
{
    static char self[] = "quicksand", role[] = EGRESS_ROLE, ca[] = EGRESS_CA_FLAG;
    char **out = xcalloc(warden->resolver_count + warden->private_count + 5, sizeof(*out));
    size_t count = 0;

    out[count++] = self;
    out[count++] = role;
    if (config->egress_ca[0]) {
        char *path = realpath(config->egress_ca, NULL);

        out[count++] = ca;
        out[count++] = path ? path : xstrdup(config->egress_ca);
    }
    for (size_t i = 0; i < warden->resolver_count; i++)
        out[count++] = xstrdup(warden->resolvers[i]);
    for (size_t i = 0; i < warden->private_count; i++)
        out[count++] = xasprintf("%s%s", warden->private_ranges[i],
                                 strchr(warden->private_ranges[i], '/') ? "" : "/32");
    return out;
}

/* The client's side of the first key: ~/.quicksand/credentials of whoever starts the server. The
 * server keeps only hashes; it writes here once, through a descriptor. */
static int open_credentials(void)
{
    const char *home = getenv("HOME");
    char path[CONFIG_TEXT_SIZE + 32];
    int fd = -1;

    if (home && home[0] == '/') {
        (void)snprintf(path, sizeof(path), "%s/.quicksand", home);
        (void)mkdir(path, 0700);
        (void)snprintf(path, sizeof(path), "%s/" CLI_CREDENTIALS, home);
        fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    }
    return fd >= 0 ? fd : open("/dev/null", O_RDWR | O_CLOEXEC);
}

enum { SERVE_PARTS = 4 }; /* at least as many as part_names has */

struct prepared {
    struct config config;
    char tls_text[2 * CONFIG_LIST_SIZE]; /* the paths, one after the other */
    const char *tls_files[2 * CONFIG_TLS_MAX];
    struct warden_sockets tls_sockets;
    char part_paths[SERVE_PARTS][PATH_MAX];
    const char *part_list[SERVE_PARTS];    /* those paths */
    struct warden_part parts[SERVE_PARTS]; /* those that the server reads */
    char addresses[CONFIG_RESOLVERS_MAX][INET_ADDRSTRLEN];
    const char *resolvers[CONFIG_RESOLVERS_MAX];
    char private_texts[CONFIG_PRIVATE_MAX + 1][CONFIG_RANGE_SIZE];
    const char *private_ranges[CONFIG_PRIVATE_MAX + 1];
    struct warden_sockets sockets;
    struct warden_config warden;
};

/* What is no range is told by whoever reads them; of one too many likewise. */
static size_t split_private(struct prepared *prepared)
{
    struct str list = str_of(prepared->config.allow_private);
    size_t count = 0;

    while (list.len && count <= CONFIG_PRIVATE_MAX) {
        struct str one = str_trim(str_split(&list, ','));

        (void)str_copy(str_n(one.p, one.len < CONFIG_RANGE_SIZE ? one.len : CONFIG_RANGE_SIZE - 1),
                       prepared->private_texts[count], CONFIG_RANGE_SIZE);
        prepared->private_ranges[count] = prepared->private_texts[count];
        count++;
    }
    return count;
}

/* Where the programs that come with this one are. envd is read by the warden alone. */
static void find_parts(struct prepared *prepared)
{
    const struct config *config = &prepared->config;

    for (size_t i = 0; i < SERVE_PARTS && part_names[i]; i++) {
        bool is_envd = strcmp(part_names[i], "envd") == 0;
        const char *given = is_envd                                ? config->envd
                            : strcmp(part_names[i], "unpack") == 0 ? config->unpack
                                                                   : "";
        char *path = prepared->part_paths[i];

        if (given[0])
            (void)snprintf(path, PATH_MAX, "%s", given);
        else
            part_path(part_names[i], path, PATH_MAX);
        prepared->part_list[i] = path;
        if (is_envd)
            prepared->warden.envd_path = path;
        else
            prepared->parts[prepared->warden.part_count++] =
                (struct warden_part){.name = part_names[i], .path = path};
    }
    prepared->warden.parts = prepared->parts;
}

/* 0, or the exit status to end with. */
static int prepare(struct prepared *prepared, int argc, char **argv)
{
    struct config *config = &prepared->config;
    int r = load(config, argc, argv);

    if (r < 0)
        return 2;
    if (geteuid() != 0) {
        (void)fprintf(stderr, "quicksand: serve needs root (it gives up root for everything that "
                              "parses network bytes); try: sudo quicksand serve\n");
        return 1;
    }
    prepared->warden = (struct warden_config){
        .data_dir = config->data,
        .sockets = &prepared->sockets,
        .loops = (size_t)config->loops,
        .server_uid = (uid_t)config->server_uid,
        .base_layer = config->base_layer[0] ? config->base_layer : NULL,
        .resolvers = prepared->resolvers,
        .resolver_count = find_resolvers(config, prepared->addresses),
        .private_ranges = prepared->private_ranges,
        .private_count = split_private(prepared),
        .manage_firewall = config->manage_firewall != 0,
        .rates = {.bits = (uint64_t)config->sandbox_kbit * 1000,
                  .packets = (uint64_t)config->sandbox_packets,
                  .connections = (uint64_t)config->sandbox_connections,
                  .questions = (uint64_t)config->sandbox_dns},
        .team_rates = {.bits = (uint64_t)config->team_kbit * 1000,
                       .packets = (uint64_t)config->team_packets,
                       .connections = (uint64_t)config->team_connections,
                       .questions = (uint64_t)config->team_dns},
        .process_provider = config->process_provider != 0,
    };
    find_parts(prepared);
    for (size_t i = 0; i < prepared->warden.resolver_count; i++)
        prepared->resolvers[i] = prepared->addresses[i];
    if (prepared->warden.loops == 0)
        prepared->warden.loops = (size_t)sysconf(_SC_NPROCESSORS_ONLN);
    if (prepared->warden.loops > WARDEN_LOOPS_MAX)
        prepared->warden.loops = WARDEN_LOOPS_MAX;
    return 0;
}

static char *add_path(struct prepared *prepared, char *at, struct str path)
{
    prepared->tls_files[prepared->warden.tls_file_count++] = at;
    memcpy(at, path.p, path.len);
    return at + path.len + 1;
}

/* Certificate and key in turn. */
static void list_tls_files(struct prepared *prepared)
{
    struct str certs = str_of(prepared->config.tls_certs), keys = str_of(prepared->config.tls_keys);
    char own[2][CONFIG_TEXT_SIZE + 16], *at = prepared->tls_text;

    if (!certs.len) {
        (void)snprintf(own[0], sizeof(own[0]), "%s/tls/cert.pem", prepared->config.data);
        (void)snprintf(own[1], sizeof(own[1]), "%s/tls/key.pem", prepared->config.data);
        certs = str_of(own[0]);
        keys = str_of(own[1]);
    }
    while (certs.p && keys.p) {
        at = add_path(prepared, at, str_trim(str_split(&certs, ',')));
        at = add_path(prepared, at, str_trim(str_split(&keys, ',')));
    }
    prepared->warden.tls_files = prepared->tls_files;
    prepared->warden.tls_sockets = &prepared->tls_sockets;
}

static int bind_tls(struct prepared *prepared, struct error *err)
{
    const struct config *config = &prepared->config;
    char port[8];

    if (!config->listen_tls[0])
        return 0;
    list_tls_files(prepared);
    if (warden_tls_check(&prepared->warden, err) < 0)
        return config->tls_certs[0]
                   ? -1
                   : error_set(
                         err, ERROR_INVALID,
                         "--listen-tls needs certificates: --tls-cert and --tls-key, or those "
                         "that 'quicksand tls init --domain DOMAIN --data %s' makes",
                         config->data);
    if (warden_bind("listen-tls", config->listen_tls, prepared->warden.loops,
                    &prepared->tls_sockets, err) < 0)
        return -1;
    (void)snprintf(port, sizeof(port), "%u", address_port(&prepared->tls_sockets.address));
    (void)setenv(SERVE_TLS_PORT, port, 1);
    (void)tls_kernel(); /* loads it: the server may not */
    return 0;
}

bool serve_key_given(void)
{
    const char *key = getenv("QUICKSAND_API_KEY");

    return key && key[0];
}

int serve_main(int argc, char **argv)
{
    static struct prepared prepared;
    struct error err;
    int r;

    if (argc == 1 && strcmp(argv[0], "--print-config") == 0) {
        config_sample();
        return 0;
    }
    r = prepare(&prepared, argc, argv);
    if (r != 0)
        return r;
    log_set_json(strcmp(prepared.config.log_format, "json") == 0);
    (void)umask(
        022); /* folders on the way to the data directory are passed by the server, another user */
    /* What takes no time first: a template takes minutes. */
    if (serve_check_parts(prepared.part_list, &err) < 0 ||
        serve_check_access(&prepared.config, config_file(argc, argv), &err) < 0 ||
        warden_bind("listen", prepared.config.listen, prepared.warden.loops, &prepared.sockets,
                    &err) < 0 ||
        bind_tls(&prepared, &err) < 0 || backup_check_restored(prepared.config.data, &err) < 0 ||
        base_layer_ensure(&prepared.config, &err) < 0) {
        (void)fprintf(stderr, "quicksand: %s\n", err.message);
        return 1;
    }
    prepared.warden.server_argv = server_arguments(argc, argv);
    prepared.warden.egress_argv = egress_arguments(&prepared.config, &prepared.warden);
    /* A key from the environment is the operator's own business. */
    prepared.warden.credentials_fd =
        serve_key_given() ? open("/dev/null", O_RDWR | O_CLOEXEC) : open_credentials();
    return warden_run(&prepared.warden);
}

/* Without it a mistyped path would become a data directory. */
static bool is_data_dir(const char *path)
{
    char instance[CONFIG_TEXT_SIZE + 16];

    (void)snprintf(instance, sizeof(instance), "%s/instance", path);
    return access(instance, F_OK) == 0;
}

int serve_down(int argc, char **argv)
{
    static struct prepared prepared;
    struct error err;
    int r;

    r = prepare(&prepared, argc, argv);
    if (r != 0)
        return r;
    if (!is_data_dir(prepared.config.data)) {
        (void)fprintf(
            stderr,
            "quicksand: no server was ever started with the data directory '%s'; name the "
            "right one with --data\n",
            prepared.config.data);
        return 1;
    }
    if (warden_down(&prepared.warden, &err) < 0) {
        (void)fprintf(stderr, "quicksand: %s\n", err.message);
        return 1;
    }
    return 0;
}
