/* Daytona's sandboxes: made, found, stopped, started, snapshotted, deleted.
 *
 * A change of state is asked for and then waited for, with waits that grow, up to a bound. Pause is
 * Daytona's stop, which keeps the disk; nothing but kill deletes. A fresh sandbox never names a
 * snapshot unless the operator or a restore does. A snapshot is told as a manifest with its name and
 * the image its sandbox came from. */
#include "extra/daytona/daytona.h"

#include <poll.h>
#include <string.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/id.h"
#include "protocol/json/json_shape.h"

enum {
    START_MS = 180000,
    STOP_MS = 60000,
    SNAPSHOT_MS = 900000,
    WAIT_MS_MIN = 100,
    WAIT_MS_MAX = 3000,
    PAGES_MAX = 20,
    PAGE_SIZE = 100,
};

enum phase { PHASE_UP, PHASE_DOWN, PHASE_MOVING, PHASE_FAILED, PHASE_GONE };

static enum phase phase_of(struct str state)
{
    static const struct {
        const char *state;
        enum phase phase;
    } known[] = {
        {"started", PHASE_UP},    {"stopped", PHASE_DOWN},        {"paused", PHASE_DOWN},
        {"archived", PHASE_DOWN}, {"destroyed", PHASE_GONE},      {"destroying", PHASE_GONE},
        {"error", PHASE_FAILED},  {"build_failed", PHASE_FAILED},
    };

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (str_is(state, known[i].state))
            return known[i].phase;
    return PHASE_MOVING;
}

static enum provider_state state_of(struct str state)
{
    switch (phase_of(state)) {
    case PHASE_UP:
        return PROVIDER_RUNNING;
    case PHASE_DOWN:
        return PROVIDER_PAUSED;
    case PHASE_MOVING:
        if (str_is(state, "stopping") || str_is(state, "pausing") || str_is(state, "archiving"))
            return PROVIDER_PAUSED;
        return PROVIDER_STARTING;
    case PHASE_FAILED:
    case PHASE_GONE:
        break;
    }
    return PROVIDER_ENDED;
}

static void read_machine(const json_t *json, struct arena *arena, struct provider_sandbox *out)
{
    struct str image = json_get_str(json, "snapshot");

    *out = (struct provider_sandbox){
        .id = arena_str(arena, json_get_str(json, "id")),
        .state = state_of(json_get_str(json, "state")),
        .image = arena_str(arena, image),
    };
    out->label_count = json_pairs(json_object_get(json, "labels"), arena, &out->labels);
    if (json_get_str(json, "toolboxProxyUrl").len)
        out->address = arena_str(arena, json_get_str(json, "toolboxProxyUrl"));
    (void)clock_parse(json_get_str(json, "createdAt"), &out->started_at_us);
}

/* Without an answer. */
static int daytona_post(struct daytona *daytona, const char *path, const struct provider_ref *ref,
                        struct error *err)
{
    struct rest_request request = {.method = "POST", .path = path, .deadline_us = ref->deadline_us};

    return rest_call(&daytona->rest, &request, NULL, err);
}

static int fetch_machine(struct daytona *daytona, const struct provider_ref *ref, json_t **out,
                         struct error *err)
{
    char path[160];
    struct rest_request request = {.method = "GET", .path = path, .deadline_us = ref->deadline_us};

    if (daytona_check_id(daytona, ref->id, err) < 0)
        return -1;
    (void)snprintf(path, sizeof(path), "/sandbox/%.*s", STR_ARG(ref->id));
    if (rest_call(&daytona->rest, &request, out, err) < 0)
        return -1;
    if (!str_eq(json_get_str(*out, "id"), ref->id))
        return error_set(err, ERROR_UNAVAILABLE, "%s: an answer about another sandbox",
                         daytona->who);
    if (phase_of(json_get_str(*out, "state")) == PHASE_GONE)
        return error_set(err, ERROR_NOT_FOUND, "%s: sandbox '%.*s' is destroyed", daytona->who,
                         STR_ARG(ref->id));
    return 0;
}

