/* What a create is going to do, checked and written down before anything is done. A plan pins its
 * layers: they stay until the plan is over, even when their template is deleted meanwhile. */
#include <stdlib.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/encode.h"
#include "base/extra_absent.h"
#include "domain/account/team.h"
#include "domain/network/network_policy.h"
#include "domain/sandbox/sandbox_check.h"
#include "domain/sandbox/sandbox_envd.h"
#include "domain/sandbox/sandbox_internal.h"
#include "domain/sandbox/sandbox_layers.h"
#include "domain/sandbox/sandbox_network.h"
#include "domain/sandbox/sandbox_plan.h"
#include "domain/sandbox/sandbox_room.h"
#include "domain/sandbox/sandbox_table.h"
#include "domain/sandbox/shipped_names.h"
#include "protocol/json/json_shape.h"

enum { MEM_MB_MIN = 64, DISK_MB_MIN = 64, DISK_MB_MAX = 64 << 20 };

void plan_done(struct plan *plan)
{
    if (plan->pinned)
        layers_unpin(plan->pinned, &plan->spec);
    free(plan->metadata);
    free(plan->env);
    arena_done(&plan->arena);
    buf_done(&plan->init_body);
}

size_t pairs_read(struct str text, struct arena *arena, struct pair **out)
{
    auto_json json_t *object = NULL;
    struct error ignored;

    if (json_parse(text, &object, &ignored) < 0)
        object = NULL;
    return json_pairs(object, arena, out);
}

static bool layer_valid(struct str name)
{
    if (name.len < 1 || name.len >= LAYER_NAME_SIZE)
        return false;
    for (size_t i = 0; i < name.len; i++)
        if (!((name.p[i] >= 'a' && name.p[i] <= 'z') || (name.p[i] >= '0' && name.p[i] <= '9')))
            return false;
    return true;
}

int spec_set_layers(struct str layers, struct box_spec *out, struct error *err)
{
    out->layer_count = 0;
    while (layers.p) {
        struct str layer = str_split(&layers, ',');

        if (!layer_valid(layer) || out->layer_count == BOX_LAYERS_MAX)
            return error_set(err, ERROR_INTERNAL, "bad list of layers");
        (void)str_copy(layer, out->layers[out->layer_count++], LAYER_NAME_SIZE);
    }
    return 0;
}

int spec_from_template(const struct store_template *template, struct box_spec *out,
                       struct error *err)
{
    *out = (struct box_spec){
        .engine = ENGINE_NATIVE,
        .limits = {.mem_bytes = (uint64_t) template->mem_mb << 20,
                   .disk_bytes = (uint64_t) template->disk_mb << 20,
                   .cpu_count = (uint32_t) template->cpu_count,
                   .pids_max = SANDBOX_PIDS_MAX},
        .network = {.mode = NETWORK_OPEN},
    };
    if (spec_set_layers(template->layers, out, err) < 0)
        return error_prefix(err, "template '%.*s'", STR_ARG(template->id));
    return 0;
}

static void make_token(const char *prefix, char out[TOKEN_SIZE])
{
    unsigned char secret[32];

    random_bytes(secret, sizeof(secret));
    (void)str_copy(str_of(prefix), out, TOKEN_SIZE);
    hex_encode(out + 3, secret, sizeof(secret));
}

/* Recipes that come with quicksand are known by their names before they are built. */
static int tell_missing(struct str name, struct plan *plan, struct error *err)
{
    static const char *const shipped[] = {SHIPPED_NAMES};
    const char *extra = err->code == ERROR_NOT_FOUND ? extra_absent("template", name) : NULL;

    if (extra) {
        (void)extra_absent_error(extra, err);
        return error_prefix(err, "template '%.*s'", STR_ARG(name));
    }
    for (size_t i = 0; i < sizeof(shipped) / sizeof(shipped[0]); i++)
        if (err->code == ERROR_NOT_FOUND && str_is(name, shipped[i]))
            plan->not_built = shipped[i];
    return !plan->not_built
               ? -1
               : error_set(err, ERROR_NOT_FOUND,
                           "template '%s' is not built yet; its recipe comes with quicksand: "
                           "quicksand template build %s",
                           plan->not_built, plan->not_built);
}

static int find_template(struct sandboxes *all, struct str team_id, struct str name,
                         struct arena *arena, struct plan *plan, struct error *err)
{
    if (store_template_find(all->store, team_id, name, arena, &plan->template, err) < 0)
        return tell_missing(name, plan, err);
    return spec_from_template(&plan->template, &plan->spec, err);
}

