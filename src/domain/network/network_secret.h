/* Secrets as rules of a policy name them: the placeholder `${e2b.secrets.NAME}` in the value of a header stands for the
 * secret of that name, which is put there by the egress process, outside of the sandbox. What is kept has placeholders;
 * they are filled in for that process alone. */
#pragma once

#include <stdbool.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/str.h"

enum { NETWORK_SECRET_NAME_MAX = 128, NETWORK_SECRET_VALUE_MAX = 8 * 1024 };

/* Lower-case letters, digits, '.', '_' and '-'; the first is none of the latter three. */
bool network_secret_name_valid(struct str name);
/* Can it stand in a header? Not empty, no control characters. */
bool network_secret_value_valid(struct str value);
/* Is every host of the one that the other stands for? Both are names or "*." and a name, in lower case. */
bool network_host_covers(struct str pattern, struct str host);

/* A header's value with the names of its placeholders in lower case. ERROR_INVALID when it can stand in no header;
 * ERROR_UNSUPPORTED for placeholders of other kinds. */
int network_secret_lower(struct str value, struct buf *out, struct error *err);
/* The placeholder of a name, as network_secret_lower() leaves it. */
#define NETWORK_SECRET_OPEN  "${e2b.secrets."
#define NETWORK_SECRET_CLOSE "}"

/* Where the values come from; each adds to out. */
struct network_filler {
    void *arg;
    /* ERROR_NOT_FOUND, ERROR_FORBIDDEN (it is not for that host) or another failure. */
    int (*secret)(void *arg, struct str name, struct str host, struct buf *out, struct error *err);
    int (*unseal)(void *arg, struct str sealed, struct buf *out, struct error *err);
    /* A header whose secret is not there or not for its host is taken out of requests (null), where strict is false. */
    bool strict;
};

/* Has a policy's text rules? */
bool network_has_rules(struct str policy);
/* Has a policy's text anything to be filled in? */
bool network_fill_needed(struct str policy);
/* The policy as the egress process gets it, at most NETWORK_FILLED_MAX bytes. Whoever has it wipes it. */
int network_fill(struct str policy, const struct network_filler *filler, struct buf *out,
                 struct error *err);
enum { NETWORK_FILLED_MAX = 5 * 1024 * 1024 };

/* Forgets what was secret, and frees. */
void network_wipe(struct buf *buf);
#define auto_wiped __attribute__((cleanup(network_wipe)))
