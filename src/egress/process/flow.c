/* How it works
 *
 * A flow is one TCP connection of a sandbox. Where its policy allows the address as such nothing is read of it;
 * otherwise its first bytes are, until they name a host (sniff.h) or there is nothing more to wait for. Then it is
 * decided: allowed, it is connected to where it was going and the two are joined; denied, it is told so in its own
 * language (an HTTP answer, a TLS alert), or reset when it has none that we know.
 *
 * Who says nothing at first has little time when the address was never answered for any name, since nothing that he
 * could say would help: so that programs that wait for the server's greeting fail fast too. */
#include <errno.h>
#include <netinet/tcp.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "egress/process/denial.h"
#include "egress/process/flow_internal.h"
#include "egress/process/upstream.h"
#include "egress/rewrite/intercept.h"
#include "protocol/stream/stream_tunnel.h"

enum {
    ACCEPTS_PER_TURN = 64,
    SNIFF_US = 5000000,
    SILENT_US = 400000, /* for addresses that nobody was told of */
    CLOSING_US = 1000000,
};

static void on_client(struct stream *stream, int status, int events, void *arg);

/* ---- counts ---- */

static void count(struct flow *flow)
{
    struct carried now;

    if (flow->server_fd < 0 || !carried_by(flow->server_fd, &now) ||
        (now.sent == flow->counted.sent && now.received == flow->counted.received))
        return;
    flow->box->sent += now.sent - flow->counted.sent;
    flow->box->received += now.received - flow->counted.received;
    flow->counted = now;
    flow->box->told = false;
}

void flow_count_all(struct box *box)
{
    struct list *at;

    list_for_each (at, &box->flows)
        count(container_of(at, struct flow, of_box));
}

/* ---- the end ---- */

void flow_end(struct flow *flow, bool reset)
{
    if (flow->closed)
        return;
    flow->closed = true;
    count(flow);
    if (flow->tunnel)
        stream_tunnel_free(flow->tunnel, reset);
    if (flow->client)
        stream_close(flow->client, reset);
    if (flow->server)
        stream_close(flow->server, reset);
    upstream_free(flow->upstream);
    via_free(flow->via);
    if (flow->changer)
        egress_give(flow->box, SHARE_READ, 1);
    list_remove(&flow->of_box);
    list_remove(&flow->waiting);
    egress_give(flow->box, SHARE_CONNECTIONS, 1);
    flow->box->told = false;
    flow_forget_first(flow);
    loop_free_later(flow->egress->loop, flow);
}

void flow_note(struct flow *flow, const struct verdict *verdict)
{
    journal_add(flow->egress, flow->box,
                &(struct journal_entry){.protocol = "tcp",
                                        .name = &flow->sniffed.name,
                                        .address = flow->address,
                                        .port = flow->port},
                verdict);
}

/* ---- denied ---- */

/* What he still sends is taken until he has seen our end: a reset would tear away what we said. */
static void on_closing(struct stream *stream, int status, int events, void *arg)
{
    struct flow *flow = arg;
    ssize_t got = stream_read(stream, loop_read_buffer(flow->egress->loop), LOOP_READ_SIZE);

    (void)events;
    if (status < 0 || (got <= 0 && got != -EAGAIN))
        flow_end(flow, true);
}

/* What the client understands now. */
static enum sniff language(const struct flow *flow)
{
    if (!flow->changer)
        return flow->kind;
    return stream_opening(flow->client) ? SNIFF_OTHER : SNIFF_HTTP;
}

void flow_refuse(struct flow *flow, const struct verdict *verdict, bool failed)
{
    const struct denial denial = {.kind = language(flow),
                                  .name = &flow->sniffed.name,
                                  .address = flow->address,
                                  .port = flow->port,
                                  .failed = failed,
                                  .verdict = verdict};
    auto_buf struct buf out = {0};
    struct iovec iov;

    flow_note(flow, verdict);
    buf_init(&out, 8192);
    denial_put(&out, &denial);
    if (!out.len) {
        flow_end(flow, true);
        return;
    }
    iov = (struct iovec){out.p, out.len};
    (void)stream_write(flow->client, &iov, 1, false);
    stream_shut(flow->client, SHUT_WR);
    flow->state = FLOW_CLOSING;
    flow->until_us = clock_mono_us() + CLOSING_US;
    list_remove(&flow->waiting);
    list_push_back(&flow->egress->closing, &flow->waiting);
    stream_watch(flow->client, UV_READABLE, on_closing, flow);
}

