/* Shared by the commands. */
#pragma once

#include <stdbool.h>

#include "base/error.h"
#include "cli/core/cli_args.h"
#include "cli/core/cli_client.h"
#include "cli/core/cli_command.h"

#define CLI_DATA_DIR   "/var/lib/quicksand"
#define CLI_STORE_FILE "store/quicksand.db" /* in the data directory */

/* All of them; ended by NULL. */
extern const struct cli_command *const cli_commands[];

/* Prints "quicksand: MESSAGE" and returns CLI_FAILED; nothing when it is only that nobody reads our
 * output any more. */
int cli_fail(const struct error *err);
/* Prints what is wrong with the command line and returns CLI_USAGE. */
int cli_usage(const struct cli_command *command, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* Fills cli->server; to be called before the first request of a command. */
int cli_connect(struct cli *cli, struct error *err);

/* The rows of the table in cli.c, by group. */
extern const struct cli_command cli_run_command, cli_exec_command, cli_create_command,
    cli_code_command;
extern const struct cli_command cli_ls_command, cli_show_command, cli_rm_command;
extern const struct cli_command cli_cp_command, cli_key_command, cli_template_command;
extern const struct cli_command cli_doctor_command, cli_audit_command, cli_runner_command;
extern const struct cli_command cli_up_command, cli_pause_command, cli_resume_command;
extern const struct cli_command cli_url_command, cli_pty_command, cli_job_command;
extern const struct cli_command cli_forward_command, cli_ssh_command, cli_ssh_config_command;
extern const struct cli_command cli_ssh_proxy_command;
extern const struct cli_command cli_snapshot_command, cli_session_command, cli_events_command;
extern const struct cli_command cli_provider_command, cli_profile_command, cli_tls_command;
extern const struct cli_command cli_logs_command, cli_secret_command, cli_mcp_command;
extern const struct cli_command cli_login_command, cli_context_command;
extern const struct cli_command cli_volume_command, cli_webhook_command, cli_team_command;
extern const struct cli_command cli_extend_command, cli_fork_command, cli_top_command;
extern const struct cli_command cli_desktop_command, cli_man_command, cli_open_command;
extern const struct cli_command cli_browser_command;
extern const struct cli_command cli_prune_command, cli_stats_command, cli_completion_command;
