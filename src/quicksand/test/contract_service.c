/* In the runtime's place in the program engine_contract, a whole server for tests only: the contract of
 * all providers on the engine in the same process. Its --runtime-config is the provider's record. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/fd.h"
#include "base/thread.h"
#include "domain/account/team.h"
#include "protocol/json/json_shape.h"
#include "provider/contract/contract.h"
#include "quicksand/runtime_service.h"

enum { RECORD_MAX = 65536 };

struct runtime_service {
    struct runtime_service_config config;
    json_t *record;
    struct thread thread;
};

static void try_contract(void *arg)
{
    struct runtime_service *service = arg;
    struct provider_embedded embedded = runtime_service_embedded(&service->config);
    struct fetch_gate gate = runtime_service_gate(&service->config);
    struct fetch *fetch = fetch_new();

    fetch_set_gate(fetch, &gate);
    (void)contract_try(service->record, fetch, &embedded, STR(TEAM_DEFAULT_ID));
    fetch_free(fetch);
}

int runtime_service_open(const struct runtime_service_config *config, struct runtime_service **out,
                         struct error *err)
{
    struct runtime_service *service = *out = xcalloc(1, sizeof(*service));
    auto_buf struct buf text = {0};
    int r;

    service->config = *config;
    buf_init(&text, RECORD_MAX);
    r = fd_read_file_at(AT_FDCWD, config->settings_path, &text);
    if (r < 0)
        return error_set_errno(err, -r, "read the record '%s'", config->settings_path);
    if (json_parse(buf_str(&text), &service->record, err) < 0)
        return -1;
    return thread_start(&service->thread, "contract", THREAD_STACK_DEFAULT, try_contract, service,
                        err);
}

void runtime_service_default(const struct runtime_service *service, struct buf *out,
                             bool *out_remote)
{
    (void)service;
    (void)buf_printf(out, "the contract");
    *out_remote = false;
}

bool runtime_service_handle(struct runtime_service *service, struct http_exchange *ex)
{
    (void)service;
    (void)ex;
    return false;
}

void runtime_service_quiet(struct runtime_service *service)
{
    (void)service;
}

void runtime_service_drain(struct runtime_service *service, struct loop *loop)
{
    (void)service;
    (void)loop;
}

int runtime_service_close(struct runtime_service *service)
{
    thread_join(&service->thread);
    json_decref(service->record);
    free(service);
    return 0;
}

void runtime_service_reload(struct runtime_service *service)
{
    (void)service;
}

void runtime_service_monitor(struct runtime_service *service, struct buf *out)
{
    (void)service;
    (void)out;
}

void runtime_service_share(const struct runtime_service *service, struct extra_host *out)
{
    (void)service;
    (void)out;
}
