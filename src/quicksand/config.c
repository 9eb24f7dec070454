#include "quicksand/config.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/address.h"
#include "base/fd.h"

enum kind { TEXT, LIST, NUMBER };

struct setting {
    const char *key;     /* --key VALUE, key = VALUE, QUICKSAND_KEY */
    const char *old_key; /* taken too; NULL = none */
    enum kind kind;
    size_t offset;
    const char *fallback;
    int64_t min, max;
    const char *help;
};

#define TEXT_SETTING(member, name, def, text)                                                      \
    {                                                                                              \
        .key = (name), .kind = TEXT, .offset = offsetof(struct config, member), .fallback = (def), \
        .help = (text)                                                                             \
    }
#define NUMBER_SETTING(member, name, def, low, high, text)                        \
    {                                                                             \
        .key = (name), .kind = NUMBER, .offset = offsetof(struct config, member), \
        .fallback = (def), .min = (low), .max = (high), .help = (text)            \
    }

static const struct setting settings[] = {
    TEXT_SETTING(listen, "listen", "127.0.0.1:3000",
                 "ADDRESS:PORT to serve on; [ADDRESS]:PORT for IPv6, :PORT for all addresses"),
    TEXT_SETTING(listen_tls, "listen-tls", "", "ADDRESS:PORT to serve HTTPS on, besides"),
    {.key = "tls-cert",
     .kind = LIST,
     .offset = offsetof(struct config, tls_certs),
     .fallback = "",
     .help = "PEM file of a certificate and its chain; several by host name, comma separated or "
             "several times (default: what 'quicksand tls init' made in DATA/tls)"},
    {.key = "tls-key",
     .kind = LIST,
     .offset = offsetof(struct config, tls_keys),
     .fallback = "",
     .help = "PEM file of its private key, one for each certificate, in the same order"},
    NUMBER_SETTING(redirect_http, "redirect-http", "0", 0, 1,
                   "1: plain HTTP from other hosts is redirected to HTTPS"),
    NUMBER_SETTING(hsts_s, "hsts", "0", 0, 63072000,
                   "seconds browsers shall use HTTPS only, once they were here (0: not told)"),
    TEXT_SETTING(data, "data", "/var/lib/quicksand", "data directory"),
    TEXT_SETTING(domain, "domain", "",
                 "domain told to clients: a sandbox's port is at PORT-ID.DOMAIN"),
    TEXT_SETTING(log, "log", "info", "debug, info, warn or error"),
    TEXT_SETTING(log_format, "log-format", "text",
                 "text, or json: each line is an object with time, level, module, message, fields"),
    TEXT_SETTING(egress_ca, "egress-ca", "",
                 "PEM file of authorities that servers behind network rules may be of, besides the "
                 "host's; readable by everybody"),
    TEXT_SETTING(resolvers, "resolvers", "",
                 "DNS servers of the sandboxes, comma separated (default: the host's)"),
    {.key = "envd",
     .old_key = "agent",
     .kind = TEXT,
     .offset = offsetof(struct config, envd),
     .fallback = "",
     .help = "envd's program (default: the one beside this program)"},
    TEXT_SETTING(base_layer, "base-layer", "",
                 "directory with a root file system to use as the base template in place"),
    TEXT_SETTING(webhook_ca, "webhook-ca", "",
                 "PEM file of certificates that webhooks may have, besides the system's"),
    NUMBER_SETTING(webhook_pause_s, "webhook-pause", "5", 1, 3600,
                   "seconds until a failed webhook is tried again; doubles each time"),
    TEXT_SETTING(runtime_config, "runtime-config", "",
                 "JSON file with the agent runtime's providers and profiles"),
    NUMBER_SETTING(warm, "warm", "32", 0, 1000, "ready sandboxes kept for the next create"),
    NUMBER_SETTING(
        blank, "blank", "-1", -1, 1000,
        "blank boxes kept, of which any sandbox is made (-1: three times as many as warm)"),
    NUMBER_SETTING(loops, "loops", "0", 0, 16,
                   "threads that serve connections (0: one per processor)"),
    NUMBER_SETTING(
        workers, "workers", "16", 1, 256,
        "threads that create sandboxes, and operations on sandboxes under way for one team"),
    NUMBER_SETTING(create_queue, "create-queue", "256", 1, 65536,
                   "creates that run or wait at once; more are refused with 429"),
    NUMBER_SETTING(request_s, "request-seconds", "30", 1, 3600,
                   "seconds a request to the API may take to arrive whole"),
    NUMBER_SETTING(
        body_memory_mb, "body-memory", "128", 4, 65536,
        "memory for the bodies of requests to the API and for its responses while they are "
        "made, in MiB; a team may hold half"),
    NUMBER_SETTING(response_memory_mb, "response-memory", "32", 4, 65536,
                   "memory for responses that clients have not read yet, in MiB; a team may hold "
                   "half, an address a quarter, a connection an eighth"),
    NUMBER_SETTING(upload_mb, "upload-max", "4096", 1, 1048576,
                   "longest file that is uploaded for a build of a template, in MiB"),
    NUMBER_SETTING(spool_mb, "spool-max", "65536", 1, 16777216,
                   "disk for temporary files of uploads, exports and builds, in MiB; a team may "
                   "hold half"),
    NUMBER_SETTING(connections, "connections", "16384", 64, 1000000,
                   "connections of clients at once; further ones take the place of idle ones"),
    NUMBER_SETTING(address_connections, "connections-per-address", "4096", 0, 1000000,
                   "of those, for one address or IPv6 /64 that is not loopback (0: no limit)"),
    NUMBER_SETTING(
        box_connections, "connections-per-sandbox", "3072", 0, 1000000,
        "requests under way in one sandbox; an upgraded one counts as three (0: no limit)"),
    NUMBER_SETTING(max_sandboxes, "max-sandboxes", "10000", 1, 16000, "sandboxes running at once"),
    NUMBER_SETTING(max_hours, "max-hours", "24", 1, 720, "longest life of a sandbox, in hours"),
    NUMBER_SETTING(grace, "grace", "60", 1, 86400,
                   "seconds after its end until a sandbox whose server is gone ends by itself"),
    NUMBER_SETTING(template_cpu, "cpu", "2", 1, 64, "processors of a base sandbox"),
    NUMBER_SETTING(template_mem_mb, "memory", "512", 64, 1048576,
                   "memory of a base sandbox, in MiB"),
    NUMBER_SETTING(template_disk_mb, "disk", "10240", 64, 16777216,
                   "disk a base sandbox may write, in MiB"),
    NUMBER_SETTING(ready_timeout_s, "ready-timeout", "60", 1, 3600,
                   "seconds until what a template starts must be ready, or the create fails"),
    NUMBER_SETTING(volume_mb, "volume-disk", "10240", 1, 16777216,
                   "what a volume may hold, in MiB"),
    TEXT_SETTING(unpack, "unpack", "",
                 "path of the program that puts files in place in builds; empty: beside this one"),
    NUMBER_SETTING(builds, "builds", "4", 1, 64, "builds of templates at the same time"),
    NUMBER_SETTING(team_builds, "team-builds", "2", 1, 64, "of those, of one team"),
    NUMBER_SETTING(build_cpu, "build-cpu", "2", 1, 1024,
                   "processors a build may use; more when its template has more"),
    NUMBER_SETTING(build_mem_mb, "build-memory", "1024", 128, 16777216,
                   "memory a build may use, in MiB; more when its template has more"),
    NUMBER_SETTING(build_disk_mb, "build-disk", "10240", 64, 16777216,
                   "disk a build may write, in MiB; more when its template has more"),
    NUMBER_SETTING(build_s, "build-seconds", "3600", 1, 604800, "how long a build may take"),
    NUMBER_SETTING(build_demand_s, "build-on-demand", "0", 0, 86400,
                   "seconds a create waits while a recipe that comes with quicksand is built "
                   "because it needs it (0: none is, the create is refused with the command)"),
    NUMBER_SETTING(build_cache_days, "build-cache-days", "30", 1, 3650,
                   "days after which results of steps that nobody used again are forgotten"),
    NUMBER_SETTING(sandbox_kbit, "sandbox-kbit", "0", 0, 1000000000,
                   "kilobits a second that a sandbox may send, and may receive (0: no limit)"),
    NUMBER_SETTING(sandbox_packets, "sandbox-packets", "0", 0, 1000000000,
                   "packets a second that a sandbox may send, and may receive (0: no limit)"),
    NUMBER_SETTING(sandbox_connections, "sandbox-new-connections", "0", 0, 1000000,
                   "connections a second that a sandbox may begin (0: no limit)"),
    NUMBER_SETTING(sandbox_dns, "sandbox-dns-queries", "0", 0, 1000000,
                   "DNS queries a second that a sandbox may send (0: no limit)"),
    NUMBER_SETTING(team_kbit, "team-kbit", "0", 0, 1000000000,
                   "the same for all sandboxes of a team together: kilobits"),
    NUMBER_SETTING(team_packets, "team-packets", "0", 0, 1000000000, "packets"),
    NUMBER_SETTING(team_connections, "team-new-connections", "0", 0, 1000000, "connections"),
    NUMBER_SETTING(team_dns, "team-dns-queries", "0", 0, 1000000, "DNS queries"),
    {.key = "allow-private",
     .kind = LIST,
     .offset = offsetof(struct config, allow_private),
     .fallback = "",
     .help = "private ranges of addresses that sandboxes may reach, comma separated or several "
             "times: 10.1.0.0/16"},
    {.key = "registry-mirrors",
     .old_key = "registry-mirror",
     .kind = LIST,
     .offset = offsetof(struct config, registry_mirrors),
     .fallback = "",
     .help = "where images of a registry are asked for, comma separated or several times: "
             "docker.io=http://127.0.0.1:5000"},
    NUMBER_SETTING(registry_s, "registry-seconds", "30", 1, 3600,
                   "how long a registry may send nothing while an image is fetched"),
    TEXT_SETTING(package_mirror, "package-mirror", "http://deb.debian.org/debian",
                 "archive that releases of Debian are bootstrapped from; empty: none is"),
    TEXT_SETTING(package_security, "package-security", "http://deb.debian.org/debian-security",
                 "archive of their security updates; empty: without"),
    TEXT_SETTING(package_keyring, "package-keyring", "",
                 "file of the keys that sign both (default: Debian's)"),
    NUMBER_SETTING(package_s, "package-seconds", "30", 1, 3600,
                   "how long a package mirror may send nothing"),
    NUMBER_SETTING(build_cache_mb, "build-cache", "20480", 1, 16777216,
                   "what results of steps may hold, in MiB; the longest unused go first"),
    NUMBER_SETTING(server_uid, "uid", "64737", 1, 65533,
                   "user and group id of the unprivileged server"),
    NUMBER_SETTING(
        manage_firewall, "manage-firewall", "0", 0, 1,
        "1: where another firewall drops what is forwarded, our own link is let through"),
    NUMBER_SETTING(process_provider, "process-provider", "0", 0, 1,
                   "1: also run commands outside of sandboxes, as uid + 1 in DATA/process"),
};

