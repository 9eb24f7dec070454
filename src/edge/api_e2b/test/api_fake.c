#include "edge/api_e2b/test/api_fake.h"

#include <time.h>

#include "base/alloc.h"
#include "domain/account/api_key.h"
#include "domain/account/team.h"
#include "domain/delivery/webhook.h"
#include "domain/network/network_policy.h"
#include "domain/sandbox/sandbox_check.h"
#include "domain/sandbox/sandbox_metrics.h"
#include "domain/volume/volume.h"
#include "store/platform/store_audit.h"
#include "store/runtime/store_runtime_sandbox.h"

enum { MAX_TIMEOUT_S = 24 * 3600 };

struct api_fake api_fake;

static void keep_network(const struct network_policy *policy)
{
    api_fake.internet = policy->internet;
    (void)str_copy(policy->text, api_fake.network, sizeof(api_fake.network));
}

static int failing(struct error *err)
{
    if (!api_fake.fail.code)
        return 0;
    *err = api_fake.fail;
    return -1;
}

void api_fake_id(size_t n, char out[ID_SIZE])
{
    (void)snprintf(out, ID_SIZE, "i%019zu", n);
}

int api_keys_find(struct api_keys *keys, struct str key, struct api_key_owner *out,
                  struct error *err)
{
    (void)keys;
    __atomic_add_fetch(&api_fake.finds, 1, __ATOMIC_SEQ_CST);
    if (!str_is(key, API_FAKE_KEY))
        return error_set(err, ERROR_UNAUTHORIZED, "Invalid API key");
    *out = (struct api_key_owner){.team_id = "team-1", .key_id = "k", .found_us = 1};
    return 0;
}

bool api_keys_current(struct api_keys *keys, const struct api_key_owner *owner)
{
    (void)keys;
    return owner->found_us > 0;
}

enum api_key_peek api_keys_peek(struct api_keys *keys, struct str key, struct api_key_owner *out)
{
    (void)keys;
    (void)key;
    (void)out;
    return API_KEY_UNSEEN;
}

static void fill(size_t n, struct arena *arena, struct sandbox_view *out)
{
    char id[ID_SIZE];

    api_fake_id(n, id);
    *out = (struct sandbox_view){
        .id = arena_str(arena, str_of(id)),
        .team_id = STR("team-1"),
        .template_id = STR("t1"),
        .alias = STR("base"),
        .access_token = api_fake.secure ? STR("token") : STR_NONE,
        .traffic_token = api_fake.is_private ? STR("traffic") : STR_NONE,
        .ingress = str_of(api_fake.ingress),
        .metadata = STR("{\"a\":\"b\"}"),
        .state = api_fake.paused ? SANDBOX_PAUSED : SANDBOX_RUNNING,
        .paused_to = api_fake.paused ? STR("memory") : STR_NONE,
        .auto_pause = api_fake.auto_pause,
        .auto_resume = api_fake.auto_resume,
        .started_at_us = 1767225600123456,
        .end_at_us = 1767225615123456,
        .cpu_count = 2,
        .mem_mb = 512,
        .disk_mb = 1024,
        .internet = api_fake.internet,
        .internet_given = api_fake.internet_given,
        .network = str_of(api_fake.network),
    };
}

/* The number behind a fake id, or -1 with err. */
static int find(struct str team_id, struct str id, struct error *err)
{
    for (size_t n = 0; n < api_fake.sandboxes; n++) {
        char known[ID_SIZE];

        api_fake_id(n, known);
        if (str_is(id, known) && str_is(team_id, "team-1"))
            return (int)n;
    }
    return error_set(err, ERROR_NOT_FOUND, "sandbox '%.*s' was not found", STR_ARG(id));
}

/* To be asked again where it may wait. */
static bool waits(bool *out_waits)
{
    if (!api_fake.waits || !out_waits)
        return false;
    *out_waits = true;
    return true;
}

