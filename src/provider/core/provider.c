/* The door to all types: what a type lacks is refused here, before anything is sent. */
#include "provider/core/provider.h"

#include <stdatomic.h>
#include <string.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/extra_absent.h"
#include "provider/core/provider_ops.h"

enum { SECRET_MIN = 6 };

static const struct provider_type *const *types = (const struct provider_type *const[]){NULL};

static const struct {
    enum provider_feature feature;
    const char *name;
} features[] = {
    {PROVIDER_FILES, "files"}, {PROVIDER_PAUSE, "pause"},       {PROVIDER_SNAPSHOT, "snapshot"},
    {PROVIDER_PTY, "pty"},     {PROVIDER_JOB_LOGS, "job_logs"}, {PROVIDER_JOB_STOP, "job_stop"},
    {PROVIDER_HOOKS, "hooks"}, {PROVIDER_MOUNTS, "mounts"},     {PROVIDER_PORTS, "ports"},
    {PROVIDER_EXEC, "exec"},   {PROVIDER_CDP, "cdp"},           {PROVIDER_TTL, "ttl"},
    {PROVIDER_FIND, "find"},   {PROVIDER_PEERS, "peers"},       {PROVIDER_SCREEN, "screen"},
};

const char *provider_feature_name(enum provider_feature feature)
{
    for (size_t i = 0; i < sizeof(features) / sizeof(features[0]); i++)
        if (features[i].feature == feature)
            return features[i].name;
    return "unknown";
}

bool provider_feature_parse(struct str name, unsigned *out)
{
    for (size_t i = 0; i < sizeof(features) / sizeof(features[0]); i++)
        if (str_is(name, features[i].name)) {
            *out = (unsigned)features[i].feature;
            return true;
        }
    return false;
}

const char *provider_egress_name(enum provider_egress egress)
{
    switch (egress) {
    case EGRESS_ALLOW_ALL:
        return "allow-all";
    case EGRESS_DENY_ALL:
        return "deny-all";
    case EGRESS_RESTRICTED:
        return "restricted";
    }
    return "unknown";
}

bool provider_egress_parse(struct str name, unsigned *out)
{
    for (unsigned egress = EGRESS_ALLOW_ALL; egress <= EGRESS_RESTRICTED; egress <<= 1)
        if (str_is(name, provider_egress_name((enum provider_egress)egress))) {
            *out = egress;
            return true;
        }
    return false;
}

/* ---- provider ---- */

void provider_types_set(const struct provider_type *const *all)
{
    types = all;
}

const struct provider_type *const *provider_types_all(void)
{
    return types;
}

const struct provider_type *provider_type_find(const char *name)
{
    for (const struct provider_type *const *at = types; *at; at++) {
        if (strcmp((*at)->ops->type, name) == 0)
            return *at;
        for (const char *const *alias = (*at)->aliases; alias && *alias; alias++)
            if (strcmp(*alias, name) == 0)
                return *at;
    }
    return NULL;
}

int provider_type_unknown(const char *name, struct error *err)
{
    const char *extra = extra_absent("provider", str_of(name));
    auto_buf struct buf list = {0};

    if (extra)
        return extra_absent_error(extra, err);
    buf_init(&list, 256);
    for (const struct provider_type *const *at = types; *at; at++)
        (void)buf_printf(&list, "%s%s", list.len ? ", " : "", (*at)->ops->type);
    return error_set(err, ERROR_INVALID, "unknown type '%.40s'; there are: %s", name,
                     list.len ? list.p : "none");
}

int provider_open(const struct provider_ops *ops, const struct provider_config *config,
                  struct provider **out, struct error *err)
{
    struct provider *provider = xcalloc(1, sizeof(*provider));

    *out = NULL;
    provider->ops = ops;
    provider->fetch = config->fetch;
    provider->secret = xstrdup(config->api_key ? config->api_key : "");
    if (!config->name || !config->name[0] ||
        !str_copy(str_of(config->name), provider->name, sizeof(provider->name))) {
        free(provider->secret);
        free(provider);
        return error_set(err, ERROR_INVALID, "a provider's name has 1 to 63 characters");
    }
    if (ops->open && ops->open(provider, config, err) < 0) {
        (void)error_prefix(err, "provider '%s'", config->name);
        provider_free(provider);
        return -1;
    }
    *out = provider;
    return 0;
}

/* The engine of this process speaks E2B's API to clients and is of that type. */
static bool is_embedded(const struct provider_config *config)
{
    return config->type && strcmp(config->type, "e2b") == 0 && config->api_url &&
           strcmp(config->api_url, "embedded") == 0;
}

