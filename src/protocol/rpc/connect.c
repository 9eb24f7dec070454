#include "protocol/rpc/connect.h"

#include "base/cleanup.h"
#include "protocol/http/http_errors.h"
#include "protocol/json/json_shape.h"

#define UNARY_JSON   "application/json"
#define UNARY_PROTO  "application/proto"
#define STREAM_JSON  "application/connect+json"
#define STREAM_PROTO "application/connect+proto"

enum { HEADER_COUNT = 2 };

/* Callers are told apart by tokens in headers, never by cookies, so pages of any origin may read
 * the answers. */
#define HEADERS(type)                                                 \
    {                                                                 \
        {STR_INIT("content-type"), STR_INIT(type)},                   \
            {STR_INIT("access-control-allow-origin"), STR_INIT("*")}, \
    }
static const struct pair unary_headers[HEADER_COUNT] = HEADERS(UNARY_JSON);
static const struct pair unary_proto_headers[HEADER_COUNT] = HEADERS(UNARY_PROTO);
static const struct pair stream_headers[HEADER_COUNT] = HEADERS(STREAM_JSON);
static const struct pair stream_proto_headers[HEADER_COUNT] = HEADERS(STREAM_PROTO);

void connect_head(char out[CONNECT_HEAD_SIZE], uint8_t flags, uint32_t len)
{
    out[0] = (char)flags;
    out[1] = (char)(len >> 24);
    out[2] = (char)(len >> 16);
    out[3] = (char)(len >> 8);
    out[4] = (char)len;
}

bool connect_add(struct buf *out, uint8_t flags, struct str message)
{
    char head[CONNECT_HEAD_SIZE];

    connect_head(head, flags, (uint32_t)message.len);
    return buf_add(out, head, sizeof(head)) && buf_add_str(out, message);
}

static json_t *error_json(const struct error *err)
{
    json_t *json = json_object();

    json_object_set_new(json, "code", json_string(http_error_connect_code(err->code)));
    json_object_set_new(json, "message", json_str(str_of(err->message)));
    return json;
}

char *connect_error_text(const struct error *err)
{
    auto_json json_t *json = error_json(err);

    return json_text(json);
}

void connect_add_end(struct buf *out, const struct error *err)
{
    auto_json json_t *json = NULL;
    auto_free char *text = NULL;

    if (!err || err->code == ERROR_NONE) {
        connect_add(out, CONNECT_END, STR("{}"));
        return;
    }
    json = json_object();
    json_object_set_new(json, "error", error_json(err));
    text = json_text(json);
    connect_add(out, CONNECT_END, str_of(text));
}

static uint32_t head_length(const unsigned char head[CONNECT_HEAD_SIZE])
{
    return (uint32_t)head[1] << 24 | (uint32_t)head[2] << 16 | (uint32_t)head[3] << 8 | head[4];
}

static int check_head(const struct connect_decoder *decoder, struct error *err)
{
    uint32_t len = head_length(decoder->head);

    if (decoder->head[0] & CONNECT_COMPRESSED)
        return error_set(err, ERROR_UNSUPPORTED, "compressed messages are not supported");
    if (decoder->head[0] & ~CONNECT_END)
        return error_set(err, ERROR_INVALID, "invalid envelope flags %u", decoder->head[0]);
    if (len > decoder->max)
        return error_set(err, ERROR_LIMIT, "message of %u bytes is longer than %zu", len,
                         decoder->max);
    return 0;
}

/* Takes what is missing of the message; true when it is complete. */
static bool fill_message(struct connect_decoder *decoder, struct str *data)
{
    size_t missing = head_length(decoder->head) - decoder->message.len;
    size_t n = missing < data->len ? missing : data->len;

    decoder->message.max = decoder->max;
    buf_add(&decoder->message, data->p, n);
    *data = str_skip(*data, n);
    return n == missing;
}

/* The head of the next message; false when it is not complete. */
static bool fill_head(struct connect_decoder *decoder, struct str *data)
{
    while (decoder->head_len < CONNECT_HEAD_SIZE && data->len > 0) {
        decoder->head[decoder->head_len++] = (unsigned char)data->p[0];
        *data = str_skip(*data, 1);
    }
    return decoder->head_len == CONNECT_HEAD_SIZE;
}

int connect_next(struct connect_decoder *decoder, struct str *data, uint8_t *flags,
                 struct str *message, struct error *err)
{
    size_t len;

    if (decoder->head_len == 0)
        buf_clear(&decoder->message);
    if (!fill_head(decoder, data))
        return 0;
    if (check_head(decoder, err) != 0)
        return -1;
    len = head_length(decoder->head);
    if (decoder->message.len == 0 && data->len >= len) {
        /* It is whole where it is. */
        *message = str_n(data->p, len);
        *data = str_skip(*data, len);
    } else if (fill_message(decoder, data)) {
        *message = buf_str(&decoder->message);
    } else {
        return 0;
    }
    *flags = decoder->head[0];
    decoder->head_len = 0;
    return 1;
}

int connect_decode(struct connect_decoder *decoder, struct str data, connect_message_fn *fn,
                   void *arg, struct error *err)
{
    struct str message;
    uint8_t flags;
    int r;

    while ((r = connect_next(decoder, &data, &flags, &message, err)) > 0) {
        r = fn(arg, flags, message);
        if (r != 0)
            return r;
    }
    return r;
}

