/* How it works
 *
 * One thread connects, tells everything, reads what comes back, and begins again when the connection ends. Who sets
 * something writes its line himself, under the lock, and waits for the answer: answers come in the order of the lines,
 * so a list of who waits for which is enough. A connection that ends takes the answers with it; who waited tries again
 * on the next one until his time is over. */
#include "domain/network/egress_link.h"

#include <arpa/inet.h>
#include <errno.h>
#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/cond.h"
#include "base/list.h"
#include "base/log.h"
#include "base/map.h"
#include "base/thread.h"
#include "domain/network/network_refusal.h"
#include "protocol/json/json_out.h"
#include "protocol/json/json_shape.h"

enum {
    WAIT_US = 5000000,
    AGAIN_MS = 50, /* between two tries to connect */
    SEND_S = 5,
    RECORD_MAX = 64 * 1024,
    READ_SIZE = 64 * 1024,
};

struct entry { /* a sandbox with a box */
    uint32_t address;
    int64_t since_us; /* that it has this address */
    char *id, *team_id;
    char *policy; /* NULL: none with names or peers */
    uint32_t group;
    struct sent_result *ahead;         /* of the policy, when nobody waits for it yet; or NULL */
    struct egress_usage usage, before; /* since the egress process started, and before that */
    struct box_range *denied;          /* by the gateway's rules, for the log */
    size_t denied_count;
};

/* One line that was sent; its answer has not come yet. */
struct sent {
    struct list link;
    struct sent_result *result; /* NULL: nobody waits */
};

struct sent_result {
    enum { WAITING, TAKEN, REFUSED, LOST } state;
    char message[200];
};

struct egress_link {
    char *path;
    char *authority; /* its line, or NULL */
    struct thread thread;
    struct network_log *log;
    bool started;
    atomic_bool closing;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t changed;
    int fd;                   /* -1: not connected, or not everything was told yet */
    struct map entries;       /* id -> struct entry */
    struct map addresses;     /* the same by their addresses */
    struct egress_usage past; /* of those that have gone */
    struct list unanswered;
    struct sent_result signs; /* what it said to the authority; LOST as long as nobody asked it */
};

/* ---- sending, under the lock ---- */

static bool write_all(int fd, struct str text)
{
    while (text.len) {
        ssize_t sent = send(fd, text.p, text.len, MSG_NOSIGNAL);

        if (sent < 0 && errno == EINTR)
            continue;
        if (sent <= 0)
            return false;
        text = str_skip(text, (size_t)sent);
    }
    return true;
}

static bool send_line(struct egress_link *link, int fd, const char *line,
                      struct sent_result *result)
{
    struct sent *sent;

    if (!write_all(fd, str_of(line))) {
        (void)shutdown(fd, SHUT_RDWR); /* the thread sees it and begins again */
        return false;
    }
    sent = xcalloc(1, sizeof(*sent));
    sent->result = result;
    list_push_back(&link->unanswered, &sent->link);
    return true;
}

static void lose_answers(struct egress_link *link)
{
    struct list *at;

    while ((at = list_pop_front(&link->unanswered))) {
        struct sent *sent = container_of(at, struct sent, link);

        if (sent->result)
            sent->result->state = LOST;
        free(sent);
    }
}

/* The waiter goes before the answer comes. */
static void stop_waiting(struct egress_link *link, const struct sent_result *result)
{
    struct list *at;

    list_for_each (at, &link->unanswered) {
        struct sent *sent = container_of(at, struct sent, link);

        if (sent->result == result)
            sent->result = NULL;
    }
}

static void add_usage(struct egress_usage *to, const struct egress_usage *more)
{
    to->connections += more->connections;
    to->denied += more->denied;
    to->questions += more->questions;
    to->sent += more->sent;
    to->received += more->received;
    to->open += more->open;
}

static struct egress_usage usage_of(const struct entry *entry)
{
    struct egress_usage usage = entry->before;

    add_usage(&usage, &entry->usage);
    return usage;
}

/* ---- what is set ---- */

static const char *address_text(const struct entry *entry, char out[INET_ADDRSTRLEN])
{
    struct in_addr in = {htonl(entry->address)};

    return inet_ntop(AF_INET, &in, out, INET_ADDRSTRLEN);
}

