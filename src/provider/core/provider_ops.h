/* What a type of provider is made of: for those that implement one. */
#pragma once

#include "provider/core/provider.h"

struct envd_place;

/* Entries that are NULL are capabilities the type lacks. */
struct provider_ops {
    const char *type;
    bool no_limits, no_disk_limit; /* what it cannot enforce */
    /* Reads config->options, sets provider->caps (and ->impl). */
    int (*open)(struct provider *provider, const struct provider_config *config, struct error *err);
    void (*close)(struct provider *provider);

    void (*about)(const struct provider *provider, struct provider_about *out);
    int64_t (*ttl_max)(const struct provider *provider);
    int (*check)(struct provider *provider, struct error *err);
    int (*create)(struct provider *provider, const struct provider_spec *spec, struct arena *arena,
                  struct provider_sandbox *out, struct error *err);
    int (*find)(struct provider *provider, const struct provider_query *query, struct arena *arena,
                struct provider_sandbox **out, size_t *out_count, struct error *err);
    int (*get)(struct provider *provider, const struct provider_ref *ref, struct arena *arena,
               struct provider_sandbox *out, struct error *err);
    int (*connect)(struct provider *provider, const struct provider_ref *ref, int64_t ttl_s,
                   struct arena *arena, struct provider_sandbox *out, struct error *err);
    int (*pause)(struct provider *provider, const struct provider_ref *ref, struct error *err);
    int (*kill)(struct provider *provider, const struct provider_ref *ref, struct error *err);
    int (*extend)(struct provider *provider, const struct provider_ref *ref, int64_t ttl_s,
                  struct error *err);
    int (*snapshot)(struct provider *provider, const struct provider_ref *ref, const char *name,
                    struct arena *arena, struct str *out, struct error *err);
    int (*snapshot_delete)(struct provider *provider, struct str team_id, struct str snapshot,
                           struct error *err);
    int (*address)(struct provider *provider, const struct provider_ref *ref, uint16_t port,
                   struct arena *arena, struct provider_address *out, struct error *err);
    int (*usage)(struct provider *provider, const struct provider_ref *ref,
                 struct provider_usage *out, struct error *err);
    int (*traffic)(struct provider *provider, const struct provider_ref *ref,
                   struct provider_traffic *out, struct error *err);
    int (*ports)(struct provider *provider, const struct provider_ref *ref,
                 struct provider_ports *out, struct error *err);
    /* Where the envd of a machine is, for kinds that have one (provider/envd/envd_machine.h). */
    int (*envd)(struct provider *provider, const struct provider_ref *ref, struct envd_place *place,
                struct error *err);
    int (*start)(struct provider *provider, const struct provider_ref *ref,
                 const struct provider_command *command, struct provider_process **out,
                 struct error *err);
    int (*attach)(struct provider *provider, const struct provider_ref *ref, const char *tag,
                  int64_t pid, struct provider_process **out, struct error *err);
    int (*read)(struct provider *provider, const struct provider_ref *ref, const char *path,
                provider_sink_fn *sink, void *arg, struct error *err);
    int (*write)(struct provider *provider, const struct provider_ref *ref, const char *path,
                 provider_source_fn *source, void *arg, int64_t length, struct error *err);
    int (*list)(struct provider *provider, const struct provider_ref *ref, const char *path,
                struct arena *arena, struct provider_file **out, size_t *out_count,
                struct error *err);
    int (*remove)(struct provider *provider, const struct provider_ref *ref, const char *path,
                  struct error *err);
};

struct provider_process_ops {
    int (*next)(struct provider_process *process, uint32_t timeout_ms, struct provider_event *out,
                struct error *err);
    struct provider_wait (*wait)(struct provider_process *process);
    int (*input)(struct provider_process *process, struct str data, struct error *err);
    int (*close_stdin)(struct provider_process *process, struct error *err);
    int (*resize)(struct provider_process *process, uint16_t cols, uint16_t rows,
                  struct error *err);
    int (*signal)(struct provider_process *process, int signal, struct error *err);
    void (*cancel)(struct provider_process *process);
    void (*free)(struct provider_process *process);
};

struct provider {
    const struct provider_ops *ops;
    char name[64];
    struct provider_caps caps;
    struct fetch *fetch;
    char *secret; /* its key, for provider.c only; NULL or "" = none */
    void *impl;
    struct provider *_Atomic successor; /* provider_replace(); NULL = none */
};

/* The first member of a type's own process. */
struct provider_process {
    const struct provider_process_ops *ops;
    const char *provider_name; /* for messages */
};

/* What is known of a type before a provider of it is opened. */
struct provider_type {
    const struct provider_ops *ops;
    const char *const *aliases; /* other names of the type, NULL-terminated; or NULL */
    const char *const *members; /* of a record in the configuration, besides those of all types */
    const struct provider_env *envs; /* NULL-terminated; or NULL */
    const char *key_env;             /* environment variable with the API key; or NULL */
    bool remote; /* a service elsewhere: needs a key, and exists as soon as there is one */
};

/* An environment variable that fills a member which a record lacks. */
struct provider_env {
    const char *env, *member;
};

extern const struct provider_type provider_type_e2b, provider_type_docker, provider_type_process;

/* Sets the types that this program has, NULL-terminated; before the first use of any of them. */
void provider_types_set(const struct provider_type *const *all);
/* By name or alias; NULL when this program has no such type. */
const struct provider_type *provider_type_find(const char *name);
/* ERROR_INVALID with the reason: unknown, or not built in. */
int provider_type_unknown(const char *name, struct error *err);
/* All of them, NULL-terminated. */
const struct provider_type *const *provider_types_all(void);

/* provider_new() for one kind. */
int provider_open(const struct provider_ops *ops, const struct provider_config *config,
                  struct provider **out, struct error *err);

/* The names of provider.h back to bits; false for unknown ones. */
bool provider_feature_parse(struct str name, unsigned *out);
bool provider_egress_parse(struct str name, unsigned *out);
