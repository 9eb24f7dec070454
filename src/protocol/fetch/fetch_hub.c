/* Many streams, one thread: libcurl's socket interface over epoll, so that the work done for an event
 * does not grow with the number of streams.
 *
 * Other threads only append to two lists under the mutex and wake the hub: streams to begin, streams
 * to let go. A stream's memory is the hub thread's from open to the end of letting go. Closing marks
 * the stream, after which no callback is begun, and waits for the one that is running, if it is this
 * stream's and another thread's. */
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/list.h"
#include "base/thread.h"
#include "protocol/fetch/fetch_internal.h"

enum { EVENTS_MAX = 256, SCAN_MS = 250 };

struct fetch_hub {
    struct thread thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    CURLM *multi;
    int epoll, wake;
    int64_t timer_ms; /* when libcurl wants to be called; -1 = not */
    int64_t scan_ms;
    /* under the mutex */
    struct list opening, closing;
    struct fetch_hub_stream *running; /* whose callback runs */
    /* the hub thread's */
    struct list active;
};

struct fetch_hub_stream {
    struct list link; /* in opening or active */
    struct list gone; /* in closing */
    struct fetch_hub *hub;
    struct fetch_hub_events events;
    void *arg;
    struct fetch_request request; /* a copy, strings too */
    struct pair *headers;
    struct fetch_setup setup;
    CURL *easy;
    int status;
    bool head_done, ended;
    bool closed; /* under the mutex */
    int64_t begun_ms, last_ms;
};

/* ---- callbacks ---- */

static bool enter(struct fetch_hub_stream *stream)
{
    struct fetch_hub *hub = stream->hub;
    bool ok;

    (void)pthread_mutex_lock(&hub->mutex);
    ok = !stream->closed;
    if (ok)
        hub->running = stream;
    (void)pthread_mutex_unlock(&hub->mutex);
    return ok;
}

static void leave(struct fetch_hub_stream *stream)
{
    struct fetch_hub *hub = stream->hub;

    (void)pthread_mutex_lock(&hub->mutex);
    hub->running = NULL;
    (void)pthread_cond_broadcast(&hub->changed);
    (void)pthread_mutex_unlock(&hub->mutex);
}

static size_t on_header(char *p, size_t size, size_t count, void *arg)
{
    struct fetch_hub_stream *stream = arg;

    if (!fetch_head_line(&stream->status, p, size * count) || stream->head_done)
        return size * count;
    stream->head_done = true;
    stream->last_ms = clock_mono_ms();
    if (!enter(stream))
        return 0;
    if (stream->events.on_head)
        stream->events.on_head(stream->arg, stream->status);
    leave(stream);
    return size * count;
}

static size_t on_write(char *p, size_t size, size_t count, void *arg)
{
    struct fetch_hub_stream *stream = arg;

    stream->last_ms = clock_mono_ms();
    if (!enter(stream))
        return 0;
    if (stream->events.on_data)
        stream->events.on_data(stream->arg, str_n(p, size * count));
    leave(stream);
    return size * count;
}

/* Takes it from libcurl and tells how it ended. */
static void end_stream(struct fetch_hub_stream *stream, const struct error *why)
{
    if (stream->ended)
        return;
    stream->ended = true;
    (void)curl_multi_remove_handle(stream->hub->multi, stream->easy);
    if (!enter(stream))
        return;
    if (stream->events.on_end)
        stream->events.on_end(stream->arg, why);
    leave(stream);
}

static int on_socket(CURL *easy, curl_socket_t fd, int what, void *arg, void *known)
{
    struct fetch_hub *hub = arg;
    struct epoll_event event = {.data.fd = fd};

    (void)easy;
    if (what == CURL_POLL_REMOVE) {
        (void)epoll_ctl(hub->epoll, EPOLL_CTL_DEL, fd, NULL);
        return 0;
    }
    event.events = (what & CURL_POLL_IN ? EPOLLIN : 0U) | (what & CURL_POLL_OUT ? EPOLLOUT : 0U);
    if (epoll_ctl(hub->epoll, known ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, &event) < 0)
        (void)epoll_ctl(hub->epoll, known ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, fd, &event);
    (void)curl_multi_assign(hub->multi, fd, hub);
    return 0;
}

