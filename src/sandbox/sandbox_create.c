/* Making a sandbox, in the order of the steps:
 *
 *   plan      what is asked for is checked and written down; nothing is done yet
 *   box       a warm one is taken from the pool, or one is started
 *   init      its agent is told what it is, and answers
 *   row       the store knows it: from here on a crash loses nothing
 *   route     the proxy knows it
 *   RUNNING   everybody may see it
 *
 * Before the row there is nothing in the store on purpose: a box without a row is a leftover, so a
 * crash in between needs no undo. Any failure goes through sandbox_teardown(). A warm box that fails
 * is not the client's fault: it is thrown away, and a fresh one is started once. */
#include <inttypes.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/encode.h"
#include "base/log.h"
#include "sandbox/sandbox_internal.h"
#include "json/json_shape.h"

enum {
    PAIRS_MAX = 512,             /* of metadata, and of variables */
    PAIRS_BYTES_MAX = 64 * 1024, /* names and values together */
};

struct plan {
    const struct sandbox_new *request;
    struct store_template template;
    struct box_spec spec; /* without id */
    char access_token[TOKEN_SIZE];
    char *metadata, *env; /* JSON */
    struct buf init_body;
};

static void plan_done(struct plan *plan)
{
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
    json_object_foreach(pairs, name, value)
    {
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

static int plan_make(struct sandboxes *all, const struct sandbox_new *request, struct arena *arena,
                     struct plan *plan, struct error *err)
{
    plan->request = request;
    if (request->timeout_s < 1)
        return error_set(err, ERROR_INVALID, "Timeout must be greater than 0");
    if (check_timeout_max(all, request->timeout_s, err) < 0 ||
        check_pairs("metadata", request->metadata, false, &plan->metadata, err) < 0 ||
        check_pairs("envVars", request->env_vars, true, &plan->env, err) < 0 ||
        store_template_find(all->store, request->team_id, request->template_name, arena,
                            &plan->template, err) < 0 ||
        spec_from_template(&plan->template, &plan->spec, err) < 0)
        return -1;
    plan->spec.internet = request->internet;
    if (request->secure)
        make_token(plan->access_token);
    return agent_init_body(plan->env, plan->access_token, &plan->init_body, err);
}

static int add_row(struct sandboxes *all, const struct plan *plan, const char *id,
                   struct arena *arena, struct store_sandbox *out, struct error *err)
{
    int64_t now = clock_wall_us();

    *out = (struct store_sandbox){
        .id = arena_str(arena, str_of(id)),
        .team_id = arena_str(arena, plan->request->team_id),
        .template_id = plan->template.id,
        .alias = plan->template.alias,
        .life = {.end_at_us = end_within_life(all, now, now + plan->request->timeout_s * 1000000),
                 .running_since_us = now,
                 .memory = true,
                 .auto_pause = plan->request->auto_pause},
        .started_at_us = now,
        .timeout_s = plan->request->timeout_s,
        .cpu_count = plan->template.cpu_count,
        .mem_mb = plan->template.mem_mb,
        .disk_mb = plan->template.disk_mb,
        .metadata = arena_str(arena, str_of(plan->metadata)),
        .env = str_of(plan->env),
        .access_token = arena_str(arena, str_of(plan->access_token)),
        .internet = plan->request->internet,
        .internet_given = plan->request->internet_given,
        .secure = plan->request->secure,
        .auto_pause_memory = !plan->request->auto_pause_disk,
        .auto_resume = plan->request->auto_resume,
        .layers = plan->template.layers,
    };
    return store_sandbox_insert(all->store, out, err);
}

/* Starts a box, or fits a warm one to the plan. */
static int make_box(struct sandboxes *all, const struct plan *plan, const char *id,
                    const struct warm_box *warm, struct error *err)
{
    struct box_spec spec = plan->spec;
    struct box_info info;

    if (!warm) {
        (void)str_copy(str_of(id), spec.id, sizeof(spec.id));
        return all->engine->ops->start(all->engine, &spec, &info, err);
    }
    /* Warm boxes have internet and the limits of the last sandbox of their kind. */
    if (spec.internet && memcmp(&warm->limits, &spec.limits, sizeof(spec.limits)) == 0)
        return 0;
    return all->engine->ops->limit(all->engine, id, &spec.limits, spec.internet, err);
}

/* All steps for a box of one id. On failure nothing is left (or is being removed). */
static int make(struct sandboxes *all, const struct plan *plan, struct sandbox *sandbox,
                const struct warm_box *warm, struct arena *arena, struct store_sandbox *row,
                struct error *err)
{
    struct error ignored = {0};

    if (make_box(all, plan, sandbox->id, warm, err) < 0 ||
        agent_init(all->run_dir, sandbox->id, warm ? warm->agent_fd : -1, buf_str(&plan->init_body),
                   err) < 0 ||
        add_row(all, plan, sandbox->id, arena, row, err) < 0)
        goto fail;
    sandbox->auto_pause = row->life.auto_pause;
    sandbox->auto_pause_disk = !row->auto_pause_memory;
    route_publish(all, sandbox->id, row, true);
    if (table_run(all, sandbox, row->life.end_at_us, row->revision))
        return 0;
    (void)error_set(err, ERROR_INTERNAL, "the sandbox ended while it was made");
fail:
    table_fail(all, sandbox, "create failed");
    (void)sandbox_teardown(all, sandbox, &ignored);
    return -1;
}

/* 1 = made, 0 = go on without, -1 = failed for good. */
static int try_warm(struct sandboxes *all, const struct plan *plan, struct arena *arena,
                    struct store_sandbox *row, struct error *err)
{
    struct warm_box *box = warm_take(all, &plan->spec);
    struct sandbox *sandbox;
    int made;

    if (!box)
        return 0;
    if (table_add(all, box->id, plan->request->team_id, &sandbox, err) < 0) {
        if (err->code == ERROR_EXISTS) { /* it died, and is torn down already */
            warm_box_free(box);
            return 0;
        }
        warm_put_back(all, &plan->spec, box);
        return -1;
    }
    made = make(all, plan, sandbox, box, arena, row, err);
    if (made < 0)
        log_warn("sandbox", "warm box id=%s: %s, starting another", box->id, err->message);
    warm_box_free(box);
    return made == 0;
}

static int run_plan(struct sandboxes *all, const struct plan *plan, struct arena *arena,
                    struct store_sandbox *row, struct error *err)
{
    int64_t from = clock_mono_us();
    int warm = try_warm(all, plan, arena, row, err);
    struct sandbox *sandbox;
    char id[ID_SIZE];

    if (warm < 0)
        return -1;
    if (!warm) {
        id_make(id);
        if (table_add(all, id, plan->request->team_id, &sandbox, err) < 0 ||
            make(all, plan, sandbox, NULL, arena, row, err) < 0)
            return -1;
    }
    log_info("sandbox", "created id=%.*s template=%.*s warm=%d us=%" PRId64, STR_ARG(row->id),
             STR_ARG(row->template_id), warm, clock_mono_us() - from);
    return 0;
}

int sandbox_create(struct sandboxes *all, const struct sandbox_new *request, struct arena *arena,
                   struct sandbox_view *out, struct error *err)
{
    __attribute__((cleanup(plan_done))) struct plan plan = {0};
    struct store_sandbox row;
    int result;

    if (plan_make(all, request, arena, &plan, err) < 0)
        return -1;
    atomic_fetch_add(&all->creates, 1);
    result = run_plan(all, &plan, arena, &row, err);
    atomic_fetch_sub(&all->creates, 1);
    warm_kick(all);
    if (result < 0)
        return error_prefix(err, "create sandbox");
    view_from_row(all, &row, out);
    return 0;
}
