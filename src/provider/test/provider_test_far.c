#include "provider/test/provider_test_far.h"

#include <pthread.h>
#include <stdarg.h>

#include "protocol/fetch/fetch.h"

struct fetch_rig *rig;
struct provider *provider;
struct arena arena;
struct error err;
struct buf seen;
_Atomic(const char *) misbehaviour;

static struct fetch *fetch;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

void far_begin(const char *unix_path, fetch_rig_fn *answer)
{
    buf_init(&seen, 1 << 20);
    rig = fetch_rig_new(unix_path, answer, NULL);
}

void far_open(struct provider_config *config)
{
    config->fetch = fetch = fetch_new();
    if (provider_new(config, &provider, &err) < 0)
        test_fail(__FILE__, __LINE__, "%s", err.message);
}

void far_end(void)
{
    provider_free(provider);
    if (rig)
        fetch_rig_free(rig);
    fetch_free(fetch);
    arena_done(&arena);
    buf_done(&seen);
}

void far_note(const struct fetch_rig_exchange *ex, const char *keys_fmt, ...)
{
    char keys[512];
    va_list args;

    va_start(args, keys_fmt);
    (void)vsnprintf(keys, sizeof(keys), keys_fmt, args);
    va_end(args);
    (void)pthread_mutex_lock(&mutex);
    (void)buf_printf(&seen, "%s %s%s %.*s\n", ex->method, ex->target, keys,
                     STR_ARG(buf_str(&ex->body)));
    (void)pthread_mutex_unlock(&mutex);
}

bool far_misbehaves(struct fetch_rig_exchange *ex, const struct far_answer *table)
{
    const char *wanted = misbehaviour;

    while (wanted && table->misbehaviour && strcmp(table->misbehaviour, wanted) != 0)
        table++;
    if (!wanted || !table->misbehaviour)
        return false;
    ex->close = table->status < 0;
    if (table->status == FAR_HALF)
        fetch_rig_send(ex, STR("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"id"));
    else if (table->status == FAR_HANGS)
        while (!fetch_rig_stopping(ex->rig))
            (void)usleep(10000);
    else
        fetch_rig_answer(ex, table->status, table->headers, str_of(table->body));
    return true;
}

void saw(const char *expected)
{
    if (str_find_str(buf_str(&seen), str_of(expected)) < 0)
        test_fail(__FILE__, __LINE__, "no '%s' in:\n%s", expected, seen.p);
}

void saw_not(const char *unexpected)
{
    if (str_find_str(buf_str(&seen), str_of(unexpected)) >= 0)
        test_fail(__FILE__, __LINE__, "'%s' in:\n%s", unexpected, seen.p);
}
