/* Shared by the files of this folder that make the process. One thread: nothing is locked. */
#pragma once

#include <uv.h>

#include "base/list.h"
#include "base/map.h"
#include "egress/policy/peers.h"
#include "egress/policy/share.h"
#include "egress/policy/verdict.h"
#include "egress/process/egress.h"
#include "protocol/loop/loop.h"
#include "protocol/stream/stream.h"

enum {
    BOX_ID_SIZE = 64,
    TICK_MS = 100,
    USAGE_TICKS = 20,
};

/* The sandboxes of one team, which share what it may take (share.h). Lives as long as one of them. */
struct team {
    char id[BOX_ID_SIZE];
    size_t box_count;
    size_t used[SHARE_KINDS];
};

/* One sandbox. */
struct box {
    struct egress *egress;
    uint32_t address; /* host byte order */
    char id[BOX_ID_SIZE];
    struct team *team;
    struct policy *policy;
    struct seat seat; /* in its private network */
    struct answers answers;
    bool stale; /* the server has not told of it since it came */
    struct list flows, asks, clients;
    size_t used[SHARE_KINDS];
    /* totals, and whether the server has them */
    uint64_t connections, denied, questions, sent, received;
    bool told;
    /* the log */
    int64_t log_full_us; /* when there is room for a whole burst again */
    uint64_t log_lost;
};

struct listener {
    struct egress *egress;
    uv_poll_t poll;
    int fd;
    void (*on_ready)(struct egress *egress, int fd);
};

struct channel;

struct egress {
    struct loop *loop;
    struct egress_config config;
    struct map boxes; /* address -> struct box */
    struct map teams; /* id -> struct team */
    struct map seats; /* of boxes in private networks: peers.h */
    struct listener listeners[5];
    size_t listener_count;
    uv_timer_t tick;
    unsigned ticks;
    struct channel *channel; /* to the server, or NULL */
    /* What waits for something with a time limit, the nearest first: all of a list wait equally long. */
    struct list asking, sniffing, opening, closing, idle_clients;
    struct tls_authority
        *authority; /* signs for hosts that have a rule; NULL until the server tells */
    struct share_limit limits[SHARE_KINDS];
    size_t used[SHARE_KINDS];
    size_t next_resolver;
    size_t open_handles;
    int64_t refusals_full_us; /* as log_full_us, of all sandboxes together */
};

/* ---- egress.c ---- */

struct box *egress_box(struct egress *egress, uint32_t address);
/* The sandbox at this address, or a new one. Another sandbox that had the address is dropped. */
struct box *egress_box_make(struct egress *egress, uint32_t address, struct str id,
                            struct str team);
void egress_box_drop(struct egress *egress, struct box *box);
/* Takes from the sandbox's share and from its team's, unless that would be too much: returns NULL, or why not, for
 * people. What was taken is given back before the sandbox is dropped. */
const char *egress_take(struct box *box, enum share_kind kind, size_t count);
void egress_give(struct box *box, enum share_kind kind, size_t count);
/* Counts memory whose size changes: *held is what was taken for it so far. When more does not fit, *held stays and the
 * caller frees the memory. */
const char *egress_hold(struct box *box, size_t *held, size_t now);
/* Accepts up to a handful of connections; -1 when there is none. Close-on-exec, non-blocking. */
int egress_accept(int fd, struct sockaddr_in *out_peer);
/* So that the peer sees a break. */
void egress_reset(int fd_consume);

/* ---- channel.c: the server ---- */

void channel_accept(struct egress *egress, int fd);
void channel_free(struct channel *channel);
/* One record; false when there is nobody, or he does not read. */
bool channel_send(struct egress *egress, const json_t *record);

/* ---- journal.c: what the server is told ---- */

struct journal_entry {
    const char *protocol; /* "tcp", "dns" */
    const struct host_name *name;
    uint32_t address; /* 0: none */
    uint16_t port;
};
void journal_add(struct egress *egress, struct box *box, const struct journal_entry *entry,
                 const struct verdict *verdict);
/* What the gateway's rules refused: of every sandbox, also of those that the server does not name here. */
void journal_refusals(struct egress *egress, int fd);
/* Every now and then: the totals that have changed. */
void journal_usage(struct egress *egress);

/* ---- flow.c: connections ---- */

void flow_accept(struct egress *egress, int fd);
void flow_tick(struct egress *egress, int64_t now_us);
void flow_end_all(struct box *box);
/* After a change of policy: cuts what is not allowed any more. */
void flow_judge_all(struct egress *egress, struct box *box);
/* Adds what was carried since the last call to the box's totals. */
void flow_count_all(struct box *box);

/* ---- resolver.c, ask.c, client.c: names ---- */

struct client; /* who asks by TCP */
struct upstream;
struct asker {
    struct sockaddr_in from;   /* by datagram */
    struct client *client;     /* or by this */
    struct upstream *upstream; /* or it is ourselves who ask */
};

void resolver_receive(struct egress *egress, int fd);
/* One question, from a box. */
void resolver_question(struct egress *egress, struct box *box, struct str message,
                       const struct asker *asker);
void resolver_reply(struct egress *egress, const struct asker *asker, struct str message);
/* The answer of another resolver, or a failure (message is empty then). */
void resolver_answered(struct egress *egress, struct box *box, const struct dns_question *question,
                       const struct asker *asker, struct str message,
                       const struct dns_answer *answer);

/* NULL, or why the question cannot be asked, for people. */
const char *ask_new(struct egress *egress, struct box *box, const struct dns_question *question,
                    const struct asker *asker);
void ask_tick(struct egress *egress, int64_t now_us);
void ask_end_all(struct box *box);
/* The client has gone: its questions are answered to nobody. */
void ask_forget_client(struct box *box, const struct client *client);
void ask_forget_upstream(struct box *box, const struct upstream *upstream);

void client_accept(struct egress *egress, int fd);
void client_send(struct client *client, struct str message);
void client_tick(struct egress *egress, int64_t now_us);
void client_end_all(struct box *box);

/* ---- upstream.c: the way on (upstream.h) ---- */

void upstream_tick(struct egress *egress, int64_t now_us);
/* What was asked for the proxy's name. */
void upstream_resolved(struct upstream *upstream, const struct dns_answer *answer);

/* ---- guard.c: every request of a plain HTTP connection ---- */

typedef bool guard_fn(void *arg, const struct host_name *host);

/* Stands between the client's socket and who reads it: a request for a host that fn does not allow breaks the
 * connection. first: what was read already; NULL when that is refused. */
struct stream_filter *guard_new(struct str first, guard_fn *fn, void *arg);

/* ---- fence.c ---- */

/* From here on no file is opened, no program started, no namespace entered; sockets are of IPv4. */
int fence_up(struct error *err);