/* It may have secrets in it. */
static void forget_text(char **text)
{
    if (*text)
        explicit_bzero(*text, strlen(*text));
    free(*text);
    *text = NULL;
}

/* Sends the sandbox's policy, or that it has none. The line is reserved at once: growing would leave copies of secrets. */
static bool send_entry(struct egress_link *link, int fd, const struct entry *entry,
                       struct sent_result *result)
{
    char address[INET_ADDRSTRLEN];
    struct buf line;
    bool sent;

    buf_init(&line, SIZE_MAX);
    (void)buf_reserve(&line, (entry->policy ? strlen(entry->policy) : 0) + 512);
    json_out_open(&line, NULL, '{');
    json_out_open(&line, entry->policy ? "set" : "drop", '{');
    json_out_str(&line, "address", str_of(address_text(entry, address)));
    json_out_str(&line, "id", str_of(entry->id));
    if (entry->policy) {
        json_out_str(&line, "team", str_of(entry->team_id));
        json_out_uint(&line, "group", entry->group);
        json_out_raw(&line, "policy", str_of(entry->policy));
    }
    json_out_close(&line, "}}\n");
    sent = send_line(link, fd, line.p, result);
    forget_text(&line.p);
    return sent;
}

static void forget_ahead(struct egress_link *link, struct entry *entry)
{
    if (entry->ahead)
        stop_waiting(link, entry->ahead);
    free(entry->ahead);
    entry->ahead = NULL;
}

static void forget_policy(struct egress_link *link, struct entry *entry)
{
    forget_ahead(link, entry);
    if (!entry->policy)
        return;
    forget_text(&entry->policy);
    if (link->fd >= 0)
        (void)send_entry(link, link->fd, entry, NULL);
}

static void entry_free(struct entry *entry)
{
    free(entry->ahead);
    free(entry->id);
    free(entry->team_id);
    forget_text(&entry->policy);
    free(entry->denied);
    free(entry);
}

static struct str address_key(const uint32_t *address)
{
    return str_n(address, sizeof(*address));
}

/* Another sandbox may have its address already. */
static void forget_entry(struct egress_link *link, struct entry *entry)
{
    struct egress_usage usage = usage_of(entry);

    usage.open = 0;
    add_usage(&link->past, &usage);
    forget_policy(link, entry);
    if (map_get(&link->addresses, address_key(&entry->address)) == entry)
        (void)map_remove(&link->addresses, address_key(&entry->address));
    entry_free(entry);
}

void egress_link_box(struct egress_link *link, struct str team_id, struct str sandbox_id,
                     uint32_t address)
{
    struct entry *entry;

    (void)pthread_mutex_lock(&link->lock);
    entry = map_remove(&link->entries, sandbox_id);
    if (entry)
        forget_entry(link, entry);
    if (address) {
        entry = xcalloc(1, sizeof(*entry));
        entry->address = address;
        entry->since_us = clock_wall_us();
        entry->id = str_dup(sandbox_id);
        entry->team_id = str_dup(team_id);
        (void)map_put(&link->entries, sandbox_id, entry);
        (void)map_put(&link->addresses, address_key(&entry->address), entry);
    }
    (void)pthread_mutex_unlock(&link->lock);
}

void egress_link_rules(struct egress_link *link, struct str sandbox_id,
                       const struct box_network *network)
{
    struct entry *entry;

    (void)pthread_mutex_lock(&link->lock);
    entry = map_get(&link->entries, sandbox_id);
    if (entry) {
        free(entry->denied);
        entry->denied = NULL;
        entry->denied_count = network->deny_count;
        if (network->deny_count)
            entry->denied = memcpy(xmalloc(network->deny_count * sizeof(*entry->denied)),
                                   network->ranges + network->allow_count,
                                   network->deny_count * sizeof(*entry->denied));
    }
    (void)pthread_mutex_unlock(&link->lock);
}

static int no_answer(struct error *err)
{
    return error_set(err, ERROR_UNAVAILABLE,
                     "the egress process does not answer; without it no policy with names can be "
                     "enforced. The server's log says why it is not there");
}

/* Sends it until it is taken, on one connection after the other. ahead: it was sent already; or NULL. */
static int wait_until_taken(struct egress_link *link, struct str id, struct sent_result *ahead,
                            struct error *err)
{
    int64_t until_us = clock_mono_us() + WAIT_US;
    bool in_time = true;

