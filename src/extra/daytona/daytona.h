/* What the files of the daytona provider share. Private to them. */
#pragma once

#include <pthread.h>

#include "protocol/fetch/rest.h"
#include "provider/core/provider_ops.h"

struct daytona {
    char who[96]; /* "daytona 'name'" */
    struct rest rest;
    char *base, *bearer, *organization;
    char *toolbox; /* the option, or NULL */
    char *target, *image, *snapshot;

    pthread_mutex_t lock;
    struct fetch_hub *hub; /* made with the first command */
};

static inline struct daytona *daytona_of(const struct provider *provider)
{
    return provider->impl;
}

/* ---- daytona.c ---- */
int daytona_check_id(const struct daytona *daytona, struct str id, struct error *err);
/* Where a sandbox's own envd answers: "https://host/toolbox/ID". Appended to out. */
int daytona_toolbox(struct daytona *daytona, const struct provider_ref *ref, struct buf *out,
                    struct error *err);
/* Key and organisation, for requests made without rest_call(). */
size_t daytona_headers(const struct daytona *daytona, struct pair out[REST_HEADERS_MAX]);

/* ---- daytona_machine.c ---- */
int daytona_create(struct provider *provider, const struct provider_spec *spec, struct arena *arena,
                   struct provider_sandbox *out, struct error *err);
int daytona_find(struct provider *provider, const struct provider_query *query, struct arena *arena,
                 struct provider_sandbox **out, size_t *out_count, struct error *err);
int daytona_get(struct provider *provider, const struct provider_ref *ref, struct arena *arena,
                struct provider_sandbox *out, struct error *err);
int daytona_connect(struct provider *provider, const struct provider_ref *ref, int64_t ttl_s,
                    struct arena *arena, struct provider_sandbox *out, struct error *err);
int daytona_pause(struct provider *provider, const struct provider_ref *ref, struct error *err);
int daytona_kill(struct provider *provider, const struct provider_ref *ref, struct error *err);
int daytona_extend(struct provider *provider, const struct provider_ref *ref, int64_t ttl_s,
                   struct error *err);
int daytona_snapshot(struct provider *provider, const struct provider_ref *ref, const char *name,
                     struct arena *arena, struct str *out, struct error *err);
int daytona_snapshot_delete(struct provider *provider, struct str team_id, struct str snapshot,
                            struct error *err);

/* ---- daytona_exec.c ---- */
int daytona_start(struct provider *provider, const struct provider_ref *ref,
                  const struct provider_command *command, struct provider_process **out,
                  struct error *err);
/* The words of a command so that a shell reads exactly them. */
void daytona_quote(struct buf *out, const char *const *argv);

/* ---- daytona_files.c ---- */
int daytona_address(struct provider *provider, const struct provider_ref *ref, uint16_t port,
                    struct arena *arena, struct provider_address *out, struct error *err);
int daytona_read(struct provider *provider, const struct provider_ref *ref, const char *path,
                 provider_sink_fn *sink, void *arg, struct error *err);
int daytona_write(struct provider *provider, const struct provider_ref *ref, const char *path,
                  provider_source_fn *source, void *arg, int64_t length, struct error *err);
int daytona_list(struct provider *provider, const struct provider_ref *ref, const char *path,
                 struct arena *arena, struct provider_file **out, size_t *out_count,
                 struct error *err);
int daytona_remove(struct provider *provider, const struct provider_ref *ref, const char *path,
                   struct error *err);
