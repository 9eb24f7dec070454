/* Messages of DNS (RFC 1035, and of EDNS what a resolver for stubs needs): questions of guests, answers of the
 * resolvers that are asked, and both written.
 *
 * Answers to guests are made here, from the addresses alone: a chain of CNAMEs is followed and left out, and nothing
 * of what else stood in the message is passed on. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "egress/wire/host_name.h"

enum {
    DNS_MESSAGE_MAX = 65535,
    DNS_PLAIN_MAX = 512, /* of a datagram to who says nothing about it */
    DNS_EDNS_MAX = 1232, /* of a datagram to who takes more; fits in every packet */
    DNS_HEADER_SIZE = 12,
    DNS_QUESTION_MAX = HOST_NAME_LENGTH + 2 + 4, /* as on the wire */
    DNS_ADDRESSES_MAX = 64,
    DNS_CHAIN_MAX = 16,
};

enum dns_type {
    DNS_A = 1,
    DNS_NS = 2,
    DNS_CNAME = 5,
    DNS_SOA = 6,
    DNS_PTR = 12,
    DNS_MX = 15,
    DNS_TXT = 16,
    DNS_AAAA = 28,
    DNS_SRV = 33,
    DNS_NAPTR = 35,
    DNS_OPT = 41,
    DNS_CAA = 257,
};

enum dns_code {
    DNS_NO_ERROR = 0,
    DNS_FORMAT_ERROR = 1,
    DNS_SERVER_FAILURE = 2,
    DNS_NO_NAME = 3,
    DNS_NOT_IMPLEMENTED = 4,
    DNS_REFUSED = 5,
};

struct dns_question {
    uint16_t id, type;
    bool recursion; /* is desired */
    bool edns;
    size_t size_max; /* of a datagram that the asker takes */
    struct host_name name;
    /* As it was asked: upper and lower case are repeated in the answer. */
    char wire[DNS_QUESTION_MAX];
    size_t wire_len;
};

/* DNS_NO_ERROR, or with what it is to be answered; out->id and out->wire are set as far as they can be. -1: it is not
 * answered at all. */
int dns_read_question(struct str message, struct dns_question *out);

struct dns_answer {
    enum dns_code code;
    bool truncated;                        /* ask again, by TCP */
    uint32_t addresses[DNS_ADDRESSES_MAX]; /* host byte order */
    size_t count;
    uint32_t ttl_s; /* the smallest on the way to the addresses */
};

/* False when the message does not answer that question under that id, or is malformed. */
bool dns_read_answer(struct str message, uint16_t id, const struct dns_question *question,
                     struct dns_answer *out);

/* Our own question for that name and type. */
bool dns_write_question(struct buf *out, uint16_t id, const struct dns_question *question);
/* With what is left of size_max: more is cut off, and said to be. */
bool dns_write_answer(struct buf *out, const struct dns_question *question,
                      const struct dns_answer *answer, size_t size_max);
/* Makes a resolver's answer, which dns_read_answer() has accepted, the answer to the guest's question. False when it
 * does not fit in size_max: then a cut one is to be written instead. */
bool dns_pass_answer(struct buf *out, const struct dns_question *question, struct str message,
                     size_t size_max);
