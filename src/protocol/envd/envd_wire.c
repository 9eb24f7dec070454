/* Members are named by their numbers in process.proto and filesystem.proto; envd_wire_test.c compares
 * what is written and read here with the tables made from those files. */
#include "protocol/envd/envd_wire.h"

#include <signal.h>
#include <string.h>

#include "base/cleanup.h"
#include "protocol/json/json_shape.h"
#include "protocol/rpc/proto_wire.h"

enum { FILES_MAX = 256 * 1024 };

/* ---- requests ---- */

/* Text that is not UTF-8 is repaired: a receiver would refuse the whole message. */
static void put_text(struct buf *out, uint32_t field, struct str text)
{
    auto_json json_t *repaired = NULL;

    if (!str_valid_utf8(text)) {
        repaired = json_str(text);
        text = str_n(json_string_value(repaired), json_string_length(repaired));
    }
    (void)proto_wire_add_bytes(out, field, text);
}

static void put_size(struct buf *out, uint16_t cols, uint16_t rows)
{
    size_t pty = proto_wire_begin(out, 2), size = proto_wire_begin(out, 1);

    (void)proto_wire_add_number(out, 1, cols);
    (void)proto_wire_add_number(out, 2, rows);
    (void)proto_wire_add_length(out, size);
    (void)proto_wire_add_length(out, pty);
}

void envd_put_start(struct buf *out, const struct envd_command *command)
{
    size_t process = proto_wire_begin(out, 1);

    put_text(out, 1, str_of(command->argv[0]));
    for (size_t i = 1; command->argv[i]; i++)
        put_text(out, 2, str_of(command->argv[i]));
    for (size_t i = 0; i < command->env_count; i++) {
        size_t entry = proto_wire_begin(out, 3);

        put_text(out, 1, command->env[i].name);
        put_text(out, 2, command->env[i].value);
        (void)proto_wire_add_length(out, entry);
    }
    if (command->cwd)
        put_text(out, 4, str_of(command->cwd));
    (void)proto_wire_add_length(out, process);
    if (command->pty)
        put_size(out, command->cols ? command->cols : 80, command->rows ? command->rows : 24);
    if (command->tag)
        put_text(out, 3, str_of(command->tag));
    (void)proto_wire_add_number(out, 4, command->open_stdin);
}

void envd_put_process(struct buf *out, const char *tag, int64_t pid)
{
    size_t selector = proto_wire_begin(out, 1);

    if (tag)
        put_text(out, 2, str_of(tag));
    else
        (void)proto_wire_add_number(out, 1, (uint64_t)pid);
    (void)proto_wire_add_length(out, selector);
}

void envd_put_input(struct buf *out, int64_t pid, bool to_pty, struct str data)
{
    size_t input;

    envd_put_process(out, NULL, pid);
    input = proto_wire_begin(out, 2);
    (void)proto_wire_add_bytes(out, to_pty ? 2 : 1, data);
    (void)proto_wire_add_length(out, input);
}

void envd_put_resize(struct buf *out, int64_t pid, uint16_t cols, uint16_t rows)
{
    envd_put_process(out, NULL, pid);
    put_size(out, cols, rows);
}

void envd_put_signal(struct buf *out, int64_t pid, int signal)
{
    envd_put_process(out, NULL, pid);
    (void)proto_wire_add_number(out, 2, (uint64_t)signal);
}

void envd_put_path(struct buf *out, const char *path, unsigned depth)
{
    (void)proto_wire_add_bytes(out, 1, str_of(path));
    if (depth)
        (void)proto_wire_add_number(out, 2, depth);
}

/* ---- answers ---- */

static int junk(struct error *err, const char *what)
{
    return error_set(err, ERROR_UNAVAILABLE, "envd sent %s", what);
}

static int read_text(const struct proto_item *item, struct str *out, struct error *err)
{
    if (!str_valid_utf8(item->bytes) || str_find(item->bytes, '\0') >= 0)
        return junk(err, "text that is not UTF-8");
    *out = item->bytes;
    return 0;
}

