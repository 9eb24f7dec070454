/* `quicksand serve`: checks the configuration and the host, makes the base template when it is
 * missing, and becomes the warden. */
#include "quicksand/serve.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/path.h"
#include "cli/core/cli.h"
#include "host/warden/warden.h"

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

struct prepared {
    struct config config;
    char envd[CONFIG_TEXT_SIZE + 32];
    char addresses[CONFIG_RESOLVERS_MAX][INET_ADDRSTRLEN];
    const char *resolvers[CONFIG_RESOLVERS_MAX];
    struct warden_sockets sockets;
    struct warden_config warden;
};

/* 0, or the exit status to end with. */
static int prepare(struct prepared *prepared, int argc, char **argv)
{
    struct config *config = &prepared->config;
    int r = load(config, argc, argv);

    if (r != 0)
        return r > 0 ? -1 : 2;
    if (geteuid() != 0) {
        (void)fprintf(stderr, "quicksand: serve needs root (it gives up root for everything that "
                              "parses network bytes); try: sudo quicksand serve\n");
        return 1;
    }
    if (!str_copy(str_of(config->envd), prepared->envd, sizeof(prepared->envd)) || !config->envd[0])
        path_of_program("envd", prepared->envd, sizeof(prepared->envd));
    prepared->warden = (struct warden_config){
        .data_dir = config->data,
        .sockets = &prepared->sockets,
        .loops = (size_t)config->loops,
        .server_uid = (uid_t)config->server_uid,
        .envd_path = prepared->envd,
        .base_layer = config->base_layer[0] ? config->base_layer : NULL,
        .resolvers = prepared->resolvers,
        .resolver_count = find_resolvers(config, prepared->addresses),
        .process_provider = config->process_provider != 0,
    };
    for (size_t i = 0; i < prepared->warden.resolver_count; i++)
        prepared->resolvers[i] = prepared->addresses[i];
    if (prepared->warden.loops == 0)
        prepared->warden.loops = (size_t)sysconf(_SC_NPROCESSORS_ONLN);
    if (prepared->warden.loops > WARDEN_LOOPS_MAX)
        prepared->warden.loops = WARDEN_LOOPS_MAX;
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
    int r = prepare(&prepared, argc, argv);

    if (r != 0)
        return r < 0 ? 0 : r;
    /* The address first: a template takes minutes. */
    if (warden_bind(prepared.config.listen, prepared.warden.loops, &prepared.sockets, &err) < 0 ||
        base_layer_ensure(&prepared.config, &err) < 0) {
        (void)fprintf(stderr, "quicksand: %s\n", err.message);
        return 1;
    }
    prepared.warden.server_argv = server_arguments(argc, argv);
    /* A key from the environment is the operator's own business. */
    prepared.warden.credentials_fd =
        serve_key_given() ? open("/dev/null", O_RDWR | O_CLOEXEC) : open_credentials();
    return warden_run(&prepared.warden);
}

static bool asks_for_help(int argc, char **argv)
{
    for (int i = 0; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return true;
    return false;
}

static void down_help(void)
{
    (void)printf(
        "usage: quicksand down [--data DIR] [--config FILE]\n\n"
        "Ends every sandbox of a data directory that no server uses any more, and removes what is\n"
        "left of it on this host: mounts, cgroups, network. The files in the data directory stay, "
        "and\n"
        "the next server finds paused sandboxes, snapshots and volumes there.\n\n"
        "  --data DIR     the data directory [QUICKSAND_DATA, else /var/lib/quicksand]\n"
        "  --config FILE  the file with settings that the server was started with\n\n"
        "Other options of 'quicksand serve' are taken too, and mean nothing here.\n");
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

    if (asks_for_help(argc, argv)) {
        down_help();
        return 0;
    }
    r = prepare(&prepared, argc, argv);
    if (r != 0)
        return r < 0 ? 0 : r;
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
