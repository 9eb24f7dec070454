#include "cli/core/cli_find.h"

#include <assert.h>
#include <string.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/near.h"

enum { WORD_MAX = 32 };

static const struct cli_command *const none[] = {NULL};
const struct cli_command *cli_commands[CLI_COMMANDS_MAX];
const struct cli_command *const *cli_roles = none;

void cli_commands_set(const struct cli_command *const *commands,
                      const struct cli_command *const *roles)
{
    size_t count = 0;

    for (; commands[count]; count++) {
        assert(count + 1 < CLI_COMMANDS_MAX);
        cli_commands[count] = commands[count];
    }
    cli_commands[count] = NULL;
    cli_roles = roles ? roles : none;
}

/* What users of docker, kubectl and E2B's own command line type. */
const struct cli_alias cli_aliases[] = {
    {"ps", "ls"},
    {"list", "ls"},
    {"kill", "rm"},
    {"stop", "pause"},
    {"start", "resume"},
    {"inspect", "show"},
    {"log", "logs"},
    {"images", "template ls"},
    {"shell", "pty"},
    {"connect", "pty"},
    {"build", "template build"},
    {NULL, NULL},
};

static const char *last_word(const struct cli_command *command)
{
    const char *blank = strchr(command->name, ' ');

    return blank ? blank + 1 : command->name;
}

const struct cli_command *cli_find(const struct cli_command *const *table, const char *name)
{
    for (; *table; table++)
        if (strcmp(last_word(*table), name) == 0)
            return *table;
    return NULL;
}

const struct cli_command *cli_find_first(const char *name, const struct cli_command **out_group)
{
    const struct cli_command *found = cli_find(cli_commands, name);

    *out_group = NULL;
    if (!found)
        found = cli_find(cli_roles, name);
    for (const struct cli_alias *alias = cli_aliases; !found && alias->name; alias++) {
        struct str rest = str_of(alias->command);
        auto_free char *first = str_dup(str_split(&rest, ' '));

        if (strcmp(alias->name, name) != 0)
            continue;
        found = cli_find(cli_commands, first);
        if (found && rest.p) {
            *out_group = found;
            found = cli_find(found->verbs, rest.p);
        }
    }
    return found;
}

/* "sl" for "ls". */
static bool is_swap(const char *a, const char *b)
{
    return strlen(b) == 2 && a[0] == b[1] && a[1] == b[0];
}

/* Words of which one begins the other count as near when there is enough of them; of two letters one is half, so only a
 * swap is near. */
void cli_guess_try(struct cli_guess *guess, const char *candidate)
{
    size_t len = strlen(guess->word), changes;

    if (len < 2 || len > WORD_MAX || strlen(candidate) > WORD_MAX)
        return;
    changes = near_changes(str_of(guess->word), str_of(candidate));
    if (len >= 3 && strncmp(guess->word, candidate, len) == 0)
        changes = 1;
    if (changes > near_allowed(len) || changes >= strlen(candidate) ||
        (len == 2 && !is_swap(guess->word, candidate)) ||
        (guess->best && changes >= guess->changes))
        return;
    guess->best = candidate;
    guess->changes = changes;
}

const char *cli_guess_command(const struct cli_command *const *table, bool first, const char *word)
{
    struct cli_guess guess = {.word = word};

    for (; *table; table++)
        cli_guess_try(&guess, last_word(*table));
    for (const struct cli_command *const *role = cli_roles; first && *role; role++)
        cli_guess_try(&guess, (*role)->name);
    for (const struct cli_alias *alias = cli_aliases; first && alias->name; alias++)
        cli_guess_try(&guess, alias->name);
    return guess.best;
}

void cli_options_visit(const struct cli *cli, const struct cli_command *command,
                       void (*visit)(void *arg, const struct cli_option *option), void *arg)
{
    struct cli other = {.data_dir = cli->data_dir, .visit = visit, .visit_arg = arg};
    auto_free char *name = xstrdup(command->name);

    (void)command->run(&other, 1, (char *[]){name, NULL});
}