enum {
    SETTING_COUNT = sizeof(settings) / sizeof(*settings),
    FILE_MAX = 64 * 1024,
    COMMENT_WIDTH = 96
};

static const struct setting *find_setting(struct str key)
{
    for (size_t i = 0; i < SETTING_COUNT; i++)
        if (str_is(key, settings[i].key) ||
            (settings[i].old_key && str_is(key, settings[i].old_key)))
            return &settings[i];
    return NULL;
}

/* Of a list each place has its part; where two speak of the same the later one counts. */
static void add_to_list(char *list, struct str value, const struct setting *setting,
                        const char *from, struct buf *faults)
{
    size_t len = strlen(list);

    if (len + 1 + value.len >= CONFIG_LIST_SIZE)
        (void)buf_printf(faults, "%s: '%s' is too long\n", from, setting->key);
    else if (value.len > 0)
        (void)snprintf(list + len, CONFIG_LIST_SIZE - len, "%s%.*s", len > 0 ? "," : "",
                       STR_ARG(value));
}

static void apply(struct config *config, const struct setting *setting, struct str value,
                  const char *from, struct buf *faults)
{
    char *member = (char *)config + setting->offset;
    int64_t number;

    if (setting->kind == LIST) {
        add_to_list(member, value, setting, from, faults);
        return;
    }
    if (setting->kind == TEXT) {
        if (!str_copy(value, member, CONFIG_TEXT_SIZE))
            (void)buf_printf(faults, "%s: '%s' is too long\n", from, setting->key);
        return;
    }
    if (!str_to_i64(value, &number) || number < setting->min || number > setting->max) {
        (void)buf_printf(faults, "%s: '%s' must be a number from %lld to %lld, not '%.*s'\n", from,
                         setting->key, (long long)setting->min, (long long)setting->max,
                         STR_ARG(value));
        return;
    }
    memcpy(member, &number, sizeof(number));
}