    while (in_time) {
        const struct entry *entry = map_get(&link->entries, id);
        struct sent_result own = {WAITING}, *result = ahead ? ahead : &own;

        if (!entry || !entry->policy)
            return error_set(err, ERROR_CONFLICT, "the sandbox ended meanwhile");
        if (ahead || (link->fd >= 0 && send_entry(link, link->fd, entry, result)))
            while (result->state == WAITING && in_time)
                in_time = cond_wait_until(&link->changed, &link->lock, until_us);
        else
            in_time = cond_wait_until(&link->changed, &link->lock, until_us);
        stop_waiting(link, result);
        ahead = NULL;
        if (result->state == TAKEN)
            return 0;
        if (result->state == REFUSED)
            return error_set(err, ERROR_INTERNAL, "the egress process refuses a policy: %s",
                             result->message);
    }
    return no_answer(err);
}

int egress_link_signs(struct egress_link *link, struct error *err)
{
    int64_t until_us = clock_mono_us() + WAIT_US;
    int r = 0;

    (void)pthread_mutex_lock(&link->lock);
    while (link->signs.state != TAKEN && link->signs.state != REFUSED && r == 0)
        if (!cond_wait_until(&link->changed, &link->lock, until_us))
            r = no_answer(err);
    if (r == 0 && link->signs.state == REFUSED)
        r = error_set(err, ERROR_UNSUPPORTED,
                      "the options 'network.rules' and 'network.egressProxy' are not supported by "
                      "this server yet (its egress process: %s)",
                      link->signs.message);
    (void)pthread_mutex_unlock(&link->lock);
    return r;
}

/* Under the lock. */
static void keep_policy(struct egress_link *link, struct entry *entry, struct str policy)
{
    forget_ahead(link, entry);
    forget_text(&entry->policy);
    entry->policy = str_dup(policy);
}

/* Under the lock. */
static int put_policy(struct egress_link *link, struct entry *entry, struct str id,
                      struct str policy, struct error *err)
{
    auto_free struct sent_result *ahead = NULL;

    if (entry->ahead && str_is(policy, entry->policy))
        ahead = take_ptr(&entry->ahead); /* the entry may go while it is waited for */
    else
        keep_policy(link, entry, policy);
    return link->started ? wait_until_taken(link, id, ahead, err) : 0;
}

void egress_link_ahead(struct egress_link *link, struct str sandbox_id, struct str policy,
                       uint32_t group)
{
    struct entry *entry;

    (void)pthread_mutex_lock(&link->lock);
    entry = map_get(&link->entries, sandbox_id);
    if (entry && link->started && link->fd >= 0) {
        keep_policy(link, entry, policy);
        entry->group = group;
        entry->ahead = xcalloc(1, sizeof(*entry->ahead));
        if (!send_entry(link, link->fd, entry, entry->ahead))
            forget_ahead(link, entry);
    }
    (void)pthread_mutex_unlock(&link->lock);
}

int egress_link_renew(struct egress_link *link, struct str sandbox_id, struct str policy,
                      struct error *err)
{
    struct entry *entry;
    int r = 0;

    (void)pthread_mutex_lock(&link->lock);
    entry = map_get(&link->entries, sandbox_id);
    if (entry && entry->policy)
        r = put_policy(link, entry, sandbox_id, policy, err);
    (void)pthread_mutex_unlock(&link->lock);
    return r;
}

int egress_link_set(struct egress_link *link, struct str sandbox_id, struct str policy,
                    uint32_t group, struct error *err)
{
    struct entry *entry;
    int r = 0;

    (void)pthread_mutex_lock(&link->lock);
    entry = map_get(&link->entries, sandbox_id);
    if (!entry) {
        r = error_set(err, ERROR_CONFLICT, "the sandbox has no box");
    } else if (!policy.len) {
        forget_policy(link, entry);
    } else {
        if (entry->group != group)
            forget_ahead(link, entry);
        entry->group = group;
        r = put_policy(link, entry, sandbox_id, policy, err);
    }
    (void)pthread_mutex_unlock(&link->lock);
    return r;
}

/* ---- what comes back ---- */