bool flow_hold_first(struct flow *flow)
{
    struct verdict verdict = {.rule = ""};

    verdict.reason = egress_hold(flow->box, &flow->held, flow->first.cap);
    if (!verdict.reason)
        return true;
    flow_refuse(flow, &verdict, false);
    flow_forget_first(flow);
    return false;
}

void flow_forget_first(struct flow *flow)
{
    buf_done(&flow->first);
    (void)egress_hold(flow->box, &flow->held, 0);
}

const struct rule *flow_rule(const struct flow *flow)
{
    return rules_for(&flow->box->policy->rules, &flow->sniffed.name);
}

struct verdict flow_against(const struct flow *flow, const char *reason)
{
    const struct rule *rule = flow_rule(flow);

    return (struct verdict){.rule = rule ? rule->host : "", .reason = reason};
}

/* It was allowed, and there is no way there. */
static void fail(struct flow *flow, const char *reason)
{
    struct verdict verdict = flow_against(flow, reason);

    flow_refuse(flow, &verdict, true);
}

/* ---- allowed ---- */

static void on_tunnel_end(void *arg)
{
    struct flow *flow = arg;
    const char *fault = flow->changer ? intercept_fault(flow->changer) : NULL;
    struct verdict verdict = flow_against(flow, fault);

    if (fault)
        flow_note(flow, &verdict);
    flow_end(flow, false);
}

struct verdict flow_judge(const struct flow *flow, const struct answers *answers)
{
    const struct connection connection = {.address = flow->address,
                                          .kind = flow->kind,
                                          .sniffed = &flow->sniffed,
                                          .opened = &flow->egress->config.opened};

    return verdict_connection(flow->box->policy, answers, &connection, clock_mono_us());
}

/* Was the address given for the name? */
bool flow_was_given(const struct flow *flow)
{
    return flow->sniffed.name.len &&
           answers_has(&flow->box->answers, &flow->sniffed.name, flow->address, clock_mono_us());
}

static bool has_rule(const void *arg, const struct host_name *name)
{
    return rules_for(arg, name) != NULL;
}

/* Could it be to a host that has a rule? */
static bool leads_to_rule(const struct flow *flow)
{
    const struct rules *rules = &flow->box->policy->rules;

    return rules_any(rules) &&
           answers_any(&flow->box->answers, flow->address, clock_mono_us(), has_rule, rules);
}

/* Decides a later request of a connection whose requests are passed on unchanged. A host whose name was asked for, or
 * whose rule was set, after the connection was opened needs a new connection, in which the rule is applied. */
static bool may_ask(void *arg, const struct host_name *host)
{
    struct flow *flow = arg, asked = *flow;
    struct verdict verdict;

    if (str_eq(host_name_str(host), host_name_str(&flow->sniffed.name)))
        return true;
    asked.sniffed.name = *host;
    verdict = flow_judge(&asked, &flow->box->answers);
    if (verdict.allowed && flow_rule(&asked))
        verdict = flow_against(&asked, "its host has a rule, which is not applied to requests of "
                                       "this connection; open a new connection");
    if (!verdict.allowed)
        flow_note(&asked, &verdict);
    return verdict.allowed;
}

static bool guard(struct flow *flow)
{
    struct stream_filter *filter;

    if (flow->kind != SNIFF_HTTP || flow->changer)
        return true;
    filter = guard_new(buf_str(&flow->first), may_ask, flow);
    if (!filter)
        return false;
    stream_add_filter(flow->client, filter);
    return true;
}

