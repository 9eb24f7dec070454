/* Calls, and the connections they leave behind.
 *
 * A line is a libcurl easy handle in a multi handle of its own, so that waiting for it can be ended
 * from outside. The multi keeps the connection after a transfer. Lines that are not in use wait in a
 * list with the name of what they are connected to, and the next call to the same place takes its
 * own; nothing is shared between threads but the cache of names and of TLS sessions. */
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/alloc.h"
#include "protocol/fetch/fetch_internal.h"

enum { LINES_IDLE_MAX = 32, SERVER_MAX = 120 /* of a URL, in a key */ };

struct fetch {
    pthread_mutex_t mutex;
    struct fetch_line *idle; /* last used first */
    size_t idle_count;
    struct list busy;
    struct fetch_gate gate;
    CURLSH *share;
    pthread_mutex_t share_mutexes[CURL_LOCK_DATA_LAST];
};

static void global_init_once(void)
{
    (void)curl_global_init(CURL_GLOBAL_ALL);
}

void fetch_global_init(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    (void)pthread_once(&once, global_init_once);
}

static void share_lock(CURL *easy, curl_lock_data data, curl_lock_access access, void *arg)
{
    struct fetch *fetch = arg;

    (void)easy;
    (void)access;
    (void)pthread_mutex_lock(&fetch->share_mutexes[data]);
}

static void share_unlock(CURL *easy, curl_lock_data data, void *arg)
{
    struct fetch *fetch = arg;

    (void)easy;
    (void)pthread_mutex_unlock(&fetch->share_mutexes[data]);
}

struct fetch *fetch_new(void)
{
    struct fetch *fetch = xcalloc(1, sizeof(*fetch));

    fetch_global_init();
    (void)pthread_mutex_init(&fetch->mutex, NULL);
    list_init(&fetch->busy);
    for (size_t i = 0; i < CURL_LOCK_DATA_LAST; i++)
        (void)pthread_mutex_init(&fetch->share_mutexes[i], NULL);
    fetch->share = curl_share_init();
    if (fetch->share) {
        curl_share_setopt(fetch->share, CURLSHOPT_LOCKFUNC, share_lock);
        curl_share_setopt(fetch->share, CURLSHOPT_UNLOCKFUNC, share_unlock);
        curl_share_setopt(fetch->share, CURLSHOPT_USERDATA, fetch);
        curl_share_setopt(fetch->share, CURLSHOPT_SHARE, CURL_LOCK_DATA_DNS);
        curl_share_setopt(fetch->share, CURLSHOPT_SHARE, CURL_LOCK_DATA_SSL_SESSION);
    }
    return fetch;
}

static void line_free(struct fetch_line *line)
{
    if (line->easy)
        curl_easy_cleanup(line->easy);
    if (line->multi)
        (void)curl_multi_cleanup(line->multi);
    free(line);
}

void fetch_free(struct fetch *fetch)
{
    if (!fetch)
        return;
    while (fetch->idle) {
        struct fetch_line *line = fetch->idle;

        fetch->idle = line->next;
        line_free(line);
    }
    if (fetch->share)
        (void)curl_share_cleanup(fetch->share);
    for (size_t i = 0; i < CURL_LOCK_DATA_LAST; i++)
        (void)pthread_mutex_destroy(&fetch->share_mutexes[i]);
    (void)pthread_mutex_destroy(&fetch->mutex);
    free(fetch);
}

void fetch_set_gate(struct fetch *fetch, const struct fetch_gate *gate)
{
    fetch->gate = *gate;
}

bool fetch_line_open(const struct fetch *fetch, const struct fetch_line *line)
{
    return !fetch->gate.open || !line->unix_path[0] ||
           fetch->gate.open(fetch->gate.arg, line->unix_path);
}

static curl_socket_t open_by_gate(void *arg, curlsocktype purpose, struct curl_sockaddr *address)
{
    struct fetch_line *line = arg;
    struct sockaddr_un found = {.sun_family = AF_UNIX};

    (void)purpose;
    if (line->gate->find(line->gate->arg, line->unix_path, found.sun_path, sizeof(found.sun_path)) <
        0)
        return CURL_SOCKET_BAD;
    /* libcurl says that it may be changed, and has room for any. */
    memcpy(&address->addr, &found, sizeof(found));
    address->addrlen = sizeof(found);
    return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
}

/* libcurl tells which socket is a transfer's only when it is over. */
static int on_socket_opened(void *arg, curl_socket_t fd, curlsocktype purpose)
{
    struct fetch_line *line = arg;

    (void)purpose;
    if (line->socket_count < FETCH_SOCKETS_MAX)
        line->sockets[line->socket_count++] = fd;
    return CURL_SOCKOPT_OK;
}

