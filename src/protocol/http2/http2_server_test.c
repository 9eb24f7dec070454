/* Requests and answers as streams; heads; what is refused. */
#include "base/cleanup.h"
#include "protocol/http2/http2.h"
#include "protocol/http2/test/http2_test_client.h"

static struct rig rig;
static struct http2_client client;

static void begin(void)
{
    struct http_server_config config = rig_config;

    config.http2 = &http2_protocol;
    rig_start(&rig, &config);
    http2_client_open(&client, &rig, 1 << 20, false);
}

static void end(void)
{
    http2_client_close(&client);
    rig_stop(&rig);
}

static struct http2_reply *get(const char *path)
{
    return http2_client_ask(&client, "GET", path, "", -1);
}

static bool has_header(const struct http2_reply *reply, const char *line)
{
    return str_find_str(buf_str(&reply->headers), str_of(line)) >= 0;
}

TEST(http2_answers)
{
    struct http2_reply *hello, *head, *none, *chunks, *evil;

    begin();
    hello = get("/hello");
    head = http2_client_ask(&client, "HEAD", "/hello", "", -1);
    none = get("/none");
    chunks = get("/chunks");
    evil = get("/evil");
    HTTP2_WAIT(&client,
               hello->closed && head->closed && none->closed && chunks->closed && evil->closed);
    CHECK_INT(hello->status, 200);
    CHECK_STR(buf_str(&hello->body), "hello");
    CHECK(has_header(hello, "content-length: 5\n"));
    CHECK(has_header(hello, "content-type: text/plain\n"));
    CHECK(has_header(hello, "date: "));
    CHECK_INT(head->status, 200);
    CHECK_INT(head->bytes, 0);
    CHECK(has_header(head, "content-length: 5\n"));
    CHECK_INT(none->status, 204);
    CHECK(!has_header(none, "content-length"));
    CHECK_STR(buf_str(&chunks->body), "abcdefg");
    CHECK(!has_header(chunks, "content-length") && !has_header(chunks, "transfer-encoding"));
    CHECK(has_header(evil, "x-a: b  Set-Cookie: c\n"));
    HTTP2_WAIT(&client, seen.dones == 5);
    CHECK_INT(seen.finishes, 5);
    end();
}

TEST(http2_and_http1_on_one_listener)
{
    int fd, errnum;
    auto_buf struct buf out = {0};
    static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

    begin();
    rig_expect(&rig, "GET /hello HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", "hello");
    rig_expect(&rig, "PROPFIND /hello HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", "hello");
    rig_expect(&rig, "PRI * HTTP/2.0\r\n\r\nSMALL\r\n", "HTTP/1.1 400");
    rig_expect(&rig, "PRI * HTTP/1.1\r\nHost: h\r\n\r\n", "HTTP/1.1 400");
    /* The preface byte by byte, then nothing but the server's settings. */
    buf_init(&out, 1000);
    fd = rig_connect(&rig);
    for (size_t i = 0; i < sizeof(preface) - 1; i++) {
        rig_send(&rig, fd, str_n(preface + i, 1));
        rig_turn(&rig);
    }
    rig_send(&rig, fd, str_n("\0\0\0\4\0\0\0\0\0", 9));
    rig_read(&rig, fd, "\4\1", &out, &errnum); /* the acknowledgement */
    CHECK(out.len > 18);
    CHECK_INT(out.p[3], 4);
    (void)close(fd);
    /* A request of HTTP/1 in pieces that begin like the preface. */
    fd = rig_connect(&rig);
    rig_send(&rig, fd, STR("P"));
    rig_wait_ms(&rig, 5);
    rig_send(&rig, fd, STR("OST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nok"));
    rig_read(&rig, fd, "\r\n\r\nok", &out, &errnum);
    CHECK_INT(errnum, 0);
    (void)close(fd);
    end();
}

TEST(http2_only_where_it_is_configured)
{
    rig_start(&rig, &rig_config);
    rig_expect(&rig, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "HTTP/1.1 ");
    rig_stop(&rig);
}

TEST(http2_bodies_of_requests)
{
    struct http2_reply *echo, *large, *none, *told;

    begin();
    echo = http2_client_ask(&client, "POST", "/echo", "", 3);
    large = http2_client_ask(&client, "POST", "/echo", "", 2000);
    told = http2_client_ask(&client, "POST", "/echo", "content-length: 2000", 2000);
    none = http2_client_ask(&client, "POST", "/echo", "", -1);
    HTTP2_WAIT(&client, echo->closed && large->closed && none->closed && told->closed);
    CHECK_STR(buf_str(&echo->body), "uuu");
    CHECK_INT(large->status, 413);
    CHECK_INT(told->status, 413);
    CHECK_INT(none->status, 200);
    CHECK_INT(none->bytes, 0);
    end();
}

