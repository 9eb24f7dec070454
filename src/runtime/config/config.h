/* Reads the runtime's configuration (settings.h). */
#pragma once

#include "base/buf.h"
#include "runtime/core/settings.h"

typedef const char *runtime_getenv_fn(const char *name);

/* The server whose configuration it is. A provider that leads back to it becomes its engine. */
struct runtime_self {
    /* api_url, domain: of a record of type e2b, "" = not said; then only the key can tell. */
    bool (*is_self)(void *arg, const char *api_url, const char *domain, const char *api_key);
    void *arg;
};

/* file: the text, or STR_NONE when there is no file. self: NULL when this is no server. -1 with one
 * fault per line in out_faults. */
int runtime_settings_load(struct str file, runtime_getenv_fn *get, const struct runtime_self *self,
                          struct runtime_settings *out, struct buf *out_faults);
/* "e2b, the engine of this server (…)": which provider is used when nobody names one, where it is and
 * why it is this one. *out_remote: what it makes is elsewhere. */
void runtime_settings_default(const struct runtime_settings *settings, struct buf *out,
                              bool *out_remote);
void runtime_settings_done(struct runtime_settings *settings);
