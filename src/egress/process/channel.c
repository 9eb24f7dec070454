/* The server's end: one connection, lines of JSON both ways. The newest one counts; when the server starts again it
 * tells everything again, ended by {"synced":true}, and what it did not name is dropped then. Until it comes back
 * everything stays as it was.
 *
 *   {"set":{"address":"10.213.64.7","id":"i…","team":"…","group":N,"policy":{…}}}   {"drop":{"address":…,"id":…}}   {"synced":true}
 *   {"authority":{"certificate":PEM,"key":PEM}}: before policies that need it; the newest one signs
 *
 * Each line is answered by {"ok":N}, N being its number on this connection, or {"ok":N,"error":"…"}. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/log.h"
#include "egress/process/egress_internal.h"
#include "protocol/json/json_shape.h"
#include "protocol/tls/tls_intercept.h"

enum {
    RECORD_MAX = 6 * 1024 * 1024, /* a policy of 20,000 names */
    UNSENT_MAX = 4 * 1024 * 1024,
};

struct channel {
    struct egress *egress;
    struct stream *stream;
    struct buf in, out;
    json_int_t lines;
};

static void update(struct channel *channel);

void channel_free(struct channel *channel)
{
    if (!channel)
        return;
    channel->egress->channel = NULL;
    stream_close(channel->stream, false);
    buf_done(&channel->in);
    buf_done(&channel->out);
    loop_free_later(channel->egress->loop, channel);
}

/* ---- records ---- */

struct set_record {
    struct str address, id, team;
    json_t *policy;
    int64_t group; /* of its private network, which the policy's "peers" names; 0 = none */
};

static const struct json_field set_fields[] = {
    JSON_FIELD(struct set_record, address, "address", JSON_REQUIRED),
    JSON_FIELD(struct set_record, id, "id", JSON_REQUIRED),
    JSON_FIELD(struct set_record, team, "team", 0),
    JSON_FIELD(struct set_record, policy, "policy", JSON_REQUIRED),
    JSON_FIELD(struct set_record, group, "group", 0),
    JSON_END,
};

static int read_address(struct str text, uint32_t *out, struct error *err)
{
    char copy[INET_ADDRSTRLEN];
    struct in_addr address;

    if (!str_copy(text, copy, sizeof(copy)) || inet_pton(AF_INET, copy, &address) != 1)
        return error_set(err, ERROR_INVALID, "'%.*s' is no address", STR_ARG(text));
    *out = ntohl(address.s_addr);
    return 0;
}

static int read_seat(const struct set_record *record, uint32_t address, struct seat *out,
                     struct error *err)
{
    *out = (struct seat){.address = address, .group = (uint32_t)record->group};
    if (record->group == 0)
        return 0;
    if (record->group < 0 || record->group > UINT32_MAX || !host_name_set(&out->id, record->id))
        return error_set(err, ERROR_INVALID, "a group and an id of one label are needed");
    return seat_read(json_object_get(record->policy, "peers"), out, err);
}

static void seat_box(struct egress *egress, struct box *box, const struct seat *seat)
{
    peers_leave(&egress->seats, &box->seat);
    box->seat = *seat;
    peers_enter(&egress->seats, &box->seat);
}

static int set_box(struct egress *egress, const json_t *json, struct error *err)
{
    struct set_record record = {0};
    struct policy *policy = NULL;
    uint32_t address;
    struct seat seat;
    struct box *box;

    if (json_read(set_fields, json, &record, err) < 0 ||
        read_address(record.address, &address, err) < 0)
        return -1;
    if (record.id.len >= BOX_ID_SIZE || record.team.len >= BOX_ID_SIZE ||
        !json_is_object(record.policy))
        return error_set(err, ERROR_INVALID, "an id, a team and a policy are needed");
    if (read_seat(&record, address, &seat, err) < 0 || policy_new(record.policy, &policy, err) < 0)
        return -1;
    box = egress_box_make(egress, address, record.id, record.team.len ? record.team : record.id);
    policy_free(box->policy);
    box->policy = policy;
    seat_box(egress, box, &seat);
    box->stale = false;
    flow_judge_all(egress, box);
    return 0;
}

/* With an id: unless another sandbox has the address meanwhile. */
static int drop_box(struct egress *egress, const json_t *json, struct error *err)
{
    struct str id = json_get_str(json, "id");
    uint32_t address;
    struct box *box;

    if (read_address(json_get_str(json, "address"), &address, err) < 0)
        return -1;
    box = egress_box(egress, address);
    if (box && (!id.p || str_is(id, box->id)))
        egress_box_drop(egress, box);
    return 0;
}

