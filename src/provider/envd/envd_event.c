/* What an envd's process stream says. Every byte is the sandbox's and may be a lie. */
#include <signal.h>
#include <string.h>

#include "base/alloc.h"
#include "base/encode.h"
#include "protocol/json/json_shape.h"
#include "protocol/rpc/connect.h"
#include "provider/envd/envd_client.h"

static struct envd_event *push(struct envd_events *events, enum provider_event_kind kind)
{
    if (events->count == events->cap) {
        events->cap = events->cap ? events->cap * 2 : 16;
        events->items = xrealloc(events->items, events->cap * sizeof(*events->items));
    }
    events->items[events->count] = (struct envd_event){.kind = kind};
    return &events->items[events->count++];
}

static int junk(struct envd_events *events, const char *what)
{
    return error_set(&events->why, ERROR_UNAVAILABLE, "envd sent %s", what);
}

static int add_data(struct envd_events *events, enum provider_event_kind kind, struct str base64)
{
    size_t offset = events->data.len;
    struct envd_event *event;

    if (!events->data.max)
        buf_init(&events->data, 2 * (size_t)ENVD_MESSAGE_MAX);
    if (!base64_decode(base64, &events->data) || events->data.overflowed)
        return junk(events, "output that is not base64");
    if (events->data.len == offset)
        return 0;
    event = push(events, kind);
    event->offset = offset;
    event->len = events->data.len - offset;
    return 0;
}

int envd_exit_code(struct str status, int64_t exit_code)
{
    int64_t number;

    if (str_starts(status, STR("exit status ")) && str_to_i64(str_skip(status, 12), &number))
        return (int)(number & 0xff);
    if (!str_starts(status, STR("signal: ")))
        return (int)(exit_code & 0xff);
    status = str_skip(status, 8);
    if (str_ends(status, STR(" (core dumped)")))
        status.len -= 14;
    if (str_starts(status, STR("signal ")) && str_to_i64(str_skip(status, 7), &number) &&
        number > 0 && number < 127)
        return 128 + (int)number;
    for (int n = 1; n < 32; n++) {
        const char *words = sigdescr_np(n);

        if (words && str_eq_nocase(status, str_of(words)))
            return 128 + n;
    }
    return 255;
}

static int64_t get_int(const json_t *object, const char *name)
{
    const json_t *value = json_object_get(object, name);
    int64_t number = json_integer_value(value);

    if (json_is_string(value))
        (void)str_to_i64(str_of(json_string_value(value)), &number);
    return number;
}

static int add_event(struct envd_events *events, const json_t *event)
{
    static const struct {
        const char *name;
        enum provider_event_kind kind;
    } channels[] = {
        {"stdout", PROVIDER_STDOUT}, {"stderr", PROVIDER_STDERR}, {"pty", PROVIDER_STDOUT}};
    const json_t *part;

    if (events->exited)
        return 0;
    if ((part = json_object_get(event, "start"))) {
        int64_t pid = get_int(part, "pid");

        if (pid <= 0 || pid > INT32_MAX)
            return junk(events, "a start without a pid");
        if (!events->pid) {
            events->pid = pid;
            push(events, PROVIDER_STARTED)->pid = pid;
        }
    }
    if ((part = json_object_get(event, "data")))
        for (size_t i = 0; i < sizeof(channels) / sizeof(channels[0]); i++) {
            struct str base64 = json_get_str(part, channels[i].name);

            if (base64.p && add_data(events, channels[i].kind, base64) < 0)
                return -1;
        }
    if ((part = json_object_get(event, "end"))) {
        struct envd_event *end = push(events, PROVIDER_EXITED);

        events->exited = true;
        end->exit_code = envd_exit_code(json_get_str(part, "status"), get_int(part, "exitCode"));
        end->out_of_memory =
            end->exit_code != 0 && str_ends(json_get_str(part, "error"), STR(": out of memory"));
    }
    return 0;
}

/* {} or {"error":{"code","message"}}. A deadline is the program's own: it was ended by it. */
static int add_end(struct envd_events *events, const json_t *frame)
{
    const json_t *error = json_object_get(frame, "error");
    struct str code = json_get_str(error, "code"), message = json_get_str(error, "message");

    events->ended = true;
    if (!error || events->exited)
        return 0;
    if (str_is(code, "deadline_exceeded") && events->pid) {
        struct envd_event *event = push(events, PROVIDER_EXITED);

        event->exit_code = 128 + SIGKILL;
        event->timed_out = true;
        events->exited = true;
        return 0;
    }
    if (message.len > 200)
        message.len = 200;
    (void)error_set(&events->why, envd_code(code), "%.*s", STR_ARG(message));
    return 0;
}

/* Output as envds usually write it, which is most of what they send: nothing but base64 between known
 * words. false: nothing was taken. */
static bool add_plain(struct envd_events *events, struct str message)
{
    static const struct str heads[] = {STR_INIT("{\"event\":{\"data\":{\"stdout\":\""),
                                       STR_INIT("{\"event\":{\"data\":{\"stderr\":\"")};
    struct str tail = STR("\"}}}");
    size_t head = heads[0].len, before = events->data.len;
    bool is_err = str_starts(message, heads[1]);

    if ((!is_err && !str_starts(message, heads[0])) || !str_ends(message, tail) ||
        message.len < head + tail.len || events->exited)
        return false;
    message = str_n(message.p + head, message.len - head - tail.len);
    if (add_data(events, is_err ? PROVIDER_STDERR : PROVIDER_STDOUT, message) == 0)
        return true;
    events->data.len = before;
    events->why = (struct error){0};
    return false;
}

int envd_events_add(void *arg, uint8_t flags, struct str message)
{
    struct envd_events *events = arg;
    auto_json json_t *json = NULL;

    if (events->ended)
        return junk(events, "more after the end");
    if (!(flags & CONNECT_END) && add_plain(events, message))
        return 0;
    if (envd_parse(message, &json) < 0)
        return junk(events, "a message that is no JSON");
    if (flags & CONNECT_END)
        return add_end(events, json);
    return add_event(events, json_object_get(json, "event"));
}

void envd_events_done(struct envd_events *events)
{
    free(events->items);
    buf_done(&events->data);
}
