#include "egress/wire/dns.h"

#include "base/test.h"

#define MESSAGE(lit) str_n("" lit, sizeof(lit) - 1)
#define ASKS_A       "\x00\x01\x00\x01"
#define QUESTION     "\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00"
#define NAME \
    "\x01"   \
    "A\x07"  \
    "Example\x00"
#define ANSWERED(count)                                         \
    "\x00\x07\x81\x80\x00\x01\x00" count "\x00\x00\x00\x00\x01" \
    "a\x07"                                                     \
    "example\x00" ASKS_A
#define RECORD(owner, type, ttl, len) owner "\x00" type "\x00\x01\x00\x00\x00" ttl "\x00" len

static struct dns_question asked(void)
{
    struct dns_question question;

    CHECK_INT(dns_read_question(MESSAGE(QUESTION NAME ASKS_A), &question), DNS_NO_ERROR);
    return question;
}

TEST(a_question_is_read)
{
    struct dns_question question = asked();

    CHECK_INT(question.id, 0x1234);
    CHECK_INT(question.type, DNS_A);
    CHECK_INT(question.size_max, DNS_PLAIN_MAX);
    CHECK(question.recursion && !question.edns);
    CHECK_STR(host_name_str(&question.name), "a.example");
}

TEST(the_size_of_datagrams_is_heard_and_bounded)
{
    struct dns_question question;

    CHECK_INT(
        dns_read_question(MESSAGE("\x00\x01\x01\x00\x00\x01\x00\x00\x00\x00\x00\x01" NAME ASKS_A
                                  "\x00\x00\x29\xff\xff\x00\x00\x00\x00\x00\x00"),
                          &question),
        DNS_NO_ERROR);
    CHECK(question.edns);
    CHECK_INT(question.size_max, DNS_EDNS_MAX);
}

TEST(what_is_no_question_is_not_answered_or_refused)
{
    static const struct {
        struct str message;
        int result;
    } cases[] = {
        {STR_INIT(""), -1},
        {STR_INIT("\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00"), -1},
        {STR_INIT("\x12\x34\x81\x00\x00\x01\x00\x00\x00\x00\x00\x00" NAME ASKS_A), -1},
        {STR_INIT("\x12\x34\x29\x00\x00\x01\x00\x00\x00\x00\x00\x00" NAME ASKS_A),
         DNS_NOT_IMPLEMENTED},
        {STR_INIT("\x12\x34\x01\x00\x00\x02\x00\x00\x00\x00\x00\x00" NAME ASKS_A NAME ASKS_A),
         DNS_FORMAT_ERROR},
        {STR_INIT("\x12\x34\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00"), DNS_FORMAT_ERROR},
        {STR_INIT(QUESTION "\x3f"
                           "a"),
         DNS_FORMAT_ERROR},
        {STR_INIT(QUESTION NAME "\x00\x01"), DNS_FORMAT_ERROR},
        {STR_INIT(QUESTION "\x01"
                           "a\x40" ASKS_A),
         DNS_FORMAT_ERROR},
        {STR_INIT(QUESTION "\x03"
                           "a.b\x00" ASKS_A),
         DNS_REFUSED},
        {STR_INIT(QUESTION "\x01\x00\x00" ASKS_A), DNS_REFUSED},
        {STR_INIT(QUESTION NAME "\x00\x01\x00\x03"), DNS_REFUSED},
        {STR_INIT(QUESTION "\xc0\x0c" ASKS_A), DNS_REFUSED},
    };
    struct dns_question question;

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
        if (dns_read_question(cases[i].message, &question) != cases[i].result)
            test_fail(__FILE__, __LINE__, "case %zu", i);
}

TEST(a_name_of_every_length_is_read_or_refused)
{
    char message[600] = QUESTION;
    struct dns_question question;
    size_t at = DNS_HEADER_SIZE;

    for (int i = 0; i < 7; i++) {
        message[at++] = 63;
        memset(message + at, 'x', 63);
        at += 63;
        message[at] = '\0';
        memcpy(message + at + 1, ASKS_A, 4);
        CHECK_INT(dns_read_question(str_n(message, at + 5), &question),
                  i < 3 ? DNS_NO_ERROR : DNS_FORMAT_ERROR);
    }
}

TEST(addresses_are_found_behind_a_chain)
{
    struct dns_question question = asked();
    struct dns_answer answer;

    CHECK(dns_read_answer(
        MESSAGE(ANSWERED("\x04") RECORD(
            "\x01"
            "z\x00",
            "\x01", "\x07",
            "\x04") "\x09\x09\x09\x09" RECORD("\x01"
                                              "c\xc0\x0e",
                                              "\x01", "\x05",
                                              "\x04") "\x01\x02\x03\x04" RECORD("\xc0\x0c", "\x05",
                                                                                "\x3c",
                                                                                "\x04") "\x01"
                                                                                        "b\xc0"
                                                                                        "\x0e" RECORD(
                                                                                            "\x01"
                                                                                            "B\xc0"
                                                                                            "\x0e",
                                                                                            "\x05",
                                                                                            "\x02",
                                                                                            "\x04") "\x01"
                                                                                                    "C\xc0\x0e"),
        7, &question, &answer));
    CHECK_INT(answer.code, DNS_NO_ERROR);
    CHECK_INT(answer.count, 1);
    CHECK_INT(answer.addresses[0], 0x01020304);
    CHECK_INT(answer.ttl_s, 2);
}

