/* Sandboxes by what people call them: an id, the beginning of one, a key, or the label "name". */
#pragma once

#include "cli/core/cli_command.h"

struct cli_wanted {
    const char *state;    /* NULL: all that are not killed */
    const char *agent_id; /* NULL: of any */
    const char *team;     /* NULL: the own; "*": all */
    bool ports;           /* each with its member "ports" */
};
/* In one array, newest first, or NULL with err. */
json_t *cli_sandboxes(struct cli *cli, const struct cli_wanted *wanted, struct error *err);

/* Is it a whole id, or key:KEY, so that nobody has to be asked which one is meant? */
bool cli_name_is_id(struct str word);
/* The one of rows (as cli_sandboxes() gives them) that is called so: its id, or NULL with err. */
const char *cli_name_find(const json_t *rows, const char *word, struct error *err);
/* The same, asking the server when the word is no id. Lives as long as cli; NULL with err. */
const char *cli_name_id(struct cli *cli, const char *word, struct error *err);
/* Of what the E2B API asks for: also key:KEY becomes an id. */
const char *cli_name_engine_id(struct cli *cli, const char *word, struct error *err);
/* cli_connect(), and words[0..count) replaced by ids. */
int cli_connect_to(struct cli *cli, char **words, int count, struct error *err);