int sandbox_create(struct sandboxes *all, const struct sandbox_new *request, struct arena *arena,
                   struct sandbox_view *out, struct error *err)
{
    (void)all;
    if (sandbox_new_check(request, MAX_TIMEOUT_S, err) < 0 || failing(err) < 0)
        return -1;
    if (waits(request->waits))
        return 0;
    __atomic_add_fetch(&api_fake.begun, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&api_fake.held, __ATOMIC_SEQ_CST))
        (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    api_fake.secure = request->secure;
    api_fake.is_private = request->is_private;
    ingress_write(&request->ingress, api_fake.ingress);
    api_fake.internet = request->internet;
    api_fake.network[0] = '\0';
    if (request->network)
        keep_network(request->network);
    api_fake.internet_given = request->internet_given;
    api_fake.timeout_s = request->timeout_s;
    api_fake.auto_pause = request->auto_pause;
    api_fake.auto_pause_disk = request->auto_pause_disk;
    api_fake.auto_resume = request->auto_resume;
    api_fake.volume_count = request->volume_count;
    (void)str_copy(request->idempotency_key, api_fake.idempotency_key,
                   sizeof(api_fake.idempotency_key));
    (void)str_copy(request->template_name, api_fake.template_name, sizeof(api_fake.template_name));
    fill(api_fake.sandboxes++, arena, out);
    __atomic_add_fetch(&api_fake.creates, 1, __ATOMIC_SEQ_CST);
    return 0;
}

int sandbox_get(struct sandboxes *all, struct str team_id, struct str id, struct arena *arena,
                struct sandbox_view *out, struct error *err)
{
    int n = find(team_id, id, err);

    (void)all;
    if (n < 0 || failing(err) < 0)
        return -1;
    fill((size_t)n, arena, out);
    return 0;
}

int store_runtime_sandbox_get(struct store *store, struct str team_id, struct str id,
                              struct arena *arena, struct store_runtime_sandbox *out,
                              struct error *err)
{
    (void)store;
    (void)team_id;
    (void)arena;
    (void)out;
    return error_set(err, ERROR_NOT_FOUND, "sandbox '%.*s' not found", STR_ARG(id));
}

bool sandbox_known(struct sandboxes *all, struct str id)
{
    (void)all;
    (void)id;
    return true;
}

int sandbox_list(struct sandboxes *all, const struct sandbox_filter *filter, struct arena *arena,
                 struct sandbox_page *out, struct error *err)
{
    size_t first = 0, count;

    (void)all;
    if (failing(err) < 0)
        return -1;
    api_fake.filter = *filter;
    if (filter->cursor.p) {
        uint64_t cursor;

        if (!str_to_u64(filter->cursor, &cursor) || cursor > api_fake.sandboxes)
            return error_set(err, ERROR_INVALID, "invalid nextToken");
        first = (size_t)cursor;
    }
    count = api_fake.sandboxes - first < filter->limit ? api_fake.sandboxes - first : filter->limit;
    out->items = arena_alloc(arena, (count + 1) * sizeof(*out->items));
    for (size_t i = 0; i < count; i++)
        fill(first + i, arena, &out->items[i]);
    out->count = count;
    out->total_running = api_fake.sandboxes;
    if (first + count < api_fake.sandboxes)
        out->next_cursor = str_of(arena_printf(arena, "%zu", first + count));
    return 0;
}

int sandbox_kill(struct sandboxes *all, struct str team_id, struct str id, struct error *err)
{
    (void)all;
    if (find(team_id, id, err) < 0 || failing(err) < 0)
        return -1;
    __atomic_add_fetch(&api_fake.kills, 1, __ATOMIC_SEQ_CST);
    return 0;
}

int sandbox_set_network(struct sandboxes *all, struct str team_id, struct str id,
                        const struct network_policy *policy, struct error *err)
{
    struct arena arena = {0};
    struct sandbox_view view;
    int r = sandbox_get(all, team_id, id, &arena, &view, err);

    arena_done(&arena);
    if (r == 0)
        keep_network(policy);
    return r;
}

