/* Settings besides those all providers have: template, secure, timeout (seconds).
 *
 * It is of the type e2b: its snapshots, limits and words are those of the E2B API of this server. Requests and errors
 * of the domain are passed as structs. Commands and files go to the machine's envd, over its socket. */
#include "provider/embedded/embedded.h"

#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/id.h"
#include "base/log.h"
#include "domain/network/network_policy.h"
#include "domain/sandbox/sandbox.h"
#include "domain/sandbox/sandbox_check.h"
#include "domain/sandbox/sandbox_creates.h"
#include "domain/sandbox/sandbox_metrics.h"
#include "protocol/fetch/rest.h"
#include "protocol/json/json_shape.h"
#include "provider/envd/envd_machine.h"

enum {
    TTL_S = 300,
    EXTEND_MAX_S = 3600, /* beyond it a sandbox gets an end of its own, with an event */
    FIND_MAX = 100,
};

struct embedded {
    const struct provider_embedded *engine;
    char *domain, *image, *who;
    bool secure;
    int64_t ttl_s;
};

/* ---- settings ---- */

static void embedded_close(struct provider *provider)
{
    struct embedded *embedded = provider->impl;

    free(embedded->domain);
    free(embedded->image);
    free(embedded->who);
    free(embedded);
}

static int embedded_open(struct provider *provider, const struct provider_config *config,
                         struct error *err)
{
    struct embedded *embedded = provider->impl = xcalloc(1, sizeof(*embedded));
    const json_t *secure = json_object_get(config->options, "secure");
    const json_t *timeout = json_object_get(config->options, "timeout");
    struct str image = json_get_str(config->options, "template");

    embedded->engine = config->embedded;
    embedded->who = xasprintf("provider '%s'", config->name);
    embedded->domain = config->domain && config->domain[0] ? xstrdup(config->domain) : NULL;
    embedded->image = str_dup(image.len ? image : STR("base"));
    embedded->secure = !json_is_false(secure);
    embedded->ttl_s = json_is_integer(timeout) ? json_integer_value(timeout) : TTL_S;
    if (embedded->ttl_s < 1 || (secure && !json_is_boolean(secure)))
        return error_set(err, ERROR_INVALID, "'timeout' must be seconds, 'secure' true or false");
    provider->caps = (struct provider_caps){
        .features = PROVIDER_FILES | PROVIDER_PAUSE | PROVIDER_SNAPSHOT | PROVIDER_PTY |
                    PROVIDER_PORTS | PROVIDER_EXEC | PROVIDER_TTL | PROVIDER_FIND |
                    PROVIDER_JOB_LOGS | PROVIDER_JOB_STOP | PROVIDER_HOOKS | PROVIDER_PEERS |
                    PROVIDER_SCREEN,
        .egress = EGRESS_ALLOW_ALL | EGRESS_DENY_ALL | EGRESS_RESTRICTED,
        .isolation = ISOLATION_PROCESS, /* namespaces and filters, but the host's kernel */
        .snapshot_kind = "e2b-ref",
    };
    return 0;
}

static void embedded_about(const struct provider *provider, struct provider_about *out)
{
    (void)provider;
    *out = (struct provider_about){"quicksand", "process", "namespaces", "this host"};
}

/* ---- what is asked of the domain ---- */

static struct sandboxes *all_of(const struct provider *provider)
{
    return ((const struct embedded *)provider->impl)->engine->sandboxes;
}

static int64_t embedded_ttl_max(const struct provider *provider)
{
    return sandbox_timeout_max(all_of(provider));
}

/* Keeps the domain's error, with the provider's name in front. An internal error goes to the log and is reported in general
 * words, as one that may pass. Always -1. */
