/* Between provider_fake.c (sandboxes) and provider_fake_work.c (commands and files). */
#pragma once

#include "provider/core/provider_ops.h"
#include "provider/test/provider_fake.h"

enum { FAKE_LABELS = 32, FAKE_FILE_MAX = 16 << 20 };

struct fake_machine {
    struct list node;
    char id[32];
    enum provider_state state;
    char *image;
    char *names[FAKE_LABELS], *values[FAKE_LABELS];
    size_t label_count;
    int64_t started_at_us, ttl_s;
    struct map files; /* path -> struct buf */
};

struct fake_failure {
    int times;
    enum error_code code;
    char message[200];
};

struct fake_impl {
    struct provider_ops ops;
    char type[16];
    struct provider_fake *fake;
};

static inline struct provider_fake *fake_of(const struct provider *provider)
{
    return ((struct fake_impl *)provider->impl)->fake;
}

/* Counts the call and lets it fail when that was ordered. */
int fake_enter(struct provider_fake *fake, const char *op, struct error *err);
/* With the lock held; NULL with ERROR_NOT_FOUND. */
struct fake_machine *fake_find(struct provider_fake *fake, struct str id, struct error *err);
void fake_files_free(struct map *files);
struct map *fake_files_copy(const struct map *files);
void fake_work_ops(struct provider_ops *ops);
