#include "domain/network/network_log.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/list.h"
#include "base/map.h"
#include "protocol/json/json_shape.h"

struct owner {
    struct list lines;
    size_t count;
    char *id;
};

struct kept {
    struct list of_all, of_owner;
    struct owner *owner;
    int64_t at_us;
    bool denied;
    size_t message_len, fields_len;
    char text[]; /* both */
};

struct network_log {
    pthread_mutex_t lock; /* guards the rest */
    struct map owners;    /* id -> struct owner */
    struct list lines;    /* of all, the oldest first */
    size_t count;
};

struct network_log *network_log_new(void)
{
    struct network_log *log = xcalloc(1, sizeof(*log));

    (void)pthread_mutex_init(&log->lock, NULL);
    map_init(&log->owners);
    list_init(&log->lines);
    return log;
}

/* A sandbox without lines is not remembered. */
static void forget(struct network_log *log, struct kept *kept)
{
    struct owner *owner = kept->owner;

    list_remove(&kept->of_all);
    list_remove(&kept->of_owner);
    log->count--;
    free(kept);
    if (--owner->count)
        return;
    (void)map_remove(&log->owners, str_of(owner->id));
    free(owner->id);
    free(owner);
}

void network_log_free(struct network_log *log)
{
    while (!list_empty(&log->lines))
        forget(log, container_of(log->lines.next, struct kept, of_all));
    map_done(&log->owners);
    (void)pthread_mutex_destroy(&log->lock);
    free(log);
}

static struct owner *owner_of(struct network_log *log, struct str id)
{
    struct owner *owner = map_get(&log->owners, id);

    if (owner)
        return owner;
    owner = xcalloc(1, sizeof(*owner));
    owner->id = str_dup(id);
    list_init(&owner->lines);
    (void)map_put(&log->owners, id, owner);
    return owner;
}

static struct kept *copy_of(const struct network_line *line)
{
    struct kept *kept = xcalloc(1, sizeof(*kept) + line->message.len + line->fields.len);

    kept->at_us = line->at_us;
    kept->denied = line->denied;
    kept->message_len = line->message.len;
    kept->fields_len = line->fields.len;
    memcpy(kept->text, line->message.p, line->message.len);
    memcpy(kept->text + line->message.len, line->fields.p, line->fields.len);
    return kept;
}

void network_log_add(struct network_log *log, struct str sandbox_id,
                     const struct network_line *line)
{
    struct kept *kept;

    if (line->message.len > NETWORK_LOG_TEXT || line->fields.len > NETWORK_LOG_TEXT)
        return;
    kept = copy_of(line);
    (void)pthread_mutex_lock(&log->lock);
    kept->owner = owner_of(log, sandbox_id);
    list_push_back(&log->lines, &kept->of_all);
    list_push_back(&kept->owner->lines, &kept->of_owner);
    log->count++;
    if (++kept->owner->count > NETWORK_LOG_LINES)
        forget(log, container_of(kept->owner->lines.next, struct kept, of_owner));
    else if (log->count > NETWORK_LOG_ALL)
        forget(log, container_of(log->lines.next, struct kept, of_all));
    (void)pthread_mutex_unlock(&log->lock);
}

size_t network_log_read(struct network_log *log, struct str sandbox_id, struct arena *arena,
                        struct network_line *out, size_t max)
{
    const struct owner *owner;
    struct list *at;
    size_t count = 0;

    (void)pthread_mutex_lock(&log->lock);
    owner = map_get(&log->owners, sandbox_id);
    if (owner)
        list_for_each (at, &owner->lines) {
            const struct kept *kept = container_of(at, struct kept, of_owner);

            if (count == max)
                break;
            out[count++] = (struct network_line){
                .at_us = kept->at_us,
                .denied = kept->denied,
                .message = arena_str(arena, str_n(kept->text, kept->message_len)),
                .fields =
                    arena_str(arena, str_n(kept->text + kept->message_len, kept->fields_len))};
        }
    (void)pthread_mutex_unlock(&log->lock);
    return count;
}

struct log_record {
    struct str id, name, address, protocol, verdict, rule, reason;
    int64_t time, port, lost;
};

static const struct json_field log_fields[] = {
    JSON_FIELD(struct log_record, id, "id", JSON_REQUIRED),
    JSON_FIELD(struct log_record, time, "time", JSON_REQUIRED),
    JSON_FIELD(struct log_record, name, "name", 0),
    JSON_FIELD(struct log_record, address, "address", 0),
    JSON_FIELD(struct log_record, port, "port", 0),
    JSON_FIELD(struct log_record, protocol, "protocol", JSON_REQUIRED),
    JSON_FIELD(struct log_record, verdict, "verdict", JSON_REQUIRED),
    JSON_FIELD(struct log_record, rule, "rule", 0),
    JSON_FIELD(struct log_record, reason, "reason", 0),
    JSON_FIELD(struct log_record, lost, "lost", JSON_OMIT_EMPTY),
    JSON_END,
};

/* As clients see it: without what stands beside it anyway. */
static char *fields_text(json_t *json)
{
    auto_json json_t *fields = json_copy(json);

    (void)json_object_del(fields, "id");
    (void)json_object_del(fields, "time");
    if (!json_integer_value(json_object_get(fields, "lost")))
        (void)json_object_del(fields, "lost");
    return json_text(fields);
}

void network_log_take(struct network_log *log, json_t *json)
{
    struct log_record record = {0};
    struct error ignored;
    auto_free char *message = NULL, *fields = NULL;
    bool denied;

    if (json_read(log_fields, json, &record, &ignored) < 0)
        return;
    denied = str_is(record.verdict, "denied");
    message = xasprintf("%s %.*s to %.*s%s%.*s port %lld: %.*s", denied ? "denied" : "allowed",
                        STR_ARG(record.protocol), STR_ARG(record.name),
                        record.name.len && record.address.len ? " at " : "",
                        STR_ARG(record.address), (long long)record.port, STR_ARG(record.reason));
    fields = fields_text(json);
    network_log_add(log, record.id,
                    &(struct network_line){.at_us = record.time,
                                           .denied = denied,
                                           .message = str_of(message),
                                           .fields = str_of(fields)});
}
