/* What happened to sandboxes. Events are written with the changes they tell of (the store does both
 * in one transaction); here they are made and read. */
#include "domain/sandbox/sandbox_history.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "domain/sandbox/sandbox_hooks.h"
#include "domain/sandbox/sandbox_internal.h"
#include "domain/sandbox/sandbox_table.h"
#include "protocol/json/json_shape.h"

enum { CHUNK = 256 };

static struct store_event make(const char *type, const char *message, struct str detail)
{
    return (struct store_event){.type = str_of(type),
                                .message = str_of(message),
                                .detail = detail,
                                .level = STORE_LEVEL_INFO,
                                .at_us = clock_wall_us()};
}

struct store_event history_created(void)
{
    return make("created", "Sandbox created", STR_NONE);
}

struct store_event history_paused(bool disk_only)
{
    return disk_only
               ? make("paused", "Sandbox paused: its files are kept", STR("disk"))
               : make("paused", "Sandbox paused: its processes and files are kept", STR("memory"));
}

struct store_event history_paused_cold(void)
{
    struct store_event event = make("paused",
                                    "Sandbox paused: its processes could not be kept at the end of "
                                    "its time and were ended, its files are kept",
                                    STR("disk"));

    event.level = STORE_LEVEL_WARN;
    return event;
}

struct store_event history_paused_crashed(enum sandbox_end reason)
{
    const char *message =
        reason == END_OUT_OF_MEMORY ? "Sandbox paused: out of memory; its files are kept"
        : reason == END_FROM_OUTSIDE
            ? "Sandbox paused: its processes were killed from outside; its files are kept"
        : reason == END_HOST_RESTART
            ? "Sandbox paused: the host restarted; its files are kept"
            : "Sandbox paused: its first process crashed; its files are kept";
    struct store_event event = make("paused", message, STR("disk"));

    event.level = STORE_LEVEL_ERROR;
    return event;
}

struct store_event history_resumed(bool from_disk)
{
    return from_disk ? make("resumed", "Sandbox resumed: booted from its files", STR("disk"))
                     : make("resumed", "Sandbox resumed: its processes go on", STR("memory"));
}

static const char *const end_names[] = {
    [END_KILLED] = "killed",
    [END_TIMEOUT] = "timeout",
    [END_CRASHED] = "crashed",
    [END_OUT_OF_MEMORY] = "out of memory",
    [END_HOST_RESTART] = "host restart",
    [END_FROM_OUTSIDE] = "killed from outside",
    [END_FILES_LOST] = "files lost",
    [END_CREATE_FAILED] = "create failed",
    [END_LEFTOVER] = "leftover",
    [END_WARM_UNWANTED] = "warm box not wanted",
    [END_WARM_FAILED] = "warm box did not start",
    [END_CONTENT_IDLE] = "not needed any more",
};
const struct names sandbox_end_names = NAMES("reason of a sandbox's end", end_names);

struct store_event history_ended(enum sandbox_end reason)
{
    static const char *const messages[] = {
        [END_KILLED] = "Sandbox killed",
        [END_TIMEOUT] = "Sandbox ended: its time was up",
        [END_CRASHED] = "Sandbox ended: its first process crashed",
        [END_OUT_OF_MEMORY] = "Sandbox ended: out of memory",
        [END_HOST_RESTART] = "Sandbox ended: the host restarted",
    };
    const char *message = reason <= END_HOST_RESTART ? messages[reason] : "Sandbox ended";
    struct store_event event = make("killed", message, str_of(name_of(&sandbox_end_names, reason)));

    if (reason != END_KILLED && reason != END_TIMEOUT)
        event.level = STORE_LEVEL_ERROR;
    return event;
}

static void add(struct sandboxes *all, struct str id, const struct store_event *event)
{
    struct error err = {0};

    if (store_event_add(all->store, id, event, &err) < 0)
        log_warn("sandbox", "event of id=%.*s: %s, ignoring", STR_ARG(id), err.message);
    watchers_call(all);
}

void history_updated(struct sandboxes *all, struct str id, struct str what)
{
    struct store_event event = make("updated", "Sandbox timeout changed", what);

    add(all, id, &event);
}

void history_network(struct sandboxes *all, struct str id, bool internet, bool lists)
{
    struct store_event event =
        lists      ? make("updated", "Network rules changed", STR("network rules"))
        : internet ? make("updated", "Internet access turned on", STR("internet on"))
                   : make("updated", "Internet access turned off", STR("internet off"));

    add(all, id, &event);
}

void history_snapshot(struct sandboxes *all, struct str id, struct str snapshot_id)
{
    struct store_event event = make("checkpointed", "Snapshot made", snapshot_id);

    add(all, id, &event);
}

void history_memory_lost(struct sandboxes *all, struct str id)
{
    struct store_event event = make(
        "memory_lost", "The processes did not survive; a resume boots from the files", STR("disk"));

    event.level = STORE_LEVEL_WARN;
    add(all, id, &event);
}

void history_silent(struct sandboxes *all, struct str id, const struct setup *setup)
{
    auto_arena struct arena arena = {0};
    auto_free char *message = xasprintf("Nothing listened on %s within %d s of the start command",
                                        setup_ports_text(setup, &arena), SETUP_LISTEN_S);
    struct store_event event = make("silent", message, STR_NONE);

    event.level = STORE_LEVEL_WARN;
    add(all, id, &event);
}