static int refused(const struct provider *provider, struct error *err)
{
    const struct embedded *embedded = provider->impl;
    char id[17];

    if (err->code == ERROR_INTERNAL || err->code == ERROR_NONE) {
        id_hex(id, 8);
        log_error("embedded", "failure=%s: %s", id, err->message);
        return error_set(err, ERROR_UNAVAILABLE,
                         "%s: internal error; the server's log has the details under failure=%s",
                         embedded->who, id);
    }
    if (err->code == ERROR_EXISTS)
        err->code = ERROR_CONFLICT; /* as the contract of providers names it */
    return error_prefix(err, "%s", embedded->who);
}

static int check_id(const struct provider *provider, struct str id, struct error *err)
{
    const struct embedded *embedded = provider->impl;

    if (rest_id_valid(id))
        return 0;
    return error_set(err, ERROR_INVALID, "%s: '%.*s' is not the id of a sandbox", embedded->who,
                     (int)(id.len < 60 ? id.len : 60), id.p ? id.p : "");
}

static void tell(const struct sandbox_view *view, struct provider_sandbox *out)
{
    *out = (struct provider_sandbox){
        .id = view->id,
        .state = view->state == SANDBOX_PAUSED ? PROVIDER_PAUSED
                 : view->pausing               ? PROVIDER_PAUSING
                                               : PROVIDER_RUNNING,
        .image = view->alias.len ? view->alias : view->template_id,
        .token = view->access_token,
        .started_at_us = view->started_at_us,
        .warning = view->warning,
    };
}

static int embedded_check(struct provider *provider, struct error *err)
{
    auto_arena struct arena arena = {0};
    struct sandbox_filter any = {.running = true, .limit = 1};
    struct sandbox_page page;

    return sandbox_list(all_of(provider), &any, &arena, &page, err) < 0 ? refused(provider, err)
                                                                        : 0;
}

static struct sandbox_new request_of(const struct embedded *embedded,
                                     const struct provider_spec *spec)
{
    return (struct sandbox_new){
        .team_id = spec->team_id,
        .template_name = spec->snapshot.len ? spec->snapshot
                         : spec->image.len  ? spec->image
                                            : str_of(embedded->image),
        .timeout_s = spec->ttl_s > 0 ? spec->ttl_s : embedded->ttl_s,
        .secure = embedded->secure,
        .internet = spec->egress != EGRESS_DENY_ALL,
        .internet_given = true,
        .auto_pause = spec->pause_at_ttl,
        .cpu_count = spec->cpu,
        .mem_mb = spec->mem_mb,
        .disk_mb = spec->disk_mb,
        .metadata = spec->labels,
        .metadata_count = spec->label_count,
        .env = spec->env,
        .env_count = spec->env_count,
    };
}

static size_t add_strings(const json_t *array, struct str *out)
{
    const json_t *item;
    size_t i;

    json_array_foreach (array, i, item)
        out[i] = str_n(json_string_value(item), json_string_length(item));
    return json_array_size(array);
}

/* Of what is restricted nothing is reached but what the lists name. */
static int set_network(const struct provider_spec *spec, struct arena *arena,
                       struct sandbox_new *request, struct error *err)
{
    size_t max = json_array_size(spec->allow_domains) + json_array_size(spec->allow_cidrs);
    struct network_policy *policy = arena_alloc(arena, sizeof(*policy));
    struct str *allow = arena_alloc(arena, (max + 1) * sizeof(*allow));
    struct network_lists lists = {
        .allow = allow,
        .peers = {json_get_str(spec->peers, "network"), json_get_str(spec->peers, "name")}};

    if (spec->egress == EGRESS_RESTRICTED) {
        lists.allow_count = add_strings(spec->allow_domains, allow);
        lists.allow_count += add_strings(spec->allow_cidrs, allow + lists.allow_count);
    }
    request->network = policy;
    return network_policy_make(&lists, spec->egress == EGRESS_ALLOW_ALL, arena, policy, err);
}

static int run_joint(void *arg, const struct sandbox_view *view, struct conn *conn,
                     struct error *err)
{
    const struct provider_joint *joint = arg;
    struct provider_sandbox machine;

    tell(view, &machine);
    return joint->run(joint->arg, &machine, conn, err);
}