static int failed(struct daytona *daytona, const json_t *machine, struct error *err)
{
    struct str why = json_get_str(machine, "errorReason");

    return error_set(err, ERROR_UNAVAILABLE, "%s: the sandbox is in state '%.*s': %.*s",
                     daytona->who, STR_ARG(json_get_str(machine, "state")),
                     (int)(why.len < 160 ? why.len : 160), why.p ? why.p : "no reason told");
}

/* Until it is no longer on its way. *machine: what is known, and then the newest (json_decref). */
static int settle(struct daytona *daytona, const struct provider_ref *ref, json_t **machine,
                  uint32_t timeout_ms, struct error *err)
{
    int64_t deadline = clock_mono_ms() + timeout_ms;
    int wait_ms = WAIT_MS_MIN;

    for (;;) {
        enum phase phase = phase_of(json_get_str(*machine, "state"));

        if (phase == PHASE_FAILED)
            return failed(daytona, *machine, err);
        if (phase != PHASE_MOVING)
            return 0;
        if (clock_mono_ms() + wait_ms > deadline)
            return error_set(err, ERROR_TIMEOUT, "%s: sandbox '%.*s' stays in state '%.*s'",
                             daytona->who, STR_ARG(ref->id),
                             STR_ARG(json_get_str(*machine, "state")));
        (void)poll(NULL, 0, wait_ms);
        wait_ms = wait_ms * 2 < WAIT_MS_MAX ? wait_ms * 2 : WAIT_MS_MAX;
        json_decref(*machine);
        *machine = NULL;
        if (fetch_machine(daytona, ref, machine, err) < 0)
            return -1;
    }
}

/* Asks for a change and waits for where it leads. */
static int change(struct daytona *daytona, const struct provider_ref *ref, const char *verb,
                  json_t **machine, uint32_t timeout_ms, struct error *err)
{
    char path[192];

    (void)snprintf(path, sizeof(path), "/sandbox/%.*s%s", STR_ARG(ref->id), verb);
    if (daytona_post(daytona, path, ref, err) < 0)
        return -1;
    json_decref(*machine);
    *machine = NULL;
    if (fetch_machine(daytona, ref, machine, err) < 0)
        return -1;
    return settle(daytona, ref, machine, timeout_ms, err);
}

/* ---- create ---- */

static json_t *joined(const json_t *list)
{
    auto_buf struct buf text;
    const json_t *item;
    size_t i;

    buf_init(&text, 64 * 1024);
    json_array_foreach (list, i, item)
        (void)buf_printf(&text, "%s%s", i ? "," : "", json_string_value(item));
    return json_str(buf_str(&text));
}

static int add_image(struct daytona *daytona, const struct provider_spec *spec, json_t *body,
                     struct error *err)
{
    struct str image = spec->image.len ? spec->image : str_of(daytona->image);
    auto_json json_t *manifest = NULL;
    struct str name = spec->snapshot;
    struct error ignored;

    if (name.len && json_parse(name, &manifest, &ignored) == 0)
        name = json_get_str(manifest, "snapshot_name");
    if (spec->snapshot.len && !rest_id_valid(name))
        return error_set(err, ERROR_INVALID, "%s: the reference is no snapshot of Daytona's",
                         daytona->who);
    if (name.len) {
        (void)json_object_set_new(body, "snapshot", json_str(name));
    } else if (image.len) {
        /* It becomes a line of a Dockerfile. */
        for (size_t i = 0; i < image.len; i++)
            if ((unsigned char)image.p[i] <= ' ' || image.p[i] == 0x7f)
                return error_set(err, ERROR_INVALID, "%s: the image's name has blanks in it",
                                 daytona->who);
        (void)json_object_set_new(
            body, "buildInfo",
            json_pack("{s:o}", "dockerfileContent", json_sprintf("FROM %.*s\n", STR_ARG(image))));
    } else if (daytona->snapshot) {
        (void)json_object_set_new(body, "snapshot", json_string(daytona->snapshot));
    }
    return 0;
}

static int64_t minutes(int64_t seconds)
{
    return seconds > 0 ? (seconds + 59) / 60 : 0;
}

