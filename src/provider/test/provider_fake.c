#include "provider/test/provider_fake.h"

#include <stdlib.h>
#include <time.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "provider/test/provider_fake_internal.h"

static struct provider_fake *newest;

struct provider_fake *provider_fake_new(void)
{
    struct provider_fake *fake = xcalloc(1, sizeof(*fake));

    (void)pthread_mutex_init(&fake->lock, NULL);
    list_init(&fake->sandboxes);
    map_init(&fake->snapshots);
    map_init(&fake->calls);
    map_init(&fake->failures);
    fake->caps =
        (struct provider_caps){.features = (PROVIDER_FIND << 1) - 1,
                               .egress = EGRESS_ALLOW_ALL | EGRESS_DENY_ALL | EGRESS_RESTRICTED,
                               .isolation = ISOLATION_STRONG,
                               .snapshot_kind = "fake-ref"};
    fake->caps.features &= ~(unsigned)PROVIDER_CDP;
    newest = fake;
    return fake;
}

void fake_files_free(struct map *files)
{
    struct map_entry *entry;

    map_for_each (files, entry) {
        struct buf *content = entry->value;

        buf_done(content);
        free(content);
    }
    map_done(files);
}

struct map *fake_files_copy(const struct map *files)
{
    struct map *copy = xcalloc(1, sizeof(*copy));
    struct map_entry *entry;

    map_init(copy);
    map_for_each (files, entry) {
        const struct buf *content = entry->value;
        struct buf *made = xcalloc(1, sizeof(*made));

        buf_init(made, FAKE_FILE_MAX);
        (void)buf_add_str(made, buf_str(content));
        (void)map_put(copy, str_n(entry->key, entry->key_len), made);
    }
    return copy;
}

static void machine_free(struct fake_machine *machine)
{
    list_remove(&machine->node);
    for (size_t i = 0; i < machine->label_count; i++) {
        free(machine->names[i]);
        free(machine->values[i]);
    }
    fake_files_free(&machine->files);
    free(machine->image);
    free(machine);
}

void provider_fake_free(struct provider_fake *fake)
{
    struct map_entry *entry;
    struct list *node, *next;

    list_for_each_safe (node, next, &fake->sandboxes)
        machine_free(container_of(node, struct fake_machine, node));
    map_for_each (&fake->snapshots, entry) {
        fake_files_free(entry->value);
        free(entry->value);
    }
    map_done(&fake->snapshots);
    map_for_each (&fake->calls, entry)
        free(entry->value);
    map_done(&fake->calls);
    map_for_each (&fake->failures, entry)
        free(entry->value);
    map_done(&fake->failures);
    (void)pthread_mutex_destroy(&fake->lock);
    if (newest == fake)
        newest = NULL;
    free(fake);
}

void provider_fake_fail(struct provider_fake *fake, const char *op, int times, enum error_code code,
                        const char *message)
{
    struct fake_failure *failure = xcalloc(1, sizeof(*failure));

    failure->times = times;
    failure->code = code;
    (void)snprintf(failure->message, sizeof(failure->message), "%s", message);
    (void)pthread_mutex_lock(&fake->lock);
    free(map_put(&fake->failures, str_of(op), failure));
    (void)pthread_mutex_unlock(&fake->lock);
}

int provider_fake_calls(struct provider_fake *fake, const char *op)
{
    int *count, n;

    (void)pthread_mutex_lock(&fake->lock);
    count = map_get(&fake->calls, str_of(op));
    n = count ? *count : 0;
    (void)pthread_mutex_unlock(&fake->lock);
    return n;
}

int fake_enter(struct provider_fake *fake, const char *op, struct error *err)
{
    struct fake_failure *failure;
    struct timespec pause;
    int *count, r = 0;

    (void)pthread_mutex_lock(&fake->lock);
    pause = (struct timespec){.tv_sec = fake->hang_ms / 1000,
                              .tv_nsec = (long)(fake->hang_ms % 1000) * 1000000};
    count = map_get(&fake->calls, str_of(op));
    if (!count) {
        count = xcalloc(1, sizeof(*count));
        (void)map_put(&fake->calls, str_of(op), count);
    }
    (*count)++;
    failure = map_get(&fake->failures, str_of(op));
    if (failure && failure->times > 0) {
        failure->times--;
        r = error_set(err, failure->code, "%s", failure->message);
        err->retry_after_s = fake->retry_after_s;
    }
    (void)pthread_mutex_unlock(&fake->lock);
    if (pause.tv_sec || pause.tv_nsec)
        (void)nanosleep(&pause, NULL);
    return r;
}

struct fake_machine *fake_find(struct provider_fake *fake, struct str id, struct error *err)
{
    struct list *node;

    list_for_each (node, &fake->sandboxes) {
        struct fake_machine *machine = container_of(node, struct fake_machine, node);

        if (str_is(id, machine->id))
            return machine;
    }
    (void)error_set(err, ERROR_NOT_FOUND, "sandbox '%.*s' not found", STR_ARG(id));
    return NULL;
}

