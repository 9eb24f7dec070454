/* How it works
 *
 * A flow whose requests a rule may apply to gets filters on the client's side: TLS with a certificate made here, where
 * the client speaks TLS, and above it the filter that rewrites requests. They are read until the first request is
 * complete; then the flow is connected as all flows are, with TLS of its own to the host. So every failure can be
 * reported to the client as an HTTP response.
 *
 * The host and the headers of each request are decided anew, by the policy in force at that time: plain HTTP may carry
 * requests for several hosts at one address, and a header that a rule sets must not be forged by naming another host
 * first. */
#include <errno.h>
#include <stdio.h>

#include "base/clock.h"
#include "egress/process/flow_internal.h"
#include "egress/rewrite/intercept.h"
#include "protocol/tls/tls_intercept.h"

enum { INSIDE_US = 15000000 }; /* for TLS and a request */

/* The host that a request names, for the log and the denial: it may be another one than that of the connection. */
static const char *refuse_host(struct flow *flow, const struct host_name *name, const char *reason)
{
    flow->sniffed.name = *name; /* the connection ends with this request */
    return reason;
}

/* Decides one request of a connection that is read, and which rule is applied to it. */
static const char *choose(void *arg, const struct http_request *request, const struct rule **out)
{
    struct flow *flow = arg, asked = *flow;
    struct host_name *name = &asked.sniffed.name;
    const struct rule *rule;
    struct verdict verdict;
    bool same;

    if (!sniff_host(http_headers_get(&request->headers, "host"), name))
        return "its HTTP request names no host";
    same = str_eq(host_name_str(name), host_name_str(&flow->sniffed.name));
    if (!same && flow->kind == SNIFF_TLS)
        return "the request is for another host than its TLS connection";
    /* The proxy looked up the name of the first host: whom it reached is not known by the address. */
    if (!same && (flow->via || flow->box->policy->via))
        return refuse_host(flow, name,
                           "the request is for another host than its connection through the proxy");
    verdict = flow_judge(&asked, same ? NULL : &flow->box->answers);
    if (!verdict.allowed)
        return refuse_host(flow, name, verdict.reason);
    rule = flow_rule(&asked);
    if (rule && !(same ? flow->named : flow_was_given(&asked)))
        return refuse_host(flow, name,
                           "the address was never answered for this name; ask the resolver for it");
    *out = rule;
    return NULL;
}

/* No TLS with the client, or a request that may not be. */
static void refuse_inside(struct flow *flow)
{
    const char *fault = intercept_fault(flow->changer);
    struct verdict verdict = flow_against(flow, fault);
    char reason[192];

    if (fault) {
        flow_refuse(flow, &verdict, false);
        return;
    }
    fault = flow->tls ? tls_filter_fault(flow->tls) : NULL;
    if (!fault && stream_opening(flow->client))
        fault = "it closed the connection";
    if (fault) {
        (void)snprintf(reason, sizeof(reason), "no TLS with the sandbox: %s", fault);
        verdict.reason = reason;
        flow_note(flow, &verdict);
    }
    flow_end(flow, false);
}

/* The first request, as it is to be sent on. */
static void on_inside(struct stream *stream, int status, int events, void *arg)
{
    struct flow *flow = arg;
    char *room = buf_reserve(&flow->first, LOOP_READ_SIZE / 4);
    ssize_t got = stream_read(stream, room, LOOP_READ_SIZE / 4); /* in error too: it says why */

    (void)events;
    if (!flow_hold_first(flow) || (got == -EAGAIN && status >= 0))
        return;
    if (got <= 0) {
        refuse_inside(flow);
        return;
    }
    buf_grew(&flow->first, (size_t)got);
    flow_connect(flow);
}

/* Why it cannot be, or NULL. */
static const char *put_filters(struct flow *flow)
{
    struct egress *egress = flow->egress;

    if (flow->kind == SNIFF_TLS) {
        if (!egress->authority)
            return "there is no authority to sign for the host; the server did not tell of one";
        flow->tls =
            tls_filter_signed(egress->authority, flow->sniffed.name.text, buf_str(&flow->first));
        if (!flow->tls)
            return "no certificate can be made for this name";
    }
    flow->changer =
        intercept_new(flow->tls, flow->tls ? STR_NONE : buf_str(&flow->first), choose, flow);
    return NULL;
}

static const char *take_filters(struct flow *flow)
{
    const char *reason = egress_take(flow->box, SHARE_READ, 1);

    if (reason)
        return reason;
    reason = put_filters(flow);
    if (reason)
        egress_give(flow->box, SHARE_READ, 1);
    return reason;
}

void inside_open(struct flow *flow)
{
    const char *reason = take_filters(flow);
    struct verdict verdict = flow_against(flow, reason);

    if (reason) {
        flow_refuse(flow, &verdict, false);
        return;
    }
    flow_forget_first(flow);
    stream_watch(flow->client, 0, NULL, NULL);
    stream_add_filter(flow->client, flow->changer);
    flow->until_us = flow->silent_until_us = clock_mono_us() + INSIDE_US;
    list_remove(&flow->waiting);
    list_push_back(&flow->egress->sniffing, &flow->waiting);
    stream_watch(flow->client, UV_READABLE, on_inside, flow);
}

void inside_give_up(struct flow *flow)
{
    struct verdict verdict =
        flow_against(flow, stream_opening(flow->client) ? "TLS with the sandbox took too long"
                                                        : "no request came in time");

    flow_refuse(flow, &verdict, false);
}
