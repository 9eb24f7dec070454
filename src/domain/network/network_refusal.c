#include "domain/network/network_refusal.h"

#include <arpa/inet.h>
#include <stdio.h>

#include "base/cleanup.h"
#include "domain/network/network_policy.h"
#include "protocol/json/json_shape.h"

enum { RULE_SIZE = INET_ADDRSTRLEN + 4 };

struct record {
    struct str source, address, protocol, why;
    int64_t time, port;
};

static const struct json_field fields[] = {
    JSON_FIELD(struct record, source, "source", JSON_REQUIRED),
    JSON_FIELD(struct record, time, "time", JSON_REQUIRED),
    JSON_FIELD(struct record, address, "address", 0),
    JSON_FIELD(struct record, port, "port", 0),
    JSON_FIELD(struct record, protocol, "protocol", JSON_REQUIRED),
    JSON_FIELD(struct record, why, "why", JSON_REQUIRED),
    JSON_END,
};

static uint32_t address_of(struct str text)
{
    char copy[INET_ADDRSTRLEN];
    struct in_addr in;

    return str_copy(text, copy, sizeof(copy)) && inet_pton(AF_INET, copy, &in) == 1
               ? ntohl(in.s_addr)
               : 0;
}

int network_refusal_read(const json_t *json, struct network_refusal *out)
{
    struct record record = {0};
    struct error ignored;

    if (json_read(fields, json, &record, &ignored) < 0)
        return -1;
    *out = (struct network_refusal){.source = address_of(record.source),
                                    .address = address_of(record.address),
                                    .address_text = record.address,
                                    .protocol = record.protocol,
                                    .why = record.why,
                                    .time = record.time,
                                    .port = record.port};
    return 0;
}

static const char *reason_of(struct str why)
{
    static const struct {
        const char *why, *reason;
    } reasons[] = {
        {BOX_REFUSED_RANGE, "the address is not of the internet"},
        {BOX_REFUSED_DENIED, "the address is denied"},
        {BOX_REFUSED_CLOSED, "no rule allows this address"},
        {BOX_REFUSED_NAMES, "names are reached by TCP only; allow the address instead"},
        {BOX_REFUSED_PROTOCOL, "only TCP, UDP and echo requests of ICMP leave a sandbox"},
        {BOX_REFUSED_FLOWS, "too many connections at once"},
        {BOX_REFUSED_RATE, "too many connections or DNS queries a second"},
    };

    for (size_t i = 0; i < sizeof(reasons) / sizeof(*reasons); i++)
        if (str_is(why, reasons[i].why))
            return reasons[i].reason;
    return "the gateway's rules refuse it";
}

/* What the rules found, which look for the longest prefix first; "" = it is no entry of a list. */
static void find_rule(const struct network_refusal *refusal, const struct box_range *denied,
                      size_t count, char out[RULE_SIZE])
{
    const struct box_range *found = NULL;
    char text[INET_ADDRSTRLEN];
    struct in_addr in;

    out[0] = '\0';
    if (str_is(refusal->why, BOX_REFUSED_CLOSED) || str_is(refusal->why, BOX_REFUSED_NAMES))
        (void)snprintf(out, RULE_SIZE, NETWORK_EVERYTHING);
    if (!str_is(refusal->why, BOX_REFUSED_DENIED))
        return;
    for (size_t i = 0; i < count; i++)
        if (box_range_has(&denied[i], refusal->address) &&
            (!found || denied[i].prefix > found->prefix))
            found = &denied[i];
    if (!found)
        return;
    in.s_addr = htonl(found->address);
    (void)inet_ntop(AF_INET, &in, text, sizeof(text));
    if (found->prefix == 32)
        (void)snprintf(out, RULE_SIZE, "%s", text);
    else
        (void)snprintf(out, RULE_SIZE, "%s/%u", text, found->prefix);
}

json_t *network_refusal_line(const struct network_refusal *refusal, const char *sandbox_id,
                             const struct box_range *denied, size_t count)
{
    char rule[RULE_SIZE];

    find_rule(refusal, denied, count, rule);
    return json_pack("{s:s,s:I,s:n,s:o,s:I,s:o,s:s,s:s,s:s}", "id", sandbox_id, "time",
                     (json_int_t)refusal->time, "name", "address",
                     refusal->address ? json_str(refusal->address_text) : json_null(), "port",
                     (json_int_t)refusal->port, "protocol", json_str(refusal->protocol), "verdict",
                     "denied", "rule", rule, "reason", reason_of(refusal->why));
}
