#include "protocol/http2/test/http2_test_client.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "base/alloc.h"

enum { KEPT_MAX = 64 * 1024, FIELDS_MAX = 210 };

static struct http2_reply *reply_of(struct http2_client *client, int32_t id)
{
    return &client->replies[id / 2 % HTTP2_TEST_REPLIES];
}

static int on_header(nghttp2_session *ng, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_len, const uint8_t *value, size_t value_len, uint8_t flags,
                     void *arg)
{
    struct http2_reply *reply = reply_of(arg, frame->hd.stream_id);
    struct str key = str_n(name, name_len);
    int64_t status = 0;

    (void)ng;
    (void)flags;
    if (str_is(key, ":status")) {
        (void)str_to_i64(str_n(value, value_len), &status);
        if (status == 100)
            reply->continues++;
        else
            reply->status = (int)status;
    }
    (void)buf_printf(&reply->headers, "%.*s: %.*s\n", STR_ARG(key), (int)value_len,
                     (const char *)value);
    return 0;
}

static int on_data(nghttp2_session *ng, uint8_t flags, int32_t id, const uint8_t *data, size_t len,
                   void *arg)
{
    struct http2_reply *reply = reply_of(arg, id);

    (void)ng;
    (void)flags;
    reply->bytes += len;
    if (reply->body.len + len <= KEPT_MAX)
        CHECK(buf_add(&reply->body, data, len));
    return 0;
}

static int on_frame(nghttp2_session *ng, const nghttp2_frame *frame, void *arg)
{
    struct http2_client *client = arg;

    (void)ng;
    if (frame->hd.type == NGHTTP2_GOAWAY) {
        client->goaway = true;
        client->goaway_error = frame->goaway.error_code;
        client->goaway_last = frame->goaway.last_stream_id;
    }
    if (frame->hd.type == NGHTTP2_PING && (frame->hd.flags & NGHTTP2_FLAG_ACK))
        client->pings++;
    if ((frame->hd.type == NGHTTP2_DATA || frame->hd.type == NGHTTP2_HEADERS) &&
        (frame->hd.flags & NGHTTP2_FLAG_END_STREAM))
        reply_of(client, frame->hd.stream_id)->ended = true;
    return 0;
}

static int on_close(nghttp2_session *ng, int32_t id, uint32_t error, void *arg)
{
    struct http2_reply *reply = reply_of(arg, id);

    (void)ng;
    reply->closed = true;
    reply->error = error;
    return 0;
}

void http2_client_open(struct http2_client *client, struct rig *rig, uint32_t window, bool stingy)
{
    nghttp2_settings_entry settings[] = {{NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, window}};
    nghttp2_session_callbacks *callbacks;
    nghttp2_option *option;

    *client = (struct http2_client){.rig = rig, .fd = rig_connect(rig)};
    /* Else small frames would wait for each other, and what is counted would depend on time. */
    (void)setsockopt(client->fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    for (int i = 0; i < HTTP2_TEST_REPLIES; i++) {
        buf_init(&client->replies[i].body, KEPT_MAX);
        buf_init(&client->replies[i].headers, KEPT_MAX);
    }
    CHECK_INT(nghttp2_session_callbacks_new(&callbacks), 0);
    CHECK_INT(nghttp2_option_new(&option), 0);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_close);
    nghttp2_option_set_no_auto_window_update(option, stingy);
    nghttp2_option_set_max_send_header_block_length(option, 1 << 20);
    nghttp2_option_set_peer_max_concurrent_streams(option, 100);
    CHECK_INT(nghttp2_session_client_new2(&client->ng, callbacks, client, option), 0);
    nghttp2_option_del(option);
    nghttp2_session_callbacks_del(callbacks);
    CHECK_INT(nghttp2_submit_settings(client->ng, NGHTTP2_FLAG_NONE, settings, 1), 0);
    CHECK_INT(nghttp2_session_set_local_window_size(client->ng, NGHTTP2_FLAG_NONE, 0, 1 << 26), 0);
}

