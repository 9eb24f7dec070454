/* A row of the table of commands, and what it is run with. */
#pragma once

#include <stdbool.h>

#include "base/error.h"
#include "cli/core/cli_args.h"
#include "cli/core/cli_client.h"

/* The last one is what a program ends with that SIGPIPE has ended. */
enum { CLI_OK = 0, CLI_FAILED = 1, CLI_USAGE = 2, CLI_BROKEN_PIPE = 141 };

struct cli {
    bool json;            /* --json: print JSON */
    const char *url;      /* --url */
    const char *data_dir; /* --data, $QUICKSAND_DATA or CLI_DATA_DIR */
    struct cli_server server;
    char **names; /* ids that were looked up: cli_names.h */
    size_t name_count;
    /* When set, cli_args() only tells the options of the command that is to run. */
    void (*visit)(void *arg, const struct cli_option *option);
    void *visit_arg;
};

typedef int cli_command_fn(struct cli *cli, int argc, char **argv);

struct cli_command {
    const char *name;
    const char *operands; /* for the usage line */
    const char *help;
    cli_command_fn *run;
    /* Instead of run: commands whose names are two words; ended by NULL. */
    const struct cli_command *const *verbs;
    const char *examples; /* lines, or NULL */
};

/* Prints "quicksand: MESSAGE" and returns CLI_FAILED; nothing when it is only that nobody reads our
 * output any more. */
int cli_fail(const struct error *err);
/* Prints what is wrong with the command line and returns CLI_USAGE. */
int cli_usage(const struct cli_command *command, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* Fills cli->server; to be called before the first request of a command. */
int cli_connect(struct cli *cli, struct error *err);

#define CLI_DATA_DIR   "/var/lib/quicksand"
#define CLI_STORE_FILE "store/quicksand.db" /* in the data directory */

/* All commands, in the order of --help; ended by NULL. */
enum { CLI_COMMANDS_MAX = 96 };
extern const struct cli_command *cli_commands[CLI_COMMANDS_MAX];
/* What the program does besides; listed with the commands in help, completions and manual pages. Ended by NULL. */
extern const struct cli_command *const *cli_roles;
/* Before all else; roles may be NULL. cli_open() of cli/main brings the commands. */
void cli_commands_set(const struct cli_command *const *commands,
                      const struct cli_command *const *roles);

/* Those of this folder. */
extern const struct cli_command cli_events_command, cli_pause_command, cli_pty_command;
extern const struct cli_command cli_resume_command, cli_up_command, cli_url_command;

/* A command of an extra, or ("tls acme") a verb, and which one it stands in front of; NULL = the last. */
struct cli_place {
    const struct cli_command *command;
    const char *before;
};
/* Ended by one without a command; before cli_main(). */
void cli_add(const struct cli_place *places);