int provider_new(const struct provider_config *config, struct provider **out, struct error *err)
{
    const char *name = config->type ? config->type : "";
    const struct provider_type *type = provider_type_find(name);

    *out = NULL;
    if (!type) {
        (void)provider_type_unknown(name, err);
        return error_prefix(err, "provider '%.60s'", config->name);
    }
    if (!is_embedded(config))
        return provider_open(type->ops, config, out, err);
    if (!config->embedded)
        return error_set(err, ERROR_UNSUPPORTED,
                         "provider '%.60s': there is no engine in this process; give the 'api_url' "
                         "of a server",
                         config->name);
    return config->embedded->open(config, out, err);
}

void provider_free(struct provider *provider)
{
    if (!provider)
        return;
    if (provider->ops->close)
        provider->ops->close(provider);
    free(provider->secret);
    free(provider);
}

void provider_replace(struct provider *old, struct provider *by)
{
    atomic_store(&old->successor, by);
}

static struct provider *current(struct provider *provider)
{
    struct provider *next;

    while ((next = atomic_load(&provider->successor)) != NULL)
        provider = next;
    return provider;
}

const char *provider_name(const struct provider *provider)
{
    return provider->name;
}

const char *provider_type(const struct provider *provider)
{
    return provider->ops->type;
}

void provider_about(const struct provider *provider, struct provider_about *out)
{
    static const char *const levels[] = {"none", "process", "strong"};

    *out = (struct provider_about){
        .software = provider->ops->type,
        .isolation = levels[provider->caps.isolation],
        .isolated_by = "unknown",
        .runs_on = "unknown",
    };
    if (provider->ops->about)
        provider->ops->about(provider, out);
}

int64_t provider_ttl_max(const struct provider *provider)
{
    return provider->ops->ttl_max ? provider->ops->ttl_max(provider) : 0;
}

const struct provider_caps *provider_caps(const struct provider *provider)
{
    return &provider->caps;
}

static int lacks(const char *name, const char *what, struct error *err)
{
    return error_set(err, ERROR_UNSUPPORTED, "provider '%s' does not support %s", name, what);
}

/* What a provider refuses with may repeat the key it was asked with, whole or cut off at the end. r is
 * the outcome of a call. */
static int quiet(const struct provider *provider, int r, struct error *err)
{
    size_t len = provider->secret ? strlen(provider->secret) : 0, rest;
    char *at = err->message;

    if (r >= 0 || len < SECRET_MIN)
        return r;
    while ((at = strstr(at, provider->secret))) {
        memmove(at + 3, at + len, strlen(at + len) + 1);
        memcpy(at, "***", 3);
    }
    rest = strlen(err->message);
    for (size_t n = len - 1; n >= SECRET_MIN; n--)
        if (n <= rest && strncmp(err->message + rest - n, provider->secret, n) == 0) {
            memcpy(err->message + rest - n, "***", 4);
            break;
        }
    return r;
}

/* ---- sandboxes ---- */

int provider_check(struct provider *provider, struct error *err)
{
    return provider->ops->check ? quiet(provider, provider->ops->check(provider, err), err)
                                : lacks(provider->name, "check", err);
}

static int check_spec(const struct provider *provider, const struct provider_spec *spec,
                      struct error *err)
{
    unsigned egress = spec->egress ? (unsigned)spec->egress : EGRESS_ALLOW_ALL;

    if (json_array_size(spec->mounts) && !(provider->caps.features & PROVIDER_MOUNTS))
        return lacks(provider->name, "mounts", err);
    if (spec->snapshot.len && !(provider->caps.features & PROVIDER_SNAPSHOT))
        return lacks(provider->name, "snapshot", err);
    /* What only holds a browser has no network of its own to speak of. */
    if (provider->caps.egress && !(provider->caps.egress & egress))
        return error_set(err, ERROR_UNSUPPORTED,
                         "provider '%s' does not support the network mode '%s': it cannot enforce "
                         "it",
                         provider->name, provider_egress_name((enum provider_egress)egress));
    return 0;
}

/* A size that nobody enforces is none. */
static int check_size(const struct provider *provider, const struct provider_spec *spec,
                      struct error *err)
{
    if (provider->ops->no_limits && (spec->cpu || spec->mem_mb || spec->disk_mb))
        return lacks(provider->name, "limits of cpu, memory and disk", err);
    if (provider->ops->no_disk_limit && spec->disk_mb)
        return lacks(provider->name, "a limit of disk", err);
    return 0;
}

int provider_create(struct provider *provider, const struct provider_spec *spec,
                    struct arena *arena, struct provider_sandbox *out, struct error *err)
{
    *out = (struct provider_sandbox){0};
    if (!provider->ops->create)
        return lacks(provider->name, "create", err);
    if (check_spec(provider, spec, err) < 0 || check_size(provider, spec, err) < 0)
        return -1;
    return quiet(provider, provider->ops->create(provider, spec, arena, out, err), err);
}

