/* For the tests of providers: the other side, which writes down what it is asked and misbehaves as
 * told. One provider at a time, open in these variables. */
#pragma once

#include "base/arena.h"
#include "protocol/fetch/test/fetch_rig.h"
#include "provider/core/provider.h"

extern struct fetch_rig *rig;
extern struct provider *provider;
extern struct arena arena;
extern struct error err;
extern struct buf seen;                    /* far_note() */
extern _Atomic(const char *) misbehaviour; /* NULL = none */

/* Begins the other side; unix_path: NULL = at fetch_rig_url(rig). Without it: the real one. */
void far_begin(const char *unix_path, fetch_rig_fn *answer);
/* Opens the provider, with a config->fetch. */
void far_open(struct provider_config *config);
void far_end(void);

/* "METHOD target" and `keys`, a blank and the body. */
void far_note(const struct fetch_rig_exchange *ex, const char *keys_fmt, ...)
    __attribute__((format(printf, 2, 3)));

enum { FAR_HALF = -1, FAR_HANGS = -2 };
struct far_answer {
    const char *misbehaviour;
    int status; /* FAR_HALF: less than the head promised; FAR_HANGS: none */
    const char *body, *headers;
};
/* As misbehaviour says; false when it is none of the table, which ends with {0}. */
bool far_misbehaves(struct fetch_rig_exchange *ex, const struct far_answer *table);

void saw(const char *expected);
void saw_not(const char *unexpected);
