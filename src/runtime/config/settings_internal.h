/* Shared by the files that read the configuration. */
#pragma once

#include "runtime/config/config.h"
#include "runtime/core/settings.h"

struct loader {
    runtime_getenv_fn *get;
    const struct runtime_self *self; /* or NULL */
    struct runtime_settings *out;
    struct buf *faults; /* "path: what is wrong\n" ... */
    json_t *file;       /* object; empty when there is no file */
};

/* One more fault; path is printf-like in the first argument only. */
void loader_fault(struct loader *loader, const char *path, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Set and not empty; else NULL. */
const char *loader_env(const struct loader *loader, const char *name);
/* Integer of the environment, or *out stays. */
void loader_env_int(struct loader *loader, const char *name, int64_t min, int64_t max,
                    int64_t *out);
/* Integer member; path names the object ("" = the top level). */
void loader_int(struct loader *loader, const json_t *object, const char *path, const char *key,
                int64_t min, int64_t max, int64_t *out);
/* Number of seconds, fractions allowed, as milliseconds. */
void loader_seconds(struct loader *loader, const json_t *object, const char *path, const char *key,
                    int64_t max_s, int64_t *out_ms);
void loader_bool(struct loader *loader, const json_t *object, const char *path, const char *key,
                 bool *out);
/* String member that replaces *out. */
void loader_text(struct loader *loader, const json_t *object, const char *path, const char *key,
                 char **out);
/* The member when it is an object, else NULL (and a fault when it is something else). */
json_t *loader_object(struct loader *loader, const json_t *object, const char *path,
                      const char *key);
/* A fault for each key that is not in the list (NULL at its end). */
void loader_known(struct loader *loader, const json_t *object, const char *path,
                  const char *const *known);
/* The secret behind "env:NAME", "file:/path" or a literal; malloc()ed; NULL after a fault. */
char *loader_secret(struct loader *loader, const char *path, struct str reference);

/* settings_provider.c */
void loader_providers(struct loader *loader);
/* settings_profile.c */
void loader_profiles(struct loader *loader);
/* settings_host.c */
void loader_git_hosts(struct loader *loader);
/* settings_execution.c: rewrites "execution" into providers, profiles and agents. */
void loader_execution(struct loader *loader);