static void take_answer(struct egress_link *link, const json_t *json)
{
    struct str error = json_get_str(json, "error");
    struct list *at;
    struct sent *sent;

    (void)pthread_mutex_lock(&link->lock);
    at = list_pop_front(&link->unanswered);
    sent = at ? container_of(at, struct sent, link) : NULL;
    if (sent && sent->result) {
        sent->result->state = error.p ? REFUSED : TAKEN;
        (void)snprintf(sent->result->message, sizeof(sent->result->message), "%.*s",
                       STR_ARG(error));
    }
    (void)pthread_cond_broadcast(&link->changed);
    (void)pthread_mutex_unlock(&link->lock);
    free(sent);
}

/* Packets that the gateway's rules refused. Whose it was is known here; the address may have been another sandbox's then. */
static void take_refused(struct egress_link *link, const json_t *json)
{
    auto_json json_t *line = NULL;
    struct network_refusal refusal;
    const struct entry *entry;

    if (network_refusal_read(json, &refusal) < 0)
        return;
    (void)pthread_mutex_lock(&link->lock);
    entry = map_get(&link->addresses, address_key(&refusal.source));
    if (entry && refusal.time >= entry->since_us)
        line = network_refusal_line(&refusal, entry->id, entry->denied, entry->denied_count);
    (void)pthread_mutex_unlock(&link->lock);
    if (line)
        network_log_take(link->log, line);
}

static const struct json_field usage_fields[] = {
    JSON_FIELD(struct egress_usage, connections, "connections", 0),
    JSON_FIELD(struct egress_usage, denied, "denied", 0),
    JSON_FIELD(struct egress_usage, questions, "questions", 0),
    JSON_FIELD(struct egress_usage, sent, "sent", 0),
    JSON_FIELD(struct egress_usage, received, "received", 0),
    JSON_FIELD(struct egress_usage, open, "open", 0),
    JSON_END,
};

static void take_usage(struct egress_link *link, const json_t *json)
{
    struct egress_usage usage = {0};
    struct error ignored;
    struct entry *entry;

    if (json_read(usage_fields, json, &usage, &ignored) < 0)
        return;
    (void)pthread_mutex_lock(&link->lock);
    entry = map_get(&link->entries, json_get_str(json, "id"));
    if (entry) {
        if (usage.connections < entry->usage.connections ||
            usage.questions < entry->usage.questions) { /* it counts from nothing again */
            entry->usage.open = 0;
            add_usage(&entry->before, &entry->usage);
        }
        entry->usage = usage;
    }
    (void)pthread_mutex_unlock(&link->lock);
}

static void take_line(struct egress_link *link, struct str line)
{
    auto_json json_t *json = NULL;
    json_t *log, *usage, *refused;
    struct error err;

    if (json_parse(line, &json, &err) < 0) {
        log_warn("egress", "a record of the egress process: %s", err.message);
        return;
    }
    log = json_object_get(json, "log");
    usage = json_object_get(json, "usage");
    refused = json_object_get(json, "refused");
    if (log)
        network_log_take(link->log, log);
    else if (refused)
        take_refused(link, refused);
    else if (usage)
        take_usage(link, usage);
    else
        take_answer(link, json);
}

static bool take_lines(struct egress_link *link, struct buf *in)
{
    struct str rest = buf_str(in);
    ptrdiff_t end;

    while ((end = str_find(rest, '\n')) >= 0) {
        take_line(link, str_n(rest.p, (size_t)end));
        rest = str_skip(rest, (size_t)end + 1);
    }
    buf_drop(in, in->len - rest.len);
    return in->len < RECORD_MAX;
}

static void read_until_end(struct egress_link *link, int fd)
{
    auto_buf struct buf in = {0};

    buf_init(&in, RECORD_MAX + READ_SIZE);
    while (!atomic_load(&link->closing)) {
        char *room = buf_reserve(&in, READ_SIZE);
        ssize_t got = room ? recv(fd, room, READ_SIZE, 0) : 0;

        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return;
        buf_grew(&in, (size_t)got);
        if (!take_lines(link, &in))
            return;
    }
}

/* ---- the thread ---- */

static int dial(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct timeval patience = {.tv_sec = SEND_S};
    auto_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || !str_copy(str_of(path), address.sun_path, sizeof(address.sun_path)) ||
        connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
        return -1;
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
    return take_fd(&fd);
}

