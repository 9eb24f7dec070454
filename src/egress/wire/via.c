#include "egress/wire/via.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/encode.h"
#include "protocol/http/http_parser.h"
#include "protocol/json/json_shape.h"

enum {
    SOCKS_VERSION = 5,
    SOCKS_PLAIN = 0,
    SOCKS_PASSWORD = 2,
    SOCKS_NO_METHOD = 0xff,
    SOCKS_CONNECT = 1,
    SOCKS_IPV4 = 1,
    SOCKS_DOMAIN = 3,
    SOCKS_IPV6 = 4,
    PASSWORD_VERSION = 1, /* of RFC 1929 */
};

enum state { METHOD, PASSWORD, REPLY, ANSWER };

/* ---- settings ---- */

static int read_credential(const json_t *json, const char *name, char **out, struct error *err)
{
    struct str text = json_get_str(json, name);

    if (!text.p)
        return 0;
    if (text.len == 0 || text.len > VIA_CREDENTIAL_MAX || memchr(text.p, '\0', text.len))
        return error_set(err, ERROR_INVALID, "'%s' must be of 1 to %d bytes", name,
                         VIA_CREDENTIAL_MAX);
    *out = str_dup(text);
    return 0;
}

static bool read_host(struct via *via, struct str host)
{
    struct in_addr address;
    char copy[INET_ADDRSTRLEN];

    if (str_copy(host, copy, sizeof(copy)) && inet_pton(AF_INET, copy, &address) == 1) {
        via->address = ntohl(address.s_addr);
        return true;
    }
    return host_name_set(&via->name, host);
}

static int read_address(struct via *via, struct str text, struct error *err)
{
    struct str rest = text, host;
    uint64_t port = 0;

    via->http = str_starts(rest, STR("http://"));
    if (via->http)
        rest = str_skip(rest, 7);
    else if (str_starts(rest, STR("socks5://")))
        rest = str_skip(rest, 9);
    host = str_split(&rest, ':');
    if (!rest.p || !str_to_u64(rest, &port) || port == 0 || port > UINT16_MAX ||
        !read_host(via, host))
        return error_set(err, ERROR_INVALID, "'%.*s' is no HOST:PORT", STR_ARG(text));
    via->port = (uint16_t)port;
    return 0;
}

static int read_via(struct via *via, const json_t *json, struct error *err)
{
    if (read_address(via, json_get_str(json, "address"), err) < 0 ||
        read_credential(json, "username", &via->username, err) < 0 ||
        read_credential(json, "password", &via->password, err) < 0)
        return -1;
    if (via->password && !via->username)
        return error_set(err, ERROR_INVALID, "a password needs a username");
    return 0;
}

int via_new(const json_t *json, struct via **out, struct error *err)
{
    struct via *via;

    *out = NULL;
    if (!json || json_is_null(json))
        return 0;
    via = xcalloc(1, sizeof(*via));
    if (read_via(via, json, err) < 0) {
        via_free(via);
        return error_prefix(err, "egressProxy");
    }
    *out = via;
    return 0;
}

static void free_secret(char *text)
{
    if (text)
        explicit_bzero(text, strlen(text));
    free(text);
}

void via_free(struct via *via)
{
    if (!via)
        return;
    free_secret(via->username);
    free_secret(via->password);
    free(via);
}

struct via *via_copy(const struct via *via)
{
    struct via *copy = via ? xmalloc(sizeof(*copy)) : NULL;

    if (!via)
        return NULL;
    *copy = *via;
    copy->username = via->username ? xstrdup(via->username) : NULL;
    copy->password = via->password ? xstrdup(via->password) : NULL;
    return copy;
}

bool via_same(const struct via *a, const struct via *b)
{
    if (!a || !b)
        return a == b;
    return a->http == b->http && a->address == b->address && a->port == b->port &&
           str_eq(host_name_str(&a->name), host_name_str(&b->name)) &&
           str_eq(str_of(a->username), str_of(b->username)) &&
           str_eq(str_of(a->password), str_of(b->password));
}

/* ---- SOCKS5 ---- */

static void put_byte(struct buf *out, unsigned byte)
{
    (void)buf_add_char(out, (char)byte);
}