void provider_fake_lose(struct provider_fake *fake, struct str id)
{
    struct list *node, *next;

    (void)pthread_mutex_lock(&fake->lock);
    list_for_each_safe (node, next, &fake->sandboxes) {
        struct fake_machine *machine = container_of(node, struct fake_machine, node);

        if (!id.p || str_is(id, machine->id))
            machine_free(machine);
    }
    (void)pthread_mutex_unlock(&fake->lock);
}

void provider_fake_set_state(struct provider_fake *fake, struct str id, enum provider_state state)
{
    struct error ignored = {0};
    struct fake_machine *machine;

    (void)pthread_mutex_lock(&fake->lock);
    machine = fake_find(fake, id, &ignored);
    if (machine)
        machine->state = state;
    (void)pthread_mutex_unlock(&fake->lock);
}

size_t provider_fake_count(struct provider_fake *fake, enum provider_state state)
{
    struct list *node;
    size_t count = 0;

    (void)pthread_mutex_lock(&fake->lock);
    list_for_each (node, &fake->sandboxes)
        count += container_of(node, struct fake_machine, node)->state == state ? 1 : 0;
    (void)pthread_mutex_unlock(&fake->lock);
    return count;
}

/* ---- the table: sandboxes ---- */

static void tell(const struct fake_machine *machine, struct arena *arena,
                 struct provider_sandbox *out)
{
    *out = (struct provider_sandbox){
        .id = arena_str(arena, str_of(machine->id)),
        .state = machine->state,
        .image = arena_str(arena, str_of(machine->image)),
        .token = STR("fake-token"),
        .started_at_us = machine->started_at_us,
        .labels = arena_alloc(arena, (machine->label_count + 1) * sizeof(*out->labels)),
        .label_count = machine->label_count,
    };
    for (size_t i = 0; i < machine->label_count; i++)
        out->labels[i] = (struct pair){arena_str(arena, str_of(machine->names[i])),
                                       arena_str(arena, str_of(machine->values[i]))};
}

static int fake_check(struct provider *provider, struct error *err)
{
    return fake_enter(fake_of(provider), "check", err);
}

static int fake_create(struct provider *provider, const struct provider_spec *spec,
                       struct arena *arena, struct provider_sandbox *out, struct error *err)
{
    struct provider_fake *fake = fake_of(provider);
    struct map *kept = NULL;
    struct fake_machine *machine;
    int r = 0;

    if (fake_enter(fake, "create", err) < 0)
        return -1;
    if (fake->meeting)
        (void)pthread_barrier_wait(fake->meeting);
    (void)pthread_mutex_lock(&fake->lock);
    if (spec->snapshot.p && !(kept = map_get(&fake->snapshots, spec->snapshot)))
        r = error_set(err, ERROR_NOT_FOUND, "snapshot not found");
    if (r == 0) {
        machine = xcalloc(1, sizeof(*machine));
        (void)snprintf(machine->id, sizeof(machine->id), "fake%zu", ++fake->made);
        machine->state = PROVIDER_RUNNING;
        machine->image = str_dup(spec->image.p ? spec->image : STR("base"));
        machine->started_at_us = clock_wall_us();
        machine->ttl_s = spec->ttl_s;
        for (size_t i = 0; i < spec->label_count && i < FAKE_LABELS; i++) {
            machine->names[i] = str_dup(spec->labels[i].name);
            machine->values[i] = str_dup(spec->labels[i].value);
            machine->label_count++;
        }
        if (kept) {
            struct map *copy = fake_files_copy(kept);

            machine->files = *copy;
            free(copy);
        } else {
            map_init(&machine->files);
        }
        list_push_back(&fake->sandboxes, &machine->node);
        tell(machine, arena, out);
    }
    (void)pthread_mutex_unlock(&fake->lock);
    return r;
}

static int fake_find_all(struct provider *provider, const struct provider_query *query,
                         struct arena *arena, struct provider_sandbox **out, size_t *out_count,
                         struct error *err)
{
    struct provider_fake *fake = fake_of(provider);
    struct list *node;
    size_t room = 1;

    (void)query;
    if (fake_enter(fake, "find", err) < 0)
        return -1;
    (void)pthread_mutex_lock(&fake->lock);
    list_for_each (node, &fake->sandboxes)
        room++;
    *out = arena_alloc(arena, room * sizeof(**out));
    *out_count = 0;
    list_for_each (node, &fake->sandboxes)
        tell(container_of(node, struct fake_machine, node), arena, &(*out)[(*out_count)++]);
    (void)pthread_mutex_unlock(&fake->lock);
    return 0;
}

/* What most operations do: find it, perhaps change its state, tell it. */
static int with_machine(struct provider *provider, const char *op, const struct provider_ref *ref,
                        int state, struct arena *arena, struct provider_sandbox *out,
                        struct error *err)
{
    struct provider_fake *fake = fake_of(provider);
    struct fake_machine *machine;