static bool has_labels(const struct provider_sandbox *sandbox, const struct provider_query *query)
{
    const struct pair *labels = query->labels;

    for (size_t i = 0; i < query->label_count; i++) {
        bool found = false;

        for (size_t n = 0; n < sandbox->label_count && !found; n++)
            found = str_eq(sandbox->labels[n].name, labels[i].name) &&
                    str_eq(sandbox->labels[n].value, labels[i].value);
        if (!found)
            return false;
    }
    return true;
}

static int newest_first(const void *a, const void *b)
{
    const struct provider_sandbox *x = a, *y = b;

    return (x->started_at_us < y->started_at_us) - (x->started_at_us > y->started_at_us);
}

int provider_find(struct provider *provider, const struct provider_query *query,
                  struct arena *arena, struct provider_sandbox **out, size_t *out_count,
                  struct error *err)
{
    size_t found = 0;

    *out = NULL;
    *out_count = 0;
    if (!provider->ops->find)
        return lacks(provider->name, "find", err);
    if (provider->ops->find(provider, query, arena, out, out_count, err) < 0)
        return quiet(provider, -1, err);
    /* A service that ignores the filter must not hand us strangers. */
    for (size_t i = 0; i < *out_count; i++)
        if (has_labels(&(*out)[i], query))
            (*out)[found++] = (*out)[i];
    *out_count = found;
    if (found)
        qsort(*out, found, sizeof(**out), newest_first);
    return 0;
}

int provider_get(struct provider *provider, const struct provider_ref *ref, struct arena *arena,
                 struct provider_sandbox *out, struct error *err)
{
    provider = current(provider);
    *out = (struct provider_sandbox){0};
    return provider->ops->get
               ? quiet(provider, provider->ops->get(provider, ref, arena, out, err), err)
               : lacks(provider->name, "get", err);
}

int provider_connect(struct provider *provider, const struct provider_ref *ref, int64_t ttl_s,
                     struct arena *arena, struct provider_sandbox *out, struct error *err)
{
    provider = current(provider);
    *out = (struct provider_sandbox){0};
    return provider->ops->connect
               ? quiet(provider, provider->ops->connect(provider, ref, ttl_s, arena, out, err), err)
               : lacks(provider->name, "connect", err);
}

int provider_pause(struct provider *provider, const struct provider_ref *ref, struct error *err)
{
    provider = current(provider);
    return provider->ops->pause ? quiet(provider, provider->ops->pause(provider, ref, err), err)
                                : lacks(provider->name, "pause", err);
}

int provider_kill(struct provider *provider, const struct provider_ref *ref, struct error *err)
{
    provider = current(provider);
    return provider->ops->kill ? quiet(provider, provider->ops->kill(provider, ref, err), err)
                               : lacks(provider->name, "kill", err);
}

int provider_extend(struct provider *provider, const struct provider_ref *ref, int64_t ttl_s,
                    struct error *err)
{
    provider = current(provider);
    return provider->ops->extend
               ? quiet(provider, provider->ops->extend(provider, ref, ttl_s, err), err)
               : lacks(provider->name, "ttl", err);
}

int provider_snapshot(struct provider *provider, const struct provider_ref *ref, const char *name,
                      struct arena *arena, struct str *out, struct error *err)
{
    provider = current(provider);
    *out = STR_NONE;
    return provider->ops->snapshot
               ? quiet(provider, provider->ops->snapshot(provider, ref, name, arena, out, err), err)
               : lacks(provider->name, "snapshot", err);
}

int provider_snapshot_delete(struct provider *provider, struct str team_id, struct str snapshot,
                             struct error *err)
{
    return provider->ops->snapshot_delete
               ? quiet(provider, provider->ops->snapshot_delete(provider, team_id, snapshot, err),
                       err)
               : lacks(provider->name, "snapshot", err);
}

int provider_address(struct provider *provider, const struct provider_ref *ref, uint16_t port,
                     struct arena *arena, struct provider_address *out, struct error *err)
{
    *out = (struct provider_address){0};
    return provider->ops->address
               ? quiet(provider, provider->ops->address(provider, ref, port, arena, out, err), err)
               : lacks(provider->name, "ports", err);
}

int provider_usage(struct provider *provider, const struct provider_ref *ref,
                   struct provider_usage *out, struct error *err)
{
    *out = (struct provider_usage){clock_wall_us(), -1, -1, -1, -1, -1, -1};
    return provider->ops->usage
               ? quiet(provider, provider->ops->usage(provider, ref, out, err), err)
               : lacks(provider->name, "measures of what a sandbox uses", err);
}