/* Behind its length. */
static void put_text(struct buf *out, struct str text)
{
    put_byte(out, (unsigned)text.len);
    (void)buf_add_str(out, text);
}

static void put_greeting(const struct via *via, struct buf *out)
{
    put_byte(out, SOCKS_VERSION);
    put_byte(out, via->username ? 2 : 1);
    put_byte(out, SOCKS_PLAIN);
    if (via->username)
        put_byte(out, SOCKS_PASSWORD);
}

static void put_password(const struct via *via, struct buf *out)
{
    put_byte(out, PASSWORD_VERSION);
    put_text(out, str_of(via->username));
    put_text(out, via->password ? str_of(via->password) : STR(""));
}

static void put_request(const struct via_target *target, struct buf *out)
{
    uint32_t address = htonl(target->address);
    uint16_t port = htons(target->port);

    put_byte(out, SOCKS_VERSION);
    put_byte(out, SOCKS_CONNECT);
    put_byte(out, 0);
    if (target->name && target->name->len) {
        put_byte(out, SOCKS_DOMAIN);
        put_text(out, host_name_str(target->name));
    } else {
        put_byte(out, SOCKS_IPV4);
        (void)buf_add(out, &address, sizeof(address));
    }
    (void)buf_add(out, &port, sizeof(port));
}

static enum via_step failed(struct via_dialog *dialog, const char *fault)
{
    dialog->fault = fault;
    return VIA_FAILED;
}

static unsigned byte_at(struct str text, size_t at)
{
    return (unsigned char)text.p[at];
}

static enum via_step take_method(struct via_dialog *dialog, struct str *in, struct buf *out)
{
    unsigned method;

    if (in->len < 2)
        return VIA_MORE;
    method = byte_at(*in, 1);
    if (byte_at(*in, 0) != SOCKS_VERSION)
        return failed(dialog, "the egress proxy does not speak SOCKS5");
    if (method == SOCKS_NO_METHOD)
        return failed(dialog, dialog->via->username
                                  ? "the egress proxy takes neither a password nor none"
                                  : "the egress proxy wants credentials");
    if (method != SOCKS_PLAIN && (method != SOCKS_PASSWORD || !dialog->via->username))
        return failed(dialog, "the egress proxy wants what was not offered");
    *in = str_skip(*in, 2);
    if (method == SOCKS_PASSWORD)
        put_password(dialog->via, out);
    else
        put_request(&dialog->target, out);
    dialog->state = method == SOCKS_PASSWORD ? PASSWORD : REPLY;
    return VIA_MORE;
}

static enum via_step take_password(struct via_dialog *dialog, struct str *in, struct buf *out)
{
    if (in->len < 2)
        return VIA_MORE;
    if (byte_at(*in, 0) != PASSWORD_VERSION || byte_at(*in, 1) != 0)
        return failed(dialog, "the egress proxy refuses the credentials");
    *in = str_skip(*in, 2);
    put_request(&dialog->target, out);
    dialog->state = REPLY;
    return VIA_MORE;
}

static const char *reply_fault(unsigned code)
{
    static const char *const faults[] = {
        "the egress proxy has failed",
        "the egress proxy does not allow the connection",
        "the egress proxy cannot reach the network",
        "the egress proxy cannot reach the host",
        "the egress proxy's connection was refused",
        "the egress proxy's connection took too long",
        "the egress proxy does not know how to connect",
        "the egress proxy does not take such an address",
    };

    return code <= sizeof(faults) / sizeof(*faults) ? faults[code - 1]
                                                    : "the egress proxy gives an unknown reason";
}

static enum via_step take_reply(struct via_dialog *dialog, struct str *in)
{
    size_t len;

    if (in->len >= 1 && byte_at(*in, 0) != SOCKS_VERSION)
        return failed(dialog, "the egress proxy does not speak SOCKS5");
    if (in->len >= 2 && byte_at(*in, 1) != 0)
        return failed(dialog, reply_fault(byte_at(*in, 1)));
    if (in->len < 5)
        return VIA_MORE;
    switch (byte_at(*in, 3)) {
    case SOCKS_IPV4:
        len = 4 + 4 + 2;
        break;
    case SOCKS_DOMAIN:
        len = 4 + 1 + byte_at(*in, 4) + 2;
        break;
    case SOCKS_IPV6:
        len = 4 + 16 + 2;
        break;
    default:
        return failed(dialog, "the egress proxy's answer is malformed");
    }
    if (in->len < len)
        return VIA_MORE;
    *in = str_skip(*in, len);
    return VIA_OPEN;
}