static int on_socket_closes(void *arg, curl_socket_t fd)
{
    struct fetch_line *line = arg;

    for (size_t i = 0; i < line->socket_count; i++)
        if (line->sockets[i] == fd)
            line->sockets[i--] = line->sockets[--line->socket_count];
    return close(fd);
}

void fetch_line_set(struct fetch_line *line)
{
    curl_easy_setopt(line->easy, CURLOPT_SOCKOPTFUNCTION, on_socket_opened);
    curl_easy_setopt(line->easy, CURLOPT_SOCKOPTDATA, line);
    curl_easy_setopt(line->easy, CURLOPT_CLOSESOCKETFUNCTION, on_socket_closes);
    curl_easy_setopt(line->easy, CURLOPT_CLOSESOCKETDATA, line);
    if (!line->gate->find || !line->unix_path[0] || line->unix_path[0] == '/')
        return;
    curl_easy_setopt(line->easy, CURLOPT_OPENSOCKETFUNCTION, open_by_gate);
    curl_easy_setopt(line->easy, CURLOPT_OPENSOCKETDATA, line);
}

void fetch_cut(struct fetch *fetch, const char *unix_path)
{
    struct list *node;

    (void)pthread_mutex_lock(&fetch->mutex);
    list_for_each (node, &fetch->busy) {
        struct fetch_line *line = container_of(node, struct fetch_line, busy);

        if (strcmp(line->unix_path, unix_path) != 0)
            continue;
        atomic_store(&line->cut, true);
        (void)curl_multi_wakeup(line->multi);
    }
    (void)pthread_mutex_unlock(&fetch->mutex);
}

/* Returns where the socket's path begins in it. */
static size_t line_key(const struct fetch_request *request, char *out, size_t size)
{
    const char *host = strstr(request->url, "://");
    size_t len = host ? (size_t)(host - request->url) + 3 + strcspn(host + 3, "/?#") : 0;

    /* A connection to anywhere is none for a call that may only go to public addresses. */
    len = (size_t)snprintf(out, size, "%d %.*s ", (int)request->reach,
                           (int)(len < SERVER_MAX ? len : SERVER_MAX), request->url);
    (void)snprintf(out + len, size - len, "%s", request->unix_path ? request->unix_path : "");
    return len;
}

static void set_busy(struct fetch *fetch, struct fetch_line *line)
{
    atomic_store(&line->cut, false);
    (void)pthread_mutex_lock(&fetch->mutex);
    list_push_back(&fetch->busy, &line->busy);
    (void)pthread_mutex_unlock(&fetch->mutex);
}

static struct fetch_line *take_idle(struct fetch *fetch, const char *key)
{
    struct fetch_line *line = NULL;

    (void)pthread_mutex_lock(&fetch->mutex);
    for (struct fetch_line **at = &fetch->idle; *at; at = &(*at)->next) {
        if (strcmp((*at)->key, key) != 0)
            continue;
        line = *at;
        *at = line->next;
        fetch->idle_count--;
        break;
    }
    (void)pthread_mutex_unlock(&fetch->mutex);
    return line;
}

struct fetch_line *fetch_line_take(struct fetch *fetch, const struct fetch_request *request)
{
    char key[sizeof(((struct fetch_line *)NULL)->key)];
    size_t path_at = line_key(request, key, sizeof(key));
    struct fetch_line *line = take_idle(fetch, key);

    if (line) {
        set_busy(fetch, line);
        return line;
    }
    line = xcalloc(1, sizeof(*line));
    (void)str_copy(str_of(key), line->key, sizeof(line->key));
    line->unix_path = line->key + path_at;
    line->gate = &fetch->gate;
    line->multi = curl_multi_init();
    line->easy = curl_easy_init();
    if (!line->multi || !line->easy) {
        line_free(line);
        return NULL;
    }
    (void)curl_multi_setopt(line->multi, CURLMOPT_MAXCONNECTS, 1L);
    if (fetch->share)
        curl_easy_setopt(line->easy, CURLOPT_SHARE, fetch->share);
    set_busy(fetch, line);
    return line;
}