int provider_traffic(struct provider *provider, const struct provider_ref *ref,
                     struct provider_traffic *out, struct error *err)
{
    *out = (struct provider_traffic){0};
    return provider->ops->traffic
               ? quiet(provider, provider->ops->traffic(provider, ref, out, err), err)
               : lacks(provider->name, "counts of the network", err);
}

int provider_ports(struct provider *provider, const struct provider_ref *ref,
                   struct provider_ports *out, struct error *err)
{
    *out = (struct provider_ports){0};
    return provider->ops->ports
               ? quiet(provider, provider->ops->ports(provider, ref, out, err), err)
               : lacks(provider->name, "a list of ports", err);
}

/* ---- processes ---- */

int provider_start(struct provider *provider, const struct provider_ref *ref,
                   const struct provider_command *command, struct provider_process **out,
                   struct error *err)
{
    provider = current(provider);
    *out = NULL;
    if (!provider->ops->start)
        return lacks(provider->name, "exec", err);
    if (command->pty && !(provider->caps.features & PROVIDER_PTY))
        return lacks(provider->name, "pty", err);
    if (!command->argv || !command->argv[0] || !command->argv[0][0])
        return error_set(err, ERROR_INVALID, "the command is empty");
    if (quiet(provider, provider->ops->start(provider, ref, command, out, err), err) < 0)
        return -1;
    (*out)->provider_name = provider->name;
    return 0;
}

int provider_attach(struct provider *provider, const struct provider_ref *ref, const char *tag,
                    int64_t pid, struct provider_process **out, struct error *err)
{
    provider = current(provider);
    *out = NULL;
    if (!provider->ops->attach)
        return lacks(provider->name, "attach", err);
    if (quiet(provider, provider->ops->attach(provider, ref, tag, pid, out, err), err) < 0)
        return -1;
    (*out)->provider_name = provider->name;
    return 0;
}

bool provider_can_attach(const struct provider *provider)
{
    return provider->ops->attach != NULL;
}

int provider_process_next(struct provider_process *process, uint32_t timeout_ms,
                          struct provider_event *out, struct error *err)
{
    *out = (struct provider_event){0};
    return process->ops->next(process, timeout_ms, out, err);
}

struct provider_wait provider_process_wait(struct provider_process *process)
{
    return process->ops->wait(process);
}

int provider_process_input(struct provider_process *process, struct str data, struct error *err)
{
    return process->ops->input ? process->ops->input(process, data, err)
                               : lacks(process->provider_name, "input", err);
}

int provider_process_close_stdin(struct provider_process *process, struct error *err)
{
    return process->ops->close_stdin ? process->ops->close_stdin(process, err)
                                     : lacks(process->provider_name, "close_stdin", err);
}

int provider_process_resize(struct provider_process *process, uint16_t cols, uint16_t rows,
                            struct error *err)
{
    return process->ops->resize ? process->ops->resize(process, cols, rows, err)
                                : lacks(process->provider_name, "resize", err);
}

int provider_process_signal(struct provider_process *process, int signal, struct error *err)
{
    return process->ops->signal ? process->ops->signal(process, signal, err)
                                : lacks(process->provider_name, "signal", err);
}

void provider_process_cancel(struct provider_process *process)
{
    if (process->ops->cancel)
        process->ops->cancel(process);
}

void provider_process_free(struct provider_process *process)
{
    if (process)
        process->ops->free(process);
}

/* ---- files ---- */

int provider_read(struct provider *provider, const struct provider_ref *ref, const char *path,
                  provider_sink_fn *sink, void *arg, struct error *err)
{
    provider = current(provider);
    return provider->ops->read
               ? quiet(provider, provider->ops->read(provider, ref, path, sink, arg, err), err)
               : lacks(provider->name, "files", err);
}

int provider_write(struct provider *provider, const struct provider_ref *ref, const char *path,
                   provider_source_fn *source, void *arg, int64_t length, struct error *err)
{
    provider = current(provider);
    return provider->ops->write
               ? quiet(provider,
                       provider->ops->write(provider, ref, path, source, arg, length, err), err)
               : lacks(provider->name, "files", err);
}

int provider_list(struct provider *provider, const struct provider_ref *ref, const char *path,
                  struct arena *arena, struct provider_file **out, size_t *out_count,
                  struct error *err)
{
    *out = NULL;
    *out_count = 0;
    return provider->ops->list
               ? quiet(provider,
                       provider->ops->list(provider, ref, path, arena, out, out_count, err), err)
               : lacks(provider->name, "files", err);
}

int provider_remove(struct provider *provider, const struct provider_ref *ref, const char *path,
                    struct error *err)
{
    return provider->ops->remove
               ? quiet(provider, provider->ops->remove(provider, ref, path, err), err)
               : lacks(provider->name, "files", err);
}