int sandbox_set_timeout(struct sandboxes *all, struct str team_id, struct str id, int64_t timeout_s,
                        struct error *err)
{
    (void)all;
    if (sandbox_timeout_check(timeout_s, MAX_TIMEOUT_S, err) < 0)
        return -1;
    api_fake.timeout_s = timeout_s;
    return find(team_id, id, err) < 0 ? -1 : failing(err);
}

int sandbox_extend(struct sandboxes *all, struct str team_id, struct str id, int64_t timeout_s,
                   struct arena *arena, struct sandbox_view *out, struct error *err)
{
    if (sandbox_timeout_check(timeout_s, MAX_TIMEOUT_S, err) < 0)
        return -1;
    api_fake.timeout_s = timeout_s;
    return sandbox_get(all, team_id, id, arena, out, err);
}

int sandbox_pause(struct sandboxes *all, struct str team_id, struct str id,
                  const struct sandbox_pause *request, struct error *err)
{
    (void)all;
    api_fake.pause = *request;
    if (find(team_id, id, err) < 0 || failing(err) < 0)
        return -1;
    if (api_fake.paused)
        return error_set(err, ERROR_CONFLICT, "Sandbox %.*s is already paused", STR_ARG(id));
    api_fake.paused = true;
    return 0;
}

int sandbox_resume(struct sandboxes *all, struct str team_id, struct str id,
                   const struct sandbox_resume *request, struct arena *arena,
                   struct sandbox_view *out, struct error *err)
{
    api_fake.resume = *request;
    if (sandbox_timeout_check(request->timeout_s, MAX_TIMEOUT_S, err) < 0)
        return -1;
    if (find(team_id, id, err) < 0)
        return -1;
    if (waits(request->waits))
        return 0;
    if (!api_fake.paused)
        return error_set(err, ERROR_CONFLICT, "Sandbox %.*s is already running", STR_ARG(id));
    api_fake.paused = false;
    return sandbox_get(all, team_id, id, arena, out, err);
}

int sandbox_connect(struct sandboxes *all, struct str team_id, struct str id,
                    const struct sandbox_resume *request, struct arena *arena,
                    struct sandbox_view *out, bool *out_resumed, struct error *err)
{
    if (waits(request->waits))
        return 0;
    *out_resumed = api_fake.paused;
    api_fake.paused = false;
    api_fake.resume = *request;
    return sandbox_extend(all, team_id, id, request->timeout_s, arena, out, err);
}

int sandbox_snapshot(struct sandboxes *all, struct str team_id, struct str id, struct str text,
                     struct arena *arena, struct snapshot_view *out, struct error *err)
{
    (void)all;
    if (find(team_id, id, err) < 0 || failing(err) < 0)
        return -1;
    (void)str_copy(text, api_fake.snapshot_name, sizeof(api_fake.snapshot_name));
    *out = (struct snapshot_view){.id = STR("t9:default")};
    if (text.p) {
        out->name = str_of(arena_printf(arena, "team/%.*s", STR_ARG(text)));
        out->id = str_of(arena_printf(arena, "team/%.*s:default", STR_ARG(text)));
    }
    return 0;
}

int snapshot_list(struct sandboxes *all, const struct snapshot_filter *filter, struct arena *arena,
                  struct snapshot_page *out, struct error *err)
{
    (void)all;
    if (failing(err) < 0)
        return -1;
    api_fake.snapshots = *filter;
    out->items = arena_alloc(arena, sizeof(*out->items));
    out->items[0] = (struct snapshot_view){.id = STR("t9:default")};
    out->count = 1;
    out->next_cursor = STR("more");
    return 0;
}

int snapshot_delete(struct sandboxes *all, struct str team_id, struct str name, struct error *err)
{
    (void)all;
    (void)team_id;
    if (!str_is(name, "team/mine:v1") || api_fake.snapshot_deleted)
        return error_set(err, ERROR_NOT_FOUND, "template '%.*s' not found", STR_ARG(name));
    api_fake.snapshot_deleted = true;
    return 0;
}