/* Counted with the creates of all others. */
static int embedded_create(struct provider *provider, const struct provider_spec *spec,
                           struct arena *arena, struct provider_sandbox *out, struct error *err)
{
    const struct embedded *embedded = provider->impl;
    struct sandbox_creates *creates = embedded->engine->creates;
    struct sandbox_new request = request_of(embedded, spec);
    struct sandbox_joint joint = {.run = run_joint, .arg = spec->joint};
    struct sandbox_view view = {0};
    int r;

    if (spec->joint)
        request.joint = &joint;
    if ((spec->egress == EGRESS_RESTRICTED || spec->peers) &&
        set_network(spec, arena, &request, err) < 0)
        return refused(provider, err);
    r = sandbox_creates_begin(creates, spec->team_id, err);
    if (r == 0) {
        r = sandbox_create(all_of(provider), &request, arena, &view, err);
        sandbox_creates_end(creates, spec->team_id);
    }
    if (spec->joint)
        spec->joint->done = joint.committed;
    if (r < 0)
        return refused(provider, err);
    tell(&view, out);
    out->label_count = spec->label_count;
    out->labels = arena_pairs(arena, spec->labels, spec->label_count);
    return 0;
}

static int embedded_find(struct provider *provider, const struct provider_query *query,
                         struct arena *arena, struct provider_sandbox **out, size_t *out_count,
                         struct error *err)
{
    struct sandbox_filter filter = {.team_id = query->team_id,
                                    .metadata = query->labels,
                                    .metadata_count = query->label_count,
                                    .running = true,
                                    .paused = true,
                                    .limit = FIND_MAX};
    struct sandbox_page page;

    if (sandbox_list(all_of(provider), &filter, arena, &page, err) < 0)
        return refused(provider, err);
    *out = arena_alloc(arena, (page.count + 1) * sizeof(**out));
    for (size_t i = 0; i < page.count; i++) {
        tell(&page.items[i], &(*out)[i]);
        (*out)[i].label_count = sandbox_view_metadata(&page.items[i], arena, &(*out)[i].labels);
    }
    *out_count = page.count;
    return 0;
}

static int embedded_get(struct provider *provider, const struct provider_ref *ref,
                        struct arena *arena, struct provider_sandbox *out, struct error *err)
{
    struct sandbox_view view = {0};

    if (check_id(provider, ref->id, err) < 0)
        return -1;
    if (sandbox_get(all_of(provider), ref->team_id, ref->id, arena, &view, err) < 0)
        return refused(provider, err);
    tell(&view, out);
    out->label_count = sandbox_view_metadata(&view, arena, &out->labels);
    return 0;
}

static int embedded_connect(struct provider *provider, const struct provider_ref *ref,
                            int64_t ttl_s, struct arena *arena, struct provider_sandbox *out,
                            struct error *err)
{
    const struct embedded *embedded = provider->impl;
    struct sandbox_resume request = {.timeout_s = ttl_s > 0 ? ttl_s : embedded->ttl_s};
    struct sandbox_view view = {0};
    bool resumed;

    if (check_id(provider, ref->id, err) < 0)
        return -1;
    if (sandbox_connect(all_of(provider), ref->team_id, ref->id, &request, arena, &view, &resumed,
                        err) < 0)
        return refused(provider, err);
    tell(&view, out);
    out->label_count = sandbox_view_metadata(&view, arena, &out->labels);
    out->state = PROVIDER_RUNNING;
    return 0;
}

static int embedded_pause(struct provider *provider, const struct provider_ref *ref,
                          struct error *err)
{
    struct sandbox_pause request = {.asked_at_us = clock_mono_us()};
    auto_arena struct arena arena = {0};
    struct sandbox_view view = {0};
    struct error ignored = {0};

