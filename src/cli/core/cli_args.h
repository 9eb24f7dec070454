/* Options of a command, as a table. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cli;
struct cli_command;

enum cli_option_kind {
    CLI_FLAG,   /* bool */
    CLI_TEXT,   /* const char * */
    CLI_NUMBER, /* int64_t, not negative */
    CLI_COUNT,  /* int64_t, at least 1 */
    CLI_LIST,   /* struct cli_list; may be given several times */
    CLI_TIME,   /* int64_t, seconds: "90", "90s", "30m", "24h", "7d"; at least 1 */
    CLI_TIME_0, /* the same, or 0 */
    CLI_MB,     /* int64_t, MiB: "512", "512m", "2g"; at least 1 */
    CLI_MB_MAX, /* the same, or 0: no limit */
};

struct cli_list {
    const char **items;
    size_t count;
};

struct cli_option {
    const char *name; /* without "--"; NULL ends the table */
    char letter;      /* 0 = none */
    enum cli_option_kind kind;
    void *out;
    const char *value; /* what the value is called in the help; NULL for flags */
    const char *help;
};

enum cli_args_mode {
    CLI_ARGS_ANYWHERE, /* options may stand behind operands, "--" ends them */
    CLI_ARGS_FIRST,    /* the first operand ends the options */
};

enum { CLI_ARGS_RUN = -1 };

/* argv[0] is the command's name. The options every command has (--json, --url, --help) are known
 * here. Returns CLI_ARGS_RUN when the command is to run (operands are then argv[0..*out_count) of
 * *out_operands), else the exit status. */
int cli_args(struct cli *cli, const struct cli_command *command, const struct cli_option *options,
             enum cli_args_mode mode, int argc, char **argv, char ***out_operands, int *out_count);
/* What --help prints. */
void cli_help(const struct cli *cli, const struct cli_command *command);
/* The option of this command line that a message is about: one whose value it quotes, or whose member of a request it names;
 * NULL when there is none, or the message names it itself. */
const char *cli_args_blame(const char *message);
void cli_list_done(struct cli_list *list);
#define auto_cli_list __attribute__((cleanup(cli_list_done)))
/* Megabytes of "512", "512m", "2g"; more than none. */
bool cli_mb_parse(const char *text, int64_t *out_mb);
/* Seconds of "90", "90s", "30m", "24h", "7d". */
bool cli_time_parse(const char *text, int64_t *out_s);