void fetch_line_give(struct fetch *fetch, struct fetch_line *line)
{
    struct fetch_line *old = NULL;

    /* Nothing of the last request is kept: it pointed into the caller's memory. */
    curl_easy_reset(line->easy);
    (void)pthread_mutex_lock(&fetch->mutex);
    list_remove(&line->busy);
    line->next = fetch->idle;
    fetch->idle = line;
    if (++fetch->idle_count > LINES_IDLE_MAX) {
        struct fetch_line **at = &fetch->idle;

        while ((*at)->next)
            at = &(*at)->next;
        old = *at;
        *at = NULL;
        fetch->idle_count--;
    }
    (void)pthread_mutex_unlock(&fetch->mutex);
    if (old)
        line_free(old);
}

/* ---- calls ---- */

struct call {
    struct fetch_setup setup;
    struct fetch_response *response;
};

static size_t on_write(char *p, size_t size, size_t count, void *arg)
{
    struct call *call = arg;

    return buf_add(&call->response->body, p, size * count) ? size * count : 0;
}

static size_t on_header(char *p, size_t size, size_t count, void *arg)
{
    const struct call *call = arg;

    fetch_head_tell(&call->setup, p, size * count);
    return size * count;
}

static CURLcode run(struct fetch *fetch, struct fetch_line *line, struct fetch_setup *setup)
{
    int running = 1, left;
    CURLMsg *message;

    setup->cut = !fetch_line_open(fetch, line);
    if (setup->cut)
        return CURLE_ABORTED_BY_CALLBACK;
    if (curl_multi_add_handle(line->multi, line->easy) != CURLM_OK)
        return CURLE_FAILED_INIT;
    while (running) {
        if (curl_multi_perform(line->multi, &running) != CURLM_OK)
            return CURLE_FAILED_INIT;
        setup->cut = running && atomic_load(&line->cut);
        if (setup->cut)
            return CURLE_ABORTED_BY_CALLBACK;
        if (running)
            (void)curl_multi_poll(line->multi, NULL, 0, 1000, NULL);
    }
    message = curl_multi_info_read(line->multi, &left);
    return message ? message->data.result : CURLE_FAILED_INIT;
}

static int finish(struct call *call, struct fetch_line *line, CURLcode code, struct error *err)
{
    struct fetch_response *out = call->response;
    curl_off_t retry_after = 0;
    long status = 0;

    (void)curl_easy_getinfo(line->easy, CURLINFO_RESPONSE_CODE, &status);
    (void)curl_easy_getinfo(line->easy, CURLINFO_RETRY_AFTER, &retry_after);
    out->status = (int)status;
    if (out->body.refused)
        return buf_refuse(&out->body, err);
    if (out->body.overflowed)
        return error_set(err, ERROR_LIMIT, "%s %s: the answer is longer than %zu bytes",
                         call->setup.method, call->setup.host, out->body.max);
    if (code != CURLE_OK)
        return fetch_error(&call->setup, line->easy, code, err);
    if (retry_after > 0)
        out->retry_after_s = retry_after;
    return 0;
}

int fetch_call(struct fetch *fetch, const struct fetch_request *request, struct fetch_response *out,
               struct error *err)
{
    struct call call = {.response = out};
    struct fetch_line *line;
    int result;

    *out = (struct fetch_response){.retry_after_s = -1};
    buf_init_charged(&out->body,
                     request->response_max ? request->response_max : FETCH_RESPONSE_MAX);
    line = fetch_line_take(fetch, request);
    if (!line)
        return error_set(err, ERROR_INTERNAL, "no descriptors are left for a connection");
    result = fetch_setup(&call.setup, line->easy, request, FETCH_BORROW_BODY, err);
    if (result == 0) {
        fetch_line_set(line);
        curl_easy_setopt(line->easy, CURLOPT_WRITEFUNCTION, on_write);
        curl_easy_setopt(line->easy, CURLOPT_WRITEDATA, &call);
        curl_easy_setopt(line->easy, CURLOPT_HEADERFUNCTION, on_header);
        curl_easy_setopt(line->easy, CURLOPT_HEADERDATA, &call);
        curl_easy_setopt(line->easy, CURLOPT_TIMEOUT_MS, (long)(fetch_within(request) + 1));
        if (request->idle_ms) {
            curl_easy_setopt(line->easy, CURLOPT_LOW_SPEED_LIMIT, 1L);
            curl_easy_setopt(line->easy, CURLOPT_LOW_SPEED_TIME,
                             (long)(request->idle_ms + 999) / 1000);
        }
        result = finish(&call, line, run(fetch, line, &call.setup), err);
        (void)curl_multi_remove_handle(line->multi, line->easy);
    }
    fetch_line_give(fetch, line);
    fetch_setup_done(&call.setup);
    return result;
}

void fetch_response_done(struct fetch_response *response)
{
    buf_done(&response->body);
}