    if (check_id(provider, ref->id, err) < 0)
        return -1;
    if (sandbox_pause(all_of(provider), ref->team_id, ref->id, &request, err) == 0)
        return 0;
    /* A conflict may mean that it is paused already, or that it cannot be now. */
    if (err->code != ERROR_CONFLICT ||
        sandbox_get(all_of(provider), ref->team_id, ref->id, &arena, &view, &ignored) < 0 ||
        view.state != SANDBOX_PAUSED)
        return refused(provider, err);
    *err = (struct error){0};
    return 0;
}

/* Gone already is success. */
static int unless_absent(const struct provider *provider, int result, struct error *err)
{
    if (result < 0 && err->code != ERROR_NOT_FOUND)
        return refused(provider, err);
    if (result < 0)
        *err = (struct error){0};
    return 0;
}

static int embedded_kill(struct provider *provider, const struct provider_ref *ref,
                         struct error *err)
{
    if (check_id(provider, ref->id, err) < 0)
        return -1;
    return unless_absent(provider, sandbox_kill(all_of(provider), ref->team_id, ref->id, err), err);
}

static int embedded_extend(struct provider *provider, const struct provider_ref *ref, int64_t ttl_s,
                           struct error *err)
{
    auto_arena struct arena arena = {0};
    struct sandbox_view view;
    int r;

    if (ttl_s < 1)
        return error_set(err, ERROR_INVALID, "a sandbox lives for at least a second");
    if (check_id(provider, ref->id, err) < 0)
        return -1;
    r = ttl_s <= EXTEND_MAX_S
            ? sandbox_extend(all_of(provider), ref->team_id, ref->id, ttl_s, &arena, &view, err)
            : sandbox_set_timeout(all_of(provider), ref->team_id, ref->id, ttl_s, err);
    return r < 0 ? refused(provider, err) : 0;
}

static int embedded_snapshot(struct provider *provider, const struct provider_ref *ref,
                             const char *name, struct arena *arena, struct str *out,
                             struct error *err)
{
    struct snapshot_view view = {0};

    if (check_id(provider, ref->id, err) < 0)
        return -1;
    if (sandbox_snapshot(all_of(provider), ref->team_id, ref->id,
                         name && name[0] ? str_of(name) : STR_NONE, arena, &view, err) < 0)
        return refused(provider, err);
    *out = view.id;
    return 0;
}

static int embedded_snapshot_delete(struct provider *provider, struct str team_id,
                                    struct str snapshot, struct error *err)
{
    if (snapshot.len == 0 || snapshot.len > SANDBOX_NAME_MAX)
        return error_set(err, ERROR_INVALID, "this is not the id of a snapshot");
    return unless_absent(provider, snapshot_delete(all_of(provider), team_id, snapshot, err), err);
}

/* ---- inside ---- */

static int embedded_envd(struct provider *provider, const struct provider_ref *ref,
                         struct envd_place *place, struct error *err)
{
    const struct embedded *embedded = provider->impl;
    const struct provider_embedded *engine = embedded->engine;

    if (embedded->secure && envd_place_token(provider, ref, place, err) < 0)
        return -1;
    if (engine->envd_socket(engine->arg, ref->id, place->socket, sizeof(place->socket), err) < 0)
        return error_prefix(err, "%s", embedded->who);
    place->address.unix_path = place->socket;
    (void)str_copy(STR("http://localhost"), place->base, sizeof(place->base));
    return 0;
}

static int embedded_address(struct provider *provider, const struct provider_ref *ref,
                            uint16_t port, struct arena *arena, struct provider_address *out,
                            struct error *err)
{
    const struct embedded *embedded = provider->impl;
    struct error ignored = {0};
    struct sandbox_view view = {0};

    if (check_id(provider, ref->id, err) < 0)
        return -1;
    envd_machine_address(embedded->engine->proxy_url, embedded->domain, ref->id, port, arena, out);
    if (embedded->engine->https_domain)
        out->url = str_of(arena_printf(arena, "https://%u-%.*s.%s", port, STR_ARG(ref->id),
                                       embedded->engine->https_domain));
    /* Whoever may know of the sandbox may know its token, too. */
    if (sandbox_get(all_of(provider), ref->team_id, ref->id, arena, &view, &ignored) == 0 &&
        view.traffic_token.len)
        out->headers[out->header_count++] =
            (struct pair){STR("E2b-Traffic-Access-Token"), view.traffic_token};
    return 0;
}