TEST(names_that_point_in_circles_end)
{
    struct dns_question question = asked();
    struct dns_answer answer;

    /* To itself, and forward; then a circle of CNAMEs. */
    CHECK(!dns_read_answer(MESSAGE(ANSWERED("\x01") "\xc0\x1b\x00\x01"), 7, &question, &answer));
    CHECK(!dns_read_answer(MESSAGE(ANSWERED("\x01") "\xff\xff"), 7, &question, &answer));
    CHECK(dns_read_answer(MESSAGE(ANSWERED("\x02") RECORD(
                              "\xc0\x0c", "\x05", "\x3c",
                              "\x04") "\x01"
                                      "b\xc0\x0e" RECORD("\x01"
                                                         "b\xc0\x0e",
                                                         "\x05", "\x02", "\x02") "\xc0\x0c"),
                          7, &question, &answer));
    CHECK_INT(answer.count, 0);
}

TEST(answers_to_something_else_are_not_taken)
{
    struct dns_question question = asked();
    struct dns_answer answer;

    CHECK(dns_read_answer(MESSAGE(ANSWERED("\x00")), 7, &question, &answer));
    CHECK(!dns_read_answer(MESSAGE(ANSWERED("\x00")), 8, &question, &answer));
    CHECK(!dns_read_answer(MESSAGE(QUESTION NAME ASKS_A), 0x1234, &question, &answer));
    (void)host_name_set(&question.name, STR("b.example"));
    CHECK(!dns_read_answer(MESSAGE(ANSWERED("\x00")), 7, &question, &answer));
    question = asked();
    question.type = DNS_TXT;
    CHECK(!dns_read_answer(MESSAGE(ANSWERED("\x00")), 7, &question, &answer));
}

TEST(our_question_and_answer_are_read_back)
{
    struct dns_question question = asked(), again;
    struct dns_answer answer = {.ttl_s = 9, .count = 2, .addresses = {0x01020304, 0x05060708}}, got;
    auto_buf struct buf out = {0};

    buf_init(&out, DNS_MESSAGE_MAX);
    CHECK(dns_write_question(&out, 77, &question));
    CHECK_INT(dns_read_question(buf_str(&out), &again), DNS_NO_ERROR);
    CHECK(again.id == 77 && again.edns && again.recursion);
    CHECK_STR(host_name_str(&again.name), "a.example");
    buf_clear(&out);
    CHECK(dns_write_answer(&out, &question, &answer, DNS_PLAIN_MAX));
    CHECK(memcmp(out.p + DNS_HEADER_SIZE, NAME, sizeof(NAME) - 1) == 0);
    CHECK(dns_read_answer(buf_str(&out), 0x1234, &question, &got));
    CHECK(got.count == 2 && got.addresses[1] == 0x05060708 && got.ttl_s == 9);
}

TEST(what_does_not_fit_is_cut_and_says_so)
{
    struct dns_question question = asked();
    struct dns_answer answer = {.count = DNS_ADDRESSES_MAX}, got;
    auto_buf struct buf out = {0};

    buf_init(&out, DNS_MESSAGE_MAX);
    CHECK(dns_write_answer(&out, &question, &answer, DNS_PLAIN_MAX));
    CHECK(out.len <= DNS_PLAIN_MAX);
    CHECK(dns_read_answer(buf_str(&out), 0x1234, &question, &got));
    CHECK(got.truncated && got.count == 0);
    buf_clear(&out);
    CHECK(dns_write_answer(&out, &question, &answer, DNS_MESSAGE_MAX));
    CHECK(dns_read_answer(buf_str(&out), 0x1234, &question, &got));
    CHECK_INT(got.count, DNS_ADDRESSES_MAX);
}

TEST(an_answer_that_is_passed_on_has_the_askers_id_and_case)
{
    struct dns_question question = asked();
    auto_buf struct buf out = {0};

    buf_init(&out, DNS_MESSAGE_MAX);
    CHECK(dns_pass_answer(&out, &question, MESSAGE(ANSWERED("\x00")), DNS_PLAIN_MAX));
    CHECK(memcmp(out.p, "\x12\x34\x81\x80", 4) == 0);
    CHECK(memcmp(out.p + DNS_HEADER_SIZE, NAME, sizeof(NAME) - 1) == 0);
    CHECK(!dns_pass_answer(&out, &question, MESSAGE(ANSWERED("\x00")), 20));
    CHECK(!dns_pass_answer(&out, &question, MESSAGE(QUESTION), DNS_PLAIN_MAX));
}