/* A snapshot or a built template may be deleted or replaced at any time: what holds is what is found while its
 * layers are pinned. */
static int pin_template(struct sandboxes *all, struct str team_id, struct str name,
                        struct arena *arena, struct plan *plan, struct error *err)
{
    enum { TRIES = 5 };

    for (int i = 0; i < TRIES; i++) {
        struct str layers;

        if (find_template(all, team_id, name, arena, plan, err) < 0)
            return -1;
        layers = plan->template.layers;
        layers_pin(all, &plan->spec);
        plan->pinned = all;
        if (!plan->template.is_snapshot && !plan->template.build_id.len)
            return 0;
        if (store_template_find(all->store, team_id, name, arena, &plan->template, err) < 0)
            return -1;
        if (str_eq(layers, plan->template.layers))
            return 0;
        layers_unpin(all, &plan->spec);
        plan->pinned = NULL;
    }
    return error_set(err, ERROR_UNAVAILABLE, "template '%.*s' changes all the time",
                     (int)(name.len < 128 ? name.len : 128), name.p);
}

static int finish(struct sandboxes *all, struct plan *plan, struct error *err)
{
    if (team_limits(all->store, plan->team_id, &plan->limits, err) < 0 ||
        room_kept(all, plan->team_id, &plan->limits, &plan->kept_mb, err) < 0 ||
        mounts_to_spec(plan->volumes, &plan->spec, err) < 0)
        return -1;
    /* Volumes are there from the start or not at all. */
    plan->is_unique |= plan->spec.volume_count > 0;
    if (plan->secure)
        make_token("ea_", plan->access_token);
    if (plan->is_private)
        make_token("ta_", plan->traffic_token);
    return envd_init_body(
        &(struct envd_facts){.env = plan->env,
                             .access_token = plan->access_token,
                             .template_id = plan->template.id,
                             .life_s = lease_seconds(all, now_us(all) + plan->timeout_s * 1000000),
                             .disk_mb = plan->template.disk_mb,
                             .setup = &plan->setup,
                             .authority = secret_authority(all, plan->network)},
        &plan->init_body, err);
}

static int check_size(const char *what, int64_t value, int64_t min, int64_t max, struct error *err)
{
    if (value == 0 || (value >= min && value <= max))
        return 0;
    return error_set(err, ERROR_INVALID, "'%s' must be a number from %lld to %lld", what,
                     (long long)min, (long long)max);
}

/* A size of its own, within what the host has. Boxes that wait have their template's. */
static int set_size(const struct sandbox_new *request, struct plan *plan, struct error *err)
{
    int64_t host_mb = sysconf(_SC_PHYS_PAGES) / 1024 * (sysconf(_SC_PAGESIZE) / 1024);
    struct box_limits *limits = &plan->spec.limits;

    if (!request->cpu_count && !request->mem_mb && !request->disk_mb)
        return 0;
    if (check_size("cpuCount", request->cpu_count, 1, sysconf(_SC_NPROCESSORS_ONLN), err) < 0 ||
        check_size("memoryMB", request->mem_mb, MEM_MB_MIN, host_mb, err) < 0 ||
        check_size("diskSizeMB", request->disk_mb, DISK_MB_MIN, DISK_MB_MAX, err) < 0)
        return -1;
    if (request->cpu_count)
        plan->template.cpu_count = request->cpu_count;
    if (request->mem_mb)
        plan->template.mem_mb = request->mem_mb;
    if (request->disk_mb)
        plan->template.disk_mb = request->disk_mb;
    limits->cpu_count = (uint32_t)plan->template.cpu_count;
    limits->mem_bytes = (uint64_t)plan->template.mem_mb << 20;
    limits->disk_bytes = (uint64_t)plan->template.disk_mb << 20;
    plan->is_unique = true;
    return 0;
}

static int set_network(struct sandboxes *all, const struct sandbox_new *request, struct plan *plan,
                       struct error *err)
{
    const struct network_policy *policy = request->network;

    plan->internet = policy ? policy->internet : request->internet;
    plan->network = policy ? policy->text : STR("");
    if (!policy) {
        plan->spec.network.mode = plan->internet ? NETWORK_OPEN : NETWORK_NONE;
        return network_can(all, &plan->spec.network, err);
    }
    plan->spec.network = policy->box;
    plan->peers = policy->peers;
    if (network_check(all, policy, err) < 0)
        return -1;
    return secret_policy(all, request->team_id, policy, &plan->arena, &plan->network, err);
}