static void join(struct flow *flow, struct str early)
{
    struct stream *client, *server;

    if (!guard(flow)) {
        flow_end(flow, true);
        return;
    }
    client = flow->client;
    server = flow->server;
    flow->client = flow->server = NULL;
    flow->state = FLOW_JOINED;
    flow->tunnel = stream_tunnel_new(flow->egress->loop, client, server, early,
                                     buf_str(&flow->first), on_tunnel_end, flow);
    flow_forget_first(flow);
    if (!flow->tunnel) {
        flow->server_fd = -1;
        flow_end(flow, true);
    }
}

static void on_upstream(void *arg, const struct upstream_result *result)
{
    struct flow *flow = arg;

    flow->upstream = NULL;
    if (result->stream) {
        flow->server = result->stream;
        flow->server_fd = result->fd;
        join(flow, result->early);
    } else if (flow->changer || flow->via) {
        fail(flow, result->fault);
    } else {
        flow_end(flow, true);
    }
}

void flow_connect(struct flow *flow)
{
    static const struct host_name none;
    const struct upstream_target target = {.name = flow->named ? &flow->sniffed.name : &none,
                                           .address = flow->address,
                                           .port = flow->port,
                                           .tls = flow->changer && flow->kind == SNIFF_TLS};
    const char *fault;

    list_remove(&flow->waiting);
    flow->state = FLOW_CONNECTING;
    stream_watch(flow->client, 0, NULL, NULL);
    flow->via = via_copy(flow->box->policy->via);
    flow->upstream = upstream_new(flow->egress, flow->box, &target, on_upstream, flow, &fault);
    if (!flow->upstream)
        fail(flow, fault);
}

/* ---- deciding ---- */

/* Must requests be read because a rule may apply to them? TLS carries requests for the one host that its hello names;
 * plain HTTP may carry requests for every host at this address. */
static bool needs_reading(const struct flow *flow)
{
    switch (flow->kind) {
    case SNIFF_TLS:
        return flow->named && flow_rule(flow);
    case SNIFF_HTTP:
        return leads_to_rule(flow);
    case SNIFF_MORE:
    case SNIFF_OTHER:
        break;
    }
    return false;
}

static void decide(struct flow *flow)
{
    struct verdict verdict = flow_judge(flow, &flow->box->answers);

    if (!verdict.allowed) {
        flow_refuse(flow, &verdict, false);
        return;
    }
    flow_note(flow, &verdict);
    flow->named = flow_was_given(flow);
    if (needs_reading(flow))
        inside_open(flow);
    else
        flow_connect(flow);
}

static void on_client(struct stream *stream, int status, int events, void *arg)
{
    struct flow *flow = arg;
    char *room = buf_reserve(&flow->first, LOOP_READ_SIZE / 4);
    ssize_t got = room ? stream_read(stream, room, LOOP_READ_SIZE / 4) : 0;

    (void)events;
    if (!flow_hold_first(flow) || (got == -EAGAIN && status >= 0))
        return;
    if (status < 0 || (room && got <= 0)) {
        flow_end(flow, true);
        return;
    }
    if (room)
        buf_grew(&flow->first, (size_t)got);
    flow->kind = sniff_read(buf_str(&flow->first), &flow->sniffed);
    if (flow->kind == SNIFF_MORE && room)
        return;
    if (!room) {
        flow->kind = SNIFF_OTHER;
        flow->sniffed.fault = "its first message is too long";
    }
    decide(flow);
}

/* ---- the begin ---- */

static void begin(struct flow *flow)
{
    bool passes = flow_judge(flow, &flow->box->answers).allowed;

    if (passes && !leads_to_rule(flow)) {
        decide(flow);
        return;
    }
    flow->until_us = clock_mono_us() + SNIFF_US;
    flow->silent_until_us = !passes && answers_knows(&flow->box->answers, flow->address)
                                ? flow->until_us
                                : clock_mono_us() + SILENT_US;
    list_push_back(&flow->egress->sniffing, &flow->waiting);
    stream_watch(flow->client, UV_READABLE, on_client, flow);
}

