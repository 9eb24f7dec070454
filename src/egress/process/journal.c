/* What was decided, for the log of the sandbox, and the totals of what it did. A sandbox that makes more of it than
 * anybody reads has some of it left out, and counted: decisions are not slowed down by it. */
#include <arpa/inet.h>

#include "base/clock.h"
#include "egress/process/egress_internal.h"
#include "egress/wire/refusal.h"
#include "protocol/json/json_shape.h"

enum {
    BURST = 200,
    EACH_US = 100000, /* ten a second when the burst is over */
    REFUSALS_BURST = 5000,
    REFUSALS_EACH_US = 1000, /* of all sandboxes; the rules tell some a second of each */
    REFUSALS_PER_TURN = 64,
    MESSAGE_BYTES = 4096,
};

/* The usual bucket, as the moment when it will be full again. */
static bool take(int64_t *full_us, int64_t burst, int64_t each_us)
{
    int64_t now_us = clock_mono_us();

    if (*full_us < now_us)
        *full_us = now_us;
    if (*full_us - now_us > burst * each_us)
        return false;
    *full_us += each_us;
    return true;
}

static bool has_room(struct box *box)
{
    if (take(&box->log_full_us, BURST, EACH_US))
        return true;
    box->log_lost++;
    return false;
}

static json_t *address_json(uint32_t address)
{
    struct in_addr in = {htonl(address)};
    char text[INET_ADDRSTRLEN];

    return address ? json_string(inet_ntop(AF_INET, &in, text, sizeof(text))) : json_null();
}

void journal_add(struct egress *egress, struct box *box, const struct journal_entry *entry,
                 const struct verdict *verdict)
{
    auto_json json_t *record = NULL;
    struct str name = entry->name ? host_name_str(entry->name) : STR_NONE;

    if (!verdict->allowed)
        box->denied++;
    box->told = false;
    if (!has_room(box))
        return;
    record =
        json_pack("{s:{s:s,s:I,s:o,s:o,s:i,s:s,s:s,s:s,s:s,s:I}}", "log", "id", box->id, "time",
                  (json_int_t)clock_wall_us(), "name", name.len ? json_str(name) : json_null(),
                  "address", address_json(entry->address), "port", (int)entry->port, "protocol",
                  entry->protocol, "verdict", verdict->allowed ? "allowed" : "denied", "rule",
                  verdict->rule, "reason", verdict->reason, "lost", (json_int_t)box->log_lost);
    if (channel_send(egress, record))
        box->log_lost = 0;
    else
        box->log_lost++;
}

/* Whose it is the server knows: by the address that it came from. */
static void tell_refusal(struct egress *egress, const struct refusal *refusal)
{
    auto_json json_t *record = NULL;

    if (!take(&egress->refusals_full_us, REFUSALS_BURST, REFUSALS_EACH_US))
        return;
    record = json_pack("{s:{s:o,s:I,s:o,s:i,s:s,s:s}}", "refused", "source",
                       address_json(refusal->source), "time", (json_int_t)clock_wall_us(),
                       "address", address_json(refusal->address), "port", (int)refusal->port,
                       "protocol", refusal->protocol, "why", refusal->why);
    (void)channel_send(egress, record);
}

void journal_refusals(struct egress *egress, int fd)
{
    char bytes[MESSAGE_BYTES];
    struct refusal refusal;

    for (int i = 0; i < REFUSALS_PER_TURN; i++) {
        ssize_t got = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT);
        struct str rest = str_n(bytes, got > 0 ? (size_t)got : 0);

        if (got <= 0)
            return;
        while (refusal_next(&rest, &refusal))
            tell_refusal(egress, &refusal);
    }
}

static void tell(struct egress *egress, struct box *box)
{
    auto_json json_t *record =
        json_pack("{s:{s:s,s:I,s:I,s:I,s:I,s:I,s:I}}", "usage", "id", box->id, "connections",
                  (json_int_t)box->connections, "denied", (json_int_t)box->denied, "questions",
                  (json_int_t)box->questions, "sent", (json_int_t)box->sent, "received",
                  (json_int_t)box->received, "open", (json_int_t)box->used[SHARE_CONNECTIONS]);

    box->told = channel_send(egress, record);
}

void journal_usage(struct egress *egress)
{
    struct map_entry *entry;

    map_for_each (&egress->boxes, entry) {
        struct box *box = entry->value;

        flow_count_all(box);
        if (!box->told)
            tell(egress, box);
    }
}