int sandbox_fork(struct sandboxes *all, struct str team_id, struct str id,
                 const struct sandbox_fork *request, struct arena *arena,
                 struct fork_result **out_results, struct error *err)
{
    (void)all;
    if (find(team_id, id, err) < 0 || failing(err) < 0)
        return -1;
    api_fake.timeout_s = request->timeout_s;
    *out_results = arena_alloc(arena, request->count * sizeof(**out_results));
    for (size_t i = 0; i < request->count; i++) {
        struct fork_result *result = &(*out_results)[i];

        result->ok = i != 2;
        if (result->ok)
            fill(i, arena, &result->view);
        else
            (void)error_set(&result->err, ERROR_QUOTA, "the limit is reached");
    }
    return 0;
}

int sandbox_events(struct sandboxes *all, const struct event_filter *filter, struct arena *arena,
                   struct event_page *out, struct error *err)
{
    (void)all;
    if ((filter->sandbox_id.p && find(filter->team_id, filter->sandbox_id, err) < 0) ||
        failing(err) < 0)
        return -1;
    api_fake.events = *filter;
    if (filter->type_count)
        (void)str_copy(filter->types[0], api_fake.event_type, sizeof(api_fake.event_type));
    *out = (struct event_page){.items = arena_alloc(arena, sizeof(*out->items)), .count = 1};
    out->items[0] = (struct store_event){.type = STR("killed"),
                                         .message = STR("Sandbox ended"),
                                         .detail = STR("out of memory"),
                                         .level = STORE_LEVEL_ERROR,
                                         .at_us = 1767225600123456,
                                         .sandbox_id = STR("i0000000000000000000")};
    return 0;
}

json_t *sandbox_event_json(const struct store_event *event)
{
    return json_pack("{s:s%}", "type", event->type.p, event->type.len);
}

int sandbox_metrics(struct sandboxes *all, struct str team_id, struct str id, int64_t from_us,
                    int64_t until_us, struct arena *arena, struct sandbox_metrics *out,
                    struct error *err)
{
    (void)all;
    if (find(team_id, id, err) < 0 || failing(err) < 0)
        return -1;
    api_fake.from_us = from_us;
    api_fake.until_us = until_us;
    *out = (struct sandbox_metrics){.samples = arena_alloc(arena, 2 * sizeof(*out->samples)),
                                    .count = 2,
                                    .cpu_count = 2,
                                    .mem_total = 1000};
    out->samples[1] = (struct sandbox_sample){.at_us = 1767225600123456,
                                              .cpu_pct = 12.5,
                                              .mem_used = 70,
                                              .mem_cache = 7,
                                              .network = {.sent_bytes = 5, .connections = 2}};
    return 0;
}

size_t metrics_network_each(struct sandboxes *all, struct sandbox_network_use **out)
{
    (void)all;
    *out = xcalloc(1, sizeof(**out));
    **out = (struct sandbox_network_use){"isandbox", {.sent_bytes = 7, .refused = 3}};
    return 1;
}

size_t team_metrics(struct sandboxes *all, struct str team_id, int64_t from_us, int64_t until_us,
                    struct arena *arena, struct team_sample **out)
{
    (void)all;
    (void)team_id;
    (void)from_us;
    (void)until_us;
    *out = arena_alloc(arena, 2 * sizeof(**out));
    (*out)[0] = (struct team_sample){.at_us = 1767225600000000, .running = 5};
    (*out)[1] = (struct team_sample){.at_us = 1767225605000000, .running = 3, .start_rate = 0.5};
    return 2;
}

size_t sandbox_view_volumes(const struct sandbox_view *view,
                            struct volume_mount out[SANDBOX_VOLUMES_MAX])
{
    (void)view;
    out[0] = (struct volume_mount){STR("v"), STR("/v")};
    return api_fake.volume_count;
}