    if (fake_enter(fake, op, err) < 0)
        return -1;
    (void)pthread_mutex_lock(&fake->lock);
    machine = fake_find(fake, ref->id, err);
    if (machine && state >= 0)
        machine->state = (enum provider_state)state;
    if (machine && out)
        tell(machine, arena, out);
    (void)pthread_mutex_unlock(&fake->lock);
    return machine ? 0 : -1;
}

static int fake_get(struct provider *provider, const struct provider_ref *ref, struct arena *arena,
                    struct provider_sandbox *out, struct error *err)
{
    return with_machine(provider, "get", ref, -1, arena, out, err);
}

static int fake_connect(struct provider *provider, const struct provider_ref *ref, int64_t ttl_s,
                        struct arena *arena, struct provider_sandbox *out, struct error *err)
{
    (void)ttl_s;
    return with_machine(provider, "connect", ref, PROVIDER_RUNNING, arena, out, err);
}

static int fake_pause(struct provider *provider, const struct provider_ref *ref, struct error *err)
{
    return with_machine(provider, "pause", ref, PROVIDER_PAUSED, NULL, NULL, err);
}

static int fake_kill(struct provider *provider, const struct provider_ref *ref, struct error *err)
{
    if (fake_enter(fake_of(provider), "kill", err) < 0)
        return -1;
    provider_fake_lose(fake_of(provider), ref->id);
    return 0;
}

static int fake_extend(struct provider *provider, const struct provider_ref *ref, int64_t ttl_s,
                       struct error *err)
{
    (void)ttl_s;
    return with_machine(provider, "extend", ref, -1, NULL, NULL, err);
}

static int fake_snapshot(struct provider *provider, const struct provider_ref *ref,
                         const char *name, struct arena *arena, struct str *out, struct error *err)
{
    struct provider_fake *fake = fake_of(provider);
    struct fake_machine *machine;

    if (fake_enter(fake, "snapshot", err) < 0)
        return -1;
    (void)pthread_mutex_lock(&fake->lock);
    machine = fake_find(fake, ref->id, err);
    if (machine) {
        struct map *old;

        *out = str_of(arena_printf(arena, "snap-%s-%zu", name, fake->snapshots.count + 1));
        old = map_put(&fake->snapshots, *out, fake_files_copy(&machine->files));
        if (old)
            fake_files_free(old);
        free(old);
    }
    (void)pthread_mutex_unlock(&fake->lock);
    return machine ? 0 : -1;
}

static int fake_snapshot_delete(struct provider *provider, struct str team_id, struct str snapshot,
                                struct error *err)
{
    struct provider_fake *fake = fake_of(provider);
    struct map *files;

    (void)team_id;
    if (fake_enter(fake, "snapshot_delete", err) < 0)
        return -1;
    (void)pthread_mutex_lock(&fake->lock);
    files = map_remove(&fake->snapshots, snapshot);
    if (files)
        fake_files_free(files);
    free(files);
    (void)pthread_mutex_unlock(&fake->lock);
    return 0;
}

static int fake_address(struct provider *provider, const struct provider_ref *ref, uint16_t port,
                        struct arena *arena, struct provider_address *out, struct error *err)
{
    if (with_machine(provider, "endpoint", ref, -1, NULL, NULL, err) < 0)
        return -1;
    *out = (struct provider_address){
        .url = str_of(arena_printf(arena, "http://%u-%.*s.fake", port, STR_ARG(ref->id)))};
    out->local_url = out->url;
    return 0;
}

static void fake_close(struct provider *provider)
{
    free(provider->impl);
}

int provider_fake_open(const struct provider_config *config, struct provider **out,
                       struct error *err)
{
    struct provider *provider;
    struct fake_impl *impl;

    if (!newest)
        return error_set(err, ERROR_INTERNAL, "there is no fake");
    provider = xcalloc(1, sizeof(*provider));
    impl = xcalloc(1, sizeof(*impl));
    impl->fake = newest;
    (void)snprintf(impl->type, sizeof(impl->type), "%s", config->type);
    impl->ops = (struct provider_ops){
        .type = impl->type,
        .close = fake_close,
        .check = fake_check,
        .create = fake_create,
        .find = fake_find_all,
        .get = fake_get,
        .connect = fake_connect,
        .pause = fake_pause,
        .kill = fake_kill,
        .extend = fake_extend,
        .snapshot = fake_snapshot,
        .snapshot_delete = fake_snapshot_delete,
        .address = fake_address,
    };
    fake_work_ops(&impl->ops);
    provider->ops = &impl->ops;
    provider->impl = impl;
    provider->caps = newest->caps;
    (void)snprintf(provider->name, sizeof(provider->name), "%s", config->name);
    *out = provider;
    return 0;
}