static int create_json(struct daytona *daytona, const struct provider_spec *spec, json_t **out,
                       struct error *err)
{
    auto_json json_t *body =
        json_pack("{s:o, s:o}", "env", json_of_pairs(spec->env, spec->env_count), "labels",
                  json_of_pairs(spec->labels, spec->label_count));

    if (add_image(daytona, spec, body, err) < 0)
        return -1;
    if (daytona->target)
        (void)json_object_set_new(body, "target", json_string(daytona->target));
    if (spec->egress == EGRESS_DENY_ALL)
        (void)json_object_set_new(body, "networkBlockAll", json_true());
    if (spec->egress == EGRESS_RESTRICTED && json_array_size(spec->allow_cidrs))
        (void)json_object_set_new(body, "networkAllowList", joined(spec->allow_cidrs));
    if (spec->egress == EGRESS_RESTRICTED && json_array_size(spec->allow_domains))
        (void)json_object_set_new(body, "domainAllowList", joined(spec->allow_domains));
    /* Nothing allowed is everything refused. */
    if (spec->egress == EGRESS_RESTRICTED && !json_array_size(spec->allow_cidrs) &&
        !json_array_size(spec->allow_domains))
        (void)json_object_set_new(body, "networkBlockAll", json_true());
    if (spec->disk_mb > 0)
        (void)json_object_set_new(body, "disk", json_integer((spec->disk_mb + 1023) / 1024));
    if (spec->cpu > 0)
        (void)json_object_set_new(body, "cpu", json_integer(spec->cpu));
    if (spec->mem_mb > 0)
        (void)json_object_set_new(body, "memory", json_integer((spec->mem_mb + 1023) / 1024));
    if (spec->ttl_s > 0) {
        (void)json_object_set_new(body, "autoStopInterval", json_integer(minutes(spec->ttl_s)));
        if (!spec->pause_at_ttl)
            (void)json_object_set_new(body, "autoDeleteInterval", json_integer(0));
    }
    *out = take_ptr(&body);
    return 0;
}

int daytona_create(struct provider *provider, const struct provider_spec *spec, struct arena *arena,
                   struct provider_sandbox *out, struct error *err)
{
    struct daytona *daytona = daytona_of(provider);
    auto_json json_t *body = NULL, *machine = NULL;
    struct provider_ref ref = {.deadline_us = provider_spec_deadline(spec)};
    struct rest_request request = {.method = "POST",
                                   .path = "/sandbox",
                                   .timeout_ms = START_MS,
                                   .deadline_us = ref.deadline_us};

    if (create_json(daytona, spec, &body, err) < 0)
        return -1;
    request.body = body;
    if (rest_call(&daytona->rest, &request, &machine, err) < 0)
        return -1;
    ref.id = arena_str(arena, json_get_str(machine, "id"));
    if (!rest_id_valid(ref.id))
        return error_set(err, ERROR_UNAVAILABLE, "%s: a sandbox without an id", daytona->who);
    if (settle(daytona, &ref, &machine, START_MS, err) < 0) {
        struct error ignored;

        (void)daytona_kill(provider, &ref, &ignored);
        return -1;
    }
    read_machine(machine, arena, out);
    if (spec->image.len)
        out->image = arena_str(arena, spec->image);
    return 0;
}

/* ---- find, get ---- */

static int find_page(struct daytona *daytona, const char *labels_json, struct str cursor,
                     int64_t deadline_us, json_t **out, struct error *err)
{
    struct rest_request request = {.method = "GET", .deadline_us = deadline_us};
    auto_buf struct buf path;

    buf_init(&path, HTTP_URL_MAX);
    (void)buf_printf(&path, "/sandbox");
    rest_query(&path, "labels", str_of(labels_json));
    (void)buf_printf(&path, "&limit=%d", PAGE_SIZE);
    if (cursor.len)
        rest_query(&path, "cursor", cursor);
    if (path.overflowed)
        return error_set(err, ERROR_LIMIT, "%s: the labels are too long", daytona->who);
    request.path = path.p;
    return rest_call(&daytona->rest, &request, out, err);
}

