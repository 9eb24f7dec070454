/* Shared by the files of the contract's program. */
#pragma once

#include "base/buf.h"
#include "provider/core/provider.h"

enum { CONTRACT_SANDBOXES_MAX = 16 };

struct contract {
    struct provider *provider;
    struct str team_id; /* embedded engine only */
    struct fetch *fetch;
    struct arena arena;
    unsigned features;
    struct str image;
    const char *only;
    char key[17];            /* of this run: the value of a label */
    struct provider_ref ref; /* the sandbox that most checks use */
    struct provider_ref made[CONTRACT_SANDBOXES_MAX];
    size_t made_count;
};

struct contract_check {
    const char *name; /* NULL ends the table */
    void (*fn)(struct contract *contract);
};

extern const struct contract_check contract_checks[], contract_file_checks[],
    contract_life_checks[];

/* All checks on the provider of this record. A line for each check on standard output, the numbers in
 * the last one. 0 = none failed, 2 = there is no such provider. */
int contract_try(const json_t *record, struct fetch *fetch,
                 const struct provider_embedded *embedded, struct str team_id);

struct contract_result {
    struct buf out, errors;
    int exit_code;
    bool timed_out, started;
};

#define auto_result __attribute__((cleanup(contract_result_done)))
void contract_result_done(struct contract_result *result);

/* Until the process has ended; 60 s at most. */
int contract_collect(struct provider_process *process, struct contract_result *out,
                     struct error *err);
int contract_run(struct contract *contract, const struct provider_command *command,
                 struct contract_result *out, struct error *err);
int contract_sh(struct contract *contract, const char *script, struct contract_result *out,
                struct error *err);
int contract_create(struct contract *contract, const struct provider_spec *spec,
                    struct provider_ref *out, struct error *err);

void contract_fail(const char *file, int line, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void contract_skip(const char *why);

/* Each leaves the check when it does not hold. */
#define MUST(cond)                                          \
    do {                                                    \
        if (!(cond)) {                                      \
            contract_fail(__FILE__, __LINE__, "%s", #cond); \
            return;                                         \
        }                                                   \
    } while (0)
#define MUST_OK(call, err)                                                     \
    do {                                                                       \
        if ((call) < 0) {                                                      \
            contract_fail(__FILE__, __LINE__, "%s: %s", #call, (err).message); \
            return;                                                            \
        }                                                                      \
    } while (0)
#define MUST_FAIL(call, err, wanted)                                                            \
    do {                                                                                        \
        (err) = (struct error){0};                                                              \
        if ((call) == 0 || (err).code != (wanted)) {                                            \
            contract_fail(__FILE__, __LINE__, "%s: %s (%s) and not %s", #call,                  \
                          error_code_name((err).code), (err).message, error_code_name(wanted)); \
            return;                                                                             \
        }                                                                                       \
    } while (0)
#define MUST_STR(got, want)                                                             \
    do {                                                                                \
        struct str got_ = (got), want_ = str_of(want);                                  \
        if (!str_eq(got_, want_)) {                                                     \
            contract_fail(__FILE__, __LINE__, "%s is '%.*s', not '%.*s'", #got,         \
                          (int)(got_.len < 200 ? got_.len : 200), got_.p ? got_.p : "", \
                          STR_ARG(want_));                                              \
            return;                                                                     \
        }                                                                               \
    } while (0)
#define MUST_INT(got, want)                                                               \
    do {                                                                                  \
        long long got_ = (long long)(got), want_ = (long long)(want);                     \
        if (got_ != want_) {                                                              \
            contract_fail(__FILE__, __LINE__, "%s is %lld, not %lld", #got, got_, want_); \
            return;                                                                       \
        }                                                                                 \
    } while (0)