static void set_env(const struct sandbox_new *request, struct plan *plan)
{
    auto_json json_t *env = json_of_pairs(request->env, request->env_count);
    auto_free char *own = json_text(env);

    plan->env = setup_env(&plan->setup, own);
}

int plan_from_request(struct sandboxes *all, const struct sandbox_new *request, struct arena *arena,
                      struct plan *plan, struct error *err)
{
    auto_json json_t *metadata = json_of_pairs(request->metadata, request->metadata_count);

    plan->team_id = request->team_id;
    plan->timeout_s = request->timeout_s;
    plan->secure = request->secure;
    plan->is_private = request->is_private;
    ingress_write(&request->ingress, plan->ingress);
    plan->internet_given = request->internet_given;
    plan->auto_pause = request->auto_pause;
    plan->auto_pause_disk = request->auto_pause_disk;
    plan->auto_resume = request->auto_resume;
    plan->pairs = request->metadata;
    plan->pair_count = request->metadata_count;
    plan->metadata = json_text(metadata);
    if (mounts_text(all, request->team_id, request->volumes, request->volume_count, arena,
                    &plan->volumes, err) < 0 ||
        pin_template(all, request->team_id, request->template_name, arena, plan, err) < 0 ||
        set_size(request, plan, err) < 0 || set_network(all, request, plan, err) < 0)
        return -1;
    setup_of_template(&plan->template, &plan->arena, &plan->setup);
    set_env(request, plan);
    return finish(all, plan, err);
}

/* A name is that of one sandbox: a fork does not have its source's, and several forks have numbered ones. The caller frees. */
static char *fork_metadata(struct str metadata, const struct sandbox_fork *fork, size_t number)
{
    auto_json json_t *object = NULL;
    struct error ignored;

    if (json_parse(metadata, &object, &ignored) < 0)
        object = json_object();
    (void)json_object_del(object, "name");
    for (size_t i = 0; i < fork->metadata_count; i++) {
        const struct pair *pair = &fork->metadata[i];
        auto_free char *name = str_dup(pair->name);

        (void)json_object_set_new(object, name,
                                  number && str_is(pair->name, "name")
                                      ? json_sprintf("%.*s-%zu", STR_ARG(pair->value), number)
                                      : json_str(pair->value));
    }
    return json_text(object);
}

int plan_from_row(struct sandboxes *all, const struct store_sandbox *row, struct str layers,
                  const struct sandbox_fork *fork, size_t number, struct plan *plan,
                  struct error *err)
{
    struct pair *pairs;

    plan->team_id = row->team_id;
    plan->timeout_s = fork->timeout_s;
    plan->secure = row->secure;
    plan->is_private = row->traffic_token.len > 0;
    (void)str_copy(row->ingress, plan->ingress, sizeof(plan->ingress));
    plan->internet = row->internet;
    plan->internet_given = row->internet_given;
    plan->auto_pause = row->life.auto_pause;
    plan->auto_pause_disk = !row->auto_pause_memory;
    plan->auto_resume = row->auto_resume;
    plan->metadata = fork_metadata(row->metadata, fork, number);
    plan->pair_count = pairs_read(str_of(plan->metadata), &plan->arena, &pairs);
    if (sandbox_metadata_check(pairs, plan->pair_count, err) < 0)
        return -1;
    plan->pairs = pairs;
    plan->env = str_dup(row->env);
    setup_read(row->setup, &plan->arena, &plan->setup);
    plan->volumes = row->volumes;
    plan->is_unique = true;
    plan->template = (struct store_template){.id = row->template_id,
                                             .team_id = row->team_id,
                                             .alias = row->alias,
                                             .layers = layers,
                                             .cpu_count = row->cpu_count,
                                             .mem_mb = row->mem_mb,
                                             .disk_mb = row->disk_mb};
    plan->network = row->network;
    if (spec_from_template(&plan->template, &plan->spec, err) < 0 ||
        spec_set_network(all, row, &plan->spec, err) < 0 ||
        peers_of_fork(row, &plan->arena, plan, err) < 0)
        return -1;
    layers_pin(all, &plan->spec);
    plan->pinned = all;
    return finish(all, plan, err);
}