/* ---- CONNECT ---- */

static void put_target(const struct via_target *target, struct buf *out)
{
    struct in_addr in = {htonl(target->address)};
    char address[INET_ADDRSTRLEN];

    (void)inet_ntop(AF_INET, &in, address, sizeof(address));
    (void)buf_printf(out, "%s:%u", target->name && target->name->len ? target->name->text : address,
                     target->port);
}

static void put_credentials(const struct via *via, struct buf *out)
{
    char pair[2 * VIA_CREDENTIAL_MAX + 2], text[BASE64_LEN(sizeof(pair))];
    int len =
        snprintf(pair, sizeof(pair), "%s:%s", via->username, via->password ? via->password : "");

    base64_encode(text, pair, (size_t)len);
    (void)buf_printf(out, "Proxy-Authorization: Basic %.*s\r\n", (int)BASE64_LEN(len), text);
    explicit_bzero(pair, sizeof(pair));
    explicit_bzero(text, sizeof(text));
}

static void put_connect(const struct via_dialog *dialog, struct buf *out)
{
    (void)buf_add_str(out, STR("CONNECT "));
    put_target(&dialog->target, out);
    (void)buf_add_str(out, STR(" HTTP/1.1\r\nHost: "));
    put_target(&dialog->target, out);
    (void)buf_add_str(out, STR("\r\n"));
    if (dialog->via->username)
        put_credentials(dialog->via, out);
    (void)buf_add_str(out, STR("\r\n"));
}

static enum via_step judge_status(struct via_dialog *dialog, int status)
{
    if (status >= 200 && status < 300)
        return VIA_OPEN;
    if (status == 407)
        return failed(dialog, dialog->via->username ? "the egress proxy refuses the credentials"
                                                    : "the egress proxy wants credentials");
    return failed(dialog, "the egress proxy refuses the connection");
}

/* Parsed from its begin each time: it is short, and comes in one piece nearly always. */
static enum via_step take_answer(struct via_dialog *dialog, struct str *in)
{
    enum via_step step = VIA_MORE;
    struct http_parser parser;
    struct str rest = *in;

    http_parser_init(&parser, false, NULL, NULL);
    parser.head_only = true;
    switch (http_parser_feed(&parser, &rest)) {
    case HTTP_PARSE_HEAD:
    case HTTP_PARSE_DONE:
        *in = rest;
        step = parser.ll.status_code < 200 ? VIA_MORE : judge_status(dialog, parser.ll.status_code);
        break;
    case HTTP_PARSE_ERROR:
        step = failed(dialog, "the egress proxy does not speak HTTP");
        break;
    case HTTP_PARSE_MORE:
    case HTTP_PARSE_PAUSED:
        break;
    }
    http_parser_done(&parser);
    return step;
}

/* ---- both ---- */

void via_begin(struct via_dialog *dialog, const struct via *via, const struct via_target *target,
               struct buf *out)
{
    *dialog =
        (struct via_dialog){.via = via, .target = *target, .state = via->http ? ANSWER : METHOD};
    if (via->http)
        put_connect(dialog, out);
    else
        put_greeting(via, out);
}

static enum via_step take(struct via_dialog *dialog, struct str *in, struct buf *out)
{
    switch ((enum state)dialog->state) {
    case METHOD:
        return take_method(dialog, in, out);
    case PASSWORD:
        return take_password(dialog, in, out);
    case REPLY:
        return take_reply(dialog, in);
    case ANSWER:
        break;
    }
    return take_answer(dialog, in);
}

enum via_step via_feed(struct via_dialog *dialog, struct str *in, struct buf *out)
{
    enum via_step step;
    size_t before;

    do {
        before = in->len;
        step = take(dialog, in, out);
    } while (step == VIA_MORE && in->len < before);
    if (step == VIA_MORE && in->len >= VIA_ANSWER_MAX)
        return failed(dialog, "the egress proxy's answer is too long");
    return step;
}
