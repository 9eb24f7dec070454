/* From a request to the options of a libcurl handle, and from its failures to ours. */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "protocol/fetch/fetch_internal.h"

uint32_t fetch_within(const struct fetch_request *request)
{
    return (uint32_t)clock_left_ms(request->deadline_us,
                                   request->timeout_ms ? request->timeout_ms : FETCH_TIMEOUT_MS);
}

static bool visible(struct str text)
{
    for (size_t i = 0; i < text.len; i++)
        if ((unsigned char)text.p[i] <= 0x20 || text.p[i] == 0x7f)
            return false;
    return text.len > 0;
}

static bool one_line(struct str text)
{
    for (size_t i = 0; i < text.len; i++)
        if (text.p[i] == '\r' || text.p[i] == '\n' || text.p[i] == '\0')
            return false;
    return true;
}

static void read_host(const char *url, char out[FETCH_HOST_SIZE])
{
    const char *start = strstr(url, "://");
    struct str text = str_of(start ? start + 3 : url);
    ptrdiff_t at;

    text.len = strcspn(text.p, "/?#");
    at = str_find(text, '@');
    if (at >= 0)
        text = str_skip(text, (size_t)at + 1);
    if (text.len >= FETCH_HOST_SIZE)
        text.len = FETCH_HOST_SIZE - 1;
    (void)str_copy(text, out, FETCH_HOST_SIZE);
}

static bool loopback(const char *host)
{
    struct str text = str_of(host);

    return str_starts(text, STR("127.")) || str_starts(text, STR("[::1]")) ||
           str_eq_nocase(text, STR("localhost")) || str_starts(text, STR("localhost:"));
}

static int set_headers(struct fetch_setup *setup, struct error *err)
{
    const struct fetch_request *request = &setup->request;
    bool typed = false;

    for (size_t i = 0; i < request->header_count; i++) {
        const struct pair *header = &request->headers[i];
        auto_free char *line = NULL;

        if (!visible(header->name) || str_find(header->name, ':') >= 0 || !one_line(header->value))
            return error_set(err, ERROR_INVALID, "%s %s: a header is not well-formed",
                             setup->method, setup->host);
        typed |= str_eq_nocase(header->name, STR("content-type"));
        /* To libcurl "Name:" means leave it out and "Name;" an empty value. */
        line = header->value.len
                   ? xasprintf("%.*s: %.*s", STR_ARG(header->name), STR_ARG(header->value))
                   : xasprintf("%.*s;", STR_ARG(header->name));
        setup->headers = curl_slist_append(setup->headers, line);
    }
    if (!typed)
        setup->headers = curl_slist_append(setup->headers, "Content-Type:");
    setup->headers = curl_slist_append(setup->headers, "Expect:");
    return 0;
}

static size_t on_read(char *p, size_t size, size_t count, void *arg)
{
    struct fetch_setup *setup = arg;
    ssize_t n = setup->request.source(setup->request.source_arg, p, size * count);

    if (n >= 0)
        return (size_t)n;
    setup->source_failed = true;
    return CURL_READFUNC_ABORT;
}

/* libcurl sends a request again by itself when a kept connection ends before the answer. Whether the
 * server had begun with it nobody knows: what may not happen twice is not sent twice. */
static int on_request(void *arg, char *to, char *from, int to_port, int from_port)
{
    struct fetch_setup *setup = arg;
    bool again = setup->sent;

    (void)to;
    (void)from;
    (void)to_port;
    (void)from_port;
    setup->sent = true;
    if (!again || setup->request.repeatable ||
        (strcmp(setup->method, "POST") != 0 && strcmp(setup->method, "PATCH") != 0))
        return CURL_PREREQFUNC_OK;
    setup->not_again = true;
    return CURL_PREREQFUNC_ABORT;
}

static void set_body(struct fetch_setup *setup, CURL *easy, enum fetch_body body)
{
    const struct fetch_request *request = &setup->request;
    bool posts = strcmp(request->method, "POST") == 0 || strcmp(request->method, "PUT") == 0 ||
                 strcmp(request->method, "PATCH") == 0;

    if (request->source) {
        curl_easy_setopt(easy, CURLOPT_UPLOAD, 1L);
        curl_easy_setopt(easy, CURLOPT_READFUNCTION, on_read);
        curl_easy_setopt(easy, CURLOPT_READDATA, setup);
        curl_easy_setopt(easy, CURLOPT_INFILESIZE_LARGE, (curl_off_t)request->source_length);
        curl_easy_setopt(easy, CURLOPT_UPLOAD_BUFFERSIZE, 256L * 1024);
    } else if (posts || request->body.len) {
        curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)request->body.len);
        curl_easy_setopt(easy,
                         body == FETCH_COPY_BODY ? CURLOPT_COPYPOSTFIELDS : CURLOPT_POSTFIELDS,
                         request->body.len ? request->body.p : "");
    } else if (strcmp(request->method, "HEAD") == 0) {
        curl_easy_setopt(easy, CURLOPT_NOBODY, 1L);
    }
    curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, request->method);
}

