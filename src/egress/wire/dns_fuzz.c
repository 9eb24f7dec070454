/* Messages of guests and of resolvers. What is read as a question is written, and must be read again as the same. */
#include <stdlib.h>

#include "egress/wire/dns.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_written(const struct dns_question *question)
{
    auto_buf struct buf out = {0};
    struct dns_question again;

    buf_init(&out, DNS_MESSAGE_MAX);
    if (!dns_write_question(&out, 1, question) ||
        dns_read_question(buf_str(&out), &again) != DNS_NO_ERROR ||
        !str_eq(host_name_str(&again.name), host_name_str(&question->name)))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str message = str_n(data, size);
    struct dns_question question = {0};
    struct dns_answer answer;
    auto_buf struct buf out = {0};

    buf_init(&out, DNS_MESSAGE_MAX);
    if (dns_read_question(message, &question) == DNS_NO_ERROR)
        check_written(&question);
    answer = (struct dns_answer){.count = size % DNS_ADDRESSES_MAX};
    if (!dns_write_answer(&out, &question, &answer, question.size_max) || out.len > DNS_EDNS_MAX)
        abort();
    (void)host_name_set(&question.name, STR("a.example"));
    question.type = DNS_A;
    if (size > 2 &&
        dns_read_answer(message, (uint16_t)(data[0] << 8 | data[1]), &question, &answer) &&
        answer.count > DNS_ADDRESSES_MAX)
        abort();
    buf_clear(&out);
    (void)dns_pass_answer(&out, &question, message, DNS_MESSAGE_MAX);
    return 0;
}