static json_t *data_of(const struct store_event *event)
{
    auto_json json_t *metadata = NULL;
    struct error ignored = {0};
    char since[CLOCK_TEXT_SIZE];
    json_t *data;

    if (json_parse(event->metadata, &metadata, &ignored) < 0)
        metadata = json_object();
    data = json_pack("{s:O}", "sandbox_metadata", metadata);
    if (event->detail.len)
        (void)json_object_set_new(data, "detail", json_str(event->detail));
    if (!str_is(event->type, "killed") && !str_is(event->type, "paused"))
        return data;
    clock_format(event->since_us, since);
    (void)json_object_set_new(data, "execution",
                              json_pack("{s:s,s:I,s:I,s:I}", "started_at", since, "vcpu_count",
                                        (json_int_t)event->cpu_count, "memory_mb",
                                        (json_int_t)event->mem_mb, "execution_time",
                                        (json_int_t)((event->at_us - event->since_us) / 1000)));
    return data;
}

/* The older two-part name of a type. */
static const char *label_of(struct str type)
{
    static const char *const labels[][2] = {
        {"created", "create"}, {"updated", "update"},          {"paused", "pause"},
        {"resumed", "resume"}, {"checkpointed", "checkpoint"}, {"killed", "kill"}};

    for (size_t i = 0; i < sizeof(labels) / sizeof(labels[0]); i++)
        if (str_is(type, labels[i][0]))
            return labels[i][1];
    return "other";
}

json_t *sandbox_event_json(const struct store_event *event)
{
    char timestamp[CLOCK_TEXT_SIZE], type[64], execution[64];

    clock_format(event->at_us, timestamp);
    (void)snprintf(type, sizeof(type), SANDBOX_EVENT_PREFIX "%.*s", STR_ARG(event->type));
    (void)snprintf(execution, sizeof(execution), "%.*s-%" PRIx64, STR_ARG(event->sandbox_id),
                   (uint64_t)event->since_us);
    return json_pack("{s:o,s:s,s:s,s:s,s:s,s:s,s:o,s:o,s:s,s:o,s:s,s:o}", "id", json_str(event->id),
                     "version", "v2", "type", type, "timestamp", timestamp, "event_category",
                     "lifecycle", "event_label", label_of(event->type), "event_data",
                     data_of(event), "sandbox_id", json_str(event->sandbox_id),
                     "sandbox_execution_id", execution, "sandbox_template_id",
                     json_str(event->template_id), "sandbox_build_id", "", "sandbox_team_id",
                     json_str(event->team_id));
}

static bool has_type(const struct event_filter *filter, struct str type)
{
    for (size_t i = 0; i < filter->type_count; i++)
        if (str_eq(filter->types[i], type))
            return true;
    return filter->type_count == 0;
}

bool history_matches(const struct event_filter *filter, const struct store_event *event)
{
    return has_type(filter, event->type) && event->level >= filter->min_level &&
           event->at_us >= filter->from_us &&
           (!filter->until_us || event->at_us <= filter->until_us) &&
           (!filter->search.len || str_find_str(event->message, filter->search) >= 0);
}

static void copy(const struct store_event *event, struct arena *arena, struct store_event *out)
{
    struct str *const strings[] = {&out->type,        &out->message, &out->detail,
                                   &out->id,          &out->team_id, &out->sandbox_id,
                                   &out->template_id, &out->metadata};

    *out = *event;
    for (size_t i = 0; i < sizeof(strings) / sizeof(strings[0]); i++)
        *strings[i] = arena_str(arena, *strings[i]);
}

/* One query's worth, in memory of its own: a filter may throw most of it away. True when there is
 * nothing behind it. */
static int read_chunk(struct sandboxes *all, const struct event_filter *filter,
                      struct store_event_query *query, struct event_page *page, size_t *skip,
                      struct error *err)
{
    auto_arena struct arena scratch = {0};
    struct store_event *events;
    size_t count;

    if (store_event_page(all->store, query, &scratch, &events, &count, err) < 0)
        return -1;
    for (size_t i = 0; i < count && page->count < filter->limit; i++) {
        query->after_seq = events[i].seq;
        if (!history_matches(filter, &events[i]))
            continue;
        if (*skip > 0)
            (*skip)--;
        else
            copy(&events[i], page->arena, &page->items[page->count++]);
    }
    page->seen |= count > 0;
    return count < query->limit || page->count == filter->limit;
}

int sandbox_events(struct sandboxes *all, const struct event_filter *filter, struct arena *arena,
                   struct event_page *out, struct error *err)
{
    struct store_event_query query = {.team_id = filter->team_id,
                                      .sandbox_id = filter->sandbox_id,
                                      .ascending = filter->ascending,
                                      .limit = CHUNK};
    size_t skip = filter->offset;
    int last = 0;

    *out = (struct event_page){.arena = arena};
    if (filter->limit < 1 || filter->limit > EVENTS_MAX)
        return error_set(err, ERROR_INVALID, "Limit must be from 1 to %d", EVENTS_MAX);
    out->items = arena_alloc(arena, filter->limit * sizeof(*out->items));
    while (last == 0)
        last = read_chunk(all, filter, &query, out, &skip, err);
    if (last < 0)
        return -1;
    if (filter->sandbox_id.p && !out->seen &&
        !table_visible(all, filter->team_id, filter->sandbox_id, NULL))
        return sandbox_not_found(filter->sandbox_id, err);
    if (filter->with_envd && filter->sandbox_id.p)
        logs_merge(all, filter, arena, out);
    return 0;
}