static int on_timer(CURLM *multi, long timeout_ms, void *arg)
{
    struct fetch_hub *hub = arg;

    (void)multi;
    hub->timer_ms = timeout_ms < 0 ? -1 : clock_mono_ms() + timeout_ms;
    return 0;
}

/* ---- the thread ---- */

/* A stream that is let go must be seen so at once by the other side: an orderly end of our half could
 * also mean that we still want the answer. */
static int on_new_socket(void *arg, curl_socket_t fd, curlsocktype purpose)
{
    static const struct linger hard = {.l_onoff = 1};

    (void)arg;
    (void)purpose;
    (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
    return CURL_SOCKOPT_OK;
}

static void begin(struct fetch_hub_stream *stream)
{
    struct error why = {0};

    stream->begun_ms = stream->last_ms = clock_mono_ms();
    stream->easy = curl_easy_init();
    if (!stream->easy) {
        (void)error_set(&why, ERROR_INTERNAL, "no memory for a connection");
        end_stream(stream, &why);
        return;
    }
    if (fetch_setup(&stream->setup, stream->easy, &stream->request, FETCH_BORROW_BODY, &why) < 0) {
        end_stream(stream, &why);
        return;
    }
    /* All streams share what is kept, also with those that may go anywhere. */
    if (stream->request.reach == FETCH_PUBLIC)
        curl_easy_setopt(stream->easy, CURLOPT_FRESH_CONNECT, 1L);
    curl_easy_setopt(stream->easy, CURLOPT_PRIVATE, stream);
    curl_easy_setopt(stream->easy, CURLOPT_SOCKOPTFUNCTION, on_new_socket);
    curl_easy_setopt(stream->easy, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(stream->easy, CURLOPT_HEADERDATA, stream);
    curl_easy_setopt(stream->easy, CURLOPT_WRITEFUNCTION, on_write);
    curl_easy_setopt(stream->easy, CURLOPT_WRITEDATA, stream);
    if (curl_multi_add_handle(stream->hub->multi, stream->easy) != CURLM_OK) {
        (void)error_set(&why, ERROR_INTERNAL, "a connection cannot be begun");
        end_stream(stream, &why);
    }
}

static void let_go(struct fetch_hub_stream *stream)
{
    if (stream->easy) {
        if (!stream->ended)
            (void)curl_multi_remove_handle(stream->hub->multi, stream->easy);
        curl_easy_cleanup(stream->easy);
    }
    fetch_setup_done(&stream->setup);
    for (size_t i = 0; i < stream->request.header_count; i++) {
        free((void *)(uintptr_t)stream->headers[i].name.p);
        free((void *)(uintptr_t)stream->headers[i].value.p);
    }
    free(stream->headers);
    free((void *)(uintptr_t)stream->request.method);
    free((void *)(uintptr_t)stream->request.url);
    free((void *)(uintptr_t)stream->request.unix_path);
    free((void *)(uintptr_t)stream->request.ca_file);
    free((void *)(uintptr_t)stream->request.body.p);
    free(stream);
}

/* What other threads asked for. */
static void serve_lists(struct fetch_hub *hub)
{
    struct list opening, closing, *node, *next;

    list_init(&opening);
    list_init(&closing);
    (void)pthread_mutex_lock(&hub->mutex);
    while ((node = list_pop_front(&hub->closing)) != NULL) {
        list_remove(&container_of(node, struct fetch_hub_stream, gone)->link);
        list_push_back(&closing, node);
    }
    while ((node = list_pop_front(&hub->opening)) != NULL)
        list_push_back(&opening, node);
    (void)pthread_mutex_unlock(&hub->mutex);
    list_for_each_safe (node, next, &closing)
        let_go(container_of(node, struct fetch_hub_stream, gone));
    list_for_each_safe (node, next, &opening) {
        list_remove(node);
        list_push_back(&hub->active, node);
        begin(container_of(node, struct fetch_hub_stream, link));
    }
}

static void serve_ends(struct fetch_hub *hub)
{
    CURLMsg *message;
    int left;

    while ((message = curl_multi_info_read(hub->multi, &left)) != NULL) {
        CURLcode code = message->data.result;
        struct fetch_hub_stream *stream = NULL;
        struct error why = {0};

        if (message->msg != CURLMSG_DONE)
            continue;
        (void)curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &stream);
        if (code == CURLE_OK) {
            end_stream(stream, NULL);
        } else {
            (void)fetch_error(&stream->setup, stream->easy, code, &why);
            end_stream(stream, &why);
        }
    }
}

static void serve_deadlines(struct fetch_hub *hub)
{
    int64_t now_ms = clock_mono_ms();
    struct list *node, *next;

    if (now_ms < hub->scan_ms)
        return;
    hub->scan_ms = now_ms + SCAN_MS;
    list_for_each_safe (node, next, &hub->active) {
        struct fetch_hub_stream *stream = container_of(node, struct fetch_hub_stream, link);
        uint32_t head_ms = stream->request.timeout_ms, idle_ms = stream->request.idle_ms;
        struct error why = {0};

        if (stream->ended)
            continue;
        if (!stream->head_done &&
            now_ms - stream->begun_ms >= (head_ms ? head_ms : FETCH_TIMEOUT_MS))
            (void)fetch_error_timeout(&stream->setup, "the answer", &why);
        else if (stream->head_done && idle_ms && now_ms - stream->last_ms >= idle_ms)
            (void)fetch_error_timeout(&stream->setup, "more of the answer", &why);
        if (why.code)
            end_stream(stream, &why);
    }
}

static void serve_events(struct fetch_hub *hub)
{
    struct epoll_event events[EVENTS_MAX];
    int64_t now_ms = clock_mono_ms();
    int wait_ms = list_empty(&hub->active) ? -1 : SCAN_MS, n, running;

    if (hub->timer_ms >= 0 && (wait_ms < 0 || hub->timer_ms - now_ms < wait_ms))
        wait_ms = hub->timer_ms > now_ms ? (int)(hub->timer_ms - now_ms) : 0;
    n = epoll_wait(hub->epoll, events, EVENTS_MAX, wait_ms);
    for (int i = 0; i < n; i++) {
        unsigned what = events[i].events;

        if (events[i].data.fd == hub->wake) {
            uint64_t count;

            (void)!read(hub->wake, &count, sizeof(count));
            continue;
        }
        (void)curl_multi_socket_action(hub->multi, events[i].data.fd,
                                       (what & EPOLLIN ? CURL_CSELECT_IN : 0) |
                                           (what & EPOLLOUT ? CURL_CSELECT_OUT : 0) |
                                           (what & (EPOLLERR | EPOLLHUP) ? CURL_CSELECT_ERR : 0),
                                       &running);
    }
    if (hub->timer_ms >= 0 && hub->timer_ms <= clock_mono_ms()) {
        hub->timer_ms = -1;
        (void)curl_multi_socket_action(hub->multi, CURL_SOCKET_TIMEOUT, 0, &running);
    }
}

static void hub_thread(void *arg)
{
    struct fetch_hub *hub = arg;
    struct list *node;

    while (!thread_stopping(&hub->thread)) {
        serve_lists(hub);
        serve_events(hub);
        serve_ends(hub);
        serve_deadlines(hub);
    }
    serve_lists(hub);
    while ((node = list_pop_front(&hub->active)) != NULL)
        let_go(container_of(node, struct fetch_hub_stream, link));
}

/* ---- any thread ---- */

static void hub_wake(struct fetch_hub *hub)
{
    uint64_t one = 1;

    (void)!write(hub->wake, &one, sizeof(one));
}

static void hub_release(struct fetch_hub *hub)
{
    if (hub->multi)
        (void)curl_multi_cleanup(hub->multi);
    close_fd(&hub->epoll);
    close_fd(&hub->wake);
    (void)pthread_cond_destroy(&hub->changed);
    (void)pthread_mutex_destroy(&hub->mutex);
    free(hub);
}

struct fetch_hub *fetch_hub_new(void)
{
    struct fetch_hub *hub = xcalloc(1, sizeof(*hub));
    struct epoll_event event = {.events = EPOLLIN};

    fetch_global_init();
    list_init(&hub->opening);
    list_init(&hub->closing);
    list_init(&hub->active);
    hub->timer_ms = -1;
    (void)pthread_mutex_init(&hub->mutex, NULL);
    (void)pthread_cond_init(&hub->changed, NULL);
    hub->epoll = epoll_create1(EPOLL_CLOEXEC);
    hub->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    hub->multi = curl_multi_init();
    event.data.fd = hub->wake;
    if (hub->epoll < 0 || hub->wake < 0 || !hub->multi ||
        epoll_ctl(hub->epoll, EPOLL_CTL_ADD, hub->wake, &event) < 0) {
        hub_release(hub);
        return NULL;
    }
    (void)curl_multi_setopt(hub->multi, CURLMOPT_SOCKETFUNCTION, on_socket);
    (void)curl_multi_setopt(hub->multi, CURLMOPT_SOCKETDATA, hub);
    (void)curl_multi_setopt(hub->multi, CURLMOPT_TIMERFUNCTION, on_timer);
    (void)curl_multi_setopt(hub->multi, CURLMOPT_TIMERDATA, hub);
    (void)curl_multi_setopt(hub->multi, CURLMOPT_MAXCONNECTS, 32L);
    if (thread_start(&hub->thread, "hub", THREAD_STACK_DEFAULT, hub_thread, hub, NULL) < 0) {
        hub_release(hub);
        return NULL;
    }
    return hub;
}

void fetch_hub_free(struct fetch_hub *hub)
{
    if (!hub)
        return;
    thread_ask_stop(&hub->thread);
    hub_wake(hub);
    thread_join(&hub->thread);
    hub_release(hub);
}

static char *copy_text(const char *text)
{
    return text ? xstrdup(text) : NULL;
}

static struct str copy_bytes(struct str bytes)
{
    char *copy = xmalloc(bytes.len + 1);

    if (bytes.len)
        memcpy(copy, bytes.p, bytes.len);
    copy[bytes.len] = '\0';
    return str_n(copy, bytes.len);
}

struct fetch_hub_stream *fetch_hub_open(struct fetch_hub *hub, const struct fetch_request *request,
                                        const struct fetch_hub_events *events, void *arg)
{
    struct fetch_hub_stream *stream = xcalloc(1, sizeof(*stream));

    *stream = (struct fetch_hub_stream){.hub = hub, .events = *events, .arg = arg};
    stream->request = *request;
    stream->request.method = xstrdup(request->method);
    stream->request.url = xstrdup(request->url);
    stream->request.unix_path = copy_text(request->unix_path);
    stream->request.ca_file = copy_text(request->ca_file);
    stream->request.body = copy_bytes(request->body);
    stream->headers = xcalloc(request->header_count + 1, sizeof(*stream->headers));
    for (size_t i = 0; i < request->header_count; i++)
        stream->headers[i] = (struct pair){copy_bytes(request->headers[i].name),
                                           copy_bytes(request->headers[i].value)};
    stream->request.headers = stream->headers;
    (void)pthread_mutex_lock(&hub->mutex);
    list_push_back(&hub->opening, &stream->link);
    (void)pthread_mutex_unlock(&hub->mutex);
    hub_wake(hub);
    return stream;
}

void fetch_hub_close(struct fetch_hub_stream *stream)
{
    struct fetch_hub *hub = stream->hub;
    bool inside = pthread_equal(pthread_self(), hub->thread.handle) != 0;

    (void)pthread_mutex_lock(&hub->mutex);
    stream->closed = true;
    while (!inside && hub->running == stream)
        (void)pthread_cond_wait(&hub->changed, &hub->mutex);
    list_push_back(&hub->closing, &stream->gone);
    (void)pthread_mutex_unlock(&hub->mutex);
    hub_wake(hub);
}