int daytona_find(struct provider *provider, const struct provider_query *query, struct arena *arena,
                 struct provider_sandbox **out, size_t *out_count, struct error *err)
{
    struct daytona *daytona = daytona_of(provider);
    auto_json json_t *wanted = json_of_pairs(query->labels, query->label_count);
    auto_free char *text = json_text(wanted);
    struct str cursor = STR_NONE;
    size_t room = 0;

    *out = NULL;
    *out_count = 0;
    for (int page = 0; page < PAGES_MAX; page++) {
        auto_json json_t *answer = NULL;
        json_t *items, *item;
        struct provider_sandbox *grown;
        size_t i;

        if (find_page(daytona, text, cursor, query->deadline_us, &answer, err) < 0)
            return -1;
        items = json_is_array(answer) ? answer : json_object_get(answer, "items");
        if (!json_is_array(items))
            return error_set(err, ERROR_UNAVAILABLE, "%s: an answer that is no list of sandboxes",
                             daytona->who);
        room = *out_count + json_array_size(items) + 1;
        grown = arena_alloc(arena, room * sizeof(*grown));
        if (*out_count)
            memcpy(grown, *out, *out_count * sizeof(*grown));
        *out = grown;
        json_array_foreach (items, i, item) {
            struct provider_sandbox *machine = &(*out)[*out_count];

            read_machine(item, arena, machine);
            if (rest_id_valid(machine->id) && machine->state != PROVIDER_ENDED)
                (*out_count)++;
        }
        cursor = arena_str(arena, json_get_str(answer, "nextCursor"));
        if (!cursor.len)
            break;
    }
    return 0;
}

int daytona_get(struct provider *provider, const struct provider_ref *ref, struct arena *arena,
                struct provider_sandbox *out, struct error *err)
{
    auto_json json_t *machine = NULL;

    if (fetch_machine(daytona_of(provider), ref, &machine, err) < 0)
        return -1;
    read_machine(machine, arena, out);
    return 0;
}

/* ---- states ---- */

int daytona_extend(struct provider *provider, const struct provider_ref *ref, int64_t ttl_s,
                   struct error *err)
{
    struct daytona *daytona = daytona_of(provider);
    char path[192];

    if (daytona_check_id(daytona, ref->id, err) < 0)
        return -1;
    (void)snprintf(path, sizeof(path), "/sandbox/%.*s/autostop/%lld", STR_ARG(ref->id),
                   (long long)minutes(ttl_s));
    return daytona_post(daytona, path, ref, err);
}

int daytona_connect(struct provider *provider, const struct provider_ref *ref, int64_t ttl_s,
                    struct arena *arena, struct provider_sandbox *out, struct error *err)
{
    struct daytona *daytona = daytona_of(provider);
    auto_json json_t *machine = NULL;

    if (fetch_machine(daytona, ref, &machine, err) < 0 ||
        settle(daytona, ref, &machine, START_MS, err) < 0)
        return -1;
    if (phase_of(json_get_str(machine, "state")) == PHASE_DOWN &&
        change(daytona, ref, "/start", &machine, START_MS, err) < 0)
        return -1;
    if (phase_of(json_get_str(machine, "state")) != PHASE_UP)
        return error_set(err, ERROR_CONFLICT, "%s: sandbox '%.*s' does not start", daytona->who,
                         STR_ARG(ref->id));
    if (ttl_s > 0 && daytona_extend(provider, ref, ttl_s, err) < 0)
        return -1;
    read_machine(machine, arena, out);
    return 0;
}

int daytona_pause(struct provider *provider, const struct provider_ref *ref, struct error *err)
{
    struct daytona *daytona = daytona_of(provider);
    auto_json json_t *machine = NULL;

    if (fetch_machine(daytona, ref, &machine, err) < 0 ||
        settle(daytona, ref, &machine, STOP_MS, err) < 0)
        return -1;
    if (phase_of(json_get_str(machine, "state")) == PHASE_DOWN)
        return 0;
    if (change(daytona, ref, "/stop", &machine, STOP_MS, err) < 0)
        return -1;
    if (phase_of(json_get_str(machine, "state")) != PHASE_DOWN)
        return error_set(err, ERROR_CONFLICT, "%s: sandbox '%.*s' does not stop", daytona->who,
                         STR_ARG(ref->id));
    return 0;
}