static struct store_volume fake_volume(void)
{
    return (struct store_volume){.id = STR("v1"), .name = STR("data"), .token = STR("secret")};
}

int volume_create(struct volumes *all, struct str team_id, struct str name, struct arena *arena,
                  struct store_volume *out, struct error *err)
{
    (void)all, (void)team_id, (void)name, (void)arena;
    if (api_fake.has_volume)
        return error_set(err, ERROR_INVALID, "exists");
    api_fake.has_volume = true;
    *out = fake_volume();
    return 0;
}

int volume_get(struct volumes *all, struct str team_id, struct str name, struct arena *arena,
               struct store_volume *out, struct error *err)
{
    (void)all, (void)team_id, (void)arena;
    if (!api_fake.has_volume || !str_is(name, "v1"))
        return error_set(err, ERROR_NOT_FOUND, "no volume");
    *out = fake_volume();
    return 0;
}

int volume_list(struct volumes *all, struct str team_id, struct arena *arena,
                struct store_volume **out, size_t *out_count, struct error *err)
{
    (void)all, (void)team_id, (void)err;
    *out = arena_alloc(arena, sizeof(**out));
    **out = fake_volume();
    *out_count = api_fake.has_volume;
    return 0;
}

int volume_usage(struct volumes *all, struct str team_id, struct str name, uint64_t *out_bytes,
                 uint64_t *out_limit, struct error *err)
{
    (void)all, (void)team_id, (void)name;
    *out_bytes = 4096;
    *out_limit = 1 << 20;
    return failing(err);
}

int sandboxes_team_use(struct sandboxes *all, struct str team_id, struct store_limits *out,
                       struct error *err)
{
    (void)all, (void)team_id;
    *out = (struct store_limits){.sandboxes = 1};
    return failing(err);
}

int volume_delete(struct volumes *all, struct str team_id, struct str name, struct error *err)
{
    (void)all, (void)team_id, (void)name;
    if (!api_fake.has_volume)
        return error_set(err, ERROR_NOT_FOUND, "no volume");
    api_fake.has_volume = false;
    return 0;
}

const int64_t sandbox_bucket_us[SANDBOX_BUCKETS] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};

void sandboxes_stats(struct sandboxes *all, struct sandboxes_stats *out)
{
    (void)all;
    *out = (struct sandboxes_stats){.states = {[SANDBOX_PAUSED] = 7}};
}

static struct store_webhook stored_webhook;

int webhook_put(struct webhooks *all, struct store_webhook *webhook, struct arena *arena,
                struct error *err)
{
    static char url[128], events[128];

    (void)all, (void)arena;
    if (!webhook->events.len)
        return error_set(err, ERROR_INVALID, "'events' must not be empty");
    (void)str_copy(webhook->url, url, sizeof(url));
    (void)str_copy(webhook->events, events, sizeof(events));
    stored_webhook = (struct store_webhook){.id = STR("w1"),
                                            .team_id = STR("team-1"),
                                            .name = STR("n"),
                                            .url = str_of(url),
                                            .events = str_of(events),
                                            .secret = STR("secret"),
                                            .enabled = webhook->enabled};
    *webhook = stored_webhook;
    return 0;
}

int webhook_list(struct webhooks *all, struct str team_id, struct arena *arena,
                 struct store_webhook **out, size_t *out_count, struct error *err)
{
    (void)all, (void)team_id, (void)arena, (void)err;
    *out = &stored_webhook;
    *out_count = stored_webhook.id.len ? 1 : 0;
    return 0;
}

int webhook_get(struct webhooks *all, struct str team_id, struct str id, struct arena *arena,
                struct store_webhook *out, struct error *err)
{
    (void)all, (void)team_id, (void)arena;
    if (!stored_webhook.id.len || !str_eq(stored_webhook.id, id))
        return error_set(err, ERROR_NOT_FOUND, "webhook not found");
    *out = stored_webhook;
    return 0;
}

