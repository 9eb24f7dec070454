/* In the runtime's place in the program engine_contract, a whole server for tests only: the contract of
 * all providers on the engine in the same process. Its --runtime-config is the provider's record. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>

#include "account/team.h"
#include "base/alloc.h"
#include "base/fd.h"
#include "provider/contract.h"
#include "quicksand/runtime.h"
#include "json/json_shape.h"

enum { RECORD_MAX = 65536 };

struct runtime {
    struct runtime_config config;
    json_t *record;
    pthread_t thread;
};

static void *try_contract(void *arg)
{
    struct runtime *runtime = arg;
    struct provider_embedded embedded = runtime_embedded(&runtime->config);

    (void)contract_try(runtime->record, &embedded, STR(TEAM_DEFAULT_ID));
    return NULL;
}

int runtime_open(const struct runtime_config *config, struct runtime **out, struct error *err)
{
    struct runtime *runtime = *out = xcalloc(1, sizeof(*runtime));
    auto_buf struct buf text = {0};
    int r;

    runtime->config = *config;
    buf_init(&text, RECORD_MAX);
    r = fd_read_file_at(AT_FDCWD, config->settings_path, &text);
    if (r < 0)
        return error_set_errno(err, -r, "read the record '%s'", config->settings_path);
    if (json_parse(buf_str(&text), &runtime->record, err) < 0)
        return -1;
    r = pthread_create(&runtime->thread, NULL, try_contract, runtime);
    return r ? error_set_errno(err, r, "start a thread") : 0;
}

void runtime_default(const struct runtime *runtime, struct buf *out, bool *out_remote)
{
    (void)runtime;
    (void)buf_printf(out, "the contract");
    *out_remote = false;
}

bool runtime_handle(struct runtime *runtime, struct http_exchange *ex)
{
    (void)runtime;
    (void)ex;
    return false;
}

void runtime_quiet(struct runtime *runtime)
{
    (void)runtime;
}

void runtime_drain(struct runtime *runtime, struct loop *loop)
{
    (void)runtime;
    (void)loop;
}

int runtime_close(struct runtime *runtime)
{
    (void)pthread_join(runtime->thread, NULL);
    json_decref(runtime->record);
    free(runtime);
    return 0;
}
