/* Shared by the commands. */
#pragma once

#include <stdbool.h>

#include "cli/core/cli_args.h"
#include "cli/core/cli_client.h"
#include "cli/core/cli_command.h"

#define CLI_DATA_DIR   "/var/lib/quicksand"
#define CLI_STORE_FILE "store/quicksand.db" /* in the data directory */

/* All of them; ended by NULL. */
enum { CLI_COMMANDS_MAX = 96 };
extern const struct cli_command *cli_commands[CLI_COMMANDS_MAX];

/* The rows of the table in cli.c, by group. */
extern const struct cli_command cli_run_command, cli_exec_command, cli_create_command;
extern const struct cli_command cli_ls_command, cli_show_command, cli_rm_command;
extern const struct cli_command cli_cp_command, cli_key_command, cli_template_command;
extern const struct cli_command cli_doctor_command, cli_audit_command, cli_runner_command;
extern const struct cli_command cli_up_command, cli_pause_command, cli_resume_command;
extern const struct cli_command cli_url_command, cli_pty_command, cli_job_command;
extern const struct cli_command cli_forward_command;
extern const struct cli_command cli_snapshot_command, cli_session_command, cli_events_command;
extern const struct cli_command cli_provider_command, cli_profile_command, cli_tls_command;
extern const struct cli_command cli_logs_command, cli_secret_command;
extern const struct cli_command cli_login_command, cli_context_command;
extern const struct cli_command cli_volume_command, cli_webhook_command, cli_team_command;
extern const struct cli_command cli_extend_command, cli_fork_command, cli_top_command;
extern const struct cli_command cli_man_command, cli_open_command;
extern const struct cli_command cli_prune_command, cli_stats_command, cli_completion_command;
