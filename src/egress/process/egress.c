/* The process's frame: listeners, the table of sandboxes, the tick for whatever waits too long. */
#include "egress/process/egress.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/netfilter_ipv4.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "egress/process/egress_internal.h"
#include "protocol/tls/tls_intercept.h"

bool egress_original_destination(int fd, struct sockaddr_in *out)
{
    socklen_t size = sizeof(*out);

    return getsockopt(fd, SOL_IP, SO_ORIGINAL_DST, out, &size) == 0 && out->sin_family == AF_INET;
}

int egress_accept(int fd, struct sockaddr_in *out_peer)
{
    socklen_t size = sizeof(*out_peer);

    return accept4(fd, (struct sockaddr *)out_peer, &size, SOCK_CLOEXEC | SOCK_NONBLOCK);
}

void egress_reset(int fd_consume)
{
    struct linger hard = {.l_onoff = 1, .l_linger = 0};

    (void)setsockopt(fd_consume, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
    (void)close(fd_consume);
}

/* ---- sandboxes ---- */

static struct str key_of(const uint32_t *address)
{
    return str_n(address, sizeof(*address));
}

struct box *egress_box(struct egress *egress, uint32_t address)
{
    return map_get(&egress->boxes, key_of(&address));
}

static struct team *team_join(struct egress *egress, struct str id)
{
    struct team *team = map_get(&egress->teams, id);

    if (!team) {
        team = xcalloc(1, sizeof(*team));
        (void)str_copy(id, team->id, sizeof(team->id));
        (void)map_put(&egress->teams, id, team);
    }
    team->box_count++;
    return team;
}

static void team_leave(struct egress *egress, struct team *team)
{
    if (--team->box_count)
        return;
    (void)map_remove(&egress->teams, str_of(team->id));
    free(team);
}

struct box *egress_box_make(struct egress *egress, uint32_t address, struct str id, struct str team)
{
    struct box *box = egress_box(egress, address);

    if (box && str_is(id, box->id) && str_is(team, box->team->id))
        return box;
    if (box)
        egress_box_drop(egress, box); /* the new one inherits nothing */
    box = xcalloc(1, sizeof(*box));
    box->egress = egress;
    box->address = address;
    (void)str_copy(id, box->id, sizeof(box->id));
    box->team = team_join(egress, team);
    answers_init(&box->answers);
    list_init(&box->flows);
    list_init(&box->asks);
    list_init(&box->clients);
    (void)map_put(&egress->boxes, key_of(&address), box);
    return box;
}

void egress_box_drop(struct egress *egress, struct box *box)
{
    flow_end_all(box);
    client_end_all(box);
    ask_end_all(box);
    peers_leave(&egress->seats, &box->seat);
    (void)map_remove(&egress->boxes, key_of(&box->address));
    answers_done(&box->answers);
    policy_free(box->policy);
    team_leave(egress, box->team);
    free(box);
}

/* ---- shares ---- */

const char *egress_take(struct box *box, enum share_kind kind, size_t count)
{
    struct egress *egress = box->egress;
    const struct share_use use = {egress->used[kind], box->team->used[kind], box->used[kind]};
    enum share_verdict verdict = share_judge(&egress->limits[kind], &use, count);

    if (verdict != SHARE_FITS)
        return share_reason(kind, verdict);
    egress->used[kind] += count;
    box->team->used[kind] += count;
    box->used[kind] += count;
    return NULL;
}

void egress_give(struct box *box, enum share_kind kind, size_t count)
{
    box->egress->used[kind] -= count;
    box->team->used[kind] -= count;
    box->used[kind] -= count;
}

const char *egress_hold(struct box *box, size_t *held, size_t now)
{
    const char *reason = now > *held ? egress_take(box, SHARE_BYTES, now - *held) : NULL;

    if (reason)
        return reason;
    if (now < *held)
        egress_give(box, SHARE_BYTES, *held - now);
    *held = now;
    return NULL;
}

/* ---- the frame ---- */

static void on_tick(uv_timer_t *timer)
{
    struct egress *egress = timer->data;
    int64_t now_us = clock_mono_us();

    flow_tick(egress, now_us);
    upstream_tick(egress, now_us);
    ask_tick(egress, now_us);
    client_tick(egress, now_us);
    if (++egress->ticks % USAGE_TICKS == 0)
        journal_usage(egress);
}

static void on_ready(uv_poll_t *poll, int status, int events)
{
    struct listener *listener = poll->data;

    (void)events;
    if (status == 0)
        listener->on_ready(listener->egress, listener->fd);
}

static void listen_on(struct egress *egress, size_t index, int fd,
                      void (*fn)(struct egress *egress, int fd))
{
    struct listener *listener = &egress->listeners[index];

    listener->egress = egress;
    listener->fd = fd;
    listener->on_ready = fn;
    egress->listener_count = index + 1;
    if (uv_poll_init(loop_uv(egress->loop), &listener->poll, fd) != 0)
        abort(); /* the warden gave us something else than sockets */
    listener->poll.data = listener;
    egress->open_handles++;
    (void)uv_poll_start(&listener->poll, UV_READABLE, on_ready);
}

static void set_limits(struct egress *egress)
{
    static const struct share_limit limits[SHARE_KINDS] = {
        [SHARE_READ] = {.all = 4096, .box = 256},
        [SHARE_QUESTIONS] = {.all = EGRESS_QUESTIONS_MAX, .box = 64},
        [SHARE_CLIENTS] = {.all = EGRESS_CLIENTS_MAX, .box = 16},
        [SHARE_BYTES] = {.all = 256 << 20, .box = 32 << 20},
    };

    memcpy(egress->limits, limits, sizeof(limits));
    egress->limits[SHARE_CONNECTIONS] =
        (struct share_limit){.all = egress->config.flows_max, .box = 1024};
}

struct egress *egress_new(struct loop *loop, const struct egress_config *config)
{
    struct egress *egress = xcalloc(1, sizeof(*egress));

    egress->loop = loop;
    egress->config = *config;
    set_limits(egress);
    map_init(&egress->boxes);
    map_init(&egress->teams);
    map_init(&egress->seats);
    list_init(&egress->asking);
    list_init(&egress->sniffing);
    list_init(&egress->opening);
    list_init(&egress->closing);
    list_init(&egress->idle_clients);
    listen_on(egress, 0, config->tcp_fd, flow_accept);
    listen_on(egress, 1, config->dns_fd, resolver_receive);
    listen_on(egress, 2, config->dns_tcp_fd, client_accept);
    listen_on(egress, 3, config->server_fd, channel_accept);
    if (config->log_fd >= 0)
        listen_on(egress, 4, config->log_fd, journal_refusals);
    (void)uv_timer_init(loop_uv(loop), &egress->tick);
    egress->tick.data = egress;
    egress->open_handles++;
    (void)uv_timer_start(&egress->tick, on_tick, TICK_MS, TICK_MS);
    return egress;
}

static void release(struct egress *egress)
{
    if (--egress->open_handles == 0)
        free(egress);
}

static void on_listener_closed(uv_handle_t *handle)
{
    release(((struct listener *)handle->data)->egress);
}

static void on_tick_closed(uv_handle_t *handle)
{
    release(handle->data);
}

void egress_free(struct egress *egress)
{
    struct map_entry *entry;

    while ((entry = map_next(&egress->boxes, NULL)))
        egress_box_drop(egress, entry->value);
    map_done(&egress->boxes);
    map_done(&egress->teams);
    map_done(&egress->seats);
    channel_free(egress->channel);
    policy_ranges_free(&egress->config.opened);
    tls_authority_free(egress->authority);
    tls_trust_free(egress->config.trust);
    for (size_t i = 0; i < egress->listener_count; i++) {
        uv_close((uv_handle_t *)&egress->listeners[i].poll, on_listener_closed);
        close_fd(&egress->listeners[i].fd);
    }
    uv_close((uv_handle_t *)&egress->tick, on_tick_closed);
}