void http2_client_close(struct http2_client *client)
{
    nghttp2_session_del(client->ng);
    if (client->fd >= 0)
        (void)close(client->fd);
    for (int i = 0; i < HTTP2_TEST_REPLIES; i++) {
        buf_done(&client->replies[i].body);
        buf_done(&client->replies[i].headers);
    }
}

void http2_client_turn(struct http2_client *client)
{
    static uint8_t bytes[65536];
    const uint8_t *out;
    ssize_t len, got;

    for (int i = 0; i < 64 && (len = nghttp2_session_mem_send(client->ng, &out)) > 0; i++)
        rig_send(client->rig, client->fd, str_n(out, (size_t)len));
    rig_turn(client->rig);
    got = recv(client->fd, bytes, sizeof(bytes), MSG_DONTWAIT);
    if (got > 0)
        CHECK_INT(nghttp2_session_mem_recv(client->ng, bytes, (size_t)got), got);
    else if (got == 0 || errno != EAGAIN)
        client->gone = true;
}

static ssize_t read_upload(nghttp2_session *ng, int32_t id, uint8_t *p, size_t size,
                           uint32_t *out_flags, nghttp2_data_source *source, void *arg)
{
    struct http2_reply *reply = source->ptr;
    size_t len = reply->upload_left < size ? reply->upload_left : size;
    uint8_t name[] = "x-sum", value[] = "42";
    nghttp2_nv trailer = {name, value, sizeof(name) - 1, sizeof(value) - 1, NGHTTP2_NV_FLAG_NONE};

    (void)arg;
    if (!len && reply->upload_hold)
        return NGHTTP2_ERR_DEFERRED;
    memset(p, 'u', len);
    reply->upload_left -= len;
    if (!reply->upload_left && !reply->upload_hold) {
        *out_flags |= NGHTTP2_DATA_FLAG_EOF;
        if (reply->upload_trailers) {
            *out_flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
            CHECK_INT(nghttp2_submit_trailer(ng, id, &trailer, 1), 0);
        }
    }
    return (ssize_t)len;
}

static nghttp2_nv field(struct str name, struct str value)
{
    nghttp2_nv nv = {.namelen = name.len, .valuelen = value.len};

    memcpy(&nv.name, &name.p, sizeof(nv.name));
    memcpy(&nv.value, &value.p, sizeof(nv.value));
    return nv;
}

struct http2_reply *http2_client_ask(struct http2_client *client, const char *method,
                                     const char *path, const char *headers, int64_t upload)
{
    nghttp2_nv fields[FIELDS_MAX];
    size_t count = 0;
    struct str rest = str_of(headers);
    int32_t id = (int32_t)nghttp2_session_get_next_stream_id(client->ng);
    struct http2_reply *reply = reply_of(client, id);
    nghttp2_data_provider provider = {.source.ptr = reply, .read_callback = read_upload};

    fields[count++] = field(STR(":method"), str_of(method));
    fields[count++] = field(STR(":scheme"), STR("http"));
    if (path)
        fields[count++] = field(STR(":path"), str_of(path));
    if (str_find_str(rest, STR(":authority")) < 0)
        fields[count++] = field(STR(":authority"), STR("h"));
    while (rest.len && count < FIELDS_MAX) {
        struct str line = str_split(&rest, '\n');
        ptrdiff_t colon = str_find_str(line, STR(": "));

        fields[count++] = field(str_n(line.p, (size_t)colon), str_skip(line, (size_t)colon + 2));
    }
    reply->upload_left = upload > 0 ? (size_t)upload : 0;
    CHECK_INT(nghttp2_submit_request(client->ng, NULL, fields, count,
                                     upload >= 0 ? &provider : NULL, NULL),
              id);
    return reply;
}

int32_t http2_client_id(const struct http2_client *client, const struct http2_reply *reply)
{
    return (int32_t)(reply - client->replies) * 2 + 1;
}

void http2_client_raw(struct http2_client *client, const void *p, size_t len)
{
    http2_client_turn(client);
    rig_send(client->rig, client->fd, str_n(p, len));
}
