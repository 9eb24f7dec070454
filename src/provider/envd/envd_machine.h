/* Commands, files and ports of machines that have an envd: entries for the table of a kind, which says
 * only where that envd is (provider_ops.envd) and how the machine is (provider_ops.get). */
#pragma once

#include "protocol/envd/envd_client.h"
#include "provider/core/provider_ops.h"

/* An envd's address and the memory of its strings. */
struct envd_place {
    struct envd_address address; /* fetch, who, base and the caller's token are there already */
    struct arena arena;
    char base[512], socket[128];
};

/* Asks for the token when the caller has none: a machine may have been found by its labels. */
int envd_place_token(struct provider *provider, const struct provider_ref *ref,
                     struct envd_place *place, struct error *err);

/* provider_start() and the others, at an address. */
int envd_place_start(const struct envd_address *address, const struct provider_command *command,
                     struct provider_process **out, struct error *err);
int envd_place_attach(const struct envd_address *address, const char *tag, int64_t pid,
                      struct provider_process **out, struct error *err);
int envd_place_list(const struct envd_address *address, const char *path, struct arena *arena,
                    struct provider_file **out, size_t *out_count, struct error *err);

int envd_machine_start(struct provider *provider, const struct provider_ref *ref,
                       const struct provider_command *command, struct provider_process **out,
                       struct error *err);
int envd_machine_attach(struct provider *provider, const struct provider_ref *ref, const char *tag,
                        int64_t pid, struct provider_process **out, struct error *err);
int envd_machine_read(struct provider *provider, const struct provider_ref *ref, const char *path,
                      provider_sink_fn *sink, void *arg, struct error *err);
int envd_machine_write(struct provider *provider, const struct provider_ref *ref, const char *path,
                       provider_source_fn *source, void *arg, int64_t length, struct error *err);
int envd_machine_list(struct provider *provider, const struct provider_ref *ref, const char *path,
                      struct arena *arena, struct provider_file **out, size_t *out_count,
                      struct error *err);
int envd_machine_remove(struct provider *provider, const struct provider_ref *ref, const char *path,
                        struct error *err);

/* A port behind a proxy of ours at server: by headers for us, by name under domain for people. */
void envd_machine_address(const char *server, const char *domain, struct str id, uint16_t port,
                          struct arena *arena, struct provider_address *out);