int daytona_kill(struct provider *provider, const struct provider_ref *ref, struct error *err)
{
    struct daytona *daytona = daytona_of(provider);
    char path[160];
    struct rest_request request = {
        .method = "DELETE", .path = path, .deadline_us = ref->deadline_us};

    if (daytona_check_id(daytona, ref->id, err) < 0)
        return 0; /* it cannot be there */
    (void)snprintf(path, sizeof(path), "/sandbox/%.*s", STR_ARG(ref->id));
    if (rest_call(&daytona->rest, &request, NULL, err) == 0 || err->code == ERROR_NOT_FOUND)
        return 0;
    return -1;
}

/* ---- snapshots ---- */

int daytona_snapshot(struct provider *provider, const struct provider_ref *ref, const char *name,
                     struct arena *arena, struct str *out, struct error *err)
{
    struct daytona *daytona = daytona_of(provider);
    auto_json json_t *machine = NULL, *manifest = NULL;
    auto_json json_t *body = json_pack("{s:s}", "name", name);
    auto_free char *text = NULL;
    char path[192];
    struct rest_request request = {.method = "POST",
                                   .path = path,
                                   .body = body,
                                   .timeout_ms = SNAPSHOT_MS,
                                   .deadline_us = ref->deadline_us};

    if (!rest_id_valid(str_of(name)))
        return error_set(err, ERROR_INVALID, "%s: '%s' is no name for a snapshot", daytona->who,
                         name);
    if (fetch_machine(daytona, ref, &machine, err) < 0)
        return -1;
    manifest = json_pack("{s:s, s:o}", "snapshot_name", name, "base_image",
                         json_str(json_get_str(machine, "snapshot")));
    (void)snprintf(path, sizeof(path), "/sandbox/%.*s/snapshot", STR_ARG(ref->id));
    if (rest_call(&daytona->rest, &request, NULL, err) < 0)
        return -1;
    json_decref(machine);
    machine = NULL;
    if (fetch_machine(daytona, ref, &machine, err) < 0 ||
        settle(daytona, ref, &machine, SNAPSHOT_MS, err) < 0)
        return -1;
    text = json_text(manifest);
    *out = arena_str(arena, str_of(text));
    return 0;
}

/* Deletion goes by id, and we know the name. */
int daytona_snapshot_delete(struct provider *provider, struct str team_id, struct str snapshot,
                            struct error *err)
{
    struct daytona *daytona = daytona_of(provider);
    auto_json json_t *manifest = NULL, *answer = NULL;
    struct str name = snapshot, id;
    struct error ignored;
    char path[192];

    (void)team_id;
    if (json_parse(snapshot, &manifest, &ignored) == 0)
        name = json_get_str(manifest, "snapshot_name");
    if (!rest_id_valid(name))
        return error_set(err, ERROR_INVALID, "%s: the reference is no snapshot of Daytona's",
                         daytona->who);
    (void)snprintf(path, sizeof(path), "/snapshots/%.*s", STR_ARG(name));
    if (rest_call(&daytona->rest, &(struct rest_request){.method = "GET", .path = path}, &answer,
                  err) < 0)
        return err->code == ERROR_NOT_FOUND ? 0 : -1;
    id = json_get_str(answer, "id");
    if (!rest_id_valid(id))
        return error_set(err, ERROR_UNAVAILABLE, "%s: a snapshot without an id", daytona->who);
    (void)snprintf(path, sizeof(path), "/snapshots/%.*s", STR_ARG(id));
    if (rest_call(&daytona->rest, &(struct rest_request){.method = "DELETE", .path = path}, NULL,
                  err) == 0 ||
        err->code == ERROR_NOT_FOUND)
        return 0;
    return -1;
}
