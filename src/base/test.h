/* Unit tests: TEST(name) { ... } registers itself; each test runs in a forked child with a time
 * limit, so a crash or a hang fails one test and not the run. One test binary per folder; it ends
 * with a line "N passed, N failed, N skipped". With an argument, runs the tests whose name
 * contains it. */
#pragma once

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/str.h"

struct test_case {
    const char *name;
    void (*fn)(void);
    unsigned timeout_s;
    struct test_case *next;
};

void test_register(struct test_case *test);
void test_fail(const char *file, int line, const char *fmt, ...)
    __attribute__((format(printf, 3, 4), noreturn));
/* Fails unless the result is -1 and the error is `want`, with `part` in its message. */
void test_error(const char *file, int line, const char *call, int result, const struct error *err,
                enum error_code want, const char *part, ...);
/* Ends the test as skipped: this machine cannot have what it needs, such as the key of a service. */
void test_skip(const char *reason) __attribute__((noreturn));
/* Ends the test because this machine lacks something that it should have: skipped, but failed where
 * QUICKSAND_TEST_STRICT is set, as `make test` does. */
void test_lacks(const char *what) __attribute__((noreturn));
static inline void test_needs_root(void)
{
    if (geteuid() != 0)
        test_lacks("needs root");
}
/* Between two looks at what WAIT_FOR() waits for. */
void test_wait(const char *file, int line, const char *cond, unsigned looks);
/* How many times longer than usual to wait for something: QUICKSAND_TEST_PATIENCE, or 1. */
unsigned test_patience(void);

#define TEST_TIMEOUT(test_name, seconds)                                         \
    static void test_##test_name(void);                                          \
    __attribute__((constructor)) static void register_##test_name(void)          \
    {                                                                            \
        static struct test_case test = {                                         \
            .name = #test_name, .fn = test_##test_name, .timeout_s = (seconds)}; \
        test_register(&test);                                                    \
    }                                                                            \
    static void test_##test_name(void)
#define TEST(test_name) TEST_TIMEOUT(test_name, 20)

#define CHECK(cond)                                            \
    do {                                                       \
        if (!(cond))                                           \
            test_fail(__FILE__, __LINE__, "CHECK(%s)", #cond); \
    } while (0)
#define CHECK_INT(got, want)                                                                       \
    do {                                                                                           \
        intmax_t got_ = (intmax_t)(got), want_ = (intmax_t)(want);                                 \
        if (got_ != want_)                                                                         \
            test_fail(__FILE__, __LINE__, "%s is %" PRIdMAX ", not %" PRIdMAX, #got, got_, want_); \
    } while (0)
#define CHECK_STR(got, want)                                                               \
    do {                                                                                   \
        struct str got_ = (got), want_ = str_of(want);                                     \
        if (!str_eq(got_, want_))                                                          \
            test_fail(__FILE__, __LINE__, "%s is '%.*s', not '%.*s'", #got, STR_ARG(got_), \
                      STR_ARG(want_));                                                     \
    } while (0)

/* Looks every 2 ms, for at least 10 s. */
#define WAIT_FOR(cond)                           \
    for (unsigned looks_ = 0; !(cond); looks_++) \
    test_wait(__FILE__, __LINE__, #cond, looks_)

/* For calls that end in `&err`: FAILS(call, ERROR_X) or FAILS(call, ERROR_X, "part of the message"). */
#define OK(call)                                                         \
    do {                                                                 \
        struct error err = {0};                                          \
        if ((call) < 0)                                                  \
            test_fail(__FILE__, __LINE__, "%s: %s", #call, err.message); \
    } while (0)
#define FAILS(call, ...)                                                       \
    do {                                                                       \
        struct error err = {0};                                                \
        int result_ = (call);                                                  \
        test_error(__FILE__, __LINE__, #call, result_, &err, __VA_ARGS__, ""); \
    } while (0)
