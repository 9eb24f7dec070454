/* The table of commands takes those of extras: a command stands in front of the one that is named, a verb in a copy of
 * its group. */
#include <assert.h>

#include "base/alloc.h"
#include "cli/core/cli_command.h"
#include "cli/core/cli_find.h"

/* table: ended by NULL, with room for one more. */
static void insert(const struct cli_command **table, const struct cli_place *place)
{
    const struct cli_command *before = place->before ? cli_find(table, place->before) : NULL;
    size_t count = 0, at;

    while (table[count])
        count++;
    for (at = 0; before && table[at] != before; at++)
        ;
    if (!before)
        at = count;
    memmove(&table[at + 1], &table[at], (count + 1 - at) * sizeof(*table));
    table[at] = place->command;
}

static char *operands(const struct cli_command *const *verbs)
{
    char *out = NULL;

    for (; *verbs; verbs++) {
        char *was = out;

        out = was ? xasprintf("%s, %s", was, strchr((*verbs)->name, ' ') + 1)
                  : xstrdup(strchr((*verbs)->name, ' ') + 1);
        free(was);
    }
    return out;
}

/* Of `tls acme`: a group `tls` with one verb more. It lives as long as the program. */
static void add_verb(const struct cli_place *place)
{
    struct str rest = str_of(place->command->name), first = str_split(&rest, ' ');
    const struct cli_command **at = cli_commands, **verbs;
    struct cli_command *group = xmalloc(sizeof(*group));
    size_t count = 0;

    while (*at && !str_is(first, (*at)->name))
        at++;
    assert(*at && (*at)->verbs);
    while ((*at)->verbs[count])
        count++;
    verbs = xcalloc(count + 2, sizeof(*verbs));
    memcpy(verbs, (*at)->verbs, count * sizeof(*verbs));
    insert(verbs, place);
    *group = **at;
    group->verbs = verbs;
    group->operands = operands(verbs);
    *at = group;
}

void cli_add(const struct cli_place *places)
{
    size_t count = 0;

    for (; places->command; places++) {
        if (strchr(places->command->name, ' ')) {
            add_verb(places);
            continue;
        }
        for (count = 0; cli_commands[count]; count++)
            ;
        assert(count + 1 < CLI_COMMANDS_MAX);
        insert(cli_commands, places);
    }
}
