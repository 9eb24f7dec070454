/* Shared by the files of the process provider. */
#pragma once

#include <pthread.h>

#include "base/id.h"
#include "provider/envd/envd_machine.h"
#include "provider/process/process_envd.h"

struct local {
    char *base;   /* of envd */
    char *socket; /* NULL = over the network */
    char *token;
    char *host; /* where ports answer */
    char *who;
    bool public_only;
    /* an envd of our own, begun with the first call */
    char *program, *root; /* NULL = somebody else's */
    pthread_mutex_t mutex;
    struct process_envd envd;
};

/* Of one sandbox: what its file says. */
struct process_machine {
    struct provider_sandbox sandbox; /* address: its directory */
    struct pair *env;
    size_t env_count;
};
