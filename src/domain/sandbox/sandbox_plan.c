/* What a create is going to do, checked and written down before anything is done. A plan pins its
 * layers: they stay until the plan is over, even when their template is deleted meanwhile. */
#include <stdlib.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/encode.h"
#include "domain/account/team.h"
#include "domain/sandbox/sandbox_internal.h"
#include "protocol/json/json_shape.h"

enum { MEM_MB_MIN = 64, DISK_MB_MIN = 64, DISK_MB_MAX = 64 << 20 };

enum {
    PAIRS_MAX = 512,             /* of metadata, and of variables */
    PAIRS_BYTES_MAX = 64 * 1024, /* names and values together */
};

void plan_done(struct plan *plan)
{
    if (plan->pinned)
        layers_unpin(plan->pinned, &plan->spec);
    free(plan->metadata);
    free(plan->env);
    buf_done(&plan->init_body);
}

static int check_pair(const char *what, const char *name, const json_t *value, bool is_env,
                      struct error *err)
{
    if (!json_is_string(value))
        return error_set(err, ERROR_INVALID, "%s '%.64s' must be a string", what, name);
    if (strlen(json_string_value(value)) != json_string_length(value))
        return error_set(err, ERROR_INVALID, "%s '%.64s' has a NUL byte", what, name);
    if (is_env && (name[0] == '\0' || strchr(name, '=')))
        return error_set(err, ERROR_INVALID, "%s: '%.64s' is not a name", what, name);
    return 0;
}

/* An object of strings within bounds, as JSON text. */
static int check_pairs(const char *what, const json_t *object, bool is_env, char **out_text,
                       struct error *err)
{
    /* jansson's iterators do not change what they walk over. */
    json_t *pairs = (json_t *)(uintptr_t)object, *value;
    size_t bytes = 0;
    const char *name;

    if (!object) {
        *out_text = xstrdup("{}");
        return 0;
    }
    if (!json_is_object(object))
        return error_set(err, ERROR_INVALID, "%s must be an object of strings", what);
    if (json_object_size(object) > PAIRS_MAX)
        return error_set(err, ERROR_INVALID, "%s has more than %d members", what, PAIRS_MAX);
    json_object_foreach (pairs, name, value) {
        if (check_pair(what, name, value, is_env, err) < 0)
            return -1;
        bytes += strlen(name) + json_string_length(value);
    }
    if (bytes > PAIRS_BYTES_MAX)
        return error_set(err, ERROR_INVALID, "%s is larger than %d bytes", what, PAIRS_BYTES_MAX);
    *out_text = json_text(object);
    return 0;
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
        .limits = {.mem_bytes = (uint64_t) template->mem_mb << 20,
                   .disk_bytes = (uint64_t) template->disk_mb << 20,
                   .cpu_count = (uint32_t) template->cpu_count,
                   .pids_max = SANDBOX_PIDS_MAX},
        .internet = true,
    };
    if (spec_set_layers(template->layers, out, err) < 0)
        return error_prefix(err, "template '%.*s'", STR_ARG(template->id));
    return 0;
}

static void make_token(char out[TOKEN_SIZE])
{
    unsigned char secret[32];

    random_bytes(secret, sizeof(secret));
    (void)str_copy(STR("ea_"), out, TOKEN_SIZE);
    hex_encode(out + 3, secret, sizeof(secret));
}

static int find_template(struct sandboxes *all, struct str team_id, struct str name,
                         struct arena *arena, struct plan *plan, struct error *err)
{
    if (store_template_find(all->store, team_id, name, arena, &plan->template, err) < 0)
        return -1;
    return spec_from_template(&plan->template, &plan->spec, err);
}

/* A snapshot may be deleted or replaced at any time: what holds is what is found while its layers
 * are pinned. */
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
        if (!plan->template.is_snapshot)
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
        volumes_to_spec(plan->volumes, &plan->spec, err) < 0)
        return -1;
    /* Volumes are there from the start or not at all. */
    plan->is_unique |= plan->spec.volume_count > 0;
    plan->spec.internet = plan->internet;
    if (plan->secure)
        make_token(plan->access_token);
    return envd_init_body(plan->env, plan->access_token, plan->template.id,
                          lease_seconds(all, now_us(all) + plan->timeout_s * 1000000),
                          plan->template.disk_mb, &plan->init_body, err);
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

int plan_from_request(struct sandboxes *all, const struct sandbox_new *request, struct arena *arena,
                      struct plan *plan, struct error *err)
{
    plan->team_id = request->team_id;
    plan->timeout_s = request->timeout_s;
    plan->secure = request->secure;
    plan->internet = request->internet;
    plan->internet_given = request->internet_given;
    plan->auto_pause = request->auto_pause;
    plan->auto_pause_disk = request->auto_pause_disk;
    plan->auto_resume = request->auto_resume;
    if (request->timeout_s < 1)
        return error_set(err, ERROR_INVALID, "Timeout must be greater than 0");
    if (check_timeout_max(all, request->timeout_s, err) < 0 ||
        check_pairs("metadata", request->metadata, false, &plan->metadata, err) < 0 ||
        check_pairs("envVars", request->env_vars, true, &plan->env, err) < 0 ||
        volumes_text(all, request->team_id, request->volumes, request->volume_count, arena,
                     &plan->volumes, err) < 0 ||
        pin_template(all, request->team_id, request->template_name, arena, plan, err) < 0 ||
        set_size(request, plan, err) < 0)
        return -1;
    return finish(all, plan, err);
}

int plan_from_row(struct sandboxes *all, const struct store_sandbox *row, struct str layers,
                  int64_t timeout_s, struct plan *plan, struct error *err)
{
    plan->team_id = row->team_id;
    plan->timeout_s = timeout_s;
    plan->secure = row->secure;
    plan->internet = row->internet;
    plan->internet_given = row->internet_given;
    plan->auto_pause = row->life.auto_pause;
    plan->auto_pause_disk = !row->auto_pause_memory;
    plan->auto_resume = row->auto_resume;
    plan->metadata = str_dup(row->metadata);
    plan->env = str_dup(row->env);
    plan->volumes = row->volumes;
    plan->is_unique = true;
    plan->template = (struct store_template){.id = row->template_id,
                                             .team_id = row->team_id,
                                             .alias = row->alias,
                                             .layers = layers,
                                             .cpu_count = row->cpu_count,
                                             .mem_mb = row->mem_mb,
                                             .disk_mb = row->disk_mb};
    if (spec_from_template(&plan->template, &plan->spec, err) < 0)
        return -1;
    layers_pin(all, &plan->spec);
    plan->pinned = all;
    return finish(all, plan, err);
}
