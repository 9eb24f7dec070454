/* Commands in a sandbox, and its files. */
#pragma once

#include "runtime/run/run.h"

int runtime_exec(struct runtime *runtime, const struct runtime_caller *caller, struct str id,
                 const struct runtime_command *command, struct runtime_result *out,
                 struct error *err);

/* ---- files ---- */

int runtime_file_read(struct runtime *runtime, const struct runtime_caller *caller, struct str id,
                      const char *path, provider_sink_fn *sink, void *arg, struct error *err);
int runtime_file_write(struct runtime *runtime, const struct runtime_caller *caller, struct str id,
                       const char *path, provider_source_fn *source, void *arg, int64_t length,
                       struct error *err);
int runtime_file_list(struct runtime *runtime, const struct runtime_caller *caller, struct str id,
                      const char *path, struct arena *arena, struct provider_file **out,
                      size_t *out_count, struct error *err);
int runtime_file_remove(struct runtime *runtime, const struct runtime_caller *caller, struct str id,
                        const char *path, struct error *err);

/* Terminals: opened and closed with sandboxes. */
int terminals_open(struct runtime *runtime, struct error *err);
void terminals_close(struct runtime *runtime);