static int embedded_usage(struct provider *provider, const struct provider_ref *ref,
                          struct provider_usage *out, struct error *err)
{
    auto_arena struct arena arena = {0};
    struct sandbox_metrics metrics;
    const struct sandbox_sample *last;

    if (check_id(provider, ref->id, err) < 0 ||
        sandbox_metrics(all_of(provider), ref->team_id, ref->id, 0, 0, &arena, &metrics, err) < 0)
        return -1;
    out->cpu_count = metrics.cpu_count;
    out->mem_total = (int64_t)metrics.mem_total;
    out->disk_total = (int64_t)metrics.disk_total;
    if (metrics.count == 0)
        return 0;
    last = &metrics.samples[metrics.count - 1];
    out->at_us = last->at_us;
    out->cpu_percent = last->cpu_pct;
    out->mem_used = (int64_t)last->mem_used;
    out->disk_used = (int64_t)last->disk_used;
    return 0;
}

static int embedded_traffic(struct provider *provider, const struct provider_ref *ref,
                            struct provider_traffic *out, struct error *err)
{
    auto_arena struct arena arena = {0};
    struct sandbox_metrics metrics;
    const struct box_traffic *last;

    if (check_id(provider, ref->id, err) < 0 ||
        sandbox_metrics(all_of(provider), ref->team_id, ref->id, 0, 0, &arena, &metrics, err) < 0)
        return -1;
    if (metrics.count == 0)
        return 0;
    last = &metrics.samples[metrics.count - 1].network;
    *out = (struct provider_traffic){.sent_bytes = (int64_t)last->sent_bytes,
                                     .received_bytes = (int64_t)last->received_bytes,
                                     .sent_packets = (int64_t)last->sent_packets,
                                     .received_packets = (int64_t)last->received_packets,
                                     .connections = (int64_t)last->connections,
                                     .refused = (int64_t)last->refused};
    return 0;
}

static int embedded_ports(struct provider *provider, const struct provider_ref *ref,
                          struct provider_ports *out, struct error *err)
{
    struct box_ports ports;

    if (check_id(provider, ref->id, err) < 0)
        return -1;
    if (sandbox_ports(all_of(provider), ref->team_id, ref->id, &ports, err) < 0)
        return refused(provider, err);
    for (uint32_t i = 0; i < ports.count && out->count < PROVIDER_PORTS_MAX; i++)
        if (ports.at[i].number != ENVD_PORT)
            out->at[out->count++] =
                (struct provider_port){ports.at[i].number, ports.at[i].loopback};
    return 0;
}

static const struct provider_ops ops = {
    .type = "e2b",
    .about = embedded_about,
    .ttl_max = embedded_ttl_max,
    .open = embedded_open,
    .close = embedded_close,
    .check = embedded_check,
    .create = embedded_create,
    .find = embedded_find,
    .get = embedded_get,
    .connect = embedded_connect,
    .pause = embedded_pause,
    .kill = embedded_kill,
    .extend = embedded_extend,
    .snapshot = embedded_snapshot,
    .snapshot_delete = embedded_snapshot_delete,
    .address = embedded_address,
    .usage = embedded_usage,
    .traffic = embedded_traffic,
    .ports = embedded_ports,
    .envd = embedded_envd,
    .start = envd_machine_start,
    .attach = envd_machine_attach,
    .read = envd_machine_read,
    .write = envd_machine_write,
    .list = envd_machine_list,
    .remove = envd_machine_remove,
};

int provider_embedded_open(const struct provider_config *config, struct provider **out,
                           struct error *err)
{
    return provider_open(&ops, config, out, err);
}