static void load_file(struct config *config, const char *path, struct buf *faults)
{
    auto_buf struct buf text = {0};
    struct str rest;
    unsigned number = 0;
    int r;

    buf_init(&text, FILE_MAX);
    r = fd_read_file_at(AT_FDCWD, path, &text);
    if (r < 0) {
        (void)buf_printf(faults, "config: cannot read '%s': %s\n", path, strerror(-r));
        return;
    }
    rest = buf_str(&text);
    while (rest.p) {
        struct str line = str_trim(str_split(&rest, '\n'));
        struct str key = str_trim(str_split(&line, '='));
        const struct setting *setting = find_setting(key);
        char from[CONFIG_TEXT_SIZE + 16];

        number++;
        if (key.len == 0 || key.p[0] == '#')
            continue;
        (void)snprintf(from, sizeof(from), "%s:%u", path, number);
        if (!setting || !line.p)
            (void)buf_printf(faults, "%s: unknown setting '%.*s'\n", from, STR_ARG(key));
        else
            apply(config, setting, str_trim(line), from, faults);
    }
}

static void load_variable(struct config *config, const struct setting *setting, const char *key,
                          struct buf *faults)
{
    char name[64] = "QUICKSAND_";
    size_t len = strlen(name);
    const char *value;

    for (const char *p = key; *p && len < sizeof(name) - 1; p++)
        name[len++] = *p == '-' ? '_' : (char)(*p - ('a' - 'A'));
    name[len] = '\0';
    value = getenv(name);
    if (value && value[0])
        apply(config, setting, str_of(value), name, faults);
}