int webhook_delete(struct webhooks *all, struct str team_id, struct str id, struct error *err)
{
    (void)all, (void)team_id;
    if (!stored_webhook.id.len || !str_eq(stored_webhook.id, id))
        return error_set(err, ERROR_NOT_FOUND, "webhook not found");
    stored_webhook = (struct store_webhook){0};
    return 0;
}

int webhook_deliveries(struct webhooks *all, struct str team_id, struct str id, struct arena *arena,
                       struct webhook_deliveries *out, struct error *err)
{
    struct store_webhook ignored;

    *out = (struct webhook_deliveries){0};
    return webhook_get(all, team_id, id, arena, &ignored, err);
}

int webhook_test(struct webhooks *all, struct str team_id, struct str id,
                 const struct cancel *cancel, struct arena *arena, bool *out_delivered,
                 struct error *out_why, struct error *err)
{
    struct store_webhook ignored;

    (void)cancel, (void)out_why;
    *out_delivered = true;
    return webhook_get(all, team_id, id, arena, &ignored, err);
}

/* ---- accounts: tested with the real ones, in api_account_test.c ---- */

static int not_here(struct error *err)
{
    return error_set(err, ERROR_UNSUPPORTED, "not in this test");
}

void api_keys_refresh(struct api_keys *keys)
{
    (void)keys;
}

int api_key_new(struct store *store, const struct api_key_wanted *wanted, struct arena *arena,
                struct store_key *out, char out_key[API_KEY_SIZE], struct error *err)
{
    (void)store, (void)wanted, (void)arena, (void)out, (void)out_key;
    return not_here(err);
}

int api_key_rename(struct store *store, struct str team_id, struct str id, struct str name,
                   struct error *err)
{
    (void)store, (void)team_id, (void)id, (void)name;
    return not_here(err);
}

int api_key_list(struct store *store, struct str team_id, struct arena *arena,
                 struct store_key **out, size_t *out_count, struct error *err)
{
    (void)store, (void)team_id, (void)arena, (void)out, (void)out_count;
    return not_here(err);
}

int api_key_delete(struct store *store, struct str team_id, struct str id, struct error *err)
{
    (void)store, (void)team_id, (void)id;
    return not_here(err);
}

int team_create(struct store *store, struct store_team *team, struct arena *arena,
                struct error *err)
{
    (void)store, (void)team, (void)arena;
    return not_here(err);
}

int team_update(struct store *store, const struct store_team *team, struct error *err)
{
    (void)store, (void)team;
    return not_here(err);
}

int team_get(struct store *store, struct str id, struct arena *arena, struct store_team *out,
             struct error *err)
{
    (void)store, (void)arena, (void)err;
    *out = (struct store_team){.id = id, .banned = api_fake.banned};
    return 0;
}

int team_list(struct store *store, struct arena *arena, struct store_team **out, size_t *out_count,
              struct error *err)
{
    (void)store, (void)arena, (void)out, (void)out_count;
    return not_here(err);
}

int store_key_sandbox(struct store *store, struct str team_id, struct str sandbox_id,
                      struct arena *arena, struct str *out_engine_id, struct error *err)
{
    (void)store, (void)team_id, (void)sandbox_id, (void)arena, (void)out_engine_id;
    return not_here(err);
}

int store_audit_add(struct store *store, const struct store_audit *entry, struct error *err)
{
    (void)store, (void)entry, (void)err;
    __atomic_add_fetch(&api_fake.audited, 1, __ATOMIC_SEQ_CST);
    return 0;
}

int store_audit_page(struct store *store, struct str team_id, int64_t before_seq, size_t limit,
                     struct arena *arena, struct store_audit **out, size_t *out_count,
                     struct error *err)
{
    (void)store, (void)team_id, (void)before_seq, (void)limit, (void)arena, (void)out;
    (void)out_count;
    return not_here(err);
}