static int set_authority(struct egress *egress, const json_t *json, struct error *err)
{
    struct tls_authority *authority;

    if (tls_authority_new(json_get_str(json, "certificate"), json_get_str(json, "key"), &authority,
                          err) < 0)
        return -1;
    tls_authority_free(egress->authority);
    egress->authority = authority;
    return 0;
}

static void mark_stale(struct egress *egress)
{
    struct map_entry *entry;

    map_for_each (&egress->boxes, entry)
        ((struct box *)entry->value)->stale = true;
}

static void drop_stale(struct egress *egress)
{
    struct map_entry *entry = map_next(&egress->boxes, NULL);

    while (entry) {
        struct box *box = entry->value;

        entry = map_next(&egress->boxes, entry);
        if (box->stale)
            egress_box_drop(egress, box);
    }
}

static int obey(struct egress *egress, struct str line, struct error *err)
{
    auto_json json_t *json = NULL;
    const json_t *set, *drop, *authority;

    if (json_parse(line, &json, err) < 0)
        return -1;
    set = json_object_get(json, "set");
    drop = json_object_get(json, "drop");
    authority = json_object_get(json, "authority");
    if (set)
        return set_box(egress, set, err);
    if (drop)
        return drop_box(egress, drop, err);
    if (authority)
        return set_authority(egress, authority, err);
    if (!json_is_true(json_object_get(json, "synced")))
        return error_set(err, ERROR_INVALID, "unknown record");
    drop_stale(egress);
    return 0;
}

static void take_line(struct channel *channel, struct str line)
{
    struct egress *egress = channel->egress;
    auto_json json_t *answer = json_pack("{s:I}", "ok", ++channel->lines);
    struct error err;

    if (obey(egress, line, &err) < 0) {
        log_warn("egress", "the server's record %lld: %s", (long long)channel->lines, err.message);
        (void)json_object_set_new(answer, "error", json_str(str_of(err.message)));
    }
    (void)channel_send(egress, answer);
}

/* ---- bytes ---- */

bool channel_send(struct egress *egress, const json_t *record)
{
    struct channel *channel = egress->channel;
    char *text;
    bool ok;

    if (!channel || channel->out.len > UNSENT_MAX / 2)
        return false;
    text = json_text(record);
    ok = buf_add_str(&channel->out, str_of(text)) && buf_add_char(&channel->out, '\n');
    free(text);
    update(channel);
    return ok;
}

static bool flush(struct channel *channel)
{
    while (channel->out.len) {
        struct iovec iov = {channel->out.p, channel->out.len};
        ssize_t sent = stream_write(channel->stream, &iov, 1, false);

        if (sent == -EAGAIN)
            return true;
        if (sent < 0)
            return false;
        buf_drop(&channel->out, (size_t)sent);
    }
    return true;
}

static bool take_lines(struct channel *channel)
{
    struct str rest = buf_str(&channel->in);
    ptrdiff_t end;

    while ((end = str_find(rest, '\n')) >= 0) {
        take_line(channel, str_n(rest.p, (size_t)end));
        rest = str_skip(rest, (size_t)end + 1);
    }
    buf_drop(&channel->in, channel->in.len - rest.len);
    return true;
}

static bool receive(struct channel *channel)
{
    char *buffer = loop_read_buffer(channel->egress->loop);
    ssize_t got = stream_read(channel->stream, buffer, LOOP_READ_SIZE);

    if (got == -EAGAIN)
        return true;
    if (got <= 0)
        return false;
    if (!buf_add(&channel->in, buffer, (size_t)got)) {
        log_error("egress", "the server sent a record of more than %d bytes", RECORD_MAX);
        return false;
    }
    return !memchr(buffer, '\n', (size_t)got) || take_lines(channel);
}

static void on_ready_stream(struct stream *stream, int status, int events, void *arg)
{
    struct channel *channel = arg;

    (void)stream;
    if (status < 0 || ((events & UV_READABLE) && !receive(channel)) || !flush(channel)) {
        log_info("egress", "the server has gone; its policies stay");
        channel_free(channel);
        return;
    }
    update(channel);
}

static void update(struct channel *channel)
{
    stream_watch(channel->stream, UV_READABLE | (channel->out.len ? UV_WRITABLE : 0),
                 on_ready_stream, channel);
}

void channel_accept(struct egress *egress, int fd)
{
    struct channel *channel;
    struct stream *stream;
    int got = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

    if (got < 0)
        return;
    stream = stream_new(egress->loop, got);
    if (!stream)
        return;
    channel_free(egress->channel);
    channel = xcalloc(1, sizeof(*channel));
    channel->egress = egress;
    channel->stream = stream;
    buf_init(&channel->in, RECORD_MAX);
    buf_init(&channel->out, UNSENT_MAX);
    egress->channel = channel;
    mark_stale(egress);
    update(channel);
}