static void welcome(struct egress *egress, struct box *box, int fd_consume,
                    const struct sockaddr_in *to)
{
    struct stream *client = stream_new(egress->loop, fd_consume);
    struct flow *flow;
    int one = 1;

    if (!client) {
        egress_give(box, SHARE_CONNECTIONS, 1);
        return;
    }
    (void)setsockopt(fd_consume, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    flow = xcalloc(1, sizeof(*flow));
    flow->egress = egress;
    flow->box = box;
    flow->address = ntohl(to->sin_addr.s_addr);
    flow->port = ntohs(to->sin_port);
    flow->client = client;
    flow->server_fd = -1;
    buf_init(&flow->first, SNIFF_MAX);
    list_push_back(&box->flows, &flow->of_box);
    box->connections++;
    box->told = false;
    begin(flow);
}

static void refuse(struct egress *egress, struct box *box, int fd_consume,
                   const struct sockaddr_in *to, const char *reason)
{
    const struct verdict verdict = {.rule = "", .reason = reason};

    journal_add(egress, box,
                &(struct journal_entry){.protocol = "tcp",
                                        .address = ntohl(to->sin_addr.s_addr),
                                        .port = ntohs(to->sin_port)},
                &verdict);
    egress_reset(fd_consume);
}

void flow_accept(struct egress *egress, int fd)
{
    for (int i = 0; i < ACCEPTS_PER_TURN; i++) {
        struct sockaddr_in peer, to;
        int got = egress_accept(fd, &peer);
        const char *reason;
        struct box *box;

        if (got < 0)
            return;
        box = egress_box(egress, ntohl(peer.sin_addr.s_addr));
        if (!box || !egress->config.destination(got, &to)) {
            egress_reset(got);
            continue;
        }
        reason = egress_take(box, SHARE_CONNECTIONS, 1);
        if (reason)
            refuse(egress, box, got, &to, reason);
        else
            welcome(egress, box, got, &to);
    }
}

/* ---- time, and changes ---- */

static void give_up(struct flow *flow)
{
    if (!flow->first.len)
        flow->sniffed.fault = "it says nothing by which its host could be known";
    else
        flow->sniffed.fault = "its first message does not come to an end";
    flow->kind = SNIFF_OTHER;
    decide(flow);
}

void flow_tick(struct egress *egress, int64_t now_us)
{
    struct list *at, *next;

    list_for_each_safe (at, next, &egress->sniffing) {
        struct flow *flow = container_of(at, struct flow, waiting);

        if (flow->until_us > now_us && (flow->first.len || flow->silent_until_us > now_us))
            continue;
        if (flow->changer)
            inside_give_up(flow);
        else
            give_up(flow);
    }
    list_for_each_safe (at, next, &egress->closing) {
        struct flow *flow = container_of(at, struct flow, waiting);

        if (flow->until_us <= now_us)
            flow_end(flow, true);
    }
}

void flow_end_all(struct box *box)
{
    while (!list_empty(&box->flows))
        flow_end(container_of(box->flows.next, struct flow, of_box), true);
}

/* Would it go the same way if it were made now? */
static struct verdict judge_again(const struct flow *flow)
{
    const struct policy *policy = flow->box->policy;
    struct verdict verdict = flow_judge(flow, NULL);

    if (!verdict.allowed)
        return verdict;
    if (!via_same(flow->via, policy->via))
        return flow_against(flow, "the egress proxy is another one now");
    if (!flow->changer && (flow->kind == SNIFF_MORE ? leads_to_rule(flow) : needs_reading(flow)))
        return flow_against(flow, "there is a rule for its host now");
    return verdict;
}

void flow_judge_all(struct egress *egress, struct box *box)
{
    struct list *at, *next;

    (void)egress;
    list_for_each_safe (at, next, &box->flows) {
        struct flow *flow = container_of(at, struct flow, of_box);
        struct verdict verdict;

        if (flow->state != FLOW_CONNECTING && flow->state != FLOW_JOINED)
            continue;
        verdict = judge_again(flow);
        if (verdict.allowed)
            continue;
        flow_note(flow, &verdict);
        flow_end(flow, true);
    }
}
