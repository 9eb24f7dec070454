/* Output of processes as events, for those who watch now: process.output {stream, data, dropped?}. It is
 * passed on and never kept here; what a command printed is in its answer, what a job printed in its log.
 *
 * Nobody watches: it costs a look at the list of watchers. A process that prints more than the limit is
 * told in parts, and how much was left out. */
#include <string.h>

#include "base/clock.h"
#include "protocol/json/json_shape.h"
#include "runtime/run/output.h"

enum {
    PIECE_MAX = 8 * 1024,
    PER_S_MAX = 128 * 1024, /* of one process */
};

void runtime_output_init(struct runtime_output *output, struct runtime *runtime,
                         const struct runtime_caller *caller, const struct runtime_event *about)
{
    *output = (struct runtime_output){.runtime = runtime, .caller = caller, .event = *about};
    output->event.type = STR("process.output");
}

bool runtime_output_watched(const struct runtime_output *output)
{
    return runtime_event_watched(output->runtime, output->caller, &output->event);
}

/* How many of the last bytes begin a character that is not whole. */
static size_t open_end(struct str data)
{
    for (size_t back = 1; back <= 3 && back <= data.len; back++) {
        unsigned char c = (unsigned char)data.p[data.len - back];
        size_t size = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : c >= 0xc0 ? 2 : 1;

        if ((c & 0xc0) != 0x80)
            return size > back ? back : 0;
    }
    return 0;
}

static void tell(struct runtime_output *output, bool is_err, struct str text)
{
    json_t *data =
        json_pack("{s:s, s:o}", "stream", is_err ? "stderr" : "stdout", "data", json_str(text));

    if (output->dropped)
        (void)json_object_set_new(data, "dropped", json_integer(output->dropped));
    output->dropped = 0;
    output->event.data = data;
    runtime_event_pass(output->runtime, output->caller, &output->event);
    json_decref(data);
    output->event.data = NULL;
}

static bool within_rate(struct runtime_output *output, size_t len)
{
    int64_t now_us = clock_mono_us();

    if (now_us - output->second_us >= 1000000) {
        output->second_us = now_us;
        output->told = 0;
    }
    output->told += len;
    return output->told <= PER_S_MAX;
}

void runtime_output_tell(struct runtime_output *output, bool is_err, struct str data)
{
    struct runtime_output_rest *rest = &output->rest[is_err];

    if (!data.len || !runtime_output_watched(output)) {
        rest->len = 0;
        return;
    }
    while (data.len) {
        char piece[PIECE_MAX];
        size_t room = sizeof(piece) - rest->len, take = data.len < room ? data.len : room;
        struct str text = str_n(piece, rest->len + take);
        size_t open;

        memcpy(piece, rest->bytes, rest->len);
        memcpy(piece + rest->len, data.p, take);
        data = str_skip(data, take);
        open = open_end(text);
        text.len -= open;
        memcpy(rest->bytes, piece + text.len, open);
        rest->len = open;
        if (text.len && within_rate(output, text.len))
            tell(output, is_err, text);
        else
            output->dropped += (int64_t)text.len;
    }
}
