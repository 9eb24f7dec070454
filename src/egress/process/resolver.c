/* Questions of sandboxes: answered at once (refused, known, of no use), or asked of the configured resolvers. */
#include <arpa/inet.h>
#include <errno.h>

#include "base/clock.h"
#include "egress/process/egress_internal.h"

enum { QUESTIONS_PER_TURN = 64, QUESTION_BYTES_MAX = 4096 };

void resolver_reply(struct egress *egress, const struct asker *asker, struct str message)
{
    if (asker->client) {
        client_send(asker->client, message);
        return;
    }
    if (asker->from.sin_port) /* a client that has gone left no port */
        (void)sendto(egress->config.dns_fd, message.p, message.len, MSG_DONTWAIT,
                     (const struct sockaddr *)&asker->from, sizeof(asker->from));
}

static size_t size_max(const struct dns_question *question, const struct asker *asker)
{
    return asker->client ? DNS_MESSAGE_MAX : question->size_max;
}

static void answer_with(struct egress *egress, const struct dns_question *question,
                        const struct asker *asker, const struct dns_answer *answer)
{
    auto_buf struct buf out = {0};

    buf_init(&out, DNS_MESSAGE_MAX);
    if (dns_write_answer(&out, question, answer, size_max(question, asker)))
        resolver_reply(egress, asker, buf_str(&out));
}

static void answer_code(struct egress *egress, const struct dns_question *question,
                        const struct asker *asker, enum dns_code code)
{
    answer_with(egress, question, asker, &(struct dns_answer){.code = code});
}

static void note(struct egress *egress, struct box *box, const struct dns_question *question,
                 const struct verdict *verdict)
{
    journal_add(egress, box,
                &(struct journal_entry){.protocol = "dns", .name = &question->name, .port = 53},
                verdict);
}

/* Types whose answers are passed on as they are. Those of services and bindings (SVCB, HTTPS) are not among them: they
 * bring addresses and keys for encrypted hellos past us. Nor is AAAA: there is no way out by IPv6. */
static bool passes(unsigned type)
{
    static const unsigned types[] = {DNS_NS,  DNS_CNAME, DNS_SOA,   DNS_PTR, DNS_MX,
                                     DNS_TXT, DNS_SRV,   DNS_NAPTR, DNS_CAA};

    for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++)
        if (types[i] == type)
            return true;
    return false;
}

static void resolve(struct egress *egress, struct box *box, const struct dns_question *question,
                    const struct asker *asker)
{
    struct verdict verdict = {.rule = ""};
    struct dns_answer known;

    if (question->type != DNS_A && !passes(question->type)) {
        answer_code(egress, question, asker, DNS_NO_ERROR);
        return;
    }
    if (question->type == DNS_A &&
        answers_get(&box->answers, &question->name, clock_mono_us(), &known)) {
        answer_with(egress, question, asker, &known);
        return;
    }
    verdict.reason = ask_new(egress, box, question, asker);
    if (verdict.reason) {
        note(egress, box, question, &verdict);
        answer_code(egress, question, asker, DNS_SERVER_FAILURE);
    }
}

/* Names of the private network are known here. */
static bool answer_peers(struct egress *egress, const struct box *box,
                         const struct dns_question *question, const struct asker *asker)
{
    struct dns_answer answer = {.ttl_s = PEERS_TTL_S};
    enum peers_found found =
        peers_find(&egress->seats, &box->seat, &question->name, &answer.addresses[0]);

    if (found == PEERS_FOREIGN)
        return false;
    if (found == PEERS_NOBODY)
        answer.code = DNS_NO_NAME;
    else
        answer.count = question->type == DNS_A;
    answer_with(egress, question, asker, &answer);
    return true;
}

void resolver_question(struct egress *egress, struct box *box, struct str message,
                       const struct asker *asker)
{
    struct dns_question question;
    struct verdict verdict;
    int code = dns_read_question(message, &question);

    box->questions++;
    box->told = false;
    if (code < 0)
        return;
    if (code != DNS_NO_ERROR) {
        answer_code(egress, &question, asker, (enum dns_code)code);
        return;
    }
    if (answer_peers(egress, box, &question, asker))
        return;
    verdict = verdict_question(box->policy, &question.name);
    if (!verdict.allowed) {
        note(egress, box, &question, &verdict);
        answer_code(egress, &question, asker, DNS_REFUSED);
        return;
    }
    resolve(egress, box, &question, asker);
}

static void pass_on(struct egress *egress, const struct dns_question *question,
                    const struct asker *asker, struct str message)
{
    auto_buf struct buf out = {0};

    buf_init(&out, DNS_MESSAGE_MAX);
    if (dns_pass_answer(&out, question, message, size_max(question, asker)))
        resolver_reply(egress, asker, buf_str(&out));
    else
        answer_with(egress, question, asker, &(struct dns_answer){.truncated = true});
}

void resolver_answered(struct egress *egress, struct box *box, const struct dns_question *question,
                       const struct asker *asker, struct str message,
                       const struct dns_answer *answer)
{
    struct dns_answer kept = *answer;
    struct verdict verdict;

    if (asker->upstream) {
        upstream_resolved(asker->upstream, answer);
        return;
    }
    /* The policy may be another one since it was asked. */
    if (!verdict_question(box->policy, &question->name).allowed) {
        answer_code(egress, question, asker, DNS_REFUSED);
        return;
    }
    if (answer->code != DNS_NO_ERROR || question->type != DNS_A) {
        if (answer->code == DNS_NO_ERROR && message.len)
            pass_on(egress, question, asker, message);
        else
            answer_code(egress, question, asker, answer->code);
        return;
    }
    verdict = verdict_answer(&kept, &egress->config.opened);
    if (!verdict.allowed) {
        note(egress, box, question, &verdict);
        answer_code(egress, question, asker, DNS_REFUSED);
        return;
    }
    if (kept.count)
        answers_put(&box->answers, &question->name, &kept, clock_mono_us());
    else
        kept.ttl_s = 0;
    answer_with(egress, question, asker, &kept);
}

void resolver_receive(struct egress *egress, int fd)
{
    char message[QUESTION_BYTES_MAX];

    for (int i = 0; i < QUESTIONS_PER_TURN; i++) {
        struct asker asker = {0};
        socklen_t size = sizeof(asker.from);
        ssize_t got = recvfrom(fd, message, sizeof(message), MSG_DONTWAIT | MSG_TRUNC,
                               (struct sockaddr *)&asker.from, &size);
        struct box *box;

        if (got < 0)
            return;
        box = egress_box(egress, ntohl(asker.from.sin_addr.s_addr));
        if (box && (size_t)got <= sizeof(message))
            resolver_question(egress, box, str_n(message, (size_t)got), &asker);
    }
}