TEST(http2_continue_comes_when_the_body_is_wanted)
{
    struct http2_reply *echo, *refused;

    begin();
    echo = http2_client_ask(&client, "POST", "/echo", "expect: 100-continue", 0);
    echo->upload_hold = true;
    HTTP2_WAIT(&client, echo->continues == 1);
    echo->upload_left = 4;
    echo->upload_hold = false;
    CHECK_INT(nghttp2_session_resume_data(client.ng, http2_client_id(&client, echo)), 0);
    HTTP2_WAIT(&client, echo->closed);
    CHECK_STR(buf_str(&echo->body), "uuuu");
    refused = http2_client_ask(&client, "POST", "/hello", "expect: 100-continue", 0);
    refused->upload_hold = true;
    HTTP2_WAIT(&client, refused->closed);
    CHECK_INT(refused->continues, 0);
    CHECK_INT(refused->status, 200);
    CHECK_INT(refused->error, NGHTTP2_NO_ERROR);
    end();
}

TEST(http2_heads_become_requests)
{
    const struct http_request *request;
    struct http2_reply *reply;

    begin();
    reply = http2_client_ask(&client, "PATCH", "/keep?a=b",
                             "cookie: a=1\nx-y: z\ncookie: b=2\nte: trailers", -1);
    HTTP2_WAIT(&client, seen.kept);
    request = http_request(seen.kept);
    CHECK(str_is(request->method, "PATCH") && str_is(request->target, "/keep?a=b"));
    CHECK(str_is(request->path, "/keep") && str_is(request->query, "a=b"));
    CHECK(str_is(http_header(seen.kept, "Host"), "h"));
    CHECK(str_is(http_header(seen.kept, "Cookie"), "a=1; b=2"));
    CHECK(str_is(http_header(seen.kept, "TE"), "trailers"));
    CHECK_INT(request->headers.count, 4);
    CHECK(request->http2 && request->minor == 1 && !request->chunked && !request->upgrade);
    CHECK_INT(request->content_length, -1);
    CHECK(http_detach(seen.kept, &(struct buf){0}) == NULL);
    rig_reply(seen.kept, STR("done"));
    HTTP2_WAIT(&client, reply->closed);
    CHECK_STR(buf_str(&reply->body), "done");
    end();
}

TEST(http2_refuses_bad_heads)
{
    static const struct {
        const char *method, *path, *headers;
        int status; /* 0: the stream is reset */
    } cases[] = {
        {"GET", "/hello", "connection: close", 0},
        {"GET", "/hello", "transfer-encoding: chunked", 0},
        {"GET", "/hello", "te: gzip", 0},
        {"GET", "/hello", "x-bad name: 1", 0},
        {"GET", "/hello", "host: other", 400},
        {"GET", "/hello", "host: H", 200},
        {"GET", "/a b", "", 0},
        {"GET", "/a#b", "", 400},
        {"GET", "http://x/", "", 0},
        {"G T", "/hello", "", 0},
        {"BREW", "/hello", "", 200},
        {"POST", "/echo", "content-length: -1", 0},
        {"POST", "/echo", "content-length: 1\ncontent-length: 2", 0},
        {"POST", "/echo", "content-length: 5", 0}, /* and none comes */
    };

    begin();
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct http2_reply *reply =
            http2_client_ask(&client, cases[i].method, cases[i].path, cases[i].headers, -1);

        HTTP2_WAIT(&client, reply->closed || client.gone);
        if (reply->status != cases[i].status || (!cases[i].status && !reply->error))
            test_fail(__FILE__, __LINE__, "%s %s %s: %d, error %u", cases[i].method, cases[i].path,
                      cases[i].headers, reply->status, reply->error);
    }
    CHECK(!client.goaway);
    end();
}

TEST(http2_bounds_heads)
{
    struct http2_reply *many, *large, *path;
    auto_buf struct buf text = {0};

    begin();
    buf_init(&text, 200 * 1024);
    for (int i = 0; i < 120; i++)
        (void)buf_printf(&text, "%sx-h%d: v", i ? "\n" : "", i);
    many = http2_client_ask(&client, "GET", "/hello", text.p, -1);
    HTTP2_WAIT(&client, many->closed);
    CHECK_INT(many->status, 431);
    buf_clear(&text);
    for (int i = 0; i < 20; i++)
        (void)buf_printf(&text, "%sx-h%d: %04000d", i ? "\n" : "", i, i);
    large = http2_client_ask(&client, "GET", "/hello", text.p, -1);
    HTTP2_WAIT(&client, large->closed);
    CHECK_INT(large->status, 431);
    buf_clear(&text);
    (void)buf_printf(&text, "/%017000d", 1);
    path = http2_client_ask(&client, "GET", text.p, "", -1);
    HTTP2_WAIT(&client, path->closed);
    CHECK_INT(path->status, 414);
    CHECK_INT(seen.requests, 0);
    end();
}