/* The message that is the member `field`, or an empty one. */
static int read_inner(struct str message, uint32_t field, struct str *out, struct error *err)
{
    struct proto_item item;
    int r;

    *out = STR("");
    while ((r = proto_wire_next(&message, &item)) > 0)
        if (item.field == field && item.type == PROTO_WIRE_BYTES)
            *out = item.bytes;
    return r < 0 ? junk(err, "an invalid message") : 0;
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

static int read_start(struct str in, struct envd_event *out, struct error *err)
{
    struct proto_item item;
    int r;

    while ((r = proto_wire_next(&in, &item)) > 0)
        if (item.field == 1 && item.type == PROTO_WIRE_VARINT)
            out->pid = item.number <= INT32_MAX ? (int64_t)item.number : 0;
    if (r < 0 || out->pid <= 0)
        return junk(err, "a start without a pid");
    out->kind = ENVD_STARTED;
    return 0;
}

static int read_data(struct str in, struct envd_event *out, struct error *err)
{
    static const enum envd_event_kind kinds[] = {
        [1] = ENVD_STDOUT, [2] = ENVD_STDERR, [3] = ENVD_STDOUT /* of a terminal */};
    struct proto_item item;
    int r;

    while ((r = proto_wire_next(&in, &item)) > 0) {
        if (item.field > 3 || item.type != PROTO_WIRE_BYTES)
            continue;
        out->kind = item.bytes.len ? kinds[item.field] : ENVD_NOTHING;
        out->data = item.bytes;
    }
    return r < 0 ? junk(err, "output that is not a message") : 0;
}

static int read_end(struct str in, struct envd_event *out, struct error *err)
{
    struct str error = STR("");
    int64_t exit_code = 0;
    struct proto_item item;
    int r;

    out->status = STR("");
    while ((r = proto_wire_next(&in, &item)) > 0) {
        if (item.type == PROTO_WIRE_VARINT && item.field == 1)
            exit_code = proto_wire_unzigzag((uint32_t)item.number);
        if (item.type == PROTO_WIRE_BYTES &&
            ((item.field == 3 && read_text(&item, &out->status, err) < 0) ||
             (item.field == 4 && read_text(&item, &error, err) < 0)))
            return -1;
    }
    if (r < 0)
        return junk(err, "an end that is not a message");
    out->kind = ENVD_EXITED;
    out->exit_code = envd_exit_code(out->status, exit_code);
    out->out_of_memory = out->exit_code != 0 && str_ends(error, STR(": out of memory"));
    return 0;
}

/* Of a oneof, what comes last counts. */
int envd_read_event(struct str message, struct envd_event *out, struct error *err)
{
    static int (*const readers[])(struct str, struct envd_event *, struct error *) = {
        [1] = read_start, [2] = read_data, [3] = read_end};
    struct proto_item item;
    struct str event;
    int r;

    *out = (struct envd_event){0};
    if (read_inner(message, 1, &event, err) < 0)
        return -1;
    while ((r = proto_wire_next(&event, &item)) > 0) {
        if (item.type != PROTO_WIRE_BYTES)
            continue;
        *out = (struct envd_event){0};
        if (item.field <= 3 && readers[item.field](item.bytes, out, err) < 0)
            return -1;
    }
    return r < 0 ? junk(err, "an invalid event") : 0;
}

/* google.protobuf.Timestamp; what does not fit is the Epoch. */
static int read_time(struct str in, int64_t *out_us, struct error *err)
{
    int64_t seconds = 0, nanos = 0;
    struct proto_item item;
    int r;

    while ((r = proto_wire_next(&in, &item)) > 0)
        if (item.type == PROTO_WIRE_VARINT && item.field <= 2)
            *(item.field == 1 ? &seconds : &nanos) = (int64_t)item.number;
    if (nanos < 0 || nanos >= 1000000000 ||
        __builtin_mul_overflow(seconds, INT64_C(1000000), out_us) ||
        __builtin_add_overflow(*out_us, nanos / 1000, out_us))
        *out_us = 0;
    return r < 0 ? junk(err, "an invalid time") : 0;
}

static int read_entry(struct str in, struct arena *arena, struct envd_file *out, struct error *err)
{
    struct str name = STR(""), path = STR("");
    struct proto_item item;
    int r;

    *out = (struct envd_file){0};
    while ((r = proto_wire_next(&in, &item)) > 0) {
        if (item.type == PROTO_WIRE_VARINT) {
            if (item.field == 2)
                out->directory = item.number == 2;
            else if (item.field == 4)
                out->size = (int64_t)item.number;
            else if (item.field == 5)
                out->mode = (uint32_t)item.number;
        } else if ((item.field == 1 && read_text(&item, &name, err) < 0) ||
                   (item.field == 3 && read_text(&item, &path, err) < 0) ||
                   (item.field == 9 && read_time(item.bytes, &out->modified_at_us, err) < 0)) {
            return -1;
        }
    }
    out->name = arena_str(arena, name);
    out->path = arena_str(arena, path);
    return r < 0 ? junk(err, "a file that is not a message") : 0;
}

int envd_read_file(struct str message, struct arena *arena, struct envd_file *out,
                   struct error *err)
{
    struct str entry;

    if (read_inner(message, 1, &entry, err) < 0)
        return -1;
    return read_entry(entry, arena, out, err);
}

/* Twice over the message, so that its files are one array. */
int envd_read_list(struct str message, struct arena *arena, struct envd_file **out,
                   size_t *out_count, struct error *err)
{
    struct str rest = message;
    struct proto_item item;
    size_t count = 0;
    int r;

    while ((r = proto_wire_next(&rest, &item)) > 0)
        count += item.field == 1 && item.type == PROTO_WIRE_BYTES;
    if (r < 0)
        return junk(err, "a list that is not a message");
    if (count > FILES_MAX)
        return junk(err, "a list with too many files");
    *out = arena_alloc(arena, (count + 1) * sizeof(**out));
    *out_count = count;
    for (size_t i = 0; proto_wire_next(&message, &item) > 0;)
        if (item.field == 1 && item.type == PROTO_WIRE_BYTES &&
            read_entry(item.bytes, arena, &(*out)[i++], err) < 0)
            return -1;
    return 0;
}