/* Everything, so that what it does not name is dropped there. */
static bool tell_all(struct egress_link *link, int fd)
{
    struct map_entry *at;
    bool ok = true;

    link->signs.state = WAITING;
    if (link->authority)
        ok = send_line(link, fd, link->authority, &link->signs);
    map_for_each (&link->entries, at) {
        const struct entry *entry = at->value;

        ok = ok && (!entry->policy || send_entry(link, fd, entry, NULL));
    }
    return ok && send_line(link, fd, "{\"synced\":true}\n", NULL);
}

static void serve(struct egress_link *link, int fd)
{
    (void)pthread_mutex_lock(&link->lock);
    if (tell_all(link, fd)) {
        link->fd = fd;
        (void)pthread_cond_broadcast(&link->changed);
    }
    (void)pthread_mutex_unlock(&link->lock);
    read_until_end(link, fd);
    (void)pthread_mutex_lock(&link->lock);
    link->fd = -1;
    lose_answers(link);
    (void)pthread_cond_broadcast(&link->changed);
    (void)pthread_mutex_unlock(&link->lock);
}

static void run(void *arg)
{
    struct egress_link *link = arg;

    while (!atomic_load(&link->closing)) {
        auto_close int fd = dial(link->path);

        if (fd >= 0)
            serve(link, fd);
        (void)pthread_mutex_lock(&link->lock);
        if (!atomic_load(&link->closing))
            (void)cond_wait_ms(&link->changed, &link->lock, AGAIN_MS);
        (void)pthread_mutex_unlock(&link->lock);
    }
}

struct egress_link *egress_link_open(const char *path)
{
    struct egress_link *link = xcalloc(1, sizeof(*link));

    link->path = xstrdup(path);
    link->fd = -1;
    link->signs.state = LOST;
    link->log = network_log_new();
    (void)pthread_mutex_init(&link->lock, NULL);
    cond_init(&link->changed);
    map_init(&link->entries);
    map_init(&link->addresses);
    list_init(&link->unanswered);
    return link;
}

void egress_link_authority(struct egress_link *link, struct str certificate, struct str key)
{
    auto_buf struct buf line = {0};

    buf_init(&line, RECORD_MAX);
    json_out_open(&line, NULL, '{');
    json_out_open(&line, "authority", '{');
    json_out_str(&line, "certificate", certificate);
    json_out_str(&line, "key", key);
    json_out_close(&line, "}}\n");
    forget_text(&link->authority);
    link->authority = buf_take(&line);
}

void egress_link_start(struct egress_link *link)
{
    (void)pthread_mutex_lock(&link->lock);
    link->started = true;
    (void)pthread_mutex_unlock(&link->lock);
    if (thread_start(&link->thread, "egress", THREAD_STACK_DEFAULT, run, link, NULL) < 0)
        abort();
}

void egress_link_close(struct egress_link *link)
{
    struct map_entry *at;

    if (!link)
        return;
    (void)pthread_mutex_lock(&link->lock);
    atomic_store(&link->closing, true);
    if (link->fd >= 0)
        (void)shutdown(link->fd, SHUT_RDWR);
    (void)pthread_cond_broadcast(&link->changed);
    (void)pthread_mutex_unlock(&link->lock);
    thread_join(&link->thread);
    map_for_each (&link->entries, at)
        entry_free(at->value);
    map_done(&link->entries);
    map_done(&link->addresses);
    network_log_free(link->log);
    (void)pthread_cond_destroy(&link->changed);
    (void)pthread_mutex_destroy(&link->lock);
    forget_text(&link->authority);
    free(link->path);
    free(link);
}

/* ---- asking ---- */

struct network_log *egress_link_log(struct egress_link *link)
{
    return link->log;
}

size_t egress_link_total(struct egress_link *link, struct egress_usage *out)
{
    struct map_entry *at;
    size_t count = 0;

    (void)pthread_mutex_lock(&link->lock);
    *out = link->past;
    map_for_each (&link->entries, at) {
        const struct entry *entry = at->value;
        struct egress_usage usage = usage_of(entry);

        count += entry->policy != NULL;
        add_usage(out, &usage);
    }
    (void)pthread_mutex_unlock(&link->lock);
    return count;
}

bool egress_link_up(struct egress_link *link)
{
    bool up;

    (void)pthread_mutex_lock(&link->lock);
    up = link->fd >= 0;
    (void)pthread_mutex_unlock(&link->lock);
    return up;
}