int fetch_setup(struct fetch_setup *setup, CURL *easy, const struct fetch_request *request,
                enum fetch_body body, struct error *err)
{
    *setup = (struct fetch_setup){.request = *request};
    read_host(request->url, setup->host);
    if (!str_copy(str_of(request->method), setup->method, sizeof(setup->method)))
        return error_set(err, ERROR_INVALID, "%s: the method is not well-formed", setup->host);
    if (!visible(str_of(request->method)) || !visible(str_of(request->url)) ||
        (!str_starts(str_of(request->url), STR("http://")) &&
         !str_starts(str_of(request->url), STR("https://"))))
        return error_set(err, ERROR_INVALID, "'%s' is not a host of an http or https URL",
                         setup->host);
    if (!fetch_within(request))
        return fetch_error_timeout(setup, "what came before it", err);
    if (set_headers(setup, err) < 0)
        return -1;
    curl_easy_reset(easy);
    curl_easy_setopt(easy, CURLOPT_URL, request->url);
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(easy, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_QUICK_EXIT, 1L);
    curl_easy_setopt(easy, CURLOPT_TCP_KEEPALIVE, 1L);
    curl_easy_setopt(easy, CURLOPT_MAXAGE_CONN, 60L);
    curl_easy_setopt(easy, CURLOPT_BUFFERSIZE, 64L * 1024);
    curl_easy_setopt(easy, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
    curl_easy_setopt(easy, CURLOPT_PATH_AS_IS, 1L);
    curl_easy_setopt(easy, CURLOPT_USERAGENT, "quicksand/" QUICKSAND_VERSION);
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS,
                     (long)(request->connect_ms ? request->connect_ms : FETCH_CONNECT_MS));
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, setup->reason);
    curl_easy_setopt(easy, CURLOPT_HTTPHEADER, setup->headers);
    curl_easy_setopt(easy, CURLOPT_PREREQFUNCTION, on_request);
    curl_easy_setopt(easy, CURLOPT_PREREQDATA, setup);
    if (request->unix_path)
        curl_easy_setopt(easy, CURLOPT_UNIX_SOCKET_PATH, request->unix_path);
    /* A proxy of the environment is for what lies outside. */
    if (request->unix_path || loopback(setup->host))
        curl_easy_setopt(easy, CURLOPT_PROXY, "");
    fetch_reach_set(setup, easy);
    /* Instead of the system's file; the system's directory is looked into as before. */
    if (request->ca_file)
        curl_easy_setopt(easy, CURLOPT_CAINFO, request->ca_file);
    set_body(setup, easy, body);
    return 0;
}

void fetch_setup_done(struct fetch_setup *setup)
{
    curl_slist_free_all(setup->headers);
    setup->headers = NULL;
}

static int explain(const struct fetch_setup *setup, CURL *easy, CURLcode code, struct error *err)
{
    long errnum = 0;

    if (setup->cut && !setup->sent) {
        (void)error_set(err, ERROR_CONFLICT, "%s %s: the other side is stopped", setup->method,
                        setup->host);
        err->errnum = EHOSTDOWN;
        return -1;
    }
    if (setup->cut)
        return error_set(err, ERROR_UNAVAILABLE,
                         "%s %s: the other side was stopped before the answer ended", setup->method,
                         setup->host);
    if (setup->source_failed)
        return error_set(err, ERROR_CONFLICT, "%s %s: the source of the body gave up",
                         setup->method, setup->host);
    if (setup->not_again)
        return error_set(err, ERROR_UNAVAILABLE, "%s %s: the connection ended before the answer",
                         setup->method, setup->host);
    if (setup->refused && code == CURLE_COULDNT_CONNECT)
        return error_set(err, ERROR_FORBIDDEN, "%s %s: not a public address", setup->method,
                         setup->host);
    if (code == CURLE_PEER_FAILED_VERIFICATION)
        return error_set(err, ERROR_UNAVAILABLE, "%s %s: %s", setup->method, setup->host,
                         setup->reason);
    if (code == CURLE_OPERATION_TIMEDOUT)
        return fetch_error_timeout(setup, "the answer", err);
    /* The scheme was checked before: this is how libcurl names an answer without a head. */
    if (code == CURLE_UNSUPPORTED_PROTOCOL)
        return error_set(err, ERROR_UNAVAILABLE, "%s %s: the answer is not HTTP", setup->method,
                         setup->host);
    if (code == CURLE_URL_MALFORMAT)
        return error_set(err, ERROR_INVALID, "'%s' is not a host of an http or https URL",
                         setup->host);
    /* libcurl speaks of a partial file, whatever the answer was. */
    if (code == CURLE_PARTIAL_FILE)
        return error_set(err, ERROR_UNAVAILABLE,
                         "%s %s: the other side went before its answer ended", setup->method,
                         setup->host);
    (void)curl_easy_getinfo(easy, CURLINFO_OS_ERRNO, &errnum);
    return error_set(err, ERROR_UNAVAILABLE, "%s %s: %s%s%s", setup->method, setup->host,
                     curl_easy_strerror(code), errnum ? ": " : "",
                     errnum ? strerror((int)errnum) : "");
}

int fetch_error(const struct fetch_setup *setup, CURL *easy, CURLcode code, struct error *err)
{
    (void)explain(setup, easy, code, err);
    if (setup->sent && err->code == ERROR_UNAVAILABLE)
        err->errnum = ECONNABORTED;
    return -1;
}

int fetch_error_timeout(const struct fetch_setup *setup, const char *waiting_for, struct error *err)
{
    return error_set(err, ERROR_TIMEOUT, "%s %s: waited too long for %s", setup->method,
                     setup->host, waiting_for);
}

bool fetch_head_line(int *status, const char *line, size_t len)
{
    struct str text = str_trim(str_n(line, len));
    uint64_t number;

    if (str_starts(text, STR("HTTP/"))) {
        (void)str_split(&text, ' ');
        if (str_to_u64(str_n(text.p, text.len < 3 ? text.len : 3), &number))
            *status = (int)number;
        return false;
    }
    return text.len == 0 && *status >= 200;
}

void fetch_head_tell(const struct fetch_setup *setup, const char *line, size_t len)
{
    struct str value = str_trim(str_n(line, len)), name = str_split(&value, ':');

    if (setup->request.on_header && value.p)
        setup->request.on_header(setup->request.header_arg, name, str_trim(value));
}