static void load_environment(struct config *config, struct buf *faults)
{
    for (size_t i = 0; i < SETTING_COUNT; i++) {
        if (settings[i].old_key)
            load_variable(config, &settings[i], settings[i].old_key, faults);
        load_variable(config, &settings[i], settings[i].key, faults);
    }
}

static void load_arguments(struct config *config, int argc, char **argv, struct buf *faults)
{
    for (int i = 0; i < argc; i++) {
        struct str key = str_of(argv[i]), value = STR_NONE;
        const struct setting *setting = NULL;

        if (str_starts(key, STR("--"))) {
            value = str_skip(key, 2);
            key = str_split(&value, '=');
            setting = find_setting(key);
        }
        if (!setting && !str_is(key, "config")) {
            (void)buf_printf(faults, "unknown option '%s' (see quicksand serve --help)\n", argv[i]);
            continue;
        }
        if (!value.p && i + 1 < argc)
            value = str_of(argv[++i]);
        if (!value.p)
            (void)buf_printf(faults, "option '--%.*s' needs a value\n", STR_ARG(key));
        else if (setting)
            apply(config, setting, value, "command line", faults);
    }
}

const char *config_file(int argc, char **argv)
{
    for (int i = 0; i < argc; i++) {
        if (strcmp(argv[i], "--config") == 0 && i + 1 < argc)
            return argv[i + 1];
        if (strncmp(argv[i], "--config=", 9) == 0)
            return argv[i] + 9;
    }
    return getenv("QUICKSAND_CONFIG");
}

static void make_absolute(char *path, struct buf *faults)
{
    char full[CONFIG_TEXT_SIZE], here[CONFIG_TEXT_SIZE];
    int len;

    if (path[0] == '/')
        return;
    if (!getcwd(here, sizeof(here))) {
        (void)buf_printf(faults, "'%s' is relative and the working directory is unknown\n", path);
        return;
    }
    len = snprintf(full, sizeof(full), "%s/%s", here, path);
    if (len < 0 || (size_t)len >= sizeof(full))
        (void)buf_printf(faults, "the path of '%s' is too long\n", path);
    else
        memcpy(path, full, (size_t)len + 1);
}

static bool is_level(const char *name)
{
    static const char *const levels[] = {"debug", "info", "warn", "error"};

    for (size_t i = 0; i < sizeof(levels) / sizeof(*levels); i++)
        if (strcmp(levels[i], name) == 0)
            return true;
    return false;
}

static size_t count_items(const char *list)
{
    size_t count = list[0] ? 1 : 0;

    for (; *list; list++)
        count += *list == ',';
    return count;
}

static void check_tls(const struct config *config, struct buf *faults)
{
    size_t certs = count_items(config->tls_certs), keys = count_items(config->tls_keys);
    bool wanted = certs || keys || config->redirect_http || config->hsts_s;
    union address address;

    if (config->listen_tls[0] && !address_parse(config->listen_tls, &address))
        (void)buf_printf(faults, "listen-tls must be ADDRESS:PORT, as listen, not '%s'\n",
                         config->listen_tls);
    if (certs != keys)
        (void)buf_printf(faults,
                         "there are %zu of tls-cert and %zu of tls-key: each certificate "
                         "needs its key, in the same order\n",
                         certs, keys);
    if (certs > CONFIG_TLS_MAX)
        (void)buf_printf(faults, "at most %d certificates can be given\n", CONFIG_TLS_MAX);
    if (wanted && !config->listen_tls[0])
        (void)buf_printf(faults, "tls-cert, tls-key, redirect-http and hsts need listen-tls\n");
}

