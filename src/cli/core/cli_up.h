/* What is asked for when a sandbox of the runtime is made; shared by up, run and session new. */
#pragma once

#include "cli/core/cli_command.h"

struct cli_up {
    const char *profile, *provider, *template_name, *agent_type, *network;
    const char *peers; /* "NETWORK" or "NETWORK/NAME" */
    const char *key, *agent_id, *task_id, *snapshot;
    struct cli_list env, metadata, env_files;
    int64_t idle_s, timeout_s;       /* 0 = not said */
    int64_t expire_s, lifetime_s;    /* the same */
    int64_t cpu, memory_mb, disk_mb; /* the same */
    const char *repo, *branch, *workspace_root;
    bool persistent;
};

/* Body of the request, or NULL with err or (wrong use) with *out_status. */
json_t *cli_up_body(const struct cli_command *command, const struct cli_up *up, int *out_status);
void cli_up_done(struct cli_up *up);
