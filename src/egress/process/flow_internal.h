/* One connection of a sandbox, as the files that carry it see it: flow.c decides and joins, inside.c reads along where
 * its host has a rule. */
#pragma once

#include "egress/process/carried.h"
#include "egress/process/egress_internal.h"

enum flow_state { FLOW_SNIFFING, FLOW_CONNECTING, FLOW_JOINED, FLOW_CLOSING };

struct flow {
    struct egress *egress;
    struct box *box;
    struct list of_box, waiting; /* egress->sniffing or ->closing */
    enum flow_state state;
    uint32_t address;
    uint16_t port;
    enum sniff kind;
    struct sniffed sniffed;
    int64_t until_us, silent_until_us;
    bool named;      /* the address was given for the name */
    struct via *via; /* what it goes through, or NULL */
    struct upstream *upstream;
    struct stream *client, *server; /* NULL once the tunnel has them */
    /* The client's, when requests are changed; TLS below it, or NULL. */
    struct stream_filter *changer, *tls;
    struct stream_tunnel *tunnel;
    int server_fd; /* while there is one, to ask for counts */
    struct carried counted;
    struct buf first; /* read before it was decided */
    size_t held;      /* of it, as egress_hold() counts */
    bool closed;
};

/* ---- flow.c ---- */

void flow_end(struct flow *flow, bool reset);
void flow_note(struct flow *flow, const struct verdict *verdict);
/* Tells the client in its language and ends. failed: it was allowed, and there is no way there. */
void flow_refuse(struct flow *flow, const struct verdict *verdict, bool failed);
/* Counts the memory of flow->first, which has grown. False when it is too much: the flow has been refused. */
bool flow_hold_first(struct flow *flow);
void flow_forget_first(struct flow *flow);
/* Without answers: as verdict_connection(). */
struct verdict flow_judge(const struct flow *flow, const struct answers *answers);
/* Was the address given for the name? */
bool flow_was_given(const struct flow *flow);
/* The rule of its host, or NULL. */
const struct rule *flow_rule(const struct flow *flow);
/* A verdict against it, by the rule of its host. */
struct verdict flow_against(const struct flow *flow, const char *reason);
/* Makes the connection and joins the two. */
void flow_connect(struct flow *flow);

/* ---- inside.c ---- */

/* Its host has a rule: from here on requests are read, and changed. */
void inside_open(struct flow *flow);
/* The first of them did not come in time. */
void inside_give_up(struct flow *flow);
