/* The commands of this folder. */
#pragma once

#include "cli/core/cli_command.h"

extern const struct cli_command cli_run_command, cli_exec_command, cli_create_command;
extern const struct cli_command cli_ls_command, cli_show_command, cli_rm_command, cli_cp_command;
extern const struct cli_command cli_key_command, cli_template_command, cli_audit_command;
extern const struct cli_command cli_runner_command, cli_job_command, cli_forward_command;
extern const struct cli_command cli_snapshot_command, cli_session_command, cli_provider_command;
extern const struct cli_command cli_profile_command, cli_tls_command, cli_logs_command;
extern const struct cli_command cli_secret_command, cli_login_command, cli_context_command;
extern const struct cli_command cli_volume_command, cli_webhook_command, cli_team_command;
extern const struct cli_command cli_extend_command, cli_fork_command, cli_top_command;
extern const struct cli_command cli_man_command, cli_open_command, cli_prune_command;
extern const struct cli_command cli_stats_command, cli_completion_command;