static void check_values(const struct config *config, struct buf *faults)
{
    union address address;

    if (!is_level(config->log))
        (void)buf_printf(faults, "log must be debug, info, warn or error, not '%s'\n", config->log);
    if (strcmp(config->log_format, "text") != 0 && strcmp(config->log_format, "json") != 0)
        (void)buf_printf(faults, "log-format must be text or json, not '%s'\n", config->log_format);
    if (!address_parse(config->listen, &address))
        (void)buf_printf(faults,
                         "listen must be ADDRESS:PORT with an IPv4 address, an IPv6 address in "
                         "brackets, localhost, or nothing for all addresses, not '%s'\n",
                         config->listen);
    check_tls(config, faults);
}

int config_load(struct config *config, int argc, char **argv, struct buf *out_faults)
{
    const char *file = config_file(argc, argv);

    *config = (struct config){0};
    for (size_t i = 0; i < SETTING_COUNT; i++)
        apply(config, &settings[i], str_of(settings[i].fallback), "default", out_faults);
    if (file && file[0])
        load_file(config, file, out_faults);
    load_environment(config, out_faults);
    load_arguments(config, argc, argv, out_faults);
    if (!config->data[0])
        (void)buf_printf(out_faults, "data must be a directory, not ''\n");
    else
        make_absolute(config->data, out_faults);
    if (config->base_layer[0])
        make_absolute(config->base_layer, out_faults);
    if (config->runtime_config[0])
        make_absolute(config->runtime_config, out_faults);
    if (config->package_keyring[0])
        make_absolute(config->package_keyring, out_faults);
    check_values(config, out_faults);
    return out_faults->len ? -1 : 0;
}

static bool is_live(const char *key)
{
    static const char *const live[] = {"log",
                                       "log-format",
                                       "max-sandboxes",
                                       "max-hours",
                                       "volume-disk",
                                       "ready-timeout",
                                       "create-queue",
                                       "connections-per-address",
                                       "connections-per-sandbox"};

    for (size_t i = 0; i < sizeof(live) / sizeof(*live); i++)
        if (strcmp(live[i], key) == 0)
            return true;
    return false;
}

static const char *shown(const struct config *config, const struct setting *setting, char out[24])
{
    const char *member = (const char *)config + setting->offset;
    int64_t number;

    if (setting->kind != NUMBER)
        return member;
    memcpy(&number, member, sizeof(number));
    (void)snprintf(out, 24, "%lld", (long long)number);
    return out;
}

void config_compare(const struct config *old, const struct config *now,
                    void (*fn)(void *arg, const char *key, const char *was, const char *is,
                               bool live),
                    void *arg)
{
    for (size_t i = 0; i < SETTING_COUNT; i++) {
        char first[24], second[24];
        const char *was = shown(old, &settings[i], first), *is = shown(now, &settings[i], second);

        if (strcmp(was, is) != 0)
            fn(arg, settings[i].key, was, is, is_live(settings[i].key));
    }
}

void config_each(const struct config *config,
                 void (*fn)(void *arg, const char *key, const char *value, const char *fallback,
                            const char *help, bool live),
                 void *arg)
{
    for (size_t i = 0; i < SETTING_COUNT; i++) {
        const struct setting *at = &settings[i];
        char text[24];

        fn(arg, at->key, config ? shown(config, at, text) : at->fallback, at->fallback, at->help,
           is_live(at->key));
    }
}

/* Lines of at most so many characters, each behind a '#'. */
static void print_comment(const char *text)
{
    struct str rest = str_of(text);

    while (rest.len) {
        size_t len = rest.len;

        if (len > COMMENT_WIDTH) {
            len = COMMENT_WIDTH;
            while (len > 1 && rest.p[len] != ' ')
                len--;
        }
        (void)printf("# %.*s\n", (int)len, rest.p);
        rest = str_trim(str_skip(rest, len));
    }
}

void config_sample(void)
{
    (void)printf(
        "# Settings of 'quicksand serve', with their defaults. A line 'name = value' changes one. "
        "Options\n"
        "# of the command line and QUICKSAND_NAME in the environment go before this file. Those "
        "marked\n"
        "# with (reload) are taken over by a running server: systemctl reload quicksand.\n");
    for (size_t i = 0; i < SETTING_COUNT; i++) {
        (void)printf("\n");
        print_comment(settings[i].help);
        if (is_live(settings[i].key))
            (void)printf("# (reload)\n");
        (void)printf("#%s = %s\n", settings[i].key, settings[i].fallback);
    }
}