TEST(http2_sends_and_takes_trailers)
{
    struct pair trailers[] = {{STR("grpc-status"), STR("0")}, {STR("Grpc-Message"), STR("fine")}};
    struct http2_reply *reply, *empty;

    begin();
    reply = http2_client_ask(&client, "POST", "/pause", "te: trailers", 10);
    reply->upload_trailers = true;
    HTTP2_WAIT(&client, seen.data_bytes == 10);
    http_begin(seen.kept, 200, NULL, 0, -1);
    HTTP2_WAIT(&client, http_trailers(seen.kept)->count == 1);
    CHECK(str_is(http_trailers(seen.kept)->items[0].name, "x-sum"));
    CHECK(str_is(http_trailers(seen.kept)->items[0].value, "42"));
    (void)http_write(seen.kept, "body", 4);
    http_end_trailers(seen.kept, trailers, 2);
    HTTP2_WAIT(&client, reply->closed);
    CHECK_INT(reply->error, 0);
    CHECK_STR(buf_str(&reply->body), "body");
    CHECK(has_header(reply, "grpc-status: 0\ngrpc-message: fine\n"));
    HTTP2_WAIT(&client, seen.dones == 1);
    empty = get("/keep");
    HTTP2_WAIT(&client, seen.kept);
    http_begin(seen.kept, 200, NULL, 0, -1);
    http_end_trailers(seen.kept, trailers, 1);
    HTTP2_WAIT(&client, empty->closed);
    CHECK(has_header(empty, "grpc-status: 0\n"));
    end();
}

static void reply_chunked(const char *pieces[], size_t count)
{
    struct http_framing chunked = {HTTP_BODY_CHUNKED, -1};
    struct pair headers[] = {{STR("Transfer-Encoding"), STR("chunked")},
                             {STR("Connection"), STR("keep-alive")},
                             {STR("X-Own"), STR(" padded ")}};

    http_begin_raw(seen.kept, 200, STR("Fine"), headers, 3, &chunked);
    for (size_t i = 0; i < count; i++)
        (void)http_write(seen.kept, pieces[i], strlen(pieces[i]));
    http_end(seen.kept);
}

TEST(http2_passes_on_without_chunks)
{
    static const char *pieces[] = {"3\r\nab", "c\r\n2;x=y\r", "\nde\r\n0\r\n\r\n"};
    static const char *bad[] = {"3\r\nabcX"};
    struct http2_reply *reply;

    begin();
    reply = get("/keep");
    HTTP2_WAIT(&client, seen.kept);
    reply_chunked(pieces, 3);
    HTTP2_WAIT(&client, reply->closed);
    CHECK_STR(buf_str(&reply->body), "abcde");
    CHECK(has_header(reply, "x-own: padded\n") && !has_header(reply, "connection"));
    CHECK(!has_header(reply, "transfer-encoding") && !has_header(reply, "date"));
    HTTP2_WAIT(&client, !seen.kept);
    reply = get("/keep");
    HTTP2_WAIT(&client, seen.kept);
    reply_chunked(bad, 1);
    HTTP2_WAIT(&client, reply->closed);
    CHECK_INT(reply->error, NGHTTP2_INTERNAL_ERROR);
    end();
}

TEST(http2_counts_streams_like_connections)
{
    struct http_server_config config = rig_config;
    struct http2_reply *replies[8];
    int refused = 0, answered = 0;

    config.http2 = &http2_protocol;
    config.max_connections = 4;
    rig_start(&rig, &config);
    http2_client_open(&client, &rig, 1 << 20, false);
    for (int i = 0; i < 8; i++)
        replies[i] = get("/keep");
    HTTP2_WAIT(&client, seen.requests == 4 && replies[7]->closed);
    for (int i = 0; i < 8; i++)
        refused += replies[i]->closed && replies[i]->error == NGHTTP2_REFUSED_STREAM;
    CHECK_INT(refused, 4);
    CHECK_INT(nghttp2_submit_rst_stream(client.ng, 0, http2_client_id(&client, replies[0]),
                                        NGHTTP2_CANCEL),
              0);
    HTTP2_WAIT(&client, seen.dones == 1);
    replies[0] = get("/hello");
    HTTP2_WAIT(&client, replies[0]->closed);
    answered += replies[0]->status == 200;
    CHECK_INT(answered, 1);
    end();
}