bool connect_decoder_idle(const struct connect_decoder *decoder)
{
    return decoder->head_len == 0;
}

void connect_decoder_done(struct connect_decoder *decoder)
{
    buf_done(&decoder->message);
}

int connect_decode_single(struct str body, struct str *out_message, struct error *err)
{
    struct connect_decoder decoder = {.max = CONNECT_MESSAGE_MAX};
    uint32_t len;

    if (body.len < CONNECT_HEAD_SIZE)
        return error_set(err, ERROR_INVALID, "the request has no complete message");
    memcpy(decoder.head, body.p, CONNECT_HEAD_SIZE);
    if (check_head(&decoder, err) != 0)
        return -1;
    len = head_length(decoder.head);
    if (body.len - CONNECT_HEAD_SIZE < len)
        return error_set(err, ERROR_INVALID, "the request's message is truncated");
    if (body.len - CONNECT_HEAD_SIZE > len)
        return error_set(err, ERROR_INVALID, "the request has more than one message");
    *out_message = str_n(body.p + CONNECT_HEAD_SIZE, len);
    return 0;
}

static bool content_type_is(const struct http_exchange *ex, const char *want)
{
    struct str type = http_header(ex, "content-type");

    return str_eq_nocase(str_trim(str_split(&type, ';')), str_of(want));
}

bool connect_open(struct http_exchange *ex, const struct connect_method *method, bool stream)
{
    /* A method is const and user pointers are not. */
    http_set_user(ex, (void *)(uintptr_t)method);
    return content_type_is(ex, stream ? STREAM_JSON : UNARY_JSON) ||
           (method && content_type_is(ex, stream ? STREAM_PROTO : UNARY_PROTO));
}

static bool is_binary(const struct http_exchange *ex)
{
    return content_type_is(ex, UNARY_PROTO) || content_type_is(ex, STREAM_PROTO);
}

const struct proto_message *connect_format(const struct http_exchange *ex)
{
    const struct connect_method *method = http_user(ex);

    return method && is_binary(ex) ? method->response : NULL;
}

int connect_read(const struct http_exchange *ex, struct str message, json_t **out,
                 struct error *err)
{
    const struct connect_method *method = http_user(ex);

    if (method && is_binary(ex))
        return proto_decode(method->request, message, out, err);
    return json_parse(message.len ? message : STR("{}"), out, err);
}

int connect_add_message(struct buf *out, const struct proto_message *format, struct str json,
                        struct error *err)
{
    char head[CONNECT_HEAD_SIZE] = {0};
    size_t begin = out->len;

    if (!format) {
        if (!connect_add(out, 0, json))
            return error_set(err, ERROR_LIMIT, "the message is too long");
        return 0;
    }
    buf_add(out, head, sizeof(head));
    if (proto_encode(format, json, out, err) != 0) {
        out->len = begin;
        return -1;
    }
    connect_head(out->p + begin, 0, (uint32_t)(out->len - begin - sizeof(head)));
    return 0;
}

bool connect_is_stream(const struct http_exchange *ex)
{
    return str_starts(http_header(ex, "content-type"), STR("application/connect+"));
}

int connect_timeout_ms(const struct http_exchange *ex, int64_t *out_ms, struct error *err)
{
    struct str text = http_header(ex, "connect-timeout-ms");

    *out_ms = 0;
    if (!text.p)
        return 0;
    /* Ten digits at most, says the protocol. */
    if (text.len > 10 || !str_to_i64(text, out_ms) || *out_ms < 0)
        return error_set(err, ERROR_INVALID, "invalid Connect-Timeout-Ms '%.*s'", STR_ARG(text));
    return 0;
}

void connect_reply(struct http_exchange *ex, struct str message)
{
    const struct proto_message *format = connect_format(ex);
    auto_buf struct buf bytes = {0};
    struct error err;

    if (!format) {
        http_reply(ex, 200, unary_headers, HEADER_COUNT, message);
        return;
    }
    /* Only tiny messages of negative numbers are longer than their JSON. */
    buf_init(&bytes, message.len * 2 + 64);
    if (proto_encode(format, message, &bytes, &err) == 0) {
        http_reply(ex, 200, unary_proto_headers, HEADER_COUNT, buf_str(&bytes));
        return;
    }
    err.code = ERROR_INTERNAL; /* the answer is ours, so the fault is too */
    connect_reply_error(ex, &err);
}

void connect_reply_error(struct http_exchange *ex, const struct error *err)
{
    auto_free char *text = connect_error_text(err);

    http_reply(ex, http_error_status(err->code), unary_headers, HEADER_COUNT, str_of(text));
}

void connect_begin(struct http_exchange *ex)
{
    http_begin(ex, 200, is_binary(ex) ? stream_proto_headers : stream_headers, HEADER_COUNT, -1);
}

void connect_finish(struct http_exchange *ex, const struct error *err)
{
    auto_buf struct buf frame = {0};

    buf_init(&frame, 8192);
    connect_add_end(&frame, err);
    http_write(ex, frame.p, frame.len);
    http_end(ex);
}

void connect_fail(struct http_exchange *ex, const struct error *err)
{
    if (!connect_is_stream(ex)) {
        connect_reply_error(ex, err);
        return;
    }
    connect_begin(ex);
    connect_finish(ex, err);
}
